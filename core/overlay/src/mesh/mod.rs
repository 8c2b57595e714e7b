//! The default algorithm: every node knows every node's subscriptions, and a publication needs one hop.

mod config;

pub use config::MeshConfig;

use sedge_base::{Instant, NodeId, Now, Seed};
use sedge_mqtt::TopicName;

use crate::{HopSet, Input, Output, Overlay, RouteEntry};

/// Subscription flooding on a full mesh.
#[derive(Debug)]
pub struct Mesh {
    me: NodeId,
    config: MeshConfig,
}

impl Mesh {
    /// The mesh as node `me` sees it: nobody else yet.
    pub fn new(me: NodeId, config: MeshConfig, _seed: Seed) -> Self {
        Self { me, config }
    }

    /// How many changes counted as settled only because [`MeshConfig::settle_timeout`] had passed.
    pub fn late_settlements(&self) -> u64 {
        0
    }
}

impl Overlay for Mesh {
    fn name(&self) -> &'static str {
        "mesh"
    }

    fn handle(&mut self, _now: Now, _input: Input) {}

    fn handle_timeout(&mut self, _now: Now) {}

    fn poll_output(&mut self) -> Option<Output> {
        None
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn next_hops(&mut self, _topic: &TopicName, _origin: NodeId, _from: Option<NodeId>, _hops: &mut HopSet) {}

    fn broadcast_hops(&mut self, _origin: NodeId, _from: Option<NodeId>, _hops: &mut HopSet) {}

    fn hop_towards(&self, _node: NodeId) -> Option<NodeId> {
        None
    }

    fn routes(&self, _offset: usize, _limit: usize) -> Vec<RouteEntry> {
        Vec::new()
    }

    fn route_count(&self) -> usize {
        0
    }
}
