//! The tree in use.

use std::collections::BTreeMap;

use sedge_base::NodeId;

use super::members::Members;

/// The last tree that was complete, and where to go in it.
#[derive(Clone, Debug, Default)]
pub(super) struct Used {
    pub(super) epoch: u64,
    pub(super) parents: BTreeMap<NodeId, Option<NodeId>>,
    /// The neighbour towards each node that can be reached over nodes that are still members.
    hops: BTreeMap<NodeId, NodeId>,
    /// Grows whenever the tree or the ways in it change.
    pub(super) version: u64,
}

impl Used {
    /// Looks again where to go from `me` to each node.
    pub(super) fn route(&mut self, me: NodeId, members: &Members) {
        let lives = |node: NodeId| node == me || members.contains_key(&node);
        let mut edges: Vec<(NodeId, NodeId)> = Vec::with_capacity(2 * self.parents.len());
        for (child, parent) in &self.parents {
            if let Some(parent) = parent.filter(|parent| lives(*parent) && lives(*child)) {
                edges.extend([(*child, parent), (parent, *child)]);
            }
        }
        edges.sort_unstable();
        let beside = |node: NodeId| {
            let from = edges.partition_point(|(one, _)| *one < node);
            edges.iter().skip(from).take_while(move |(one, _)| *one == node).map(|(_, other)| *other)
        };
        let mut hops = BTreeMap::new();
        for neighbour in beside(me).filter(|node| members.get(node).is_some_and(|member| member.linked)) {
            let mut open = vec![(me, neighbour)];
            while let Some((from, node)) = open.pop() {
                if hops.insert(node, neighbour).is_none() {
                    open.extend(beside(node).filter(|next| *next != from && *next != me).map(|next| (node, next)));
                }
            }
        }
        self.version += u64::from(hops != self.hops);
        self.hops = hops;
    }

    /// Another tree is complete.
    pub(super) fn replace(&mut self, epoch: u64, parents: BTreeMap<NodeId, Option<NodeId>>) {
        self.version += u64::from(parents != self.parents);
        self.epoch = epoch;
        self.parents = parents;
    }

    /// Parent and children that are still members.
    pub(super) fn neighbours(&self, me: NodeId, members: &Members) -> impl Iterator<Item = NodeId> {
        let parent = self.parents.get(&me).copied().flatten();
        let children = self.parents.iter().filter(move |(_, parent)| **parent == Some(me)).map(|(child, _)| *child);
        parent.into_iter().chain(children).filter(|node| members.contains_key(node))
    }

    /// Whether the way from `node` to the root leads over `me`.
    pub(super) fn is_behind(&self, me: NodeId, node: NodeId) -> bool {
        let above = core::iter::successors(Some(node), |node| self.parents.get(node).copied().flatten());
        above.take(self.parents.len()).any(|node| node == me)
    }

    /// Nodes on the way from `from` to `to`, without the two.
    pub(super) fn between(&self, from: NodeId, to: NodeId) -> Vec<NodeId> {
        if !self.hops.contains_key(&to) {
            return Vec::new();
        }
        let above = |node: NodeId| core::iter::successors(Some(node), |node| self.parents.get(node).copied().flatten());
        let down: Vec<NodeId> = above(to).collect();
        let mut way = Vec::new();
        for node in above(from) {
            way.push(node);
            if let Some(meeting) = down.iter().position(|other| *other == node) {
                way.extend(down.iter().take(meeting).rev());
                break;
            }
        }
        way.retain(|node| *node != from && *node != to);
        way
    }

    pub(super) fn hop_towards(&self, node: NodeId) -> Option<NodeId> {
        self.hops.get(&node).copied()
    }
}
