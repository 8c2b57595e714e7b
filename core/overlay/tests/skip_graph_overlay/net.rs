//! A few nodes whose links, shards and clock are moved by hand, and the conclusions from the signals they were given.

use core::net::SocketAddr;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use sedge_base::{ClientId, Duration, Incarnation, Instant, NodeId, Now, Rng, Timestamp};
use sedge_mqtt::{TopicFilter, TopicName};
use sedge_overlay::skip_graph::Role;
use sedge_overlay::{
    Advert, AdvertOp, Advertised, Barrier, Input, MeshConfig, Neighbour, Output, Overlay, SkipGraphConfig,
    SkipGraphOverlay, Token, VirtualNode, Way,
};

type Key = (ClientId, TopicFilter);

/// One node: the algorithm, its shards, and the subscriptions of its own clients.
pub(crate) struct Node {
    pub(crate) overlay: SkipGraphOverlay,
    incarnation: u64,
    pub(crate) remote: BTreeSet<TopicFilter>,
    pub(crate) groups: BTreeMap<(NodeId, TopicFilter), (u32, u32)>,
    barriers: VecDeque<Barrier>,
    pub(crate) local: BTreeSet<Key>,
    /// Tokens that are waited for, with the subscription of each; none if the subscription was removed since.
    waiting: BTreeMap<Token, Key>,
    /// The subscriptions of `local` that are settled.
    pub(crate) settled: BTreeSet<Key>,
    pub(crate) tokens: Vec<Token>,
    pub(crate) synced: Vec<NodeId>,
    pub(crate) wanted_links: BTreeSet<NodeId>,
    pub(crate) protocol_errors: Vec<String>,
    /// Topics that clients of the node have published to.
    pub(crate) published: BTreeSet<String>,
}

pub(crate) struct Net {
    pub(crate) now: Instant,
    pub(crate) config: SkipGraphConfig,
    pub(crate) nodes: BTreeMap<u64, Node>,
    /// Signals under way; a pair that is missing has no link.
    pub(crate) links: BTreeMap<(u64, u64), VecDeque<Bytes>>,
    starts: u64,
    tokens: u64,
}

/// Outcome of a publication that was carried as the owner does it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Carried {
    /// Hops after which each destination has the publication.
    pub(crate) hops: BTreeMap<u64, usize>,
    /// Nodes that passed the publication on.
    pub(crate) relays: BTreeSet<u64>,
    pub(crate) messages: usize,
    /// The most that one node sent on receipt of one copy, or as the first.
    pub(crate) most: usize,
}

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

/// A node as membership and the handshake of a link tell of it.
pub(crate) fn neighbour(id: u64, incarnation: u64) -> Neighbour {
    let address = SocketAddr::from(([127, 0, 0, 1], 7000));
    Neighbour { node: NodeId::new(id), incarnation: Incarnation::new(incarnation), capacity: 1, address }
}

pub(crate) fn numbers(nodes: &[NodeId]) -> Vec<u64> {
    nodes.iter().map(|node| node.get()).collect()
}

/// Nothing counts as settled because time has passed.
pub(crate) fn patient() -> SkipGraphConfig {
    let mesh = MeshConfig { settle_timeout: Duration::from_hours(24), ..MeshConfig::default() };
    SkipGraphConfig { mesh, ..SkipGraphConfig::default() }
}

impl Node {
    /// How many changes wait to be settled.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }
}

impl Net {
    pub(crate) fn new(config: SkipGraphConfig) -> Self {
        Self { now: Instant::ZERO, config, nodes: BTreeMap::new(), links: BTreeMap::new(), starts: 0, tokens: 0 }
    }

    /// Nodes 1 to `count`, all linked and in one graph.
    pub(crate) fn of(count: u64) -> Self {
        Self::with(count, patient())
    }

