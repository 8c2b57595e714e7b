//! The nodes of a tree.

use std::collections::BTreeMap;

use sedge_base::NodeId;

use super::Rank;
use super::cost::Edge;

#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    pub(super) rank: Rank,
    pub(super) edge: Edge,
    pub(super) linked: bool,
}

impl Member {
    pub(super) const fn new(rank: Rank) -> Self {
        Self { rank, edge: Edge::UNMEASURED, linked: true }
    }
}

/// All members but this node.
pub(super) type Members = BTreeMap<NodeId, Member>;
