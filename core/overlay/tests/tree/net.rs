//! A few nodes with one algorithm whose links, shards and clock are moved by hand.

use core::net::SocketAddr;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use sedge_base::{ClientId, Duration, Incarnation, Instant, NodeId, Now, Rng, Timestamp};
use sedge_mqtt::{TopicFilter, TopicName};
use sedge_overlay::{
    Advert, AdvertOp, Advertised, Barrier, Flood, Input, MeshConfig, Neighbour, Output, Overlay, Token, Topology, Tree,
    TreeConfig,
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

/// One node: its machine, its shards and the subscriptions of its own clients.
pub(crate) struct Node {
    pub(crate) overlay: Box<dyn Overlay>,
    incarnation: u64,
    /// All table changes given out so far.
    pub(crate) told: Shards,
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

type Make = fn(u64) -> Box<dyn Overlay>;

pub(crate) struct Net {
    pub(crate) now: Instant,
    make: Make,
    pub(crate) nodes: BTreeMap<u64, Node>,
    /// Signals under way; a pair that is missing has no link.
    pub(crate) links: BTreeMap<(u64, u64), VecDeque<Bytes>>,
    /// Round trips in microseconds, by the lower and the higher node; 10 ms where there is none.
    pub(crate) delays: BTreeMap<(u64, u64), u32>,
    /// Capacities of the nodes; 1 where there is none.
    pub(crate) capacities: BTreeMap<u64, u32>,
    starts: u64,
    /// Signals sent so far.
    pub(crate) sent: usize,
}

pub(crate) fn filter(text: &str) -> TopicFilter {
    TopicFilter::new(text).expect("a filter")
}

pub(crate) fn topic(text: &str) -> TopicName {
    TopicName::new(text).expect("a topic")
}

pub(crate) fn id(node: u64) -> NodeId {
    NodeId::new(node)
}

pub(crate) fn add(client: &str, text: &str) -> Advert {
    Advert { client: ClientId::new(client), filter: filter(text), op: AdvertOp::Add { online: true } }
}

pub(crate) fn remove(client: &str, text: &str) -> Advert {
    Advert { client: ClientId::new(client), filter: filter(text), op: AdvertOp::Remove }
}

/// Lower nodes have lower addresses.
pub(crate) fn address(node: u64) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 7000 + u16::try_from(node).expect("few nodes")))
}

pub(crate) fn flood(node: u64) -> Box<dyn Overlay> {
    Box::new(Flood::new(id(node), address(node), MeshConfig::default(), Rng::new(node)))
}

pub(crate) fn tree_with(node: u64, config: TreeConfig) -> Box<dyn Overlay> {
    Box::new(Tree::new(id(node), address(node), config, Rng::new(node)))
}

pub(crate) fn tree(node: u64) -> Box<dyn Overlay> {
    tree_with(node, TreeConfig::default())
}

/// Nobody settles because it has waited long enough.
pub(crate) fn patient_tree(node: u64) -> Box<dyn Overlay> {
    let exchange = MeshConfig { settle_timeout: Duration::from_hours(1), signal_bytes: 1024, ..MeshConfig::default() };
    tree_with(node, TreeConfig { exchange, ..TreeConfig::default() })
}

impl Net {
    /// Nodes 1 to `count`, without links.
    pub(crate) fn new(make: Make, count: u64) -> Self {
        let (delays, capacities) = (BTreeMap::new(), BTreeMap::new());
        let nodes = BTreeMap::new();
        let links = BTreeMap::new();
        let mut net = Self { now: Instant::ZERO, make, nodes, links, delays, capacities, starts: 0, sent: 0 };
        (1..=count).for_each(|node| net.start(node));
        net
    }

    /// Nodes 1 to `count`, all linked and in step.
    pub(crate) fn linked(make: Make, count: u64) -> Self {
        let mut net = Self::new(make, count);
        net.link_all();
        net
    }

    /// Three nodes in a line: 1 - 2 - 3, where the way from 1 to 3 is shorter over 2. Node 1 is the root.
    pub(crate) fn line(make: Make) -> Self {
        let mut net = Self::new(make, 3);
        net.delays.insert((1, 3), 90_000);
        net.link_all();
        net
    }

    pub(crate) fn link_all(&mut self) {
        let nodes: Vec<u64> = self.nodes.keys().copied().collect();
        for a in &nodes {
            for b in
                nodes.iter().filter(|b| *b < a && !self.links.contains_key(&(*a, **b))).copied().collect::<Vec<_>>()
            {
                self.link(*a, b);
            }
        }
        self.settle();
    }

