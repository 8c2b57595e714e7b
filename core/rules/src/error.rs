//! Mistakes in a rule and their places.

/// One thing that is wrong with a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {what}")]
pub struct RuleError {
    /// Key of the rule with the mistake, such as `where`, `select.mean` or `from[1]`; empty: the rule as a whole.
    pub key: String,
    /// Place of the mistake in the key's text, in bytes, if the key holds a text.
    pub at: Option<usize>,
    /// Whether the key itself is wrong, and not its value.
    pub of_key: bool,
    /// The mistake in words, and how to mend it.
    pub what: String,
}

impl RuleError {
    pub(crate) fn new(key: impl Into<String>, what: impl Into<String>) -> Self {
        Self { key: key.into(), at: None, of_key: false, what: what.into() }
    }
}

/// A mistake in a text, and the byte at which it lies.
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
