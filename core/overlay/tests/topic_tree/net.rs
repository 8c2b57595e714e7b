//! A few nodes with topic trees whose links, shards and clock are moved by hand.

use core::net::SocketAddr;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use sedge_base::{ClientId, Duration, Incarnation, Instant, NodeId, Now, Rng, Timestamp};
use sedge_mqtt::{TopicFilter, TopicName};
use sedge_overlay::{
    Advert, AdvertOp, Advertised, Barrier, Input, Neighbour, Output, Overlay, Token, TopicTree, TopicTreeConfig,
    TopicView,
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

    /// Whether a publication is handed to the node at all.
    pub(crate) fn hands_over(&self, topic: &TopicName) -> bool {
        self.remote.iter().any(|filter| filter.matches(topic))
    }
}

/// One node: the machine, its shards and the subscriptions of its own clients.
pub(crate) struct Node {
    pub(crate) machine: TopicTree,
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
    /// Kinds of all signals that were sent, with sender and receiver.
    pub(crate) sent: Vec<(u64, u64, u8)>,
    /// Of nodes that start from here on.
    pub(crate) config: TopicTreeConfig,
    lives: u64,
}

/// Second byte of a signal, as `docs/protocol/topic-tree.md` has it.
pub(crate) const ASK: u8 = 4;
pub(crate) const ANSWER: u8 = 5;

pub(crate) fn filter(text: &str) -> TopicFilter {
    TopicFilter::new(text).expect("a filter")
}

pub(crate) fn topic(text: &str) -> TopicName {
    TopicName::new(text).expect("a topic")
}

pub(crate) fn add(client: &str, text: &str) -> Advert {
    Advert { client: ClientId::new(client), filter: filter(text), op: AdvertOp::Add { online: true } }
}

pub(crate) fn remove(client: &str, text: &str) -> Advert {
    Advert { client: ClientId::new(client), filter: filter(text), op: AdvertOp::Remove }
}

pub(crate) fn ids(nodes: &[NodeId]) -> Vec<u64> {
    nodes.iter().map(|node| node.get()).collect()
}

/// The lower the id the lower the address.
pub(crate) fn address(id: u64) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, u8::try_from(id).expect("few nodes")], 7000))
}

impl Net {
    /// Nodes 1 to `count`, without links.
    pub(crate) fn new(count: u64, config: TopicTreeConfig) -> Self {
        let links = BTreeMap::new();
        let mut net = Self { now: Instant::ZERO, nodes: BTreeMap::new(), links, sent: Vec::new(), config, lives: 0 };
        for node in 1..=count {
            net.start(node);
        }
        net
    }

    /// Nodes 1 to `count`, all linked and in step.
    pub(crate) fn linked(count: u64, config: TopicTreeConfig) -> Self {
        let mut net = Self::new(count, config);
        net.link_all();
        net.settle();
        net
    }

