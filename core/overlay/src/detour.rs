//! For tests: the worst that a cooperation algorithm may do. It knows the interest of all nodes, but sends publications anywhere.

use crate::{Input, Mesh, MeshConfig, Output, Overlay, RouteEntry};
use sedge_base::{Instant, NodeId, Now, Rng, mix};
use sedge_mqtt::TopicName;

/// [`Mesh`] with ways over nodes drawn at random, which change all the time and go in circles.
#[derive(Debug)]
pub struct Detour {
    me: NodeId,
    mesh: Mesh,
    /// Where time changes the ways.
    period: u64,
}

impl Detour {
    /// As [`Mesh::new`].
    pub fn new(me: NodeId, rng: Rng) -> Self {
        Self { me, mesh: Mesh::new(me, MeshConfig::default(), rng), period: 0 }
    }
}

impl Overlay for Detour {
    fn name(&self) -> &'static str {
        "detour"
    }

    fn relays(&self) -> bool {
        true
    }

    fn handle(&mut self, now: Now, input: Input) {
        self.period = now.wall.as_millis() / 50;
        self.mesh.handle(now, input);
    }

    fn handle_timeout(&mut self, now: Now) {
        self.mesh.handle_timeout(now);
    }

    fn poll_output(&mut self) -> Option<Output> {
        self.mesh.poll_output()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.mesh.poll_timeout()
    }

    fn destinations(&mut self, topic: &TopicName, nodes: &mut Vec<NodeId>) {
        self.mesh.destinations(topic, nodes);
    }

    fn everyone(&self, nodes: &mut Vec<NodeId>) {
        self.mesh.everyone(nodes);
    }

    fn way(&self, _: &TopicName, destination: NodeId) -> NodeId {
        let mut neighbours = Vec::new();
        self.mesh.everyone(&mut neighbours);
        let drawn = mix(self.period ^ mix(self.me.get() ^ mix(destination.get())));
        let count = neighbours.len() as u64;
        let at = if count == 0 { 0 } else { drawn % count };
        usize::try_from(at).ok().and_then(|at| neighbours.get(at).copied()).unwrap_or(destination)
    }

    fn is_linked(&self, node: NodeId) -> bool {
        self.mesh.is_linked(node)
    }

    fn routes(&self, offset: usize, limit: usize) -> Vec<RouteEntry> {
        self.mesh.routes(offset, limit)
    }

    fn route_count(&self) -> usize {
        self.mesh.route_count()
    }
}
