//! Settings of the topic trees.

use sedge_base::Duration;

/// Below this a signal is mostly overhead.
const MIN_SIGNAL_BYTES: usize = 1024;
/// With the longest possible entry behind it a signal still fits 1 MiB.
const MAX_SIGNAL_BYTES: usize = 768 * 1024;

/// How the members of a tree choose its root (overlay-trees section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RootPolicy {
    /// The member with the highest capacity, the lowest address between equals (TR-20). One root, and so one tree, for each set
    /// of members.
    Capacity,
    /// The member with the lowest `gamma * R + delta * N`, where R is how many topics are rooted there and N how many clients are
    /// connected to it; the lowest address between equals (TR-21). Each topic has a root of its own; topics that have members and
    /// root in common share a tree.
    Balance {
        /// Weight of a topic that is rooted at a node.
        gamma: u32,
        /// Weight of a client that is connected to it.
        delta: u32,
    },
}

impl RootPolicy {
    /// Balance with the usual weights: a topic counts as much as ten clients.
    pub const BALANCE: Self = Self::Balance { gamma: 10, delta: 1 };
}

/// Settings of [`super::TopicTree`].
#[derive(Clone, Copy, Debug)]
pub struct TopicTreeConfig {
    /// How roots are chosen; the same at all nodes.
    pub roots: RootPolicy,
    /// A node stops being a publisher of a topic when none of its clients has published it for so long.
    pub idle: Duration,
    /// How many topics a node announces as publisher. Publications to further ones go to all nodes, until others have become idle.
    pub max_topics: usize,
    /// How many topics of others a node keeps. Publications to further ones go straight to their destinations.
    pub max_heard_topics: usize,
    /// How many trees a node keeps. Publications to topics of further ones go straight to their destinations.
    pub max_trees: usize,
    /// How many of its links a node tells the others of, so that with N nodes each keeps N times as many: those to nodes with which it has
    /// topics in common come first, then the shortest. Publications over others go straight to their destinations.
    pub max_links: usize,
    /// How long changes of members, links and loads gather before roots are elected and round trips are told (the source's `T_t`).
    pub collect: Duration,
    /// After this time a change counts as settled even if a neighbour has not confirmed it.
    pub settle_timeout: Duration,
    /// From this size on a signal is not filled further, in bytes. 1 KiB to 768 KiB; other values are brought into this range.
    pub signal_bytes: usize,
    /// The time between two digests of signals that a node sends to each neighbour (FT-15: 10 s).
    pub refresh: Duration,
    /// The interest of a node is forgotten when it has sent no digest for this long, linked or not (FT-16: three missed refreshes).
    pub lease: Duration,
}

impl Default for TopicTreeConfig {
    fn default() -> Self {
        Self {
            roots: RootPolicy::Capacity,
            idle: Duration::from_mins(10),
            max_topics: 10_000,
            max_heard_topics: 100_000,
            max_trees: 1_000,
            max_links: 128,
            collect: Duration::from_millis(250),
            settle_timeout: Duration::from_secs(2),
            signal_bytes: 64 * 1024,
            refresh: Duration::from_secs(10),
            lease: Duration::from_secs(30),
        }
    }
}

impl TopicTreeConfig {
    pub(super) fn signal_limit(&self) -> usize {
        self.signal_bytes.clamp(MIN_SIGNAL_BYTES, MAX_SIGNAL_BYTES)
    }
}