    pub(crate) fn with(count: u64, config: SkipGraphConfig) -> Self {
        let mut net = Self::new(config);
        for node in 1..=count {
            net.join(node);
        }
        net.pass(20);
        net
    }

    /// Starts a node and links it to all others.
    pub(crate) fn join(&mut self, node: u64) {
        self.start(node);
        for other in self.others(node) {
            self.link(node, other);
        }
        self.settle();
    }

    pub(crate) fn start(&mut self, node: u64) {
        self.starts += 1;
        let incarnation = self.starts;
        let overlay =
            SkipGraphOverlay::new(NodeId::new(node), Incarnation::new(incarnation), self.config, Rng::new(incarnation));
        let state = Node {
            overlay,
            incarnation,
            remote: BTreeSet::new(),
            groups: BTreeMap::new(),
            barriers: VecDeque::new(),
            local: BTreeSet::new(),
            waiting: BTreeMap::new(),
            settled: BTreeSet::new(),
            tokens: Vec::new(),
            synced: Vec::new(),
            wanted_links: BTreeSet::new(),
            protocol_errors: Vec::new(),
            published: BTreeSet::new(),
        };
        self.nodes.insert(node, state);
        self.feed(node, Input::Load { capacity: 1, clients: 0 });
    }

    pub(crate) fn ids(&self) -> Vec<u64> {
        self.nodes.keys().copied().collect()
    }

    pub(crate) fn others(&self, node: u64) -> Vec<u64> {
        self.nodes.keys().copied().filter(|other| *other != node).collect()
    }

    pub(crate) fn node(&mut self, node: u64) -> &mut Node {
        self.nodes.get_mut(&node).expect("a node that runs")
    }

    /// Feeds an event without polling.
    pub(crate) fn feed(&mut self, node: u64, input: Input) {
        let now = self.wall();
        self.node(node).overlay.handle(now, input);
    }

    pub(crate) fn link(&mut self, a: u64, b: u64) {
        for (from, to) in [(a, b), (b, a)] {
            self.links.insert((from, to), VecDeque::new());
            let neighbour = neighbour(to, self.nodes[&to].incarnation);
            self.feed(from, Input::NeighbourUp(neighbour));
        }
    }

