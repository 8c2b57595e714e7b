//! Sessions of clients.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Some of the sessions of a node (`GET /api/v1/sessions`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Sessions {
    /// How many there are in all, as far as they match the question.
    pub total: usize,
    /// How many come before the first of these.
    pub offset: usize,
    /// The most that were asked for.
    pub limit: usize,
    /// The sessions.
    pub sessions: Vec<Session>,
    /// What to give as `cursor` for those that follow; absent at the end.
    pub next: Option<String>,
    /// Names of the members that were asked and have not answered in time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub silent: Vec<String>,
}

/// A session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Session {
    /// The client.
    pub client: String,
    /// Whether it has a connection.
    pub connected: bool,
    /// Its address while it is connected.
    pub peer: Option<String>,
    /// User name that its transport has proven (certificate), while it is connected.
    pub user: Option<String>,
    /// `3.1.1` or `5.0` (`3.1` for very old clients).
    pub protocol: String,
    /// Id of the node that it is at.
    #[serde(default)]
    pub node: String,
    /// Name of that node.
    #[serde(default)]
    pub name: String,
    /// Make and version of the broker behind that node, if there is one.
    #[serde(default)]
    pub broker: Option<String>,
    /// Which shard it is on.
    pub shard: u16,
    /// Which ownership in the cluster it is.
    pub epoch: u64,
    /// Whether the session ends with the connection.
    pub clean: bool,
    /// Seconds the session outlives the connection; 4294967295: for ever.
    pub expiry_seconds: u32,
    /// Keep alive; 0: none.
    pub keep_alive_seconds: u16,
    /// When it lost its connection, in milliseconds since 1970.
    pub disconnected_at_ms: Option<u64>,
    /// Its subscriptions; from another node only as many as fit into 31 KiB.
    pub subscriptions: Vec<Subscription>,
    /// How many there are.
    #[serde(default)]
    pub subscriptions_total: usize,
    /// Messages that wait for it.
    pub queued_messages: usize,
    /// Bytes of them.
    pub queued_bytes: usize,
    /// QoS 1 and 2 messages sent to it and not acknowledged.
    pub inflight: usize,
    /// QoS 2 publications of its own that are not completed.
    pub incoming_qos2: usize,
    /// Whether there is a will.
    pub will: bool,
    /// PUBLISH packets of the client since its CONNECT, while it is connected.
    #[serde(default)]
    pub messages_received: u64,
    /// PUBLISH packets for the client since its CONNECT, while it is connected.
    #[serde(default)]
    pub messages_sent: u64,
    /// A topic of at most 256 bytes that it has published to lately, while it is connected.
    #[serde(default)]
    pub topic: Option<String>,
}

/// A subscription.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Subscription {
    /// The whole filter, `$share/group/` included.
    pub filter: String,
    /// Highest QoS of deliveries.
    pub qos: u8,
    /// Subscription identifier.
    pub id: Option<u32>,
}
