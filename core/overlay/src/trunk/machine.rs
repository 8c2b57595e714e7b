//! The machine.

use core::net::SocketAddr;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use sedge_base::{Duration, Incarnation, Instant, NodeId, Rng};

use super::signal::{Signal, SignalError};
use crate::Neighbour;
use crate::spanning::{Rank, Spanning};
use crate::status::{TreeNode, TreeView};

/// How often claims are said again, and how often a node looks whether the tree is still good.
const REFRESH_MILLIS: u64 = 10_000;
const REFRESH: Duration = Duration::from_millis(REFRESH_MILLIS);

/// In a large tree, changes within this time are told and looked at together.
const PACE: Duration = Duration::from_millis(100);
/// In a large tree, a link may be missing for so long before others are told: most are about to come up or belong to dead nodes.
const DEAF: Duration = Duration::from_secs(2);

/// Counters of a tree, from the start on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrunkCounters {
    /// Trees that were complete and have been used.
    pub trees: u64,
    /// Epochs begun by this node because round trips or strengths had changed for good.
    pub renewals: u64,
    /// Signals about the tree that were sent.
    pub signals: u64,
}

impl TrunkCounters {
    /// The counters with their names.
    pub(crate) fn named(self) -> [(&'static str, u64); 3] {
        [("trees", self.trees), ("renewals", self.renewals), ("tree_signals", self.signals)]
    }
}

/// Another member, and the news that it has to be told.
#[derive(Debug)]
struct Peer {
    incarnation: Incarnation,
    /// Whether the peer has the present claim of this node.
    told: bool,
    /// Members that the peer cannot hear.
    deaf: BTreeSet<NodeId>,
    /// Claims passed on to the peer: epoch and version of each.
    passed: BTreeMap<NodeId, (u64, u32)>,
}

impl Peer {
    const fn new(incarnation: Incarnation) -> Self {
        Self { incarnation, told: false, deaf: BTreeSet::new(), passed: BTreeMap::new() }
    }
}

/// The tree over all nodes. See the [module](super).
#[derive(Debug)]
pub(crate) struct Trunk {
    me: Rank,
    spanning: Spanning,
    /// All members but this node.
    peers: BTreeMap<NodeId, Peer>,
    /// Links that are up, also to nodes that are no members any more.
    links: BTreeSet<NodeId>,
    /// Something may have to be said.
    dirty: bool,
    /// In a large tree: when that is done, and when it was done last.
    due: Option<Instant>,
    paced: Instant,
    /// Members without a link, as was last told to all.
    deaf: Vec<NodeId>,
    /// In a large tree: when it is looked at them again.
    deaf_due: Option<Instant>,
    /// How many others have told that they cannot hear somebody.
    deaf_peers: usize,
    /// Some peer has not been told our claim as it is.
    untold: bool,
    now: Instant,
    outdated: bool,
    next_check: Option<Instant>,
    /// The epoch in use when trees were last counted.
    counted: u64,
    counters: TrunkCounters,
    signals: VecDeque<(NodeId, Bytes)>,
    rng: Rng,
}

impl Trunk {
    /// The tree of one node with this id and address for links. `rng` keeps the nodes out of step.
    pub(crate) fn new(me: NodeId, address: SocketAddr, rng: Rng) -> Self {
        let me = Rank { capability: 1, address, node: me };
        Self {
            me,
            spanning: Spanning::new(me),
            peers: BTreeMap::new(),
            links: BTreeSet::new(),
            dirty: false,
            due: None,
            paced: Instant::ZERO,
            deaf: Vec::new(),
            deaf_due: None,
            deaf_peers: 0,
            untold: false,
            now: Instant::ZERO,
            outdated: false,
            next_check: None,
            counted: 0,
            counters: TrunkCounters::default(),
            signals: VecDeque::new(),
            rng,
        }
    }

    pub(crate) const fn counters(&self) -> TrunkCounters {
        self.counters
    }

