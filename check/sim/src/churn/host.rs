//! One node: its machine and the subscriptions of its clients.

use core::net::SocketAddr;
use std::collections::BTreeMap;

use sedge_base::{Incarnation, NodeId, Rng};
use sedge_mqtt::{TopicFilter, TopicName};
use sedge_overlay::{
    Flood, Mesh, MeshConfig, Neighbour, Overlay, SkipGraphConfig, SkipGraphOverlay, Token, TopicTree, TopicTreeConfig,
    Tree, TreeConfig,
};

/// A subscription of a client.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) filter: TopicFilter,
    /// Since when the cluster knows.
    pub(super) settled: Option<u64>,
}

pub(super) struct Host {
    pub(super) machine: Box<dyn Overlay>,
    /// Which life of the node.
    pub(super) life: u64,
    pub(super) capacity: u32,
    pub(super) wanted: Vec<Wanted>,
    /// Subscriptions that wait to be settled: the number of the subscription, and since when.
    pub(super) waiting: BTreeMap<Token, (usize, u64)>,
    /// When the machine wants to be woken.
    pub(super) timer: u64,
    /// Whether it has outputs.
    pub(super) dirty: bool,
    /// From when on its clients publish.
    pub(super) ready: u64,
}

impl Host {
    pub(super) fn new(overlay: &str, node: usize, life: u64, rng: &mut Rng) -> Self {
        let (id, address, rng) = (id(node), address(node), rng.split(node as u64));
        let exchange = MeshConfig::default();
        let machine: Box<dyn Overlay> = match overlay {
            "mesh" => Box::new(Mesh::new(id, exchange, rng)),
            "flood" => Box::new(Flood::new(id, address, exchange, rng)),
            "tree" => Box::new(Tree::new(id, address, TreeConfig { exchange, ..TreeConfig::default() }, rng)),
            "topic-tree" => Box::new(TopicTree::new(id, address, TopicTreeConfig::default(), rng)),
            "skip-graph" => {
                Box::new(SkipGraphOverlay::new(id, Incarnation::new(life), SkipGraphConfig::default(), rng))
            }
            other => panic!("there is no overlay {other}"),
        };
        // One node in fifty is strong.
        let capacity = if node % 50 == 7 { 4 } else { 1 };
        let (wanted, waiting) = (Vec::new(), BTreeMap::new());
        Self { machine, life, capacity, wanted, waiting, timer: u64::MAX, dirty: true, ready: u64::MAX }
    }

    /// As membership and the handshake of a link tell of it.
    pub(super) fn neighbour(&self, node: usize) -> Neighbour {
        let incarnation = Incarnation::new(self.life);
        Neighbour { node: id(node), incarnation, capacity: self.capacity, address: address(node) }
    }

    pub(super) fn wants(&self, topic: &TopicName) -> bool {
        self.wanted.iter().any(|wanted| wanted.filter.matches(topic))
    }

    /// Whether the cluster knows at least since `tick` that it wants the topic.
    pub(super) fn has_settled(&self, topic: &TopicName, tick: u64) -> bool {
        self.wanted.iter().any(|wanted| wanted.settled.is_some_and(|at| at <= tick) && wanted.filter.matches(topic))
    }
}

pub(super) fn id(node: usize) -> NodeId {
    NodeId::new(node as u64 + 1)
}

pub(super) fn index(id: NodeId) -> usize {
    usize::try_from(id.get() - 1).unwrap_or(usize::MAX)
}

fn address(node: usize) -> SocketAddr {
    let [_, _, high, low] = u32::try_from(node).unwrap_or_default().to_be_bytes();
    SocketAddr::from(([10, 0, high, low], 7883))
}
