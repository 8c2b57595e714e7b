//! The machine.

use std::collections::BTreeMap;

use sedge_base::NodeId;

use super::cost::{Edge, UNREACHABLE};
use super::members::{Member, Members};
use super::used::Used;
use super::{Claim, Rank};

/// Claims are kept for so many nodes; those of others are not heard.
const MAX_CLAIMS: usize = 4096;

/// From so many other members on, a tree is mended without a new epoch where it can be: an epoch costs a few claims from everybody to
/// everybody.
const LARGE: usize = 64;

/// One node's part in a tree. See the [module](super).
#[derive(Clone, Debug)]
pub struct Spanning {
    me: Rank,
    members: Members,
    /// The last claim of every other node, members or not: a claim may be faster than the news that its node is a member.
    claims: BTreeMap<NodeId, Claim>,
    claim: Claim,
    /// Rank of the root as it is claimed.
    root: Rank,
    has_news: bool,
    /// Something has changed since [`Spanning::refresh`].
    stale: bool,
    complete: bool,
    used: Used,
    large: usize,
}

impl Spanning {
    /// The tree of one node.
    pub fn new(me: Rank) -> Self {
        let claim = Claim { epoch: 1, version: 0, capability: me.capability, root: me.node, cost: 0, parent: None };
        let mut tree = Self {
            me,
            members: Members::new(),
            claims: BTreeMap::new(),
            claim,
            root: me,
            has_news: true,
            stale: false,
            complete: false,
            used: Used::default(),
            large: LARGE,
        };
        tree.compute();
        tree
    }

    /// As if the tree were large with so many other members.
    #[cfg(test)]
    pub(super) const fn large_from(mut self, members: usize) -> Self {
        self.large = members;
        self
    }

    /// Whether there are so many members that not every change begins an epoch, and that [`Spanning::refresh`] is not called by itself.
    pub fn is_large(&self) -> bool {
        self.members.len() >= self.large
    }

    /// Sets the rank of a member, or of this node itself. The capability counts from the next epoch on, which begins at once while there
    /// are no other members, and only this node's own does: other nodes tell theirs in their claims.
    pub fn set_rank(&mut self, rank: Rank) {
        if rank.node == self.me.node {
            let before = core::mem::replace(&mut self.me, rank);
            if self.members.is_empty() && before != rank {
                self.renew();
            }
        } else if let Some(member) = self.members.get_mut(&rank.node) {
            member.rank = rank;
        }
        self.compute();
    }

    /// A node belongs to the tree from now on. Its link is taken for up until [`Spanning::unlink`]. It takes part in the present
    /// epoch as soon as it is heard in it: more ways never raise a cost, and a greater root replaces the present one.
    pub fn join(&mut self, node: NodeId, rank: Rank) {
        if node == self.me.node || self.members.contains_key(&node) {
            return self.set_rank(rank);
        }
        self.members.insert(node, Member::new(rank));
        self.relax(node);
    }

    /// A node no longer belongs to the tree. The next epoch begins if it has taken part in this one; in a large tree only if it was the
    /// root, or the parent of this node and there is no other.
    pub fn leave(&mut self, node: NodeId) {
        if self.members.remove(&node).is_none() {
            return;
        }
        // A node that has not taken part in this epoch is on nobody's way.
        let took_part = self.claims.remove(&node).is_some_and(|claim| claim.epoch == self.claim.epoch);
        if self.is_large() && self.claim.root != node {
            self.lose(node);
        } else if took_part {
            self.renew();
        } else {
            self.compute();
        }
    }

    /// The link to a member is up again.
    pub fn link(&mut self, node: NodeId) {
        if let Some(member) = self.members.get_mut(&node).filter(|member| !member.linked) {
            member.linked = true;
            member.edge = Edge::UNMEASURED;
            self.relax(node);
        }
    }

    /// There is no link to this member: it is reached over others.
    pub fn unlink(&mut self, node: NodeId) {
        let Some(member) = self.members.get_mut(&node).filter(|member| member.linked) else { return };
        member.linked = false;
        member.edge = Edge::DOWN;
        self.lose(node);
    }

