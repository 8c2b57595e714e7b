//! Changes of local interest that somebody waits for.

use std::collections::VecDeque;

use sedge_base::{Instant, NodeId};

use crate::{Barrier, Token};

#[derive(Debug)]
struct Waiting {
    token: Token,
    number: u64,
    barrier: Barrier,
    deadline: Instant,
}

/// In the order of their numbers, barriers and deadlines alike, so that only the first needs a look.
#[derive(Debug, Default)]
pub(crate) struct Settle {
    waiting: VecDeque<Waiting>,
    /// A neighbour that had not confirmed the first when they were last looked through: until it has, there is no need to look again.
    held_up_by: Option<NodeId>,
    late: u64,
}

impl Settle {
    pub(crate) fn wait(&mut self, token: Token, number: u64, barrier: Barrier, deadline: Instant) {
        self.waiting.push_back(Waiting { token, number, barrier, deadline });
    }

    /// Takes the first token that need not wait longer: all shards have reached `reached`, and every neighbour has confirmed its number.
    /// `confirmed` gives the number that a neighbour has confirmed; none: that neighbour is not waited for.
    pub(crate) fn pop_settled(
        &mut self,
        reached: Barrier,
        neighbours: impl Iterator<Item = NodeId>,
        confirmed: impl Fn(NodeId) -> Option<u64>,
    ) -> Option<Token> {
        let first = self.waiting.front().filter(|first| first.barrier <= reached)?;
        let is_behind = |node: &NodeId| confirmed(*node).is_some_and(|confirmed| confirmed < first.number);
        if self.held_up_by.as_ref().is_some_and(is_behind) {
            return None;
        }
        self.held_up_by = neighbours.into_iter().find(is_behind);
        if self.held_up_by.is_some() {
            return None;
        }
        self.waiting.pop_front().map(|first| first.token)
    }

    /// Takes the first token whose deadline has passed.
    pub(crate) fn pop_late(&mut self, now: Instant) -> Option<Token> {
        if self.next()? > now {
            return None;
        }
        self.late += 1;
        self.waiting.pop_front().map(|first| first.token)
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        self.waiting.front().map(|first| first.deadline)
    }

    pub(crate) const fn late(&self) -> u64 {
        self.late
    }
}
