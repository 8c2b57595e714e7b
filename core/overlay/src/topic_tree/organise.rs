//! From members to trees: elections, round trips, and which tree each topic uses.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use sedge_base::{Duration, Instant, NodeId};
use sedge_mqtt::TopicName;

use super::RootPolicy;
use super::local::cut;
use super::machine::TopicTree;
use super::peer::Peers;
use super::signal::{Elected, Facts, ROOT_LEN, Signal};
use super::topics::{Members, members_key, topic_key};
use super::trees::Map;
use crate::spanning::Rank;

/// From so many other nodes on, a node tells its facts at most once in this time: all others hear them, and all the time some node comes or
/// goes.
const LARGE: usize = 64;
const PACE: Duration = Duration::from_secs(2);

/// Whether two loads differ so much that the others are told: by more than a quarter of the greater.
fn is_far(one: u32, other: u32) -> bool {
    one.abs_diff(other) > one.max(other) / 4
}

/// Changes that trees and roots do not follow yet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stale {
    pub(super) facts: bool,
    pub(super) roots: bool,
    /// Only the number of topics rooted at each node.
    pub(super) rooted: bool,
}

/// This node's statements about itself.
#[derive(Debug)]
pub(super) struct Own {
    pub(super) capacity: u32,
    pub(super) clients: u32,
    /// Facts that the other nodes have been told last. Trees are computed from them, so that all nodes compute the same.
    pub(super) told: Facts,
    /// Something has changed that the other nodes should be told.
    pub(super) is_due: bool,
    /// Some node has been told.
    pub(super) has_spoken: bool,
    /// When all nodes were told last.
    spoken: Option<Instant>,
    /// With many nodes: when they are told next.
    pub(super) speak_at: Option<Instant>,
}

impl Own {
    pub(super) fn new() -> Self {
        let told = Facts { capacity: 1, ..Facts::default() };
        Self { capacity: 1, clients: 0, told, is_due: false, has_spoken: false, spoken: None, speak_at: None }
    }

    /// The load changes; says whether so much that the others should be told.
    pub(super) fn load(&mut self, capacity: u32, clients: u32) -> bool {
        (self.capacity, self.clients) = (capacity, clients);
        if !self.has_spoken {
            (self.told.capacity, self.told.clients) = (capacity, clients);
        }
        let is_far = is_far(capacity, self.told.capacity) || is_far(clients, self.told.clients);
        self.is_due |= is_far;
        is_far
    }
}

impl TopicTree {
    /// Elections and facts have to wait until other changes have gathered.
    pub(super) fn gather(&mut self) {
        self.collect_at.get_or_insert(self.now + self.config.collect);
    }

    /// Brings members and trees up to date with all that was heard.
    pub(super) fn reorganise(&mut self) {
        let mut changed = self.topics.take_changed();
        if core::mem::take(&mut self.stale.roots) {
            changed = self.topics.iter().map(|(name, _)| name.clone()).collect();
        }
        // All trees are computed anew: facts that many nodes tell at a time are taken in together.
        let facts_changed = self.collect_at.is_none() && core::mem::take(&mut self.stale.facts);
        if changed.is_empty() && !facts_changed && !core::mem::take(&mut self.stale.rooted) {
            return;
        }
        self.stale.rooted = false;
        let map = map(self.me, self.rank(), &self.own.told, &self.peers);
        if facts_changed {
            self.trees.grow_all(&map);
        }
        let mut is_open = false;
        for name in changed {
            let Some(topic) = self.topics.get(&name) else { continue };
            let members = topic.members.clone();
            let key = self.config.roots.key(&name, &members);
            let elector = elector(&members, &map);
            let root = match elector {
                Some(elector) if elector == self.me => {
                    is_open |= self.elections.is_open(key, &members);
                    self.elections.mine(key)
                }
                Some(elector) => self.elections.told(elector, key),
                None => None,
            };
            let root = root.filter(|root| members.binary_search(root).is_ok());
            let limit = self.config.max_trees;
            let tree = root.and_then(|root| self.trees.join(&members, root, limit, &map));
            self.counters.refused_trees += u64::from(root.is_some() && tree.is_none());
            if let Some(left) = self.topics.set_tree(&name, tree) {
                self.trees.leave(left);
            }
        }
        if is_open {
            self.gather();
        }
        if self.config.roots != RootPolicy::Capacity && self.rooted_at(self.me) != self.own.told.rooted {
            self.own.is_due = true;
            self.gather();
        }
    }

