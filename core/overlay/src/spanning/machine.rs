//! The machine.

use std::collections::BTreeMap;

use sedge_base::NodeId;

use super::cost::{Edge, UNREACHABLE};
use super::members::{Member, Members};
use super::used::Used;
use super::{Claim, Rank};

/// Claims are kept for so many nodes; those of others are not heard.
const MAX_CLAIMS: usize = 4096;

/// One node's part in a tree. See the [module](super).
#[derive(Clone, Debug)]
pub struct Spanning {
    me: Rank,
    members: Members,
    /// The last claim of every other node, members or not: a claim may be faster than the news that its node is a member.
    claims: BTreeMap<NodeId, Claim>,
    claim: Claim,
    has_news: bool,
    complete: bool,
    used: Used,
}

impl Spanning {
    /// The tree of one node.
    pub fn new(me: Rank) -> Self {
        let claim = Claim { epoch: 1, version: 0, capability: me.capability, root: me.node, cost: 0, parent: None };
        let members = Members::new();
        let claims = BTreeMap::new();
        let mut tree = Self { me, members, claims, claim, has_news: true, complete: false, used: Used::default() };
        tree.compute();
        tree
    }

    /// What makes a member, or this node itself, the root. The capability counts from the next epoch on, and only this node's own:
    /// others tell theirs in their claims.
    pub fn set_rank(&mut self, rank: Rank) {
        if rank.node == self.me.node {
            self.me = rank;
        } else if let Some(member) = self.members.get_mut(&rank.node) {
            member.rank = rank;
        }
        self.compute();
    }

    /// A node belongs to the tree from now on. Its link is taken for up until [`Spanning::unlink`]. The next epoch begins, unless
    /// the tree of the present one is not complete anyhow or the node has already been heard in it: then it takes part.
    pub fn join(&mut self, node: NodeId, rank: Rank) {
        if node == self.me.node || self.members.contains_key(&node) {
            return self.set_rank(rank);
        }
        let begins = self.complete && self.heard(node).is_none();
        self.members.insert(node, Member::new(rank));
        if begins { self.renew() } else { self.compute() }
    }

    /// A node no longer belongs to the tree.
    pub fn leave(&mut self, node: NodeId) {
        if self.members.remove(&node).is_none() {
            return;
        }
        // A node that has not taken part in this epoch is on nobody's way.
        let took_part = self.claims.remove(&node).is_some_and(|claim| claim.epoch == self.claim.epoch);
        if took_part { self.renew() } else { self.compute() }
    }

    /// The link to a member is up again.
    pub fn link(&mut self, node: NodeId) {
        if let Some(member) = self.members.get_mut(&node).filter(|member| !member.linked) {
            member.linked = true;
            member.edge = Edge::UNMEASURED;
            self.compute();
        }
    }

    /// There is no link to this member: it is reached over others.
    pub fn unlink(&mut self, node: NodeId) {
        let Some(member) = self.members.get_mut(&node).filter(|member| member.linked) else { return };
        member.linked = false;
        member.edge = Edge::DOWN;
        if self.claim.parent == Some(node) { self.renew() } else { self.compute() }
    }

    /// A round trip to a member was measured, in microseconds. Smoothed (an eighth of each new value), rounded up to steps of at
    /// least 256 microseconds and 6 to 12.5 %, and frozen while an epoch lasts; only the first value after the link came up counts
    /// at once.
    pub fn round_trip(&mut self, node: NodeId, micros: u32) {
        if let Some(member) = self.members.get_mut(&node).filter(|member| member.linked)
            && member.edge.measure(micros)
        {
            self.compute();
        }
    }

    /// A node says this of itself, over its own link. Claims of earlier epochs than its last one do not count.
    pub fn hear(&mut self, from: NodeId, claim: Claim) {
        if self.claims.get(&from).is_none_or(|before| claim.epoch >= before.epoch) {
            self.note(from, claim);
        }
    }

    /// Somebody passes on what `node` said, for there is no link to it.
    pub fn hear_of(&mut self, node: NodeId, claim: Claim) {
        if self.claims.get(&node).is_none_or(|before| claim.is_newer_than(before)) {
            self.note(node, claim);
        }
    }

