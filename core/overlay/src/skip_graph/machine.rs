//! The machine: one physical node of the graph.

use std::collections::{BTreeMap, VecDeque};

use sedge_base::{Duration, Incarnation, Instant, NodeId};

use super::interest::Interest;
use super::leave::Leaver;
use super::repair::Health;
use super::table::{Peer, Place, Row, Side};
use super::{Base, Key, Message, Method, Role, Status, Topic, Vector};

/// Messages kept for virtual nodes that are joining; the oldest is dropped first, and said again by its sender before long.
const MAX_EARLY: usize = 64;

/// Farewells that are remembered; the oldest is forgotten first.
const MAX_FAREWELLS: usize = 16;

/// Settings of [`Node`].
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Base of the membership vectors; the same at all nodes.
    pub base: Base,
    /// How publications are spread over the subscribers; the same at all nodes.
    pub method: Method,
    /// How often neighbours are probed and doubtful links looked at; none to rest as long as nothing happens.
    pub tick: Option<Duration>,
    /// Ticks without a word from a neighbour after which it counts as dead.
    pub silent_ticks: u8,
    /// After so many ticks a suspended publisher asks its neighbour for its status (SG-16).
    pub status_ticks: u32,
    /// A topic without publications for so long has lost its publisher here.
    pub publisher_idle: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            base: Base::Two,
            method: Method::Sfb,
            tick: Some(Duration::from_secs(1)),
            silent_ticks: 3,
            status_ticks: 10,
            publisher_idle: Duration::from_mins(10),
        }
    }
}

/// An event for the machine.
#[derive(Clone, Debug)]
pub enum Input<T> {
    /// A node that is in the graph, or about to be.
    Introducer(NodeId),
    /// As [`Input::Introducer`], of a node that could not be reached for a while or was never reached before: messages may have been
    /// lost, so all links are looked at soon.
    Reached(NodeId),
    /// No node that could help is in a list: begin one. Not to be said to two nodes at once, or two lists have to be made one.
    Begin,
    /// Ask this node for help, if this one waits to join its first list.
    JoinBy(NodeId),
    /// Take part: join with the topics there are, or with a placeholder.
    Start,
    /// Take part no more: leave with everything.
    Stop,
    /// The first local client subscribes to the topic (SG-08).
    Subscribe(T),
    /// The last local client that subscribed to the topic is gone.
    Unsubscribe(T),
    /// Clients will publish to the topic. The first call of [`Node::publish`] does the same.
    Advertise(T),
    /// Nobody publishes to the topic any more.
    Withdraw(T),
    /// The owner knows that the status of this topic is wrong: the rendezvous point has to look once more (SG-15).
    Report(T),
    /// A message came.
    Message {
        /// From which node.
        from: NodeId,
        /// The message that the node sent.
        message: Message<T>,
    },
    /// A node is dead.
    NodeDown(NodeId),
}

/// Task for the owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output<T> {
    /// Send this to a node, behind all that was sent to it before.
    Send {
        /// The node to which the message goes.
        to: NodeId,
        /// The message to send.
        message: Message<T>,
    },
    /// Whether publications to this topic leave the node has changed, or is known for the first time.
    Status {
        /// The topic.
        topic: T,
        /// Whether publications leave the node.
        active: bool,
    },
    /// A virtual node of this node is in the list.
    Inserted(Key<T>),
    /// A virtual node of this node is out of the list.
    Removed(Key<T>),
}

/// Counters of [`Node`], from its start on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages given up because they were passed on too often, or because this node was in no list.
    pub lost: u64,
    /// Neighbours taken for dead.
    pub dead: u64,
}

/// Whether a virtual node is on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    In,
    Leaving,
}

/// A virtual node of this node that wants to be in the list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Joining {
    /// Ticks without an answer.
    pub(super) waited: u32,
    pub(super) life: u64,
}