    /// How many topics of which this node knows are rooted at `node`.
    pub(super) fn rooted_at(&self, node: NodeId) -> u32 {
        let topics: usize = self.trees.iter().filter(|tree| tree.root == node).map(super::trees::Tree::topics).sum();
        u32::try_from(topics).unwrap_or(u32::MAX)
    }

    /// This node's rank by the capacity that it has told.
    fn rank(&self) -> Rank {
        Rank { capability: u64::from(self.own.told.capacity), address: self.address, node: self.me }
    }

    /// The time to gather is over.
    pub(super) fn on_collected(&mut self) {
        self.collect_at = None;
        self.own.speak_at = None;
        if self.own.is_due {
            let next = self.own.spoken.map(|at| at + PACE).filter(|at| self.peers.len() >= LARGE && *at > self.now);
            self.own.speak_at = next;
            if next.is_none() {
                self.own.is_due = false;
                self.tell_facts();
            }
        }
        self.reorganise();
        self.elect();
        self.reorganise();
    }

    fn tell_facts(&mut self) {
        // Nobody counts roots when the strongest has them all.
        let rooted = if self.config.roots == RootPolicy::Capacity { 0 } else { self.rooted_at(self.me) };
        let round_trips = self.round_trips();
        let told = &self.own.told;
        // A figure that has hardly changed stays as it was told.
        let keep = |told: u32, now: u32| if is_far(told, now) { now } else { told };
        let capacity = keep(told.capacity, self.own.capacity);
        let facts = Facts { capacity, clients: keep(told.clients, self.own.clients), rooted, round_trips };
        if facts == *told {
            return;
        }
        self.own.told = facts;
        self.own.spoken = Some(self.now);
        self.stale.facts = true;
        let bytes = Signal::Facts(self.own.told.clone()).encode();
        self.signal_all(&bytes);
    }

    /// Costs of the links that the others are told of. All nodes must compute trees from the same costs, so it is this node that leaves
    /// links out where there are too many, and not the others.
    fn round_trips(&mut self) -> Vec<(NodeId, u32)> {
        let linked = self.peers.iter().filter(|(_, peer)| peer.is_linked());
        let mut round_trips: Vec<(NodeId, u32)> = linked.map(|(node, peer)| (*node, peer.edge.cost())).collect();
        let limit = self.config.max_links;
        if round_trips.len() > limit {
            let fellows: BTreeSet<NodeId> =
                self.topics.iter().flat_map(|(_, topic)| topic.members.iter().copied()).collect();
            round_trips.sort_by_key(|(node, micros)| (!fellows.contains(node), *micros, *node));
            self.counters.untold_links += (round_trips.len() - limit) as u64;
            round_trips.truncate(limit);
            round_trips.sort_unstable();
        }
        round_trips
    }

    pub(super) fn on_facts(&mut self, from: NodeId, facts: Facts) {
        self.counted.insert(from, self.rooted_at(from));
        let Some(peer) = self.peers.get_mut(&from) else { return };
        if peer.facts.as_ref() != Some(&facts) {
            peer.facts = Some(facts);
            self.stale.facts = true;
            self.gather();
        }
    }

    pub(super) fn on_roots(&mut self, from: NodeId, roots: Vec<Elected>) {
        let limit = self.config.max_heard_topics;
        for elected in roots {
            let kept = self.elections.hear(from, elected, limit);
            self.counters.ignored += u64::from(!kept);
        }
        self.stale.roots = true;
    }

    /// Elects the roots of all topics whose members have changed and whose elector this node is, one after the other.
    fn elect(&mut self) {
        let map = map(self.me, self.rank(), &self.own.told, &self.peers);
        let mut candidates = Candidates::default();
        let mut news: BTreeMap<NodeId, Vec<Elected>> = BTreeMap::new();
        for (name, topic) in self.topics.iter() {
            let members = &topic.members;
            let key = self.config.roots.key(name, members);
            if elector(members, &map) != Some(self.me) || !self.elections.is_open(key, members) {
                continue;
            }
            let before = self.elections.any(key).filter(|root| members.binary_search(root).is_ok());
            let root = match self.config.roots {
                RootPolicy::Capacity => {
                    let own = self.rank();
                    let ranks = members.iter().filter_map(|node| rank_of(*node, own, &self.peers));
                    ranks.max().map(|rank| rank.node)
                }
                RootPolicy::Balance { gamma, delta } => {
                    let weight = |node: NodeId, rooted: u64| {
                        u64::from(gamma) * rooted + u64::from(delta) * u64::from(self.clients_of(node))
                    };
                    candidates.choose(members, before, |node| self.rooted(node), weight, &map)
                }
            };
            let Some(root) = root else { continue };
            self.elections.elect(key, root, members.clone());
            for member in members.iter().filter(|member| **member != self.me) {
                news.entry(*member).or_default().push((key, root));
            }
        }
        self.stale.roots |= !news.is_empty();
        for (member, elected) in news {
            self.send_roots(member, elected);
        }
    }

