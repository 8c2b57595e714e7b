//! A few meshes whose links, shards and clock are moved by hand.

use core::net::SocketAddr;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use sedge_base::{ClientId, Duration, Incarnation, Instant, NodeId, Now, Rng, Timestamp};
use sedge_mqtt::{TopicFilter, TopicName};
use sedge_overlay::{
    Advert, AdvertOp, Advertised, Barrier, Input, Mesh, MeshConfig, Neighbour, Output, Overlay, RouteEntry, Token,
};

/// The tables by which the shards of a node route.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shards {
    pub(crate) remote: BTreeSet<TopicFilter>,
    pub(crate) groups: BTreeMap<(NodeId, TopicFilter), (u32, u32)>,
}

impl Shards {
    fn apply(&mut self, change: Advertised) {
        match change {
            Advertised::Remote { filter, wanted: true } => assert!(self.remote.insert(filter), "told twice"),
            Advertised::Remote { filter, wanted: false } => assert!(self.remote.remove(&filter), "never told"),
            Advertised::Group { node, group, online: 0, offline: 0 } => {
                assert!(self.groups.remove(&(node, group)).is_some(), "never told");
            }
            Advertised::Group { node, group, online, offline } => {
                assert_ne!(self.groups.insert((node, group), (online, offline)), Some((online, offline)));
            }
        }
    }
}

/// One node: the mesh, its shards and the subscriptions of its own clients.
pub(crate) struct Node {
    pub(crate) mesh: Mesh,
    /// All table changes given out so far.
    told: Shards,
    /// The table at each barrier that the shards have not reached.
    barriers: VecDeque<(Barrier, Shards)>,
    /// The tables by which the shards route by now.
    pub(crate) shards: Shards,
    pub(crate) local: BTreeMap<(ClientId, TopicFilter), bool>,
    pub(crate) settled: Vec<Token>,
    pub(crate) synced: Vec<NodeId>,
    pub(crate) wanted_links: BTreeSet<NodeId>,
    pub(crate) protocol_errors: Vec<String>,
}

pub(crate) struct Net {
    pub(crate) now: Instant,
    pub(crate) nodes: BTreeMap<u64, Node>,
    /// Signals under way; a pair that is missing has no link.
    pub(crate) links: BTreeMap<(u64, u64), VecDeque<Bytes>>,
    /// Bytes of signals sent so far.
    pub(crate) sent: usize,
}

pub(crate) fn filter(text: &str) -> TopicFilter {
    TopicFilter::new(text).expect("a filter")
}

pub(crate) fn add(client: &str, text: &str) -> Advert {
    Advert { client: ClientId::new(client), filter: filter(text), op: AdvertOp::Add { online: true } }
}

pub(crate) fn remove(client: &str, text: &str) -> Advert {
    Advert { client: ClientId::new(client), filter: filter(text), op: AdvertOp::Remove }
}

impl Net {
    /// Nodes 1 to `count`, without links.
    pub(crate) fn new(count: u64, config: MeshConfig) -> Self {
        let mut net = Self { now: Instant::ZERO, nodes: BTreeMap::new(), links: BTreeMap::new(), sent: 0 };
        for node in 1..=count {
            net.start(node, config);
        }
        net
    }

    /// Nodes 1 to `count`, all linked and in step.
    pub(crate) fn linked(count: u64) -> Self {
        let mut net = Self::new(count, MeshConfig::default());
        for a in 1..=count {
            for b in 1..a {
                net.link(a, b);
            }
        }
        net.settle();
        net
    }

    pub(crate) fn start(&mut self, node: u64, config: MeshConfig) {
        let node_state = Node {
            mesh: Mesh::new(NodeId::new(node), config, Rng::new(node)),
            told: Shards::default(),
            barriers: VecDeque::new(),
            shards: Shards::default(),
            local: BTreeMap::new(),
            settled: Vec::new(),
            synced: Vec::new(),
            wanted_links: BTreeSet::new(),
            protocol_errors: Vec::new(),
        };
        self.nodes.insert(node, node_state);
    }

    pub(crate) fn node(&mut self, node: u64) -> &mut Node {
        self.nodes.get_mut(&node).expect("a node that runs")
    }

    /// Feeds an event without polling.
    pub(crate) fn feed(&mut self, node: u64, input: Input) {
        let now = self.wall();
        self.node(node).mesh.handle(now, input);
    }

    pub(crate) fn link(&mut self, a: u64, b: u64) {
        for (from, to) in [(a, b), (b, a)] {
            self.links.insert((from, to), VecDeque::new());
            self.feed(from, Input::NeighbourUp(neighbour(to)));
        }
    }

    /// Cuts a link: signals under way are lost.
    pub(crate) fn cut(&mut self, a: u64, b: u64, gone: bool) {
        for (from, to) in [(a, b), (b, a)] {
            self.links.remove(&(from, to));
            if self.nodes.contains_key(&from) {
                self.feed(from, Input::NeighbourDown { node: NodeId::new(to), gone });
            }
        }
    }

    pub(crate) fn kill(&mut self, node: u64) {
        self.nodes.remove(&node);
        for other in self.nodes.keys().copied().collect::<Vec<_>>() {
            self.cut(other, node, true);
        }
    }