    /// There is no way over `node` any more.
    fn lose(&mut self, node: NodeId) {
        if self.claim.parent == Some(node) && !(self.is_large() && self.adopt()) {
            self.renew();
        } else {
            self.changed();
        }
    }

    /// Takes the best parent nearer to the root than this node has ever claimed to be in this epoch: none of them is behind it. A longer
    /// way does not raise the claimed cost, for the members behind this node count on it. Says whether there is such a parent.
    fn adopt(&mut self) -> bool {
        let claimed = self.claim.cost;
        let nearer = |member: &Member| {
            let near = self.heard(member.rank.node).is_some_and(|claim| claim.cost < claimed);
            if near { member.edge.fresh() } else { UNREACHABLE }
        };
        let (cost, parent) = self.best(self.claim.root, nearer);
        if parent.is_none() {
            return false;
        }
        if parent != self.claim.parent {
            let version = self.claim.version.saturating_add(1);
            self.claim = Claim { version, cost: cost.min(claimed), parent, ..self.claim };
            self.has_news = true;
        }
        self.changed();
        true
    }

    /// A round trip to a member was measured, in microseconds. Smoothed (an eighth of each new value), rounded up to steps of at
    /// least 256 microseconds and 6 to 12.5 %, and frozen while an epoch lasts; only the first value after the link came up counts
    /// at once.
    pub fn round_trip(&mut self, node: NodeId, micros: u32) {
        if let Some(member) = self.members.get_mut(&node).filter(|member| member.linked)
            && member.edge.measure(micros)
        {
            self.relax(node);
        }
    }

    /// A node says this of itself, over its own link. Claims of earlier epochs than its last one do not count.
    pub fn hear(&mut self, from: NodeId, claim: Claim) {
        if self.claims.get(&from).is_none_or(|before| claim.epoch >= before.epoch) {
            self.note(from, claim);
        }
    }