    fn note(&mut self, node: NodeId, claim: Claim) {
        let known = self.claims.contains_key(&node) || self.members.contains_key(&node);
        if node == self.me.node || (!known && self.claims.len() >= MAX_CLAIMS) {
            return;
        }
        self.claims.insert(node, claim);
        self.catch_up();
    }

    /// Enters the highest epoch that was heard of.
    fn catch_up(&mut self) {
        let highest = self.claims.values().map(|claim| claim.epoch).max().unwrap_or(0);
        if highest > self.claim.epoch { self.enter(highest) } else { self.compute() }
    }

    /// Begins the next epoch.
    pub fn renew(&mut self) {
        let highest = self.claims.values().map(|claim| claim.epoch).max().unwrap_or(0);
        self.enter(highest.max(self.claim.epoch).saturating_add(1));
    }

    fn enter(&mut self, epoch: u64) {
        self.members.values_mut().for_each(|member| member.edge.freeze());
        let members = &self.members;
        self.claims.retain(|node, claim| claim.epoch >= epoch || members.contains_key(node));
        let Rank { capability, node, .. } = self.me;
        self.claim = Claim { epoch, version: 0, capability, root: node, cost: 0, parent: None };
        self.has_news = true;
        self.compute();
    }

    /// What `node` claims in this epoch.
    fn heard(&self, node: NodeId) -> Option<&Claim> {
        self.claims.get(&node).filter(|claim| claim.epoch == self.claim.epoch)
    }

    /// Members that take part in this epoch, with what they claim.
    fn participants(&self) -> impl Iterator<Item = (&Member, &Claim)> {
        self.members.values().filter_map(|member| Some((member, self.heard(member.rank.node)?)))
    }

    /// The greatest that takes part in this epoch.
    fn root(&self) -> NodeId {
        let others = self.participants().map(|(member, claim)| Rank { capability: claim.capability, ..member.rank });
        let me = Rank { capability: self.claim.capability, ..self.me };
        others.fold(me, Ord::max).node
    }

    /// The best way to the root: what it costs and over whom. Between ways that cost the same, the parent that is nearer to the root,
    /// then the one with the lower address and id. No edge is free: whoever is chosen is nearer to the root than this node.
    fn best(&self, root: NodeId, edge: impl Fn(&Member) -> u32) -> (u32, Option<NodeId>) {
        let candidates = self.participants().filter(|(_, claim)| claim.root == root && claim.cost != UNREACHABLE);
        let ways = candidates.filter_map(|(member, claim)| {
            let edge = Some(edge(member)).filter(|cost| *cost != UNREACHABLE)?;
            let cost = claim.cost.saturating_add(edge).min(UNREACHABLE - 1);
            Some((cost, claim.cost, member.rank.tie_break()))
        });
        ways.min().map_or((UNREACHABLE, None), |(cost, _, (.., node))| (cost, Some(node)))
    }

    /// Looks at all claims again.
    fn compute(&mut self) {
        let root = self.root();
        let (cost, parent) =
            if root == self.me.node { (0, None) } else { self.best(root, |member| member.edge.cost()) };
        // Within an epoch and for one root costs only fall: that rules out cycles.
        if root != self.claim.root || cost < self.claim.cost {
            let version = self.claim.version.saturating_add(1);
            self.claim = Claim { version, root, cost, parent, ..self.claim };
            self.has_news = true;
        }
        self.complete = self.check_complete();
        if self.complete {
            let claimed = self.members.keys().map(|node| (*node, self.heard(*node).and_then(|claim| claim.parent)));
            let parents = claimed.chain([(self.me.node, self.claim.parent)]).collect();
            self.used.replace(self.claim.epoch, parents);
        }
        self.used.route(self.me.node, &self.members);
    }

