//! Confirmations that wait for the shards.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use sedge_base::NodeId;

use crate::Barrier;

/// Confirmation to be sent to a node once all shards route by the confirmed changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Confirmation {
    pub(crate) node: NodeId,
    /// Number of the link over which the confirmation was asked for: no two links have the same.
    pub(crate) link: u64,
    pub(crate) number: u64,
    pub(crate) sync_ok: bool,
}

/// Most answers to one neighbour that are remembered.
const MAX_ANSWERS: usize = 64;

/// Confirmations to one neighbour that only answer questions about topics: it does not rely on publications before them.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    /// The last number for whose confirmation the neighbour may wait for another reason.
    relied: u64,
    confirmed: u64,
    numbers: BTreeSet<u64>,
}

impl Answers {
    /// The signal of this number is no question about topics, or not only one.
    pub(crate) const fn rely(&mut self, number: u64) {
        self.relied = number;
    }

    /// Everything up to this number is confirmed.
    pub(crate) fn confirm(&mut self, number: u64) {
        if self.relied <= self.confirmed {
            self.numbers.insert(number);
            if self.numbers.len() > MAX_ANSWERS {
                self.numbers.pop_first();
            }
        }
        self.confirmed = number;
    }

    /// Whether the confirmation of this number is only an answer.
    pub(crate) fn has(&self, number: u64) -> bool {
        self.numbers.contains(&number)
    }
}

/// Confirmations and the barriers they wait for. All confirmations that gather between two polls wait for one barrier together.
#[derive(Debug)]
pub(crate) struct Confirmations {
    /// Not given to a barrier yet.
    wanted: BTreeMap<NodeId, Confirmation>,
    /// In the order of their barriers.
    waiting: VecDeque<(Barrier, Confirmation)>,
    last: Barrier,
    reached: Barrier,
    dirty: bool,
}

impl Confirmations {
    pub(crate) const fn new() -> Self {
        let zero = Barrier(0);
        Self { wanted: BTreeMap::new(), waiting: VecDeque::new(), last: zero, reached: zero, dirty: false }
    }

    /// Something happened since the last barrier that the next confirmation has to wait for.
    pub(crate) const fn touch(&mut self) {
        self.dirty = true;
    }

    pub(crate) fn want(&mut self, confirmation: Confirmation) {
        let before = self.wanted.get(&confirmation.node).is_some_and(|before| before.sync_ok);
        let sync_ok = confirmation.sync_ok || before;
        self.wanted.insert(confirmation.node, Confirmation { sync_ok, ..confirmation });
    }

    /// Puts the wanted confirmations behind a barrier: a new one if it has to be (`asked`) or anything has happened since the last.
    pub(crate) fn raise(&mut self, asked: bool) -> Option<Barrier> {
        let raised = asked || (self.dirty && !self.wanted.is_empty());
        if raised {
            self.last.0 += 1;
            self.dirty = false;
        }
        let wanted = core::mem::take(&mut self.wanted);
        self.waiting.extend(wanted.into_values().map(|confirmation| (self.last, confirmation)));
        raised.then_some(self.last)
    }

    pub(crate) fn reach(&mut self, barrier: Barrier) {
        self.reached = self.reached.max(barrier);
    }

    /// The next confirmation whose barrier is reached.
    pub(crate) fn pop(&mut self) -> Option<Confirmation> {
        self.waiting.pop_front_if(|(barrier, _)| *barrier <= self.reached).map(|(_, confirmation)| confirmation)
    }

    pub(crate) const fn last(&self) -> Barrier {
        self.last
    }

    pub(crate) const fn reached(&self) -> Barrier {
        self.reached
    }
}