    /// Changes at a node's own clients, as its owner reports them.
    pub(crate) fn local(&mut self, node: u64, changes: &[Advert], token: Option<u64>) {
        for change in changes {
            let key = (change.client.clone(), change.filter.clone());
            match change.op {
                AdvertOp::Add { online } => self.node(node).local.insert(key, online),
                AdvertOp::Remove => self.node(node).local.remove(&key),
            };
        }
        self.feed(node, Input::Local { changes: changes.to_vec(), token: token.map(Token) });
    }

    pub(crate) fn poll(&mut self, node: u64) {
        let Some(state) = self.nodes.get_mut(&node) else { return };
        while let Some(output) = state.mesh.poll_output() {
            match output {
                Output::Signal { to, bytes } => {
                    assert!(bytes.len() <= 1024 * 1024);
                    self.sent += bytes.len();
                    let link = self.links.get_mut(&(node, to.get()));
                    link.expect("a signal needs a link").push_back(bytes);
                }
                Output::Link { node, wanted: true } => drop(state.wanted_links.insert(node)),
                Output::Link { node, wanted: false } => drop(state.wanted_links.remove(&node)),
                Output::Table(change) => state.told.apply(change),
                Output::Barrier(barrier) => state.barriers.push_back((barrier, state.told.clone())),
                Output::Settled(token) => state.settled.push(token),
                Output::Synced { node } => state.synced.push(node),
                Output::Protocol { detail, .. } => state.protocol_errors.push(detail),
                Output::Cut { .. } => panic!("nobody chooses links"),
            }
        }
    }

    pub(crate) fn poll_all(&mut self) {
        for node in self.nodes.keys().copied().collect::<Vec<_>>() {
            self.poll(node);
        }
    }

    /// Moves one signal; says whether there was one.
    pub(crate) fn deliver(&mut self, from: u64, to: u64) -> bool {
        let Some(bytes) = self.links.get_mut(&(from, to)).and_then(VecDeque::pop_front) else { return false };
        self.feed(to, Input::Signal { from: NodeId::new(from), bytes });
        true
    }

    /// The shards of a node reach the next barrier; says whether there was one.
    pub(crate) fn reach(&mut self, node: u64) -> bool {
        let Some((barrier, shards)) = self.node(node).barriers.pop_front() else { return false };
        self.node(node).shards = shards;
        self.feed(node, Input::BarrierReached(barrier));
        true
    }

    /// Moves everything until nothing moves any more.
    pub(crate) fn settle(&mut self) {
        let mut moved = true;
        while moved {
            self.poll_all();
            moved = false;
            for (from, to) in self.links.keys().copied().collect::<Vec<_>>() {
                moved |= self.deliver(from, to);
            }
            for node in self.nodes.keys().copied().collect::<Vec<_>>() {
                moved |= self.reach(node);
            }
        }
    }

    pub(crate) fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        while let Some(next) = self.nodes.values().filter_map(|node| node.mesh.poll_timeout()).min() {
            if next > end {
                break;
            }
            self.now = self.now.max(next);
            let now = self.wall();
            self.nodes.values_mut().for_each(|node| node.mesh.handle_timeout(now));
            self.settle();
        }
        self.now = end;
    }

    pub(crate) fn hops(&mut self, node: u64, topic: &str) -> Vec<u64> {
        let mut hops = Vec::new();
        let topic = TopicName::new(topic).expect("a topic");
        self.node(node).mesh.destinations(&topic, &mut hops);
        hops.iter().map(|node| node.get()).collect()
    }

    /// Checks that `node` knows all filters that the clients of the `others` want.
    pub(crate) fn check_tables(&self, node: u64, others: &[u64]) {
        let mut routes = Vec::new();
        let mut shards = Shards::default();
        for other in others {
            let id = NodeId::new(*other);
            for ((client, filter), online) in &self.nodes[other].local {
                routes.push(RouteEntry { node: id, client: Some(client.clone()), filter: filter.clone() });
                if filter.share_group().is_none() {
                    shards.remote.insert(filter.clone());
                    continue;
                }
                let counts = shards.groups.entry((id, filter.clone())).or_default();
                *(if *online { &mut counts.0 } else { &mut counts.1 }) += 1;
            }
        }
        let state = &self.nodes[&node];
        assert_eq!(state.mesh.routes(0, usize::MAX), routes, "routes at {node}");
        assert_eq!(state.mesh.route_count(), routes.len());
        assert_eq!(state.told, shards, "tables at {node}");
        assert_eq!(state.protocol_errors, Vec::<String>::new());
    }

    fn wall(&self) -> Now {
        Now { instant: self.now, wall: Timestamp::from_millis(self.now.as_nanos() / 1_000_000) }
    }
}

/// A node as membership and the handshake of a link tell of it.
pub(crate) fn neighbour(id: u64) -> Neighbour {
    let address = SocketAddr::from(([127, 0, 0, 1], 7000));
    Neighbour { node: NodeId::new(id), incarnation: Incarnation::new(1), capacity: 1, address }
}
