//! Where a node tells about itself: topics below `$SYS`, as far as the machines treat them in their own way.
//!
//! Their values are held apart from the retained messages: they count against no limit of those, are compared with nobody, and
//! leave the node only where somebody subscribes to them.

use sedge_base::Duration;
use sedge_broker::RetainedConfig;
use sedge_mqtt::{TopicFilter, TopicName};

/// The topics by which a node describes itself to its own clients; every node has its own values there.
pub const HERE: &str = "$SYS/broker/";
/// Followed by the name of a node, the beginning of topics with which that node tells clients of every node of itself.
pub const EVERYWHERE: &str = "$SYS/brokers/";

const ROOT: &str = "$SYS/";

/// Limits of the values, of this node and of others to which clients here subscribe.
pub(crate) const LIMITS: RetainedConfig = RetainedConfig {
    max_messages: 100_000,
    max_bytes: 32 * 1024 * 1024,
    tombstones: Duration::from_secs(1),
    agreed_tombstones: Duration::from_secs(1),
};

/// Whether a publication tells about a node.
pub(crate) fn tells_of_a_node(topic: &TopicName) -> bool {
    topic.as_str().starts_with(ROOT)
}

/// Whether a publication is for clients of this node only.
pub(crate) fn stays_here(topic: &TopicName) -> bool {
    topic.as_str().starts_with(HERE)
}

/// Whether a filter can match what tells about a node: wildcards do not match a first level with `$`.
pub(crate) fn asks_for_a_node(filter: &TopicFilter) -> bool {
    filter.as_str().starts_with(ROOT)
}
