//! Which cooperation algorithm the nodes of a cluster use.

use sedge_base::{Duration, Rng};
use sedge_overlay::{
    ByHand, Detour, Flood, Input, Mesh, Overlay, SkipGraphConfig, SkipGraphOverlay, TopicTree, TopicTreeConfig, Tree,
    TreeConfig,
};

use crate::node::Node;
use crate::{NodeConfig, NodeConfigError};

/// Names of the algorithms, the usual one first.
pub const OVERLAYS: [&str; 5] = ["mesh", "flood", "tree", "topic-tree", "skip-graph"];

/// Those that go with links that operators choose; the others choose by themselves.
pub const MANUAL_OVERLAYS: [&str; 3] = ["mesh", "flood", "tree"];

/// How often the algorithm is told how many clients there are.
const PERIOD: Duration = Duration::from_secs(5);

/// The algorithm that the settings name.
pub(in crate::node) fn build(config: &NodeConfig, rng: &mut Rng) -> Result<Box<dyn Overlay + Send>, NodeConfigError> {
    let (node, address, rng) = (config.node, config.link_addr, rng.split(4));
    if config.by_hand.is_some() && !MANUAL_OVERLAYS.contains(&config.overlay.as_str()) {
        return Err(NodeConfigError::ManualLinks(config.overlay.clone()));
    }
    let machine: Box<dyn Overlay + Send> = match config.overlay.as_str() {
        "mesh" => Box::new(Mesh::new(node, config.mesh, rng)),
        "flood" => Box::new(Flood::new(node, address, config.mesh, rng)),
        "tree" => {
            let settings = TreeConfig { exchange: config.mesh, ..TreeConfig::default() };
            Box::new(Tree::new(node, address, settings, rng))
        }
        "topic-tree" => {
            let (refresh, lease) = (config.mesh.refresh, config.mesh.lease);
            let settings = TopicTreeConfig { roots: config.topic_roots, refresh, lease, ..TopicTreeConfig::default() };
            Box::new(TopicTree::new(node, address, settings, rng))
        }
        "skip-graph" => {
            let (base, method) = (config.skip_graph_base, config.skip_graph_method);
            let settings = SkipGraphConfig { base, method, ..SkipGraphConfig::default() };
            Box::new(SkipGraphOverlay::new(node, config.incarnation, settings, rng))
        }
        // Not for users.
        "detour" => Box::new(Detour::new(node, rng)),
        other => return Err(NodeConfigError::Overlay(other.to_owned())),
    };
    Ok(if config.by_hand.is_some() { Box::new(ByHand::new(node, machine)) } else { machine })
}

impl Node {
    /// Tells the algorithm what this node carries, if that is due and has changed.
    pub(in crate::node) fn tell_load(&mut self) {
        let now = self.now.instant;
        if self.next_load.is_some_and(|at| at > now) {
            return;
        }
        self.next_load = Some(now + PERIOD);
        let clients = u32::try_from(self.claims.len()).unwrap_or(u32::MAX);
        if self.told_clients != Some(clients) {
            self.told_clients = Some(clients);
            self.overlay.handle(self.now, Input::Load { capacity: self.config.capacity, clients });
        }
    }
}