    pub(crate) fn start(&mut self, node: u64) {
        self.lives += 1;
        let state = Node {
            machine: TopicTree::new(NodeId::new(node), address(node), self.config, Rng::new(self.lives)),
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
    }

    pub(crate) fn node(&mut self, node: u64) -> &mut Node {
        self.nodes.get_mut(&node).expect("a node that runs")
    }

    /// Feeds an event without polling.
    pub(crate) fn feed(&mut self, node: u64, input: Input) {
        let now = self.wall();
        self.node(node).machine.handle(now, input);
    }

    pub(crate) fn link(&mut self, a: u64, b: u64) {
        for (from, to) in [(a, b), (b, a)] {
            self.links.insert((from, to), VecDeque::new());
            self.feed(from, Input::NeighbourUp(neighbour(to)));
        }
    }

    /// Links all that are not linked.
    pub(crate) fn link_all(&mut self) {
        let all: Vec<u64> = self.nodes.keys().copied().collect();
        for (at, a) in all.iter().enumerate() {
            for b in &all[..at] {
                if !self.links.contains_key(&(*a, *b)) {
                    self.link(*a, *b);
                }
            }
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
        while let Some(output) = state.machine.poll_output() {
            match output {
                Output::Signal { to, bytes } => {
                    assert!(bytes.len() <= 1024 * 1024);
                    self.sent.push((node, to.get(), bytes[1]));
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
        self.settle();
        while let Some(next) = self.nodes.values().filter_map(|node| node.machine.poll_timeout()).min() {
            if next > end {
                break;
            }
            self.now = self.now.max(next);
            let now = self.wall();
            self.nodes.values_mut().for_each(|node| node.machine.handle_timeout(now));
            self.settle();
        }
        self.now = end;
    }

    /// A client of `node` publishes to `name`; returns the nodes that the publication goes to.
    pub(crate) fn publish(&mut self, node: u64, name: &str) -> Vec<u64> {
        let is_seen = self.nodes[&node].shards.hands_over(&topic(name));
        let nodes = if is_seen { self.destinations(node, name) } else { Vec::new() };
        self.poll(node);
        nodes
    }

    /// Asks the machine alone, without polling.
    pub(crate) fn destinations(&mut self, node: u64, name: &str) -> Vec<u64> {
        let mut nodes = Vec::new();
        self.node(node).machine.destinations(&topic(name), &mut nodes);
        ids(&nodes)
    }

    /// All nodes publish these topics, and everybody has told everybody else.
    pub(crate) fn publish_all(&mut self, nodes: &[u64], topics: &[String]) {
        for node in nodes {
            for name in topics {
                self.publish(*node, name);
            }
        }
        self.settle();
    }

    /// The nodes that a publication passes on its way, its origin not among them.
    pub(crate) fn way(&self, topic_name: &str, from: u64, to: u64) -> Vec<u64> {
        let name = topic(topic_name);
        let mut way = Vec::new();
        let mut at = from;
        while at != to {
            at = self.nodes[&at].machine.way(&name, NodeId::new(to)).get();
            way.push(at);
            assert!(way.len() <= self.nodes.len(), "{topic_name} from {from} to {to}: {way:?}");
        }
        way
    }

    /// All links get these round trips, in microseconds, and all nodes hear of it.
    pub(crate) fn measure(&mut self, micros: impl Fn(u64, u64) -> u32) {
        for (from, to) in self.links.keys().copied().collect::<Vec<_>>() {
            self.feed(from, Input::RoundTrip { node: NodeId::new(to), micros: micros(from, to) });
        }
        self.pass(Duration::from_secs(1));
    }

    pub(crate) fn view(&self, node: u64, name: &str) -> TopicView {
        let all = self.nodes[&node].machine.topics(0, usize::MAX);
        all.into_iter().find(|view| view.topic.as_str() == name).expect("a topic of this node")
    }

    /// The root of a topic, on which all these nodes agree.
    pub(crate) fn root(&self, nodes: &[u64], name: &str) -> Option<u64> {
        let views: Vec<TopicView> = nodes.iter().map(|node| self.view(*node, name)).collect();
        assert!(views.iter().all(|view| *view == views[0]), "{views:#?}");
        views[0].root.map(NodeId::get)
    }

    pub(crate) fn signal_bytes(&self) -> u64 {
        self.nodes.values().map(|node| node.machine.counters().signal_bytes).sum()
    }

    /// Nodes whose clients want `name`, `except` not among them.
    pub(crate) fn wanting(&self, name: &str, except: u64) -> Vec<u64> {
        let name = topic(name);
        let wants = |node: &Node| {
            let mut plain = node.local.keys().filter(|(_, filter)| filter.share_group().is_none());
            plain.any(|(_, filter)| filter.matches(&name))
        };
        self.nodes.iter().filter(|(id, node)| **id != except && wants(node)).map(|(id, _)| *id).collect()
    }

    /// The members of shared subscriptions at all other nodes are known.
    pub(crate) fn check_groups(&self, node: u64) {
        let mut groups: BTreeMap<(NodeId, TopicFilter), (u32, u32)> = BTreeMap::new();
        for (other, state) in self.nodes.iter().filter(|(other, _)| **other != node) {
            for ((_, filter), online) in state.local.iter().filter(|((_, filter), _)| filter.share_group().is_some()) {
                let counts = groups.entry((NodeId::new(*other), filter.clone())).or_default();
                *(if *online { &mut counts.0 } else { &mut counts.1 }) += 1;
            }
        }
        assert_eq!(self.nodes[&node].shards.groups, groups, "groups at {node}");
    }

    fn wall(&self) -> Now {
        Now { instant: self.now, wall: Timestamp::from_millis(self.now.as_nanos() / 1_000_000) }
    }
}

/// A node as membership and the handshake of a link tell of it.
pub(crate) fn neighbour(id: u64) -> Neighbour {
    Neighbour { node: NodeId::new(id), incarnation: Incarnation::new(1), capacity: 1, address: address(id) }
}
