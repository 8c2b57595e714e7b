//! The end of a run: clients say good-bye, and sessions that would outlive them are removed.

use super::conn::{Conn, Link};
use super::packets;
use super::state::{Core, Driver, Stage};
use crate::num;

/// Most time to remove sessions in ns.
const PATIENCE: u64 = 10_000_000_000;
/// Attempts to reach a broker that has a session; it may be one that was killed.
const ATTEMPTS: u32 = 10;

impl Driver {
    /// Says good-bye for all clients. Those with a session connect once more to each broker that has it, with a clean start.
    pub(super) fn leave(&mut self) {
        if self.core.stage == Stage::Leaving {
            return;
        }
        let scenario = &self.core.setup.scenario;
        let remove = scenario.persistent && !scenario.keep_sessions;
        self.core.stage = Stage::Leaving;
        self.leave_by = self.core.setup.clock.now() + PATIENCE;
        self.core.up = 0;
        self.core.connecting = 0;
        for conn in &mut self.conns {
            if conn.link == Link::Up {
                packets::disconnect(self.core.version, &mut conn.out);
                // Best effort: the run is over.
                let _ = conn.flush();
            }
            conn.clear();
            conn.publisher = None;
            conn.attempts = 0;
            conn.retry_at = 0;
            conn.link = Link::Gone;
            if remove && let Some(broker) = conn.visited.pop() {
                conn.broker = broker;
                conn.link = Link::Down;
            }
        }
        self.next_chores = 0;
    }

    /// How many sessions are left once the clients are gone, or time is up; none while it goes on.
    pub(super) fn left(&self, now: u64) -> Option<u64> {
        if self.core.stage != Stage::Leaving {
            return None;
        }
        let here = self.conns.iter().filter(|conn| conn.link != Link::Gone);
        let left: usize = self.conns.iter().map(|conn| conn.given_up).sum::<usize>()
            + here.map(|conn| 1 + conn.visited.len()).sum::<usize>();
        let done = self.conns.iter().all(|conn| conn.link == Link::Gone);
        (done || now >= self.leave_by).then_some(num::count(left))
    }

    /// Handles the loss of a connection while sessions are removed.
    pub(super) fn lost_while_leaving(&mut self, at: usize, now: u64) {
        let Some(conn) = self.conns.get_mut(at) else { return };
        conn.clear();
        if matches!(conn.link, Link::Opening | Link::Greeting) {
            self.core.connecting -= 1;
        }
        conn.attempts += 1;
        conn.link = Link::Down;
        conn.retry_at = now + super::outgoing::RETRY;
        if conn.attempts >= ATTEMPTS {
            conn.given_up += 1;
            conn.next_visit();
        }
    }
}

impl Core {
    /// The broker has dropped the session of `conn` with this connection's clean start; on to the next that has one.
    pub(super) fn removed(&mut self, conn: &mut Conn) {
        self.connecting -= 1;
        packets::disconnect(self.version, &mut conn.out);
        let _ = conn.flush();
        conn.clear();
        conn.next_visit();
    }
}

impl Conn {
    /// Goes on to the next broker that has a session of this client, if there is one.
    fn next_visit(&mut self) {
        self.attempts = 0;
        self.retry_at = 0;
        self.link = Link::Gone;
        if let Some(broker) = self.visited.pop() {
            self.broker = broker;
            self.link = Link::Down;
        }
    }
}