    pub(crate) fn member_up(&mut self, now: Instant, member: &Neighbour) {
        let Neighbour { node, incarnation, capacity, address } = *member;
        if node == self.me.node {
            return;
        }
        let out_of_step = Duration::from_millis(self.rng.below(REFRESH_MILLIS));
        self.next_check.get_or_insert(now + out_of_step);
        if self.peers.get(&node).is_some_and(|peer| peer.incarnation < incarnation) {
            // This is another life of the node: it knows nothing of the signals of the last one.
            self.member_down(node);
        }
        if self.peers.contains_key(&node) {
            return;
        }
        self.peers.insert(node, Peer::new(incarnation));
        self.untold = true;
        self.spanning.join(node, Rank { capability: capacity.into(), address, node });
        if !self.links.contains(&node) {
            self.spanning.unlink(node);
        }
        self.links_changed();
    }

    pub(crate) fn member_down(&mut self, node: NodeId) {
        if let Some(peer) = self.peers.remove(&node) {
            self.deaf_peers -= usize::from(!peer.deaf.is_empty());
            self.spanning.leave(node);
            self.links_changed();
        }
    }

    pub(crate) fn link_up(&mut self, now: Instant, neighbour: &Neighbour) {
        let node = neighbour.node;
        self.drop_signals(node);
        self.links.insert(node);
        self.member_up(now, neighbour);
        self.spanning.link(node);
        if let Some(peer) = self.peers.get_mut(&node) {
            self.deaf_peers -= usize::from(!peer.deaf.is_empty());
            *peer = Peer::new(peer.incarnation);
            self.untold = true;
        }
        self.links_changed();
    }

    pub(crate) fn link_down(&mut self, node: NodeId) {
        self.drop_signals(node);
        if self.links.remove(&node) {
            self.spanning.unlink(node);
            self.links_changed();
        }
    }

    /// Signals that no link has taken must not reach the next one.
    fn drop_signals(&mut self, node: NodeId) {
        self.signals.retain(|(to, _)| *to != node);
    }

    pub(crate) fn round_trip(&mut self, node: NodeId, micros: u32) {
        self.spanning.round_trip(node, micros);
        self.changed();
    }

    /// Sets the capacity of this node.
    pub(crate) fn set_capacity(&mut self, capacity: u32) {
        self.me.capability = capacity.into();
        self.spanning.set_rank(self.me);
        self.changed();
    }

    pub(crate) fn hear(&mut self, from: NodeId, bytes: &[u8]) -> Result<(), SignalError> {
        if !self.links.contains(&from) {
            return Ok(());
        }
        let Signal { claim, deaf, passed } = Signal::decode(bytes)?;
        self.spanning.hear(from, claim);
        for (node, claim) in passed {
            // A member with a link to this node speaks for itself.
            if !self.links.contains(&node) {
                self.spanning.hear_of(node, claim);
            }
        }
        if let Some(peer) = self.peers.get_mut(&from) {
            self.deaf_peers -= usize::from(!peer.deaf.is_empty());
            peer.deaf = deaf.into_iter().collect();
            self.deaf_peers += usize::from(!peer.deaf.is_empty());
            let Peer { deaf, passed, .. } = peer;
            passed.retain(|node, _| deaf.contains(node));
        }
        self.changed();
        Ok(())
    }

    fn changed(&mut self) {
        self.dirty = true;
        if self.spanning.is_large() && (self.untold || self.deaf_peers > 0 || self.spanning.is_stale()) {
            let due = self.now.max(self.paced + PACE);
            self.due.get_or_insert(due);
        }
        if self.spanning.is_complete() && self.spanning.epoch_in_use() != self.counted {
            self.counted = self.spanning.epoch_in_use();
            self.counters.trees += 1;
        }
    }

    /// Others may have to be told which members this node cannot hear.
    fn links_changed(&mut self) {
        if self.spanning.is_large() {
            self.deaf_due.get_or_insert(self.now + DEAF);
        } else {
            self.look_for_deaf();
        }
        self.changed();
    }

    fn look_for_deaf(&mut self) {
        let deaf: Vec<NodeId> = self.peers.keys().filter(|node| !self.links.contains(node)).copied().collect();
        if deaf != self.deaf {
            self.deaf = deaf;
            self.tell_all();
        }
    }

    fn tell_all(&mut self) {
        self.peers.values_mut().for_each(|peer| peer.told = false);
        self.untold = true;
    }