/// A virtual node of this node that is in the list.
#[derive(Clone, Debug)]
pub(super) struct Vnode<T> {
    pub(super) left: Row<T>,
    pub(super) right: Row<T>,
    pub(super) stage: Stage,
    /// How often it has asked again to be let go.
    pub(super) departures: u8,
    pub(super) life: u64,
    pub(super) health: Health,
}

impl<T: Topic> Vnode<T> {
    pub(super) const fn row(&self, side: Side) -> &Row<T> {
        match side {
            Side::Left => &self.left,
            Side::Right => &self.right,
        }
    }

    pub(super) const fn row_mut(&mut self, side: Side) -> &mut Row<T> {
        match side {
            Side::Left => &mut self.left,
            Side::Right => &mut self.right,
        }
    }
}

/// One physical node of a Multi-key Skip Graph.
#[derive(Debug)]
pub struct Node<T> {
    pub(super) me: NodeId,
    pub(super) place: Place,
    pub(super) config: Config,
    pub(super) started: bool,
    pub(super) vnodes: BTreeMap<Key<T>, Vnode<T>>,
    pub(super) joining: BTreeMap<Key<T>, Joining>,
    /// The last life that began: all lives of a key up to it that are not in the list or about to be are over.
    pub(super) lives: u64,
    /// Messages that came for virtual nodes that do not know yet that they have joined.
    early: VecDeque<Message<T>>,
    pub(super) topics: BTreeMap<T, Interest>,
    /// Own virtual nodes that have left lately, and their left neighbours then: some messages may still be on their way to them.
    pub(super) former: VecDeque<(Key<T>, Peer<T>)>,
    /// Virtual nodes of others that have left lately, and in which life: their earlier messages may come later on another way.
    pub(super) farewells: VecDeque<(Key<T>, u64)>,
    pub(super) introducers: VecDeque<NodeId>,
    /// Introducers that are in no list either.
    pub(super) outside: Vec<NodeId>,
    /// Publishers whose right neighbour may be another than before.
    pub(super) changed: Vec<Key<T>>,
    /// Ticks for which each neighbour has been silent.
    pub(super) silent: BTreeMap<NodeId, u8>,
    pub(super) next_tick: Option<Instant>,
    pub(super) ticks: u32,
    pub(super) counters: Counters,
    /// Messages of this node to itself.
    inbox: VecDeque<Message<T>>,
    pub(super) outputs: VecDeque<Output<T>>,
}

impl<T: Topic> Node<T> {
    /// Node `me`, in no list yet. The incarnation must be larger after each restart, by more than the number of joins before.
    pub fn new(me: NodeId, incarnation: Incarnation, vector: Vector, config: Config) -> Self {
        Self {
            me,
            place: Place { vector, base: config.base },
            config,
            started: false,
            vnodes: BTreeMap::new(),
            joining: BTreeMap::new(),
            lives: incarnation.get(),
            early: VecDeque::new(),
            topics: BTreeMap::new(),
            former: VecDeque::new(),
            farewells: VecDeque::new(),
            introducers: VecDeque::new(),
            outside: Vec::new(),
            changed: Vec::new(),
            silent: BTreeMap::new(),
            next_tick: None,
            ticks: 0,
            counters: Counters::default(),
            inbox: VecDeque::new(),
            outputs: VecDeque::new(),
        }
    }

    /// Feeds one event.
    pub fn handle(&mut self, now: Instant, input: Input<T>) {
        match input {
            Input::Introducer(node) => self.introduce(node),
            Input::Reached(node) => {
                self.introducers.retain(|known| *known != node);
                self.introduce(node);
            }
            Input::Begin => drop(self.begin()),
            Input::JoinBy(node) => self.join_by(node),
            Input::Start => {
                self.started = true;
                self.next_tick = self.config.tick.map(|tick| now + tick);
                self.settle_all();
            }
            Input::Stop => {
                self.started = false;
                self.joining.clear();
                self.settle_all();
            }
            Input::Subscribe(topic) => self.subscribe(&topic),
            Input::Unsubscribe(topic) => self.unsubscribe(&topic),
            Input::Advertise(topic) => self.advertise(now, &topic),
            Input::Withdraw(topic) => self.withdraw(&topic),
            Input::Report(topic) => self.report(&topic),
            Input::Message { from, message } => {
                self.silent.remove(&from);
                self.on_message(from, message);
            }
            Input::NodeDown(node) => self.node_down(node),
        }
        self.run();
    }

