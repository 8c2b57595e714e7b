//! Links that operators choose.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Links of a node (`/api/v1/neighbours`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Neighbours {
    /// `mesh`: each node has a link to each other; `manual`: publications go only over links that operators have chosen.
    pub links: String,
    /// Cooperation algorithm.
    pub overlay: String,
    /// QoS of publications between nodes: `as-published`, `0`, `1` or `2`.
    pub link_qos: String,
    /// Connections with each neighbour that this node dials.
    #[serde(default)]
    pub link_connections: u8,
    /// Which of them a publication takes: `publisher`, the same for all of one publisher, or `round-robin`.
    #[serde(default)]
    pub link_order: String,
    /// Whether all linked nodes know what was chosen here, and route by it.
    pub agreed: bool,
    /// The links.
    pub neighbours: Vec<Neighbour>,
}

/// A link of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Neighbour {
    /// The other end; none where no node has answered at the address.
    pub node: Option<String>,
    /// Where it listens for other nodes.
    pub address: Option<String>,
    /// Whether an operator has chosen it at this node.
    pub chosen_here: bool,
    /// Whether an operator has chosen it at the other end.
    pub chosen_there: bool,
    /// The link, if it is up.
    pub link: Option<Link>,
}

/// A link that is up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Link {
    /// The node that carries it, where the path between the two hosts is broken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<String>,
    /// Connections that it has.
    #[serde(default)]
    pub connections: usize,
    /// Round trip in microseconds, smoothed; 0 until measured.
    pub rtt_micros: u32,
    /// Version of the link protocol that both sides speak.
    pub protocol: u32,
    /// Whether both sides know each other's tables.
    pub synced: bool,
    /// Frames sent and not acknowledged.
    pub unacknowledged: usize,
    /// Publications sent.
    pub publications_sent: u64,
    /// Publications received.
    pub publications_received: u64,
    /// Bytes sent.
    pub bytes_sent: u64,
    /// Bytes received.
    pub bytes_received: u64,
}
