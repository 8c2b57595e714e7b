//! Bridges to other services.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The bridges of the configuration.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct BridgeList {
    /// By name.
    pub bridges: Vec<Bridge>,
    /// Names of members that did not answer in time.
    #[serde(default)]
    pub silent: Vec<String>,
}

/// A bridge to another service. Counters are those of the node that was asked since its start, or of all members together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Bridge {
    /// Its name in the configuration.
    pub name: String,
    /// What is at the other end: `mqtt` or `kafka`.
    pub kind: String,
    /// Which way messages go: `out`, `in` or `both`.
    pub direction: String,
    /// `running`, `down` (the other end cannot be reached), `elsewhere` (another node runs it) or `waiting`.
    pub state: String,
    /// Id of the node that runs it.
    pub node: Option<String>,
    /// Name of that node.
    pub node_name: Option<String>,
    /// The address that it is connected to.
    pub address: Option<String>,
    /// Messages that the other end does not have yet.
    pub lag: u64,
    /// Bytes of those that wait in the queue.
    pub lag_bytes: u64,
    /// Most messages that waited at once since the bridge fell behind; what waits for less than two seconds is not behind.
    pub lag_most: u64,
    /// How many seconds the oldest message has waited.
    pub waits_seconds: u64,
    /// Messages that the other end has acknowledged.
    pub messages_out: u64,
    /// Bytes of payloads sent there, repetitions included.
    pub bytes_out: u64,
    /// Messages from the other end.
    pub messages_in: u64,
    /// Bytes of their payloads.
    pub bytes_in: u64,
    /// Messages with too many hops, without a name at the other end, or too large for it.
    pub dropped: u64,
    /// Messages that the receiving end refused for good.
    pub refused: u64,
    /// Messages that a rule has kept.
    pub kept: u64,
    /// Messages not sent again, since a committed transaction had brought them to Kafka.
    pub repeats: u64,
    /// QoS 2 messages whose handshake the other end had forgotten.
    pub forgotten: u64,
    /// Connections to the other end.
    pub connects: u64,
    /// Connections that were lost, and attempts that failed.
    pub failures: u64,
    /// What went wrong last, since the start of the node that runs it.
    pub last_error: Option<String>,
}
