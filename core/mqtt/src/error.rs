//! Errors in the bytes that a peer sends.

use crate::{InvalidTopicFilter, InvalidTopicName, ReasonCode};

/// Why bytes are no packet. The connection they came from is to be closed (MQTT 5.0 section 4.13), in 5.0 with
/// [`DecodeError::reason_code`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes do not follow the format of the packet.
    #[error("malformed packet: {0}")]
    Malformed(&'static str),
    /// The packet can be read but breaks a rule of the protocol.
    #[error("protocol error: {0}")]
    Protocol(&'static str),
    /// The packet announces more bytes than may come.
    #[error("packet of {size} bytes where {limit} are allowed")]
    PacketTooLarge {
        /// Announced size of the whole packet in bytes.
        size: u32,
        /// Largest size in bytes.
        limit: u32,
    },
    /// A CONNECT for neither 3.1.1 nor 5.0. Below level 5 the answer is a 3.1.1 CONNACK with return code 1.
    #[error("this is neither MQTT 3.1.1 nor 5.0: wrong protocol name, or level {level}")]
    UnsupportedProtocolVersion {
        /// Protocol level the client asked for.
        level: u8,
    },
    /// A topic alias of 0.
    #[error("topic alias 0")]
    TopicAliasInvalid,
    /// A topic name with a wildcard, or otherwise unusable.
    #[error("invalid topic name: {0}")]
    TopicName(InvalidTopicName),
    /// A topic filter with a misplaced wildcard, or otherwise unusable.
    #[error("invalid topic filter: {0}")]
    TopicFilter(InvalidTopicFilter),
}

impl DecodeError {
    /// The reason code for the DISCONNECT or CONNACK that ends the connection.
    pub const fn reason_code(self) -> ReasonCode {
        match self {
            Self::Malformed(_)
            | Self::TopicName(InvalidTopicName::Text(_) | InvalidTopicName::Empty)
            | Self::TopicFilter(InvalidTopicFilter::Text(_) | InvalidTopicFilter::Empty) => ReasonCode::MalformedPacket,
            Self::Protocol(_) => ReasonCode::ProtocolError,
            Self::PacketTooLarge { .. } => ReasonCode::PacketTooLarge,
            Self::UnsupportedProtocolVersion { .. } => ReasonCode::UnsupportedProtocolVersion,
            Self::TopicAliasInvalid => ReasonCode::TopicAliasInvalid,
            Self::TopicName(InvalidTopicName::Wildcard) => ReasonCode::TopicNameInvalid,
            Self::TopicFilter(
                InvalidTopicFilter::MultiLevel | InvalidTopicFilter::SingleLevel | InvalidTopicFilter::Share,
            ) => ReasonCode::TopicFilterInvalid,
        }
    }
}

impl From<InvalidTopicName> for DecodeError {
    fn from(error: InvalidTopicName) -> Self {
        Self::TopicName(error)
    }
}

impl From<InvalidTopicFilter> for DecodeError {
    fn from(error: InvalidTopicFilter) -> Self {
        Self::TopicFilter(error)
    }
}
