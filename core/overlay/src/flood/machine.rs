//! The machine.

use core::net::SocketAddr;

use sedge_base::{Instant, NodeId, Now, Rng};
use sedge_mqtt::{TopicFilter, TopicName};

use crate::backbone::Backbone;
use crate::status::Topology;
use crate::trunk::TrunkCounters;
use crate::{Advertised, Input, MeshConfig, MeshCounters, Output, Overlay, RouteEntry};

/// Counters of [`Flood`], from its start on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FloodCounters {
    /// Counters of the mesh for interest that every node tells every other.
    pub shared: MeshCounters,
    /// Counters of the tree.
    pub tree: TrunkCounters,
}

/// Flooding along a tree (overlay-trees section 7, "flooding stays available").
#[derive(Debug)]
pub struct Flood {
    backbone: Backbone,
    everything: Option<TopicFilter>,
    /// The owner knows that every publication is to be handed over.
    told: bool,
}

impl Flood {
    /// Flooding as node `me` sees it, which listens for links at `address` as other nodes know it: no other node is known yet. `config` is
    /// for the information that every node tells every other. `rng` makes hash collisions unpredictable for clients.
    pub fn new(me: NodeId, address: SocketAddr, config: MeshConfig, rng: Rng) -> Self {
        let backbone = Backbone::new(me, address, config, rng);
        Self { backbone, everything: TopicFilter::new("#").ok(), told: false }
    }

    /// The counters so far.
    pub fn counters(&self) -> FloodCounters {
        FloodCounters { shared: self.backbone.shared.counters(), tree: self.backbone.trunk.counters() }
    }

    fn lines(&self) -> impl Iterator<Item = RouteEntry> {
        let members = self.backbone.trunk.members();
        let everything = members.zip(core::iter::repeat(&self.everything));
        let lines =
            everything.filter_map(|(node, filter)| Some(RouteEntry { node, client: None, filter: filter.clone()? }));
        self.backbone.routes(lines)
    }
}

impl Overlay for Flood {
    fn name(&self) -> &'static str {
        "flood"
    }

    fn relays(&self) -> bool {
        true
    }

    fn handle(&mut self, now: Now, input: Input) {
        if let Some((from, _)) = self.backbone.handle(now, input) {
            self.backbone.refuse(now, from, "a signal of no known part".to_owned());
        }
    }

    fn handle_timeout(&mut self, now: Now) {
        self.backbone.trunk.handle_timeout(now.instant);
        self.backbone.shared.handle_timeout(now);
    }

    fn poll_output(&mut self) -> Option<Output> {
        if !core::mem::replace(&mut self.told, true)
            && let Some(filter) = self.everything.clone()
        {
            return Some(Output::Table(Advertised::Remote { filter, wanted: true }));
        }
        self.backbone.poll_output()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        [self.backbone.trunk.poll_timeout(), self.backbone.shared.poll_timeout()].into_iter().flatten().min()
    }

    fn destinations(&mut self, topic: &TopicName, nodes: &mut Vec<NodeId>) {
        if topic.is_reserved() {
            self.backbone.reserved_destinations(topic, nodes);
        } else {
            nodes.extend(self.backbone.trunk.members());
        }
    }

    fn promises(&self, _: NodeId, signal: &[u8]) -> bool {
        Backbone::promises(signal, |_| true)
    }

    fn everyone(&self, nodes: &mut Vec<NodeId>) {
        self.backbone.shared.everyone(nodes);
    }

    fn way(&self, _topic: &TopicName, destination: NodeId) -> NodeId {
        self.backbone.way(destination)
    }

    fn is_linked(&self, node: NodeId) -> bool {
        self.backbone.shared.is_linked(node)
    }

    fn routes(&self, offset: usize, limit: usize) -> Vec<RouteEntry> {
        self.lines().skip(offset).take(limit).collect()
    }

    fn route_count(&self) -> usize {
        self.backbone.shared.route_count() + self.backbone.trunk.members().count()
    }

    fn topology(&self, _limit: usize) -> Topology {
        let FloodCounters { shared, tree } = self.counters();
        let counters = tree.named().into_iter().chain(shared.named()).collect();
        Topology { trees: vec![self.backbone.trunk.view()], counters, ..Topology::default() }
    }
}
