//! When all nodes had the same retained messages, so that a cleared topic need not be remembered any longer.
//!
//! A tombstone keeps earlier values away: those of nodes that are members, and of nodes that were and may come back with their journals. It
//! may go when each of them has had the same digests as this node twice, some time after the topic was cleared: publications on their way over
//! other nodes when they agreed first make digests differ before they agree once more.

use std::collections::BTreeMap;

use sedge_base::{Duration, Instant, NodeId};

/// Nodes that are remembered, present and absent ones. If there are more, no tombstone is forgotten before its time.
const MAX_NODES: usize = 1024;

/// The nodes that may bring earlier values back.
#[derive(Debug, Default)]
pub(in crate::node) struct Agreement {
    nodes: BTreeMap<NodeId, Standing>,
    /// Since when each node is to agree once more.
    round: Instant,
    /// The beginning of the round before, if there was one.
    former: Option<Instant>,
    /// Whether a node is missing above because there are too many.
    overflowed: bool,
    /// Whether `nodes` has other keys than when it was last written to the journal.
    is_changed: bool,
}

#[derive(Debug)]
struct Standing {
    /// When its digests were last found to be the same as this node's.
    agreed: Option<Instant>,
    /// When it was last known to be a member.
    seen: Instant,
}

impl Agreement {
    /// A node is a member, or was one when the journal was written.
    pub(in crate::node) fn knows(&mut self, node: NodeId, now: Instant) {
        if let Some(standing) = self.nodes.get_mut(&node) {
            standing.seen = now;
        } else if self.nodes.len() < MAX_NODES {
            self.nodes.insert(node, Standing { agreed: None, seen: now });
            self.is_changed = true;
        } else {
            self.overflowed = true;
        }
    }

    /// A node has the same digests as this one.
    pub(in crate::node) fn agrees(&mut self, node: NodeId, now: Instant) {
        self.knows(node, now);
        if let Some(standing) = self.nodes.get_mut(&node) {
            standing.agreed = Some(now);
        }
    }

    /// Forgets nodes that were members last so long ago that tombstones of that time are gone, too.
    pub(in crate::node) fn forget(&mut self, now: Instant, tombstones: Duration) {
        let before = self.nodes.len();
        self.nodes.retain(|_, standing| now < standing.seen + tombstones);
        self.is_changed |= self.nodes.len() != before;
    }

    /// When all nodes have agreed since this was asked last, a round ends: returns when the one before it began. Every node has agreed
    /// twice since then.
    pub(in crate::node) fn end_round(&mut self, now: Instant) -> Option<Instant> {
        let has_agreed = |standing: &Standing| standing.agreed.is_some_and(|at| at > self.round);
        if self.overflowed || !self.nodes.values().all(has_agreed) {
            return None;
        }
        let began = core::mem::replace(&mut self.round, now);
        self.former.replace(began)
    }

    /// All nodes, if they have changed since the last call.
    pub(in crate::node) fn take_changed(&mut self) -> Option<Vec<NodeId>> {
        core::mem::take(&mut self.is_changed).then(|| self.nodes.keys().copied().collect())
    }

    /// The journal has to name the nodes once more.
    pub(in crate::node) fn note_changed(&mut self) {
        self.is_changed = !self.nodes.is_empty();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(secs)
    }

    /// MQ-07
    #[test]
    fn every_node_agrees_twice() {
        let mut agreement = Agreement::default();
        assert_eq!(agreement.end_round(at(1)), None);
        assert_eq!(agreement.end_round(at(5)), Some(at(0)), "nobody else can bring anything back");
        agreement.agrees(NodeId::new(2), at(10));
        agreement.knows(NodeId::new(3), at(10));
        assert_eq!(agreement.end_round(at(11)), None);
        agreement.agrees(NodeId::new(3), at(20));
        assert_eq!(agreement.end_round(at(20)), Some(at(1)));
        agreement.agrees(NodeId::new(2), at(30));
        assert_eq!(agreement.end_round(at(31)), None);
        agreement.agrees(NodeId::new(3), at(40));
        assert_eq!(agreement.end_round(at(41)), Some(at(5)));
    }

    /// MQ-07
    #[test]
    fn a_node_that_has_gone_counts_as_long_as_tombstones_do() {
        let (mut agreement, day) = (Agreement::default(), Duration::from_hours(24));
        agreement.end_round(at(0));
        agreement.agrees(NodeId::new(2), at(200));
        agreement.knows(NodeId::new(3), at(100));
        assert_eq!(agreement.take_changed(), Some(vec![NodeId::new(2), NodeId::new(3)]));
        assert_eq!(agreement.take_changed(), None);
        agreement.forget(at(99) + day, day);
        assert_eq!(agreement.end_round(at(300)), None);
        agreement.forget(at(100) + day, day);
        assert_eq!(agreement.end_round(at(300)), Some(at(0)));
        assert_eq!(agreement.take_changed(), Some(vec![NodeId::new(2)]));
    }

    #[test]
    fn too_many_nodes_end_it() {
        let mut agreement = Agreement::default();
        agreement.end_round(at(0));
        for node in 1..=1024 {
            agreement.agrees(NodeId::new(node), at(1));
        }
        assert_eq!(agreement.end_round(at(2)), Some(at(0)));
        agreement.agrees(NodeId::new(2000), at(3));
        assert_eq!((agreement.end_round(at(4)), agreement.nodes.len()), (None, 1024));
    }
}