    /// R of `node`: how many topics it says are rooted there, and those that were rooted there since it said so.
    fn rooted(&self, node: NodeId) -> u64 {
        let known = u64::from(self.rooted_at(node));
        let Some(facts) = self.peers.get(&node).and_then(|peer| peer.facts.as_ref()) else { return known };
        let counted = u64::from(self.counted.get(&node).copied().unwrap_or(0));
        (u64::from(facts.rooted) + known).saturating_sub(counted)
    }

    fn clients_of(&self, node: NodeId) -> u32 {
        if node == self.me {
            return self.own.clients;
        }
        self.peers.get(&node).and_then(|peer| peer.facts.as_ref()).map_or(0, |facts| facts.clients)
    }

    /// Tells a node the roots that this one has elected.
    pub(super) fn send_roots(&mut self, to: NodeId, elected: impl IntoIterator<Item = Elected>) {
        let signals: Vec<Bytes> = cut(elected.into_iter(), self.config.signal_limit(), |_| ROOT_LEN)
            .map(|roots| Signal::Roots(roots).encode())
            .collect();
        for bytes in signals {
            self.signal_bytes(to, bytes);
        }
    }

    /// Every refresh: round trips count anew, and elections of sets that are gone are forgotten.
    pub(super) fn refresh_trees(&mut self) {
        for peer in self.peers.values_mut() {
            peer.edge.freeze();
        }
        self.own.is_due = true;
        self.gather();
        let roots = self.config.roots;
        let used: BTreeSet<u64> = self.topics.iter().map(|(name, topic)| roots.key(name, &topic.members)).collect();
        self.elections.age(&used);
    }
}

impl RootPolicy {
    /// Key of the object that roots are elected for: a topic, or a set of members.
    fn key(self, topic: &TopicName, members: &Members) -> u64 {
        match self {
            Self::Capacity => members_key(members),
            Self::Balance { .. } => topic_key(topic),
        }
    }
}

/// How many topics are rooted at each node, as far as elections that go on have to know.
#[derive(Debug, Default)]
struct Candidates {
    rooted: BTreeMap<NodeId, u64>,
}

impl Candidates {
    /// The member of least weight; among equals the root `before`, then the one with the lowest address.
    fn choose(
        &mut self,
        members: &Members,
        before: Option<NodeId>,
        rooted: impl Fn(NodeId) -> u64,
        weight: impl Fn(NodeId, u64) -> u64,
        map: &Map<'_>,
    ) -> Option<NodeId> {
        for member in members.iter() {
            self.rooted.entry(*member).or_insert_with(|| rooted(*member));
        }
        // The topic itself does not count.
        if let Some(count) = before.and_then(|before| self.rooted.get_mut(&before)) {
            *count = count.saturating_sub(1);
        }
        let rank = |node: NodeId| {
            let count = self.rooted.get(&node).copied().unwrap_or(0);
            (weight(node, count), before != Some(node), map.order.get(&node).copied())
        };
        let root = members.iter().copied().min_by_key(|node| rank(*node))?;
        *self.rooted.entry(root).or_insert(0) += 1;
        Some(root)
    }
}

fn rank_of(node: NodeId, own: Rank, peers: &Peers) -> Option<Rank> {
    if node == own.node { Some(own) } else { peers.get(&node).map(super::peer::Peer::rank) }
}

/// The facts that the nodes have told, and the order of preference among equals.
fn map<'a>(me: NodeId, own: Rank, told: &'a Facts, peers: &'a Peers) -> Map<'a> {
    let others = peers.iter().filter_map(|(node, peer)| Some((*node, peer.facts.as_ref()?)));
    let facts = others.chain([(me, told)]).collect();
    let mut ranks: Vec<Rank> = peers.values().map(super::peer::Peer::rank).chain([own]).collect();
    for rank in &mut ranks {
        rank.capability = 0;
    }
    ranks.sort_unstable();
    let order = ranks.iter().rev().map(|rank| rank.node).zip(0..).collect();
    Map { me, facts, order }
}

/// The member with the lowest address, if there is more than one.
fn elector(members: &Members, map: &Map<'_>) -> Option<NodeId> {
    let known = members.iter().filter_map(|node| map.order.get(node).map(|order| (*order, *node)));
    known.min().map(|(_, node)| node).filter(|_| members.len() > 1)
}
