//! Listings of a sidecar: the broker and the conversations.

use sedge_base::{ClientId, Instant};
use sedge_mqtt::Version;

/// The broker as the sidecar sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BrokerStatus {
    /// Whether an inlet is connected.
    pub is_up: bool,
    /// Time since which an inlet is connected, or none is.
    pub since: Instant,
    /// Version of the broker, as `$SYS/broker/version` gives it.
    pub version: Option<String>,
    /// Whether the broker has no MQTT 5.0.
    pub only_311: bool,
    /// Reason why the last connection ended or could not be made.
    pub last_error: Option<String>,
}

/// One conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConversationStatus {
    /// The client; `None`: an inlet.
    pub client: Option<ClientId>,
    /// Whether the broker has accepted the conversation.
    pub is_open: bool,
    /// Protocol version of the conversation.
    pub version: Version,
    /// Filters of the conversation that the broker has.
    pub filters: usize,
    /// Publications that wait for the broker's answer.
    pub unanswered: usize,
    /// Publications that wait to be sent.
    pub waiting: usize,
    /// Deliveries expected of the broker.
    pub expected: usize,
}
