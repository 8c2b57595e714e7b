//! Why a benchmark could not be run.

use std::io;
use std::path::PathBuf;

/// Why a benchmark could not be run. A broker that is slow or loses messages is a result, not an error.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The command line or the scenario asks for something that makes no sense; the text says what.
    #[error("{0}")]
    Usage(String),
    /// A scenario or broker file cannot be read.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A scenario or broker file does not say what it should.
    #[error("{path}: {source}")]
    Toml {
        /// The file.
        path: PathBuf,
        /// Where and why.
        source: Box<toml::de::Error>,
    },
    /// A host name has no address.
    #[error("no address for {0}")]
    NoAddress(String),
    /// The load generator itself failed; the text says where.
    #[error("load generator: {0}")]
    Driver(String),
    /// A broker could not be started or was not ready in time.
    #[error("{0}")]
    Broker(String),
    /// An emulated network could not be made, or does not do what it was asked for; the text says why.
    #[error("emulated network: {0}")]
    Network(String),
    /// The operating system refused something the load generator needs.
    #[error("{what}: {source}")]
    System {
        /// The operation that failed.
        what: &'static str,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The report could not be written.
    #[error("writing the report: {0}")]
    Write(#[from] io::Error),
}

impl BenchError {
    /// Wraps an error of the operating system with what was tried.
    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { what, source }
    }
}