    pub(crate) fn start(&mut self, node: u64) {
        self.starts += 1;
        let state = Node {
            overlay: (self.make)(node),
            incarnation: self.starts,
            told: Shards::default(),
            barriers: VecDeque::new(),
            shards: Shards::default(),
            local: BTreeMap::new(),
            settled: Vec::new(),
            synced: Vec::new(),
            wanted_links: BTreeSet::new(),
            protocol_errors: Vec::new(),
        };
        self.nodes.insert(node, state);
        let capacity = self.capacity(node);
        self.feed(node, Input::Load { capacity, clients: 0 });
    }

    fn capacity(&self, node: u64) -> u32 {
        self.capacities.get(&node).copied().unwrap_or(1)
    }

    pub(crate) fn node(&mut self, node: u64) -> &mut Node {
        self.nodes.get_mut(&node).expect("a node that runs")
    }

    pub(crate) fn topology(&self, node: u64) -> Topology {
        self.nodes[&node].overlay.topology(usize::MAX)
    }

    pub(crate) fn counter(&self, node: u64, name: &str) -> u64 {
        let counters = self.topology(node).counters;
        counters.iter().find(|(other, _)| *other == name).unwrap_or_else(|| panic!("no counter {name}")).1
    }

    /// Feeds an event without polling.
    pub(crate) fn feed(&mut self, node: u64, input: Input) {
        let now = self.wall();
        self.node(node).overlay.handle(now, input);
    }

    /// A node as membership and the handshake of a link tell of it.
    pub(crate) fn neighbour(&self, node: u64) -> Neighbour {
        let incarnation = self.nodes.get(&node).map_or(1, |node| node.incarnation);
        Neighbour {
            node: id(node),
            incarnation: Incarnation::new(incarnation),
            capacity: self.capacity(node),
            address: address(node),
        }
    }

    pub(crate) fn delay(&self, a: u64, b: u64) -> u32 {
        self.delays.get(&(a.min(b), a.max(b))).copied().unwrap_or(10_000)
    }

    pub(crate) fn link(&mut self, a: u64, b: u64) {
        let micros = self.delay(a, b);
        for (from, to) in [(a, b), (b, a)] {
            self.links.insert((from, to), VecDeque::new());
            let neighbour = self.neighbour(to);
            self.feed(from, Input::NeighbourUp(neighbour));
            self.feed(from, Input::RoundTrip { node: id(to), micros });
        }
    }

