//! What listings show of a sidecar.

use sedge_base::{ClientId, Instant};
use sedge_mqtt::Version;

/// The broker as the sidecar sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BrokerStatus {
    /// Whether an inlet is connected.
    pub is_up: bool,
    /// Since when it is, or is not.
    pub since: Instant,
    /// What the broker says in `$SYS/broker/version`.
    pub version: Option<String>,
    /// Whether the broker has no MQTT 5.0.
    pub only_311: bool,
    /// Why the last connection ended or could not be made.
    pub last_error: Option<String>,
}

/// One conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConversationStatus {
    /// The client; `None`: an inlet.
    pub client: Option<ClientId>,
    /// Whether the broker has accepted it.
    pub is_open: bool,
    /// Its protocol version.
    pub version: Version,
    /// Filters that the broker has of it.
    pub filters: usize,
    /// Publications that wait for the broker's answer.
    pub unanswered: usize,
    /// Publications that wait to be sent.
    pub waiting: usize,
    /// Deliveries expected of the broker.
    pub expected: usize,
}
