//! Why a command of the controller fails.

use std::io;
use std::path::{Path, PathBuf};

/// The reason for which a command of the controller fails. Each message names the place and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum ScaleError {
    /// The site file is wrong.
    #[error("{0}")]
    Site(String),
    /// A file cannot be used.
    #[error("{what} {path}: {error}", path = .path.display())]
    File {
        /// Action that failed, such as "cannot read".
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

impl ScaleError {
    pub(crate) fn file(what: &'static str, path: &Path, error: io::Error) -> Self {
        Self::File { what, path: path.to_owned(), error }
    }

    pub(crate) fn other(text: impl Into<String>) -> Self {
        Self::Other(text.into())
    }
}