    /// Cuts a link: signals under way are lost.
    pub(crate) fn cut(&mut self, a: u64, b: u64, gone: bool) {
        for (from, to) in [(a, b), (b, a)] {
            self.links.remove(&(from, to));
            if self.nodes.contains_key(&from) {
                self.feed(from, Input::NeighbourDown { node: id(to), gone });
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
        while let Some(output) = state.overlay.poll_output() {
            match output {
                Output::Signal { to, bytes } => {
                    assert!(bytes.len() <= 1024 * 1024);
                    self.sent += 1;
                    let link = self.links.get_mut(&(node, to.get()));
                    link.expect("a signal needs a link").push_back(bytes);
                }
                Output::Link { node, wanted: true } => drop(state.wanted_links.insert(node)),
                Output::Link { node, wanted: false } => drop(state.wanted_links.remove(&node)),
                Output::Table(change) => state.told.apply(change),
                Output::Barrier(barrier) => {
                    assert!(state.barriers.back().is_none_or(|(before, _)| *before < barrier), "barriers grow");
                    state.barriers.push_back((barrier, state.told.clone()));
                }
                Output::Settled(token) => state.settled.push(token),
                Output::Synced { node } => state.synced.push(node),
                Output::Protocol { detail, .. } => state.protocol_errors.push(detail),
                // A test that chooses links by hand asks the machine for the links that there are.
                Output::Cut { .. } => {}
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
        self.feed(to, Input::Signal { from: id(from), bytes });
        true
    }

    /// The shards of a node reach the next barrier; says whether there was one.
    pub(crate) fn reach(&mut self, node: u64) -> bool {
        let Some((barrier, shards)) = self.nodes.get_mut(&node).and_then(|node| node.barriers.pop_front()) else {
            return false;
        };
        self.node(node).shards = shards;
        self.feed(node, Input::BarrierReached(barrier));
        true
    }

    /// Moves everything until nothing moves any more.
    pub(crate) fn settle(&mut self) {
        let mut moved = true;
        let mut rounds = 0;
        while moved {
            self.poll_all();
            moved = false;
            for (from, to) in self.links.keys().copied().collect::<Vec<_>>() {
                while self.deliver(from, to) {
                    moved = true;
                }
            }
            for node in self.nodes.keys().copied().collect::<Vec<_>>() {
                moved |= self.reach(node);
            }
            rounds += 1;
            assert!(rounds < 1_000, "no end");
        }
        for state in self.nodes.values() {
            assert_eq!(state.protocol_errors, Vec::<String>::new());
        }
    }

    pub(crate) fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        while let Some(next) = self.nodes.values().filter_map(|node| node.overlay.poll_timeout()).min() {
            if next > end {
                break;
            }
            self.now = self.now.max(next);
            let now = self.wall();
            self.nodes.values_mut().for_each(|node| node.overlay.handle_timeout(now));
            self.settle();
        }
        self.now = end;
    }

    /// A client of `node` publishes: where it goes.
    pub(crate) fn publish(&mut self, node: u64, text: &str) -> Vec<u64> {
        let mut nodes = Vec::new();
        self.node(node).overlay.destinations(&topic(text), &mut nodes);
        let mut nodes: Vec<u64> = nodes.iter().map(|node| node.get()).collect();
        assert!(!nodes.contains(&node), "to itself");
        nodes.sort_unstable();
        let count = nodes.len();
        nodes.dedup();
        assert_eq!(nodes.len(), count, "somebody twice");
        nodes
    }

    /// A client of `node` publishes to a topic that is known to all: where it goes, and over which links.
    pub(crate) fn send(&mut self, node: u64, text: &str) -> (Vec<u64>, BTreeSet<(u64, u64)>) {
        let destinations = self.publish(node, text);
        let hops = destinations.iter().flat_map(|to| self.walk(node, *to, text)).collect();
        (destinations, hops)
    }

    /// Follows the ways; the links on it.
    pub(crate) fn walk(&self, from: u64, to: u64, text: &str) -> Vec<(u64, u64)> {
        let (mut at, mut hops) = (from, Vec::new());
        while at != to {
            let next = self.nodes[&at].overlay.way(&topic(text), id(to)).get();
            assert!(!hops.contains(&(at, next)), "a cycle from {from} to {to}: {hops:?}");
            hops.push((at, next));
            at = next;
        }
        hops
    }

    /// The parent of each node, as `node` knows it.
    pub(crate) fn parents(&self, node: u64) -> BTreeMap<u64, Option<u64>> {
        let nodes = &self.topology(node).trees[0].nodes;
        nodes.iter().map(|line| (line.node.get(), line.parent.map(NodeId::get))).collect()
    }

    /// TR-10: all know the same tree, with all nodes, and it is complete.
    pub(crate) fn check_tree(&self) {
        let all: Vec<u64> = self.nodes.keys().copied().collect();
        let first = self.parents(all[0]);
        for node in &all {
            let view = &self.topology(*node).trees[0];
            assert!(view.complete, "at {node}: {view:?}");
            assert_eq!(self.parents(*node), first, "at {node}");
        }
        assert_eq!(first.keys().copied().collect::<Vec<_>>(), all);
        assert_eq!(first.values().filter(|parent| parent.is_none()).count(), 1);
        for from in &all {
            for to in all.iter().filter(|to| *to != from) {
                for (a, b) in self.walk(*from, *to, "x") {
                    assert!(first[&a] == Some(b) || first[&b] == Some(a), "{a} - {b} is no link of the tree");
                }
            }
        }
    }

    /// Other nodes with clients that want a publication to `text`.
    pub(crate) fn wanting(&self, node: u64, text: &str) -> Vec<u64> {
        let name = topic(text);
        let wants = |other: &&u64| {
            let mut plain = self.nodes[other].local.keys().filter(|(_, filter)| filter.share_group().is_none());
            plain.any(|(_, filter)| filter.matches(&name))
        };
        self.nodes.keys().filter(|other| **other != node).filter(wants).copied().collect()
    }

    /// Everybody counts the members of all shared subscriptions of the others.
    pub(crate) fn check_groups(&self) {
        for (node, state) in &self.nodes {
            let mut groups: BTreeMap<(NodeId, TopicFilter), (u32, u32)> = BTreeMap::new();
            for (other, theirs) in self.nodes.iter().filter(|(other, _)| *other != node) {
                for ((_, filter), online) in theirs.local.iter().filter(|((_, f), _)| f.share_group().is_some()) {
                    let counts = groups.entry((id(*other), filter.clone())).or_default();
                    *(if *online { &mut counts.0 } else { &mut counts.1 }) += 1;
                }
            }
            assert_eq!(state.told.groups, groups, "groups at {node}");
            assert!(state.told.remote.contains(&filter("#")));
        }
    }

    pub(crate) fn wall(&self) -> Now {
        Now { instant: self.now, wall: Timestamp::from_millis(self.now.as_nanos() / 1_000_000) }
    }
}