    /// Does all that is due; early or repeated calls do nothing.
    pub fn handle_timeout(&mut self, now: Instant) {
        let (Some(due), Some(tick)) = (self.next_tick, self.config.tick) else { return };
        if now < due {
            return;
        }
        self.next_tick = (self.started || !self.vnodes.is_empty()).then(|| now + tick);
        self.tick(now);
        self.run();
    }

    /// Takes the next task for the owner.
    pub fn poll_output(&mut self) -> Option<Output<T>> {
        let output = self.outputs.pop_front();
        if output.is_none() {
            // A node at rest holds no memory for messages: there may be very many nodes in one process.
            self.outputs = VecDeque::new();
        }
        output
    }

    /// When [`Node::handle_timeout`] is next wanted.
    pub const fn poll_timeout(&self) -> Option<Instant> {
        self.next_tick
    }

    /// Its id.
    pub const fn id(&self) -> NodeId {
        self.me
    }

    /// Its membership vector.
    pub const fn vector(&self) -> Vector {
        self.place.vector
    }

    /// Spreads publications with another method from now on.
    pub const fn set_method(&mut self, method: Method) {
        self.config.method = method;
    }

    /// The counters so far.
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// Whether everything that was asked for is done: nothing joins or leaves.
    pub fn is_settled(&self) -> bool {
        self.joining.is_empty() && self.vnodes.values().all(|vnode| vnode.stage == Stage::In)
    }

    /// The keys of its virtual nodes in the list, in order.
    pub fn keys(&self) -> impl Iterator<Item = &Key<T>> {
        self.vnodes.keys()
    }

    /// The neighbours of a virtual node on one side that belong to other nodes, nearest first, each once.
    pub fn neighbours(&self, key: &Key<T>, side: Side) -> &[Peer<T>] {
        self.vnodes.get(key).map_or(&[], |vnode| vnode.row(side).peers())
    }

    /// The status of a topic that this node publishes to and does not subscribe to, once it is known.
    pub fn status(&self, topic: &T) -> Option<Status> {
        self.topics.get(topic).and_then(|interest| interest.status)
    }

    pub(super) fn send(&mut self, to: NodeId, message: Message<T>) {
        if to == self.me {
            self.inbox.push_back(message);
        } else {
            self.outputs.push_back(Output::Send { to, message });
        }
    }

    pub(super) fn run(&mut self) {
        loop {
            if let Some(message) = self.inbox.pop_front() {
                self.on_message(self.me, message);
            } else if let Some(key) = self.changed.pop() {
                self.check_status(&key);
            } else {
                break;
            }
        }
        self.inbox = VecDeque::new();
    }

    /// The neighbour that let a virtual node join has told others before its answer is here: they must not hear that it does not exist.
    fn is_early(&self, message: &Message<T>) -> bool {
        let (Message::Walk { to, .. }
        | Message::Link { to, .. }
        | Message::Linked { to, .. }
        | Message::Leave { to, .. }) = message
        else {
            return false;
        };
        self.joining.contains_key(to)
    }

    /// A virtual node has joined: messages that came too early are looked at again.
    pub(super) fn replay_early(&mut self) {
        self.inbox.extend(core::mem::take(&mut self.early));
    }

