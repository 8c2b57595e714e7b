//! Errors between a client and a broker.

use std::io;

use sedge_mqtt::{DecodeError, PacketKind, ReasonCode, Version};

use super::reason::reason_words;
use crate::failure::{FAILED, Failure};

/// Why a conversation with a broker ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    #[error("cannot connect to {server}: {source}; is a broker running there?")]
    Unreachable { server: String, source: io::Error },
    #[error("the broker refused the connection: {}", with_text(*reason, text.as_deref()))]
    Refused { reason: ReasonCode, version: Version, text: Option<String> },
    #[error("the broker ended the connection: {}", with_text(*reason, text.as_deref()))]
    Disconnected { reason: ReasonCode, text: Option<String> },
    #[error("the connection was closed by the broker")]
    Closed,
    #[error("the connection was lost: {0}")]
    Io(io::Error),
    #[error("the broker did not answer {0} within {1} s")]
    NoAnswer(&'static str, u64),
    #[error("the broker sent something that is not MQTT: {0}")]
    Decode(#[from] DecodeError),
    #[error("the broker sent {0:?}, which does not belong here")]
    Unexpected(PacketKind),
    #[error("{0}")]
    Unsuitable(String),
}

fn with_text(reason: ReasonCode, text: Option<&str>) -> String {
    let words = reason_words(reason);
    text.map_or_else(|| words.clone(), |text| format!("{words}: {text}"))
}

impl ClientError {
    /// Whether the same conversation may go well when it is started again.
    pub(crate) const fn is_passing(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Closed | Self::Io(_) | Self::NoAnswer(..) => true,
            Self::Refused { reason, .. } | Self::Disconnected { reason, .. } => matches!(
                reason,
                ReasonCode::ServerUnavailable
                    | ReasonCode::ServerBusy
                    | ReasonCode::ServerShuttingDown
                    | ReasonCode::UseAnotherServer
                    | ReasonCode::ConnectionRateExceeded
                    | ReasonCode::KeepAliveTimeout
                    | ReasonCode::MaximumConnectTime
            ),
            Self::Decode(_) | Self::Unexpected(_) | Self::Unsuitable(_) => false,
        }
    }

    /// As `mosquitto_pub` and `mosquitto_sub` do it: a refusal ends with the code of the CONNACK.
    const fn exit_code(&self) -> u8 {
        match self {
            Self::Refused { reason, version: Version::V5, .. } => reason.as_u8(),
            Self::Refused { reason, version: Version::V311, .. } => reason.v311_connect_code(),
            Self::Unreachable { .. }
            | Self::Disconnected { .. }
            | Self::Closed
            | Self::Io(_)
            | Self::NoAnswer(..)
            | Self::Decode(_)
            | Self::Unexpected(_)
            | Self::Unsuitable(_) => FAILED,
        }
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        Self::new(error.exit_code(), error.to_string())
    }
}
