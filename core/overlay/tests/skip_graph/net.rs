//! Nodes and the wires between them. Each wire keeps its order; which one is next is drawn.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use sedge_base::{Duration, Incarnation, Instant, NodeId, Rng};
use sedge_overlay::skip_graph::{Config, Hop, Input, Message, Method, Node, Output, Publication, Range, Vector};

pub(crate) type Wire = (u64, u64);
type Loss = fn(&Message<u32>) -> bool;

pub(crate) struct Net {
    pub(crate) nodes: BTreeMap<u64, Node<u32>>,
    pub(crate) rng: Rng,
    pub(crate) config: Config,
    /// Messages that are lost.
    pub(crate) lose: Loss,
    /// Messages sent since the start.
    pub(crate) sent: usize,
    now: Instant,
    starts: u64,
    wires: BTreeMap<Wire, VecDeque<Message<u32>>>,
    busy: Vec<Wire>,
}

/// Outcome of a publication.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// How often, and after how many hops last, each node was to deliver it.
    pub(crate) delivered: BTreeMap<u64, (usize, u16)>,
    /// Nodes that received a copy.
    pub(crate) visited: BTreeSet<u64>,
    pub(crate) messages: usize,
}

impl Outcome {
    pub(crate) fn receivers(&self) -> Vec<u64> {
        assert!(self.delivered.values().all(|(times, _)| *times == 1), "delivered twice: {self:?}");
        self.delivered.keys().copied().collect()
    }
}

impl Net {
    /// A net without nodes and without a clock: only messages cause actions.
    pub(crate) fn new(seed: u64) -> Self {
        Self::with(seed, Config { tick: None, ..Config::default() })
    }

    pub(crate) fn with(seed: u64, config: Config) -> Self {
        Self {
            nodes: BTreeMap::new(),
            rng: Rng::new(seed),
            config,
            lose: |_| false,
            sent: 0,
            now: Instant::ZERO,
            starts: 0,
            wires: BTreeMap::new(),
            busy: Vec::new(),
        }
    }

    /// A network of `count` nodes without topics.
    pub(crate) fn of(seed: u64, count: u64) -> Self {
        let mut net = Self::new(seed);
        for node in 0..count {
            net.start(node);
            net.run();
        }
        net
    }

    /// Adds a node that any other one introduces.
    pub(crate) fn start(&mut self, node: u64) {
        let vector = Vector::random(&mut self.rng);
        self.start_as(node, vector);
    }

    pub(crate) fn start_as(&mut self, node: u64, vector: Vector) {
        let known: Vec<u64> = self.nodes.keys().copied().collect();
        self.add(node, vector);
        for _ in 0..3 {
            if let Some(introducer) = self.rng.pick(&known).copied() {
                self.feed(node, Input::Introducer(NodeId::new(introducer)));
            }
        }
        self.feed(node, Input::Start);
    }

    /// Puts a node into the net that has not started, in an incarnation of its own.
    pub(crate) fn add(&mut self, node: u64, vector: Vector) {
        self.starts += 1;
        let incarnation = Incarnation::new(1_000_000 * self.starts);
        self.nodes.insert(node, Node::new(NodeId::new(node), incarnation, vector, self.config));
    }

    pub(crate) fn feed(&mut self, node: u64, input: Input<u32>) {
        let now = self.now;
        self.nodes.get_mut(&node).expect("a node").handle(now, input);
        self.collect(node);
    }

    fn collect(&mut self, node: u64) {
        while let Some(output) = self.nodes.get_mut(&node).expect("a node").poll_output() {
            if let Output::Send { to, message } = output {
                assert_ne!(to.get(), node, "a message to itself");
                self.sent += 1;
                if !(self.lose)(&message) {
                    let wire = self.wires.entry((node, to.get())).or_default();
                    if wire.is_empty() {
                        self.busy.push((node, to.get()));
                    }
                    wire.push_back(message);
                }
            }
        }
    }

