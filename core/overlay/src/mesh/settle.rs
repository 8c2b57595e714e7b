//! Changes of local interest that somebody waits for.

use std::collections::VecDeque;

use sedge_base::Instant;

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
    late: u64,
}

impl Settle {
    pub(crate) fn wait(&mut self, token: Token, number: u64, barrier: Barrier, deadline: Instant) {
        self.waiting.push_back(Waiting { token, number, barrier, deadline });
    }

    /// Whether somebody waits for nothing but neighbours, given that all shards have reached `reached`.
    pub(crate) fn waits_for_neighbours(&self, reached: Barrier) -> bool {
        self.waiting.front().is_some_and(|first| first.barrier <= reached)
    }

    /// Takes the first token that need not wait longer: every neighbour has confirmed `confirmed`, and all shards have reached
    /// `reached`.
    pub(crate) fn pop_settled(&mut self, confirmed: u64, reached: Barrier) -> Option<Token> {
        let first = self.waiting.front()?;
        if first.number > confirmed || first.barrier > reached {
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