    pub(crate) fn link_all(&mut self) {
        for a in self.ids() {
            for b in self.ids().into_iter().filter(|b| *b < a) {
                if !self.links.contains_key(&(a, b)) {
                    self.link(a, b);
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

    /// The node is no more, and all others know at once.
    pub(crate) fn kill(&mut self, node: u64) {
        self.nodes.remove(&node);
        for other in self.ids() {
            self.cut(other, node, true);
        }
    }

    /// Changes at a node's own clients, as its owner reports them; each waits to be settled if `wait`.
    pub(crate) fn local(&mut self, node: u64, changes: &[Advert], wait: bool) {
        for change in changes {
            self.tokens += 1;
            let token = wait.then_some(Token(self.tokens));
            let state = self.node(node);
            let key = (change.client.clone(), change.filter.clone());
            match change.op {
                AdvertOp::Add { .. } => {
                    state.local.insert(key.clone());
                    state.waiting.extend(token.map(|token| (token, key)));
                }
                AdvertOp::Remove => {
                    state.local.remove(&key);
                    state.settled.remove(&key);
                    state.waiting.retain(|_, waiting| *waiting != key);
                }
            }
            self.feed(node, Input::Local { changes: vec![change.clone()], token });
        }
    }

    pub(crate) fn subscribe(&mut self, node: u64, text: &str) {
        self.local(node, &[add("c", text)], true);
        self.settle();
    }

    pub(crate) fn unsubscribe(&mut self, node: u64, text: &str) {
        self.local(node, &[remove("c", text)], true);
        self.settle();
    }

    pub(crate) fn poll(&mut self, node: u64) {
        let Some(state) = self.nodes.get_mut(&node) else { return };
        while let Some(output) = state.overlay.poll_output() {
            match output {
                Output::Signal { to, bytes } => {
                    assert!(bytes.len() <= 1024 * 1024);
                    let link = self.links.get_mut(&(node, to.get()));
                    link.expect("a signal needs a link").push_back(bytes);
                }
                Output::Link { node, wanted: true } => drop(state.wanted_links.insert(node)),
                Output::Link { node, wanted: false } => drop(state.wanted_links.remove(&node)),
                Output::Table(Advertised::Remote { filter, wanted: true }) => assert!(state.remote.insert(filter)),
                Output::Table(Advertised::Remote { filter, wanted: false }) => assert!(state.remote.remove(&filter)),
                Output::Table(Advertised::Group { node, group, online: 0, offline: 0 }) => {
                    assert!(state.groups.remove(&(node, group)).is_some(), "never told");
                }
                Output::Table(Advertised::Group { node, group, online, offline }) => {
                    assert_ne!(state.groups.insert((node, group), (online, offline)), Some((online, offline)));
                }
                Output::Barrier(barrier) => state.barriers.push_back(barrier),
                Output::Settled(token) => {
                    state.tokens.push(token);
                    state.settled.extend(state.waiting.remove(&token));
                }
                Output::Synced { node } => state.synced.push(node),
                Output::Protocol { detail, .. } => state.protocol_errors.push(detail),
                Output::Cut { .. } => panic!("nobody chooses links"),
            }
        }
    }

    pub(crate) fn poll_all(&mut self) {
        for node in self.ids() {
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
        let Some(barrier) = self.node(node).barriers.pop_front() else { return false };
        self.feed(node, Input::BarrierReached(barrier));
        true
    }

    /// Moves everything until nothing moves any more; returns how many signals that were.
    pub(crate) fn settle(&mut self) -> usize {
        let mut signals = 0;
        loop {
            self.poll_all();
            let mut moved = false;
            for (from, to) in self.links.keys().copied().collect::<Vec<_>>() {
                let delivered = self.deliver(from, to);
                signals += usize::from(delivered);
                moved |= delivered;
            }
            for node in self.ids() {
                moved |= self.reach(node);
            }
            if !moved {
                return signals;
            }
        }
    }

    /// Lets time pass; signals arrive at once.
    pub(crate) fn pass(&mut self, seconds: u64) {
        let end = self.now + Duration::from_secs(seconds);
        while let Some(next) = self.nodes.values().filter_map(|node| node.overlay.poll_timeout()).min() {
            if next > end {
                break;
            }
            self.tick(next);
            self.settle();
        }
        self.now = end;
    }

    /// Timers that are due at `at` run out.
    pub(crate) fn tick(&mut self, at: Instant) {
        self.now = self.now.max(at);
        let now = self.wall();
        self.nodes.values_mut().for_each(|node| node.overlay.handle_timeout(now));
    }

    /// A client of the node publishes.
    pub(crate) fn destinations(&mut self, node: u64, text: &str) -> Vec<u64> {
        let mut nodes = Vec::new();
        let state = self.node(node);
        state.published.insert(text.to_owned());
        state.overlay.destinations(&topic(text), &mut nodes);
        assert!(nodes.is_sorted_by(|a, b| a < b), "one is there twice: {nodes:?}");
        numbers(&nodes)
    }

    /// All that is known of the topic where a client publishes to it, after the first time.
    pub(crate) fn publish(&mut self, node: u64, text: &str) -> Vec<u64> {
        self.destinations(node, text);
        self.settle();
        self.destinations(node, text)
    }

    /// Other nodes whose clients want `text`, by their own records of subscriptions.
    pub(crate) fn wanting(&self, node: u64, text: &str, settled: bool) -> Vec<u64> {
        let name = topic(text);
        let wants = |other: &u64| {
            let state = &self.nodes[other];
            let mut filters = if settled { &state.settled } else { &state.local }.iter().map(|(_, filter)| filter);
            filters.any(|filter| filter.share_group().is_none() && filter.matches(&name))
        };
        self.others(node).into_iter().filter(wants).collect()
    }

    /// Carries a publication from `node` to `destinations` as the owner does: divided by `ways` at each node, never sent back.
    pub(crate) fn carry(&self, node: u64, text: &str, destinations: &[u64]) -> Carried {
        let topic = topic(text);
        let mut carried = Carried::default();
        let mut queue = VecDeque::from([(None, node, destinations.to_vec(), 0)]);
        while let Some((from, at, mut destinations, hops)) = queue.pop_front() {
            assert!(hops <= self.nodes.len(), "{text} from {node} to {destinations:?} goes round");
            if hops > 0 && destinations.contains(&at) {
                assert_eq!(carried.hops.insert(at, hops), None, "{text} comes to {at} twice");
            }
            destinations.retain(|destination| hops == 0 || *destination != at);
            if hops > 0 && !destinations.is_empty() {
                carried.relays.insert(at);
            }
            let mut parts: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
            let Some(state) = self.nodes.get(&at) else { continue };
            let straight = |destination| Way::straight(NodeId::new(destination));
            let mut ways: Vec<Way> = destinations.into_iter().map(straight).collect();
            state.overlay.ways(&topic, &mut ways);
            for way in ways {
                let (destination, next) = (way.destination.get(), way.next.get());
                assert_ne!(next, at, "a way to itself");
                assert!(next == destination || self.links.contains_key(&(at, next)), "a way without a link");
                let next = if Some(next) == from { destination } else { next };
                parts.entry(next).or_default().push(destination);
            }
            carried.messages += parts.len();
            carried.most = carried.most.max(parts.len());
            queue.extend(parts.into_iter().map(|(next, part)| (Some(at), next, part, hops + 1)));
        }
        carried
    }

    /// The virtual node of a topic at a node.
    pub(crate) fn virtual_node(&self, node: u64, text: &str, role: Role) -> Option<VirtualNode> {
        let view = self.nodes[&node].overlay.view(0, usize::MAX);
        let is_it = |own: &VirtualNode| own.key.topic.as_ref() == Some(&topic(text)) && own.key.role == role;
        view.virtual_nodes.into_iter().find(is_it)
    }

    /// SG-06, SG-09, SG-17, SG-18: the list of all virtual nodes is right at every place, so each topic is connected, and each topic
    /// with publishers has one rendezvous point.
    pub(crate) fn assert_graph(&self) {
        let views = self.nodes.values().map(|node| node.overlay.view(0, usize::MAX));
        let mut list: Vec<VirtualNode> = views.flat_map(|view| view.virtual_nodes).collect();
        list.sort_by(|one, other| one.key.cmp(&other.key));
        assert!(self.nodes.keys().all(|node| list.iter().any(|own| own.key.node.get() == *node)), "one is not in");
        let mut rendezvous: BTreeMap<TopicName, usize> = BTreeMap::new();
        for pair in list.windows(2) {
            let [one, other] = pair else { continue };
            let right = one.right.first().map(|peer| &peer.key);
            let left = other.left.first().map(|peer| &peer.key);
            if one.key.node == other.key.node {
                assert_eq!((right, left), (None, None), "between {:?} and {:?}", one.key, other.key);
            } else {
                assert_eq!((right, left), (Some(&other.key), Some(&one.key)));
            }
        }
        for own in &list {
            if let (Some(topic), Role::Publisher) = (&own.key.topic, own.key.role) {
                *rendezvous.entry(topic.clone()).or_default() += usize::from(own.is_rendezvous_point);
            }
        }
        assert!(rendezvous.values().all(|count| *count == 1), "{rendezvous:?}");
    }

    fn wall(&self) -> Now {
        Now { instant: self.now, wall: Timestamp::from_millis(self.now.as_nanos() / 1_000_000) }
    }
}