    /// Delivers one message; says whether there was one.
    pub(crate) fn step(&mut self) -> bool {
        if self.busy.is_empty() {
            return false;
        }
        let at = self.rng.index(self.busy.len());
        let (from, to) = self.busy[at];
        let wire = self.wires.get_mut(&(from, to)).expect("a wire");
        let message = wire.pop_front().expect("a message");
        if wire.is_empty() {
            self.busy.swap_remove(at);
        }
        if self.nodes.contains_key(&to) {
            self.feed(to, Input::Message { from: NodeId::new(from), message });
        }
        true
    }

    pub(crate) fn run(&mut self) {
        for _ in 0..5_000_000 {
            if !self.step() {
                return;
            }
        }
        panic!("the network does not come to rest");
    }

    /// Lets time pass, second by second; messages arrive within it.
    pub(crate) fn wait(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now = self.now + Duration::from_secs(1);
            for node in self.nodes.keys().copied().collect::<Vec<_>>() {
                let now = self.now;
                self.nodes.get_mut(&node).expect("a node").handle_timeout(now);
                self.collect(node);
            }
            self.run();
        }
    }

    /// The node is no more, and neither are messages from and to it.
    pub(crate) fn kill(&mut self, node: u64) {
        self.nodes.remove(&node);
        self.wires.retain(|(from, to), _| *from != node && *to != node);
        self.busy.retain(|(from, to)| *from != node && *to != node);
        // Membership names other nodes to a node that is not in the list yet.
        let outside = self.nodes.values().filter(|node| node.keys().next().is_none()).map(|node| node.id().get());
        let outside: Vec<u64> = outside.collect();
        let inside: Vec<u64> = self.nodes.keys().copied().filter(|node| !outside.contains(node)).collect();
        for lost in outside {
            if let Some(introducer) = self.rng.pick(&inside).copied() {
                self.feed(lost, Input::Introducer(NodeId::new(introducer)));
            }
        }
    }

    /// Membership tells all nodes of a node that is no more, and names another in its place: a node that knows only nodes that have gone
    /// could not find the list again.
    pub(crate) fn tell_gone(&mut self, gone: u64) {
        let members: Vec<u64> = self.nodes.keys().copied().collect();
        for member in &members {
            self.feed(*member, Input::NodeDown(NodeId::new(gone)));
            if let Some(introducer) = self.rng.pick(&members).copied() {
                self.feed(*member, Input::Introducer(NodeId::new(introducer)));
            }
        }
    }

    pub(crate) fn set_method(&mut self, method: Method) {
        self.config.method = method;
        self.nodes.values_mut().for_each(|node| node.set_method(method));
    }

    /// Publishes and moves all copies; signals that this causes are moved as well.
    pub(crate) fn publish(&mut self, node: u64, topic: u32) -> Publication<u32> {
        let now = self.now;
        let publication = self.nodes.get_mut(&node).expect("a node").publish(now, &topic);
        self.collect(node);
        self.run();
        publication
    }

    /// As [`Net::publish`], to the end.
    pub(crate) fn deliver(&mut self, node: u64, topic: u32) -> Outcome {
        match self.publish(node, topic) {
            Publication::Cast(hops) => self.carry(hops),
            Publication::Suspended => Outcome::default(),
            Publication::Undecided => panic!("{node} does not know whether {topic} is wanted"),
        }
    }

    pub(crate) fn query(&mut self, node: u64, range: Range<u32>) -> Outcome {
        let hops = self.nodes.get_mut(&node).expect("a node").query(range);
        self.carry(hops)
    }

    fn carry(&mut self, hops: Vec<Hop<u32>>) -> Outcome {
        let mut outcome = Outcome::default();
        let mut queue = VecDeque::from(hops);
        while let Some(Hop { node, note }) = queue.pop_front() {
            outcome.messages += 1;
            outcome.visited.insert(node.get());
            let Some(machine) = self.nodes.get_mut(&node.get()) else { continue };
            let forward = machine.forward(&note);
            if forward.deliver {
                let entry = outcome.delivered.entry(node.get()).or_default();
                *entry = (entry.0 + 1, note.hops);
            }
            queue.extend(forward.hops);
            self.collect(node.get());
        }
        self.run();
        outcome
    }
}