    /// Some member passes on the claim of `node`, for there is no link to it.
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
        if self.claims.insert(node, claim) == Some(claim) {
            return;
        }
        // Enters the highest epoch that was heard of.
        if claim.epoch > self.claim.epoch { self.enter(claim.epoch) } else { self.relax(node) }
    }

    /// Begins the next epoch.
    pub fn renew(&mut self) {
        self.enter(self.claim.epoch.saturating_add(1));
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

    /// The claim of `node` in this epoch.
    fn heard(&self, node: NodeId) -> Option<&Claim> {
        self.claims.get(&node).filter(|claim| claim.epoch == self.claim.epoch)
    }

    /// Members that take part in this epoch, with their claims.
    fn participants(&self) -> impl Iterator<Item = (&Member, &Claim)> {
        self.members.values().filter_map(|member| Some((member, self.heard(member.rank.node)?)))
    }

    /// The greatest member that takes part in this epoch.
    fn greatest(&self) -> Rank {
        let others = self.participants().map(|(member, claim)| Rank { capability: claim.capability, ..member.rank });
        others.fold(Rank { capability: self.claim.capability, ..self.me }, Ord::max)
    }

    /// The best way to the root: its cost and the parent. Between ways that cost the same, the parent that is nearer to the root, then the
    /// one with the lower address and id. No edge is free: the chosen parent is nearer to the root than this node.
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
        self.root = self.greatest();
        let root = self.root.node;
        let (cost, parent) =
            if root == self.me.node { (0, None) } else { self.best(root, |member| member.edge.cost()) };
        self.claim_way(root, cost, parent);
        self.changed();
    }

    /// Looks at the claim of one member and the link to it.
    fn relax(&mut self, node: NodeId) {
        let Some((member, claim)) = self.members.get(&node).zip(self.heard(node)) else { return self.changed() };
        if node == self.root.node || (Rank { capability: claim.capability, ..member.rank }) > self.root {
            return self.compute();
        }
        let edge = member.edge.cost();
        if claim.root == self.root.node && claim.cost != UNREACHABLE && edge != UNREACHABLE {
            self.claim_way(claim.root, claim.cost.saturating_add(edge).min(UNREACHABLE - 1), Some(node));
        }
        self.changed();
    }

    /// Within an epoch and for one root costs only fall: that rules out cycles.
    fn claim_way(&mut self, root: NodeId, cost: u32, parent: Option<NodeId>) {
        if root != self.claim.root || cost < self.claim.cost {
            let version = self.claim.version.saturating_add(1);
            self.claim = Claim { version, root, cost, parent, ..self.claim };
            self.has_news = true;
        }
    }

    fn changed(&mut self) {
        self.stale = true;
        if !self.is_large() {
            self.refresh();
        }
    }

    /// Whether there is something that [`Spanning::refresh`] or [`Spanning::take_news`] would find.
    pub const fn is_stale(&self) -> bool {
        self.stale || self.has_news
    }

    /// Looks whether the tree is complete, and where its ways lead. In a large tree this is left to the owner, which does it every now and
    /// then.
    pub fn refresh(&mut self) {
        if !core::mem::replace(&mut self.stale, false) {
            return;
        }
        let root = self.claim.root;
        let everyone = || self.members.keys().copied().chain([self.me.node]);
        self.complete = everyone().all(|node| self.fits(node, root));
        if self.complete || (self.is_large() && self.is_next()) {
            let fitting = everyone().filter(|node| self.complete || self.fits(*node, root));
            let parents = fitting.map(|node| (node, self.claimed(node).and_then(|claim| claim.parent))).collect();
            self.used.replace(self.claim.epoch, parents);
        }
        self.used.route(self.me.node, &self.members);
    }

    /// Whether the tree of this epoch has every member of the tree in use, even if it has not every member yet: in a large tree there is
    /// always some member that has just come.
    fn is_next(&self) -> bool {
        let in_use = self.used.parents.keys().filter(|node| self.members.contains_key(node));
        self.used.epoch == self.claim.epoch || in_use.copied().all(|node| self.fits(node, self.claim.root))
    }

    /// The claim of a member, or of this node, in this epoch.
    fn claimed(&self, node: NodeId) -> Option<&Claim> {
        if node == self.me.node {
            return Some(&self.claim);
        }
        self.members.contains_key(&node).then(|| self.heard(node)).flatten()
    }

    /// Whether a node agrees on the root and has a parent that is nearer to it: the nodes that do make up a tree.
    fn fits(&self, node: NodeId, root: NodeId) -> bool {
        let Some(claim) = self.claimed(node).filter(|claim| claim.root == root) else { return false };
        match claim.parent {
            None => node == root,
            Some(parent) => node != root && self.claimed(parent).is_some_and(|parent| parent.cost < claim.cost),
        }
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
        // A member behind this node is no way out: that way would only come back.
        let others = |member: &Member| {
            if self.used.is_behind(self.me.node, member.rank.node) { UNREACHABLE } else { member.edge.fresh() }
        };
        let (best, _) = self.best(root, others);
        u64::from(best) * 3 <= u64::from(present) * 2 && present - best >= 1_000
    }

    /// Makes the best of round trips and strengths as they are by now: begins the next epoch, unless a large tree can be mended by another
    /// parent of this node.
    pub fn improve(&mut self) {
        let parent = self.claim.parent;
        if !(self.is_large() && parent.is_some() && self.adopt() && self.claim.parent != parent) {
            self.renew();
        }
    }

    /// Whether everybody has taken part in this epoch and there is no tree all the same. When it stays like that over a longer time,
    /// [`Spanning::renew`] is worth it.
    pub fn is_stuck(&self) -> bool {
        !self.complete && self.members.keys().all(|node| self.heard(*node).is_some())
    }

    /// This node's claim.
    pub const fn claim(&self) -> Claim {
        self.claim
    }

    /// Whether this node's claim has changed since the last question: all members have to hear it.
    pub const fn take_news(&mut self) -> bool {
        core::mem::replace(&mut self.has_news, false)
    }

    /// The last claims of the other members, for members that cannot hear them.
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
        self.used.hop_towards(node).filter(|hop| self.members.get(hop).is_some_and(|member| member.linked))
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
