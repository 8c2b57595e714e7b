//! What is wrong with a rule, and where.

/// One thing that is wrong with a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {what}")]
pub struct RuleError {
    /// Which key of the rule, such as `where`, `select.mean` or `from[1]`; empty: the rule as a whole.
    pub key: String,
    /// Where in its text, in bytes, if the key holds one.
    pub at: Option<usize>,
    /// Whether it is the key itself that is wrong, and not its value.
    pub of_key: bool,
    /// What is wrong with it and what to do.
    pub what: String,
}

impl RuleError {
    pub(crate) fn new(key: impl Into<String>, what: impl Into<String>) -> Self {
        Self { key: key.into(), at: None, of_key: false, what: what.into() }
    }
}

/// What is wrong with a text, and at which of its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) at: usize,
    pub(crate) what: String,
}

impl Fault {
    pub(crate) fn new(at: usize, what: impl Into<String>) -> Self {
        Self { at, what: what.into() }
    }

    pub(crate) fn of(self, key: impl Into<String>) -> RuleError {
        RuleError { key: key.into(), at: Some(self.at), of_key: false, what: self.what }
    }
}