    fn on_message(&mut self, from: NodeId, message: Message<T>) {
        if self.is_early(&message) {
            if self.early.len() == MAX_EARLY {
                self.early.pop_front();
            }
            self.early.push_back(message);
            return;
        }
        match message {
            Message::Route { to, target, hops, errand } => {
                if let Some(key) = to {
                    self.tell_if_gone(from, key);
                }
                self.route(target, hops, errand);
            }
            Message::Joined { to, left, right, status } => {
                self.on_joined(from, to, left.as_ref(), right.as_ref(), status);
            }
            Message::Walk { to, peer, side } => self.on_walk(&to, &peer, side),
            Message::Link { to, peer, level } => self.on_link(to, &peer, level),
            Message::Linked { to, peer, hint, status } => self.on_linked(to, &peer, hint, status),
            Message::Leave { to, key, life, right, hops } => self.on_leave(&to, Leaver { key, life, right }, hops),
            Message::Left { to, by } => self.on_left(&to, &by),
            Message::Gone { key, life, instead } => self.on_gone(&key, life, &instead),
            Message::Cast { note, topic, status } => self.on_cast(&note, &topic, status),
            Message::Order { topic, status } => self.on_order(&topic, status),
            Message::Ask { to, from } => self.on_ask(&to, from),
            Message::Answer { to, status } => self.on_answer(&to, status),
            Message::Outside => self.on_outside(from),
            Message::Ping => self.send(from, Message::Pong),
            Message::Pong => {}
        }
    }

    pub(super) fn peer_of(&self, key: Key<T>) -> Peer<T> {
        let life = self.vnodes.get(&key).map(|vnode| vnode.life);
        let life = life.or_else(|| self.joining.get(&key).map(|joining| joining.life)).unwrap_or(self.lives);
        Peer { key, vector: self.place.vector, life }
    }

    /// The next own virtual node from `key` on this side, `key` itself left out.
    pub(super) fn own_beside(&self, key: &Key<T>, side: Side) -> Option<&Key<T>> {
        use core::ops::Bound::{Excluded, Unbounded};
        match side {
            Side::Left => self.vnodes.range(..key).next_back().map(|(key, _)| key),
            Side::Right => self.vnodes.range((Excluded(key), Unbounded)).next().map(|(key, _)| key),
        }
    }

    /// The level-0 neighbour of an own virtual node.
    pub(super) fn neighbour(&self, key: &Key<T>, side: Side) -> Option<Peer<T>> {
        if let Some(nearest) = self.vnodes.get(key).and_then(|vnode| vnode.row(side).nearest()) {
            return Some(nearest.clone());
        }
        self.own_beside(key, side).map(|own| self.peer_of(own.clone()))
    }

    /// Takes in a virtual node of another node where it is a neighbour. Returns the own ones that have it in their tables since now.
    pub(super) fn learn(&mut self, peer: &Peer<T>) -> [Option<Key<T>>; 2] {
        if self.farewells.iter().any(|(key, life)| *key == peer.key && peer.life <= *life) {
            return [None, None];
        }
        [Side::Left, Side::Right].map(|side| {
            if peer.key.node == self.me {
                return None;
            }
            let key = self.own_beside(&peer.key, side)?.clone();
            let place = self.place;
            let vnode = self.vnodes.get_mut(&key)?;
            let learnt = vnode.row_mut(side.other()).learn(side.other(), place, peer);
            if learnt {
                vnode.health.doubt();
                self.note_change(&key);
            }
            learnt.then_some(key)
        })
    }

    /// Forgets a virtual node of another node.
    pub(super) fn forget(&mut self, gone: &Key<T>, life: u64) {
        if self.farewells.len() == MAX_FAREWELLS {
            self.farewells.pop_front();
        }
        self.farewells.push_back((gone.clone(), life));
        for side in [Side::Left, Side::Right] {
            let Some(key) = self.own_beside(gone, side).cloned() else { continue };
            let Some(vnode) = self.vnodes.get_mut(&key) else { continue };
            if vnode.row_mut(side.other()).remove(gone, life) {
                vnode.health.doubt();
                self.note_change(&key);
            }
        }
    }

    pub(super) fn note_change(&mut self, key: &Key<T>) {
        if key.role == Role::Publisher && key.topic.is_some() && self.changed.last() != Some(key) {
            self.changed.push(key.clone());
        }
    }
}
