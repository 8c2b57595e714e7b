//! Joins the requests and reports of the two exchanges of a tree: one for interest that every node has to know, one for topics and filters.

use std::collections::{BTreeMap, VecDeque};

use sedge_base::{Instant, NodeId};

use crate::{Barrier, Token};

/// One of the two exchanges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    Shared,
    Own,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Joint {
    last: u64,
    /// Barriers of the owner with the part and the part's barrier that each stands for, in order.
    barriers: VecDeque<(Barrier, Part, Barrier)>,
    /// Tokens that wait: until when, and whether one part is settled.
    tokens: BTreeMap<Token, (Instant, bool)>,
    /// Nodes that are in step with one part only.
    synced: BTreeMap<NodeId, Part>,
}

impl Joint {
    /// A part asks for a barrier: answers with the owner's.
    pub(super) fn raise(&mut self, part: Part, barrier: Barrier) -> Barrier {
        self.last += 1;
        self.barriers.push_back((Barrier(self.last), part, barrier));
        Barrier(self.last)
    }

    /// The owner's barrier is reached: answers with the first of a part that is reached with it, until there is none.
    pub(super) fn reach(&mut self, barrier: Barrier) -> Option<(Part, Barrier)> {
        self.barriers.pop_front_if(|(first, ..)| *first <= barrier).map(|(_, part, barrier)| (part, barrier))
    }

    /// Somebody waits for both parts, until `deadline` at most.
    pub(super) fn wait(&mut self, token: Token, deadline: Instant) {
        self.tokens.insert(token, (deadline, false));
    }

    /// A token is settled in one part: answers with its deadline if it is in both.
    pub(super) fn settle(&mut self, token: Token) -> Option<Instant> {
        let (deadline, settled) = self.tokens.get_mut(&token)?;
        if core::mem::replace(settled, true) { Some(*deadline) } else { None }
    }

    /// Nobody waits any more.
    pub(super) fn finish(&mut self, token: Token) {
        self.tokens.remove(&token);
    }

    /// One part is in step with a neighbour; says whether both are.
    pub(super) fn sync(&mut self, node: NodeId, part: Part) -> bool {
        match self.synced.insert(node, part) {
            Some(before) if before != part => self.synced.remove(&node).is_some(),
            _ => false,
        }
    }

    /// The link is another one, or down.
    pub(super) fn unlink(&mut self, node: NodeId) {
        self.synced.remove(&node);
    }
}