    /// Sets the time of the following events.
    pub(crate) const fn tick(&mut self, now: Instant) {
        self.now = now;
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.now = now;
        self.check(now);
        if self.deaf_due.is_some_and(|at| at <= now) {
            self.deaf_due = None;
            self.look_for_deaf();
            self.changed();
        }
        if self.due.is_some_and(|at| at <= now) {
            self.due = None;
            self.paced = now;
            self.spanning.refresh();
            self.flush();
        }
    }

    /// Looks every now and then whether the tree is still good.
    fn check(&mut self, now: Instant) {
        if self.next_check.is_none_or(|at| at > now) {
            return;
        }
        self.next_check = (!self.peers.is_empty()).then_some(now + REFRESH);
        let before = core::mem::replace(&mut self.outdated, self.spanning.is_outdated() || self.spanning.is_stuck());
        if before && self.outdated {
            self.outdated = false;
            self.counters.renewals += 1;
            self.spanning.improve();
        }
        self.peers.values_mut().for_each(|peer| peer.passed.clear());
        self.tell_all();
        self.changed();
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        [self.next_check, self.due, self.deaf_due].into_iter().flatten().min()
    }

    /// The next signal and the node that it is for.
    pub(crate) fn poll_signal(&mut self) -> Option<(NodeId, Bytes)> {
        if self.dirty && self.due.is_none() {
            self.flush();
        }
        self.signals.pop_front()
    }

    fn flush(&mut self) {
        self.dirty = false;
        if self.spanning.take_news() {
            self.tell_all();
        }
        if self.deaf_peers == 0 && !core::mem::replace(&mut self.untold, false) {
            return;
        }
        let claims: BTreeMap<NodeId, _> =
            if self.deaf_peers == 0 { BTreeMap::new() } else { self.spanning.claims().collect() };
        for (to, peer) in self.peers.iter_mut().filter(|(node, _)| self.links.contains(node)) {
            let unheard = peer.deaf.iter().filter_map(|node| Some((*node, *claims.get(node)?)));
            let passed: Vec<_> = unheard
                .filter(|(node, claim)| {
                    peer.passed.insert(*node, (claim.epoch, claim.version)) != Some((claim.epoch, claim.version))
                })
                .collect();
            if peer.told && passed.is_empty() {
                continue;
            }
            peer.told = true;
            self.counters.signals += 1;
            let signal = Signal { claim: self.spanning.claim(), deaf: self.deaf.clone(), passed };
            self.signals.push_back((*to, signal.encode()));
        }
    }

    /// All other members.
    pub(crate) fn members(&self) -> impl Iterator<Item = NodeId> {
        self.peers.keys().copied()
    }

    pub(crate) fn is_linked(&self, node: NodeId) -> bool {
        self.links.contains(&node)
    }

    /// The neighbour over which a publication goes to this node: the node itself where the tree has no way.
    pub(crate) fn way(&self, destination: NodeId) -> NodeId {
        self.spanning.hop_towards(destination).filter(|hop| self.links.contains(hop)).unwrap_or(destination)
    }

    /// The nodes between this one and another in the tree in use.
    pub(crate) fn between(&self, destination: NodeId) -> Vec<NodeId> {
        self.spanning.between(destination)
    }

    /// Grows whenever the tree or the ways in it change.
    pub(crate) const fn version(&self) -> u64 {
        self.spanning.version_in_use()
    }

    pub(crate) fn view(&self) -> TreeView {
        let claims: BTreeMap<NodeId, _> =
            self.spanning.claims().chain([(self.me.node, self.spanning.claim())]).collect();
        let parents = self.spanning.parents();
        let nodes = parents.iter().map(|(node, parent)| {
            let claim = claims.get(node);
            let cost = claim.map(|claim| claim.cost).filter(|cost| *cost != crate::spanning::UNREACHABLE);
            TreeNode { node: *node, parent: *parent, cost, capability: claim.map_or(0, |claim| claim.capability) }
        });
        let root = parents.iter().find(|(_, parent)| parent.is_none()).map_or(self.me.node, |(node, _)| *node);
        TreeView {
            topic: None,
            epoch: self.spanning.epoch_in_use(),
            complete: self.spanning.is_complete(),
            root,
            nodes: nodes.collect(),
        }
    }
}
