//! How a command ends when it does not end well.

use std::io;

/// The command was tried and failed.
pub(crate) const FAILED: u8 = 1;
/// The command line or the configuration is wrong.
pub(crate) const USAGE: u8 = 2;
/// A server could not be started.
pub(crate) const CANNOT_START: u8 = 3;

/// An exit code and, unless there is nothing to say, one message for the person at the terminal.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    pub(crate) message: Option<String>,
}

impl Failure {
    pub(crate) fn new(code: u8, message: impl Into<String>) -> Self {
        Self { code, message: Some(message.into()) }
    }

    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self::new(FAILED, message)
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(USAGE, message)
    }

    pub(crate) fn cannot_start(message: impl Into<String>) -> Self {
        Self::new(CANNOT_START, message)
    }

    /// Ends the program without a word.
    pub(crate) const fn silent(code: u8) -> Self {
        Self { code, message: None }
    }

    /// A failed write to standard output. A reader that has gone away (`sedge sub | head -1`) has all that it wanted.
    pub(crate) fn output(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::silent(0);
        }
        Self::failed(format!("cannot write to standard output: {error}"))
    }
}
