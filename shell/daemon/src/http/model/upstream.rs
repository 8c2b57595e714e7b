//! Foreign brokers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A broker behind a node, or beside it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UpstreamStatus {
    /// Where it is, as configured.
    pub address: String,
    /// How the node stands to it: `proxy`, `mirror` or `sniff`.
    pub mode: String,
    /// Whether it takes connections.
    pub up: bool,
    /// Seconds since it does, or does not.
    pub since_seconds: u64,
    /// Make and version as it says itself in `$SYS/broker/version`, else as `upstream.make` has them.
    pub version: Option<String>,
    /// The newest protocol it has: `5.0` or `3.1.1`.
    pub protocol: String,
    /// Why the last connection to it ended or could not be made.
    pub last_error: Option<String>,
    /// Conversations with it, those of the node itself included.
    pub conversations: usize,
    /// Publications that it has not acknowledged, or that wait for it.
    pub unacknowledged: usize,
    /// Deliveries that it has not made yet.
    pub expected: usize,
    /// Publications given to it.
    pub published: u64,
    /// Publications that it refused.
    pub refused: u64,
    /// Publications that found no room while it was away.
    pub dropped: u64,
    /// Deliveries of what this node gave to it.
    pub delivered: u64,
    /// Deliveries of what came from elsewhere: retained messages, clients of its own.
    pub foreign: u64,
    /// Deliveries made from the node's copy, since the broker could not make them.
    pub covered: u64,
    /// Deliveries that it never made although it was there.
    pub withheld: u64,
    /// With `mirror`: what was compared.
    #[serde(default)]
    pub mirror: Option<Mirror>,
    /// With `sniff`: what was read off the wire.
    #[serde(default)]
    pub sniff: Option<Sniff>,
}

/// For a broker that does not say its make, nor does the configuration.
pub const UNKNOWN_MAKE: &str = "of unknown make";

impl UpstreamStatus {
    /// Its make and version, in words.
    pub fn make(&self) -> &str {
        self.version.as_deref().unwrap_or(UNKNOWN_MAKE)
    }
}

/// What a node beside a broker has read off the wire.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Sniff {
    /// Connections with the broker that are followed.
    pub followed: usize,
    /// Filters that the broker's clients want.
    pub filters: usize,
    /// Publications of other nodes that went to the broker.
    pub replayed: u64,
    /// Publications that did not go to the other nodes.
    pub dropped: u64,
    /// Bytes that the kernel keeps for packets that wait to be read.
    pub kernel_bytes: usize,
    /// `segments`, `connections`, `blind`, `holes`, `encrypted`, `own`, `publications`, `malformed`, `filters_dropped`.
    pub counted: BTreeMap<String, u64>,
}

/// How deliveries of a broker and of a node beside it compare.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Mirror {
    /// Deliveries of the broker that the node has made likewise.
    pub alike: u64,
    /// Differences, by kind: `missing`, `extra`, `qos`, `retain`, `order`.
    pub differences: BTreeMap<String, u64>,
    /// Deliveries that could not be compared: while subscriptions began, when a connection ended, or for want of room.
    pub uncompared: u64,
    /// How often the comparison has begun.
    pub begun: u64,
    /// The last 100 differences, oldest first.
    pub last: Vec<MirrorDifference>,
}

/// A difference between a broker and a node beside it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MirrorDifference {
    /// In what they differ.
    pub kind: String,
    /// How many seconds ago.
    pub seconds: u64,
    /// The filter that it came by.
    pub filter: String,
    /// Its topic.
    pub topic: String,
    /// What either has delivered.
    pub detail: String,
}
