//! All members of a cluster.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{DeadMember, Totals};

/// All members, each as it describes itself (`GET /api/v1/members`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Members {
    /// Id of the node that was asked.
    pub node: String,
    /// Name of the cluster.
    pub cluster: String,
    /// Those that have answered, the node that was asked included, by name.
    pub members: Vec<MemberSummary>,
    /// Those that have not answered in time.
    pub silent: Vec<SilentMember>,
    /// Members that died a short while ago.
    pub dead: Vec<DeadMember>,
}

/// A member that has answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MemberSummary {
    /// Whether it is the node that was asked.
    pub this: bool,
    /// Where it listens for other nodes.
    pub address: String,
    /// By how many milliseconds its system clock is ahead of that of the node that was asked.
    pub clock_ahead_ms: Option<i64>,
    /// Round trip to it in microseconds; 0 until measured, absent without a link.
    pub rtt_micros: Option<u32>,
    /// What it says about itself.
    #[serde(flatten)]
    pub summary: Summary,
}

/// What a node says about itself in a line of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Summary {
    /// Id of the node, 16 hexadecimal digits.
    pub node: String,
    /// Its name.
    pub name: String,
    /// Which life of it.
    pub incarnation: u64,
    /// Version of the program.
    pub version: String,
    /// Make and version of the broker behind it or beside it, if there is one.
    #[serde(default)]
    pub broker: Option<String>,
    /// `discovery`, `recovery`, `normal` or `leaving`.
    pub state: String,
    /// Whether it is ready for clients.
    pub ready: bool,
    /// Why it is not.
    pub not_ready: Vec<String>,
    /// What an operator should care about although the node serves.
    pub warnings: Vec<String>,
    /// Seconds since its start.
    pub uptime_seconds: u64,
    /// What survives a restart: `memory` (nothing), `journal` or `fsync`.
    pub durability: String,
    /// Bytes that are free where its data directory is; absent without one.
    pub disk_free_bytes: Option<u64>,
    /// Subscriptions of its sessions.
    pub subscriptions: u64,
    /// Retained messages.
    pub retained: usize,
    /// One number for all of them: equal at two nodes that hold the same.
    pub retained_digest: String,
    /// Whether it says good-bye.
    pub stopping: bool,
    /// What it has counted.
    pub totals: Totals,
}

/// A member that has not answered in time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SilentMember {
    /// Its id.
    pub node: String,
    /// Its name; its id where it has not said one.
    pub name: String,
    /// Where it listens for other nodes.
    pub address: String,
    /// Whether a link to it is up.
    pub linked: bool,
}
