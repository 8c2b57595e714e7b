//! A publication under way.

use std::collections::BTreeMap;

use sedge_mqtt::TopicName;

use super::Delivery;

/// Where it is needed and where it has come.
pub(super) struct Publication {
    pub(super) topic: TopicName,
    pub(super) phase: usize,
    pub(super) sent: u64,
    /// Nodes, each with its life, that are settled to want it.
    pub(super) expected: Vec<(usize, u64)>,
    /// Hops and time, for each node that it was for and has come to.
    pub(super) reached: BTreeMap<usize, (u64, u64)>,
}

/// A copy on its way to some nodes.
#[derive(Clone)]
pub(super) struct Copy {
    pub(super) publication: usize,
    pub(super) from: usize,
    pub(super) ends: Vec<usize>,
    pub(super) hops: u64,
}

impl Publication {
    /// Counts it, given whether a node still lives that life.
    pub(super) fn count(&self, delivery: &mut Delivery, lives: impl Fn(usize, u64) -> bool) {
        for (node, life) in &self.expected {
            if !lives(*node, *life) {
                continue;
            }
            delivery.expected += 1;
            if let Some((hops, at)) = self.reached.get(node) {
                delivery.reached += 1;
                delivery.hops += hops;
                delivery.most_hops = delivery.most_hops.max(*hops);
                delivery.micros += (at - self.sent) * 1_000;
            }
        }
    }
}
