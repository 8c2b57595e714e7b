//! Why a bridge does not run at present.

use std::io;

use sedge_mqtt::{DecodeError, PacketKind, ReasonCode};

/// Why a bridge does not run at present.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BridgeError {
    #[error("cannot reach {address}: {source}")]
    Unreachable { address: String, source: io::Error },
    #[error("{end} refused the connection: {}", words(*reason, text.as_deref()))]
    Refused { end: &'static str, reason: ReasonCode, text: Option<String> },
    #[error("{end} ended the connection: {}", words(*reason, text.as_deref()))]
    Disconnected { end: &'static str, reason: ReasonCode, text: Option<String> },
    #[error("{end} closed the connection")]
    Closed { end: &'static str },
    #[error("the connection to {end} was lost: {source}")]
    Io { end: &'static str, source: io::Error },
    #[error("{end} did not answer {what} within {seconds} s")]
    NoAnswer { end: &'static str, what: &'static str, seconds: u64 },
    #[error("{end} sent something that is not MQTT: {source}")]
    Decode { end: &'static str, source: DecodeError },
    #[error("{end} sent {kind:?}, which does not belong here")]
    Unexpected { end: &'static str, kind: PacketKind },
    #[error("{end} refused the subscription to {filter}: {}", words(*reason, None))]
    NotSubscribed { end: &'static str, filter: String, reason: ReasonCode },
    #[error("{end} takes no message at present: {}", words(*reason, None))]
    Busy { end: &'static str, reason: ReasonCode },
    #[cfg(feature = "kafka")]
    #[error("{0}")]
    Kafka(String),
    #[error("TLS: {0}")]
    Tls(String),
    #[error("cannot open a connection within the node: {0}")]
    Inside(io::Error),
    #[error("{0}")]
    Program(String),
    #[error("{0}")]
    File(String),
}

/// A reason as a person reads it: `NotAuthorized (0x87): text`.
fn words(reason: ReasonCode, text: Option<&str>) -> String {
    let words = format!("{reason:?} (0x{:02x})", reason.as_u8());
    text.map_or_else(|| words.clone(), |text| format!("{words}: {}", sedge_base::printable(text)))
}