    /// See [`Spanning::is_complete`]. That each parent is nearer to the root than its child is what makes it a tree.
    fn check_complete(&self) -> bool {
        let root = self.claim.root;
        let claimed = |node: NodeId| {
            if node == self.me.node {
                return Some(&self.claim);
            }
            self.members.contains_key(&node).then(|| self.heard(node)).flatten()
        };
        let fits = |node: NodeId| {
            let Some(claim) = claimed(node).filter(|claim| claim.root == root) else { return false };
            match claim.parent {
                None => node == root,
                Some(parent) => node != root && claimed(parent).is_some_and(|parent| parent.cost < claim.cost),
            }
        };
        self.members.keys().copied().chain([self.me.node]).all(fits)
    }

    /// Whether the next epoch would shorten this node's way to the root by a third and a millisecond or more, or change the root for
    /// one that can carry half as much again. When it says so over a longer time, [`Spanning::renew`] is worth it.
    pub fn is_outdated(&self) -> bool {
        if !self.complete {
            return false;
        }
        let root = self.claim.root;
        let mine = self.me.capability;
        let stronger = |one: u64, other: u64| one.saturating_mul(2) >= other.saturating_mul(3) && one > other;
        if root == self.me.node {
            return self.participants().any(|(_, claim)| stronger(claim.capability, mine));
        }
        if self.heard(root).is_some_and(|claim| stronger(mine, claim.capability)) {
            return true;
        }
        let Some(parent) = self.claim.parent else { return false };
        let edge = self.members.get(&parent).map_or(UNREACHABLE, |member| member.edge.fresh());
        let present = self.heard(parent).map_or(UNREACHABLE, |claim| claim.cost.saturating_add(edge));
        // What is behind this node is no way out: it would only come back.
        let others = |member: &Member| {
            if self.used.is_behind(self.me.node, member.rank.node) { UNREACHABLE } else { member.edge.fresh() }
        };
        let (best, _) = self.best(root, others);
        u64::from(best) * 3 <= u64::from(present) * 2 && present - best >= 1_000
    }

    /// Whether everybody has taken part in this epoch and there is no tree all the same. When it stays like that over a longer time,
    /// [`Spanning::renew`] is worth it.
    pub fn is_stuck(&self) -> bool {
        !self.complete && self.members.keys().all(|node| self.heard(*node).is_some())
    }

    /// What this node says.
    pub const fn claim(&self) -> Claim {
        self.claim
    }

    /// Whether this node's claim has changed since the last question: all members have to hear it.
    pub const fn take_news(&mut self) -> bool {
        core::mem::replace(&mut self.has_news, false)
    }

    /// What other members have last said, for those who cannot hear them.
    pub fn claims(&self) -> impl Iterator<Item = (NodeId, Claim)> {
        self.claims.iter().filter(|(node, _)| self.members.contains_key(node)).map(|(node, claim)| (*node, *claim))
    }

    /// Whether all members agree on epoch and root, and every one but the root has a parent that is a member and nearer to the root.
    pub const fn is_complete(&self) -> bool {
        self.complete
    }

    /// The other members.
    pub fn members(&self) -> impl Iterator<Item = NodeId> {
        self.members.keys().copied()
    }

    /// Parent and children in the last complete tree, as far as they are still members.
    pub fn neighbours(&self) -> impl Iterator<Item = NodeId> {
        self.used.neighbours(self.me.node, &self.members)
    }

    /// The neighbour in the last complete tree over which `node` is reached; none if the way leads over a node that is no longer a
    /// member, or over a link of this node that is down.
    pub fn hop_towards(&self, node: NodeId) -> Option<NodeId> {
        self.used.hop_towards(node)
    }

    /// The nodes between this one and `node` in the last complete tree, from here on; nothing if it has no way there.
    pub fn between(&self, node: NodeId) -> Vec<NodeId> {
        self.used.between(self.me.node, node)
    }

    /// The parents of all nodes in the last complete tree.
    pub const fn parents(&self) -> &BTreeMap<NodeId, Option<NodeId>> {
        &self.used.parents
    }

    /// Grows whenever the last complete tree or the ways in it change.
    pub const fn version_in_use(&self) -> u64 {
        self.used.version
    }

    /// The epoch of the last complete tree.
    pub const fn epoch_in_use(&self) -> u64 {
        self.used.epoch
    }
}
