//! From text to rules.

use core::fmt;

use crate::Rules;
use crate::index::{Effects, Index, MAX_LEVELS};
use crate::pattern::wrong_filter;

/// Fault of one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleError {
    /// Number of the line, counted from 1.
    pub line: u32,
    /// Description of the fault and of the text to write instead.
    pub what: String,
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

/// Everything that is wrong with a text, in the order of its lines; at least one entry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct ParseRulesError(pub Vec<RuleError>);

/// Clients that the following lines are for.
enum Section {
    Anonymous,
    User(Box<str>),
    Client(Box<str>),
}

impl Rules {
    /// Reads rules, one a line:
    ///
    /// ```text
    /// # For clients without a user name, until the first section:
    /// topic read public/#
    /// user anna
    /// topic readwrite home/anna/#
    /// topic deny home/anna/secret
    /// client gateway-7
    /// topic write raw/#
    /// # For everybody, in whatever section it stands; %c is the client id, %u the user name:
    /// pattern write devices/%c/state
    /// ```
    ///
    /// Without `read`, `write`, `readwrite` or `deny` a line means `readwrite`. A filter reaches to the end of its line and may
    /// hold blanks.
    pub fn parse(text: &str) -> Result<Self, ParseRulesError> {
        let mut rules = Self::default();
        let mut section = Section::Anonymous;
        let mut errors = Vec::new();
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        for (number, line) in (1_u32..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if let Err(what) = rules.line(&mut section, number, line) {
                errors.push(RuleError { line: number, what });
            }
        }
        if errors.is_empty() { Ok(rules) } else { Err(ParseRulesError(errors)) }
    }

    fn line(&mut self, section: &mut Section, number: u32, line: &str) -> Result<(), String> {
        let (word, rest) = word(line);
        match word {
            "user" | "client" if rest.is_empty() => {
                return Err(format!("'{word}' needs a name behind it"));
            }
            "user" => *section = Section::User(rest.into()),
            "client" => *section = Section::Client(rest.into()),
            "topic" => {
                let (effects, filter) = rule(number, rest)?;
                self.section(section).insert(filter, &effects, false);
            }
            "pattern" => {
                let (effects, filter) = rule(number, rest)?;
                self.patterns.insert(filter, &effects, true);
            }
            word => {
                return Err(format!(
                    "{word:?} is no rule: a line starts with 'user', 'client', 'topic' or 'pattern', or with '#' if it is a comment"
                ));
            }
        }
        Ok(())
    }

    fn section(&mut self, section: &Section) -> &mut Index {
        match section {
            Section::Anonymous => &mut self.anonymous,
            Section::User(name) => self.users.entry(name.clone()).or_default(),
            Section::Client(name) => self.clients.entry(name.clone()).or_default(),
        }
    }
}

/// Splits `[access] filter`.
fn rule(line: u32, text: &str) -> Result<(Effects, &str), String> {
    let (first, rest) = word(text);
    let here = Some(line);
    let known = match first {
        "read" => Some(Effects { receive: here, ..Effects::default() }),
        "write" => Some(Effects { publish: here, ..Effects::default() }),
        "readwrite" => Some(Effects { publish: here, receive: here, deny: None }),
        "deny" => Some(Effects { deny: here, ..Effects::default() }),
        _ => None,
    };
    // A single word is a filter, even if it reads like an access.
    let (effects, filter) = match known {
        Some(effects) if !rest.is_empty() => (effects, rest),
        _ => (Effects { publish: here, receive: here, deny: None }, text),
    };
    if let Some(what) = wrong_filter(filter) {
        return Err(format!("{filter:?}: {what}"));
    }
    if filter.split('/').count() > MAX_LEVELS {
        return Err(format!("the topic filter has more than {MAX_LEVELS} levels"));
    }
    Ok((effects, filter))
}

fn word(text: &str) -> (&str, &str) {
    text.split_once([' ', '\t']).map_or((text, ""), |(word, rest)| (word, rest.trim_start()))
}
