//! Faults of a configuration: the place, the fault, and the name that was probably meant.

use std::fmt;
use std::path::PathBuf;

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A file, at line and column counted from 1.
    File {
        /// The file.
        path: PathBuf,
        /// Line.
        line: usize,
        /// Column in characters.
        column: usize,
    },
    /// An environment variable.
    Env(String),
    /// A command-line flag.
    Flag(String),
    /// The file as a whole.
    Path(PathBuf),
    /// No single place: values that do not go together.
    Together,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, line, column } => write!(f, "{}:{line}:{column}", path.display()),
            Self::Env(name) => write!(f, "environment variable {name}"),
            Self::Flag(name) => f.write_str(name),
            Self::Path(path) => write!(f, "{}", path.display()),
            Self::Together => f.write_str("configuration"),
        }
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Place of the fault.
    pub origin: Origin,
    /// The key, as `section.key`; empty if no key is concerned.
    pub key: String,
    /// Description of the fault.
    pub what: String,
    /// The valid name that is nearest to what was written.
    pub nearest: Option<String>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.origin)?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.what)?;
        match &self.nearest {
            Some(nearest) => write!(f, "; did you mean {nearest}?"),
            None => Ok(()),
        }
    }
}

/// Everything that is wrong with a configuration, one line each.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct ConfigError {
    /// The faults; at least one entry.
    pub problems: Vec<Problem>,
}

impl ConfigError {
    /// Exit code of a program whose configuration is wrong.
    pub const EXIT_CODE: u8 = 2;
}
