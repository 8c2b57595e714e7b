//! Why a payload cannot be read.

/// An error in a payload.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PayloadError {
    /// The payload is no Protocol Buffers message of Sparkplug B.
    #[error("this is no Sparkplug B payload: {0}")]
    Malformed(String),
    /// The payload has more parts than this many.
    #[error("the payload has more than {0} parts")]
    TooManyParts(usize),
    /// Templates and property sets lie in each other more deeply than this many levels.
    #[error("the payload is nested more than {0} levels deep")]
    TooDeep(usize),
    /// The JSON of the payload would be larger than this many bytes.
    #[error("the payload takes more than {0} bytes as JSON")]
    TooLarge(usize),
}
