//! Links between nodes: in order, until one of the two is gone or cut off.

use std::collections::{BTreeMap, VecDeque};

use crate::NodeIndex;

/// Messages on their way between nodes, those of one pair in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Wires<M> {
    queues: BTreeMap<(NodeIndex, NodeIndex), VecDeque<M>>,
}

impl<M> Wires<M> {
    pub(crate) const fn new() -> Self {
        Self { queues: BTreeMap::new() }
    }

    pub(crate) fn send(&mut self, from: NodeIndex, to: NodeIndex, message: M) {
        self.queues.entry((from, to)).or_default().push_back(message);
    }

    /// The oldest message of a link.
    pub(crate) fn take(&mut self, from: NodeIndex, to: NodeIndex) -> Option<M> {
        let queue = self.queues.get_mut(&(from, to))?;
        let message = queue.pop_front();
        if queue.is_empty() {
            self.queues.remove(&(from, to));
        }
        message
    }

    /// Links that carry something.
    pub(crate) fn busy(&self) -> impl Iterator<Item = (NodeIndex, NodeIndex)> {
        self.queues.keys().copied()
    }

    /// Loses the messages on their way on the links that are cut.
    pub(crate) fn lose(&mut self, is_cut: impl Fn(NodeIndex, NodeIndex) -> bool) {
        self.queues.retain(|(from, to), _| !is_cut(*from, *to));
    }
}
