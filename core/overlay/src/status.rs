//! The state that an algorithm shows in listings. Nothing decides by it.

use sedge_base::NodeId;
use sedge_mqtt::{TopicFilter, TopicName};

use crate::SkipGraphView;

/// The trees and tables of an algorithm, as one node knows them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// The trees that this node is part of: one, or one for each topic.
    pub trees: Vec<TreeView>,
    /// Topics that clients of this node publish to and that other nodes know of.
    pub advertised: Table<TopicName>,
    /// Those of them that nobody elsewhere wants, so that nothing is sent for them (SG-10); of a Skip Graph only.
    pub suspended: Table<TopicName>,
    /// The advertisement routing table (SRT): where the publishers of a topic are.
    pub adverts: Table<AdvertLine>,
    /// The subscription table of publications that pass here (PRT): filters and the nodes that want them.
    pub interest: Table<InterestLine>,
    /// The part of a Skip Graph that this node holds.
    pub graph: Option<SkipGraphView>,
    /// Counters from the start on, with names in `snake_case`.
    pub counters: Vec<(&'static str, u64)>,
}

/// Some lines of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table<T> {
    /// The first lines, in order.
    pub lines: Vec<T>,
    /// How many lines the table has.
    pub total: usize,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { lines: Vec::new(), total: 0 }
    }
}

/// A tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeView {
    /// The topic of the tree; none if it is for all topics.
    pub topic: Option<TopicName>,
    /// Number of the computation of the tree that is in use.
    pub epoch: u64,
    /// Whether that computation is the last one; otherwise the members are about to agree on the next.
    pub complete: bool,
    /// The root of the tree.
    pub root: NodeId,
    /// All nodes, in order of their ids.
    pub nodes: Vec<TreeNode>,
}

/// A node of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeNode {
    /// Id of the node.
    pub node: NodeId,
    /// The next node on the way to the root; none for the root.
    pub parent: Option<NodeId>,
    /// The way from the root, in microseconds of round trips, as the node has last told; none if it is not known.
    pub cost: Option<u32>,
    /// Capacity of the node, as it has last told.
    pub capability: u64,
}

/// A line of the advertisement routing table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AdvertLine {
    /// A topic.
    pub topic: TopicName,
    /// A node whose clients publish to it.
    pub origin: NodeId,
    /// The neighbour towards it.
    pub next: NodeId,
}

/// A line of the subscription table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InterestLine {
    /// A filter.
    pub filter: TopicFilter,
    /// A node whose clients subscribe to it; this node itself for its own clients.
    pub node: NodeId,
    /// The neighbour towards it, or this node itself.
    pub next: NodeId,
}
