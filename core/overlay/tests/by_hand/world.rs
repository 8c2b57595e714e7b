//! Operators, clients, links and nodes that come and go at random.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use sedge_base::{Duration, Rng};
use sedge_overlay::{Advert, AdvertOp, ByHand, Flood, Mesh, MeshConfig, Overlay, Tree, TreeConfig};

use crate::net::{Net, add, address, id, remove};
use crate::wanted::{Edges, distances};

const FILTERS: [&str; 8] = ["a", "a/#", "a/+", "#", "b/c", "$own/#", "$share/g/a", "+/c"];

/// Nobody settles because it has waited long enough.
fn patient() -> MeshConfig {
    MeshConfig { settle_timeout: Duration::from_hours(1), signal_bytes: 1024, ..MeshConfig::default() }
}

fn by_hand(node: u64, inner: Box<dyn Overlay + Send>) -> Box<dyn Overlay> {
    Box::new(ByHand::new(id(node), inner))
}

pub(crate) fn mesh(node: u64) -> Box<dyn Overlay> {
    by_hand(node, Box::new(Mesh::new(id(node), patient(), Rng::new(node))))
}

pub(crate) fn flood(node: u64) -> Box<dyn Overlay> {
    by_hand(node, Box::new(Flood::new(id(node), address(node), patient(), Rng::new(node))))
}

pub(crate) fn tree(node: u64) -> Box<dyn Overlay> {
    let config = TreeConfig { exchange: patient(), ..TreeConfig::default() };
    by_hand(node, Box::new(Tree::new(id(node), address(node), config, Rng::new(node))))
}

/// Random events, and the known facts about their outcome.
pub(crate) struct World {
    pub(crate) net: Net,
    rng: Rng,
    count: u64,
    /// Whether operators close no cycles, as far as they can see.
    is_tree: bool,
    clients: u64,
    /// Whether two nodes are neighbours, where their operators gave no orders at the same time.
    certain: BTreeMap<(u64, u64), bool>,
}

impl World {
    pub(crate) fn new(seed: u64, make: fn(u64) -> Box<dyn Overlay>) -> Self {
        let mut rng = Rng::new(seed);
        let count = 3 + rng.below(10);
        let mut net = Net::new(make, count);
        if rng.chance(2, 3) {
            net.link_all();
        }
        let is_tree = rng.chance(2, 3);
        Self { net, rng, count, is_tree, clients: 0, certain: BTreeMap::new() }
    }

    pub(crate) fn run(&mut self) {
        for _ in 0..self.rng.below(400) {
            self.step();
        }
    }

    fn runs(&self, node: u64) -> bool {
        self.net.nodes.contains_key(&node)
    }

    fn step(&mut self) {
        let (a, b) = (self.rng.below(self.count) + 1, self.rng.below(self.count) + 1);
        let both = a != b && self.runs(a) && self.runs(b);
        match self.rng.below(100) {
            0 if self.runs(a) && self.net.nodes.len() > 2 => self.kill(a),
            1..4 if !self.runs(a) => self.start(a),
            4 if self.runs(a) => self.replace(a),
            5..12 if both => self.net.link(a, b),
            12..15 if both => {
                let gone = self.rng.chance(1, 3);
                self.net.cut(a, b, gone);
            }
            15..25 if both => self.order(a, b, true),
            25..30 if both => self.order(a, b, false),
            30..42 if self.runs(a) => self.subscribe(a),
            42..48 if self.runs(a) => self.unsubscribe(a),
            48..60 => self.net.poll(a),
            60..68 => _ = self.net.reach(a),
            68 if self.rng.chance(1, 4) => {
                let millis = self.rng.below(40_000);
                self.net.pass(Duration::from_millis(millis));
            }
            _ => self.move_some(a, b),
        }
    }

    /// Some of the signals under way from one node to another arrive, in order.
    fn move_some(&mut self, from: u64, to: u64) {
        self.net.poll(from);
        for _ in 0..=self.rng.below(4) {
            if self.runs(to) {
                self.net.deliver(from, to);
            }
        }
    }

    /// The operator of a node chooses a link or ends it.
    pub(crate) fn order(&mut self, at: u64, other: u64, chosen: bool) {
        if chosen && self.is_tree && distances(&self.edges(), at).contains_key(&other) {
            return;
        }
        self.net.poll(at);
        self.net.poll(other);
        let quiet = |from, to| self.net.links.get(&(from, to)).is_some_and(VecDeque::is_empty);
        if quiet(at, other) && quiet(other, at) {
            self.certain.insert((at.min(other), at.max(other)), chosen);
        } else {
            self.certain.remove(&(at.min(other), at.max(other)));
        }
        self.net.node(at).overlay.choose(id(other), chosen);
    }

    /// The links that are chosen, as either end tells.
    pub(crate) fn edges(&self) -> Edges {
        let mut edges: Edges = self.net.nodes.keys().map(|node| (*node, BTreeSet::new())).collect();
        for (node, other) in self.net.nodes.keys().flat_map(|node| self.neighbours(*node).map(move |to| (*node, to))) {
            edges.entry(node).or_default().insert(other);
            edges.entry(other).or_default().insert(node);
        }
        edges
    }

    pub(crate) fn neighbours(&self, node: u64) -> impl Iterator<Item = u64> {
        self.net.nodes[&node].overlay.chosen().into_iter().map(|chosen| chosen.node.get())
    }

    pub(crate) fn certain(&self) -> impl Iterator<Item = ((u64, u64), bool)> {
        self.certain.iter().map(|(pair, chosen)| (*pair, *chosen))
    }

    /// The links that a node's operator has chosen end with the node's life.
    fn forget(&mut self, node: u64) {
        self.certain.retain(|(a, b), _| *a != node && *b != node);
    }

    fn kill(&mut self, node: u64) {
        self.net.kill(node);
        self.forget(node);
    }

    fn start(&mut self, node: u64) {
        self.net.start(node);
        for other in self.net.nodes.keys().copied().filter(|other| *other != node).collect::<Vec<_>>() {
            self.net.link(node, other);
        }
    }

    /// A node starts again; the others notice by the new link only.
    fn replace(&mut self, node: u64) {
        self.forget(node);
        self.net.start(node);
        let linked: Vec<u64> = self.net.links.keys().filter(|(from, _)| *from == node).map(|(_, to)| *to).collect();
        for other in linked {
            self.net.link(node, other);
        }
    }

    pub(crate) fn subscribe(&mut self, node: u64) {
        self.clients += 1;
        let text = FILTERS[self.rng.index(FILTERS.len())];
        let op = AdvertOp::Add { online: self.rng.chance(1, 2) };
        let change = Advert { op, ..add(&format!("c{}", self.clients), text) };
        self.net.local(node, &[change], None);
    }

    fn unsubscribe(&mut self, node: u64) {
        let local: Vec<_> = self.net.nodes[&node].local.keys().cloned().collect();
        if let Some((client, filter)) = self.rng.pick(&local) {
            self.net.local(node, &[remove(client.as_str(), filter.as_str())], None);
        }
    }

    /// All nodes run and all links stand, until nothing moves any more.
    pub(crate) fn heal(&mut self) {
        for node in (1..=self.count).filter(|node| !self.runs(*node)).collect::<Vec<_>>() {
            self.start(node);
        }
        self.net.link_all();
    }
}
