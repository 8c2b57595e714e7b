//! Connecting, subscribing and publishing.

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mio::{Interest, Token};

use super::conn::Link;
use super::packets;
use super::publisher::{Next, Pace};
use super::state::{Driver, Stage};
use crate::plan::Role;
use crate::transport;

/// Connections of one driver that are being established at the same time. More overflow the queue of listeners with the
/// usual length of 100, and what is dropped there is tried again only after a second.
pub(super) const MOST_CONNECTING: usize = 64;
/// Attempts of a client that was never connected.
pub(super) const MOST_ATTEMPTS: u32 = 100;
/// Time between two attempts in ns.
pub(super) const RETRY: u64 = 100_000_000;
/// Time an attempt may take in ns.
const PATIENCE: u64 = 10_000_000_000;
/// Bytes that wait for one connection before its publisher pauses.
const OUT_BYTES: usize = 65_536;
/// Time after which a closed loop gives up deliveries that do not come back, in ns.
const STALL: u64 = 2_000_000_000;

impl Driver {
    /// Does the work that is not urgent: connections to be made, pings, stalled loops.
    pub(super) fn chores(&mut self, now: u64) {
        if self.core.stage == Stage::Waiting && self.core.up == self.conns.len() && !self.pings_are_due(now) {
            return;
        }
        for at in 0..self.conns.len() {
            let Some(conn) = self.conns.get(at) else { return };
            match conn.link {
                Link::Down if conn.retry_at <= now && self.core.connecting < MOST_CONNECTING => self.dial(at, now),
                Link::Opening | Link::Greeting if conn.retry_at + PATIENCE < now => self.lost(at, "no answer in time"),
                Link::Up => self.ping(at, now),
                Link::Down | Link::Opening | Link::Greeting | Link::Gone => {}
            }
        }
        if self.core.stage == Stage::Publishing && self.core.closed_loop {
            self.watch_loops(now);
        }
    }

    fn pings_are_due(&self, now: u64) -> bool {
        let every = self.ping_interval();
        self.conns.iter().any(|conn| conn.pinged_at + every <= now)
    }

    fn ping_interval(&self) -> u64 {
        let scenario = &self.core.setup.scenario;
        let keep_alive = u64::from(scenario.keep_alive_s) * 500_000_000;
        let own = scenario.ping_ms.map(|ms| ms.max(1) * 1_000_000);
        own.unwrap_or(if keep_alive == 0 { u64::MAX / 2 } else { keep_alive })
    }

    fn ping(&mut self, at: usize, now: u64) {
        let every = self.ping_interval();
        let strict = self.core.setup.scenario.ping_ms.is_some();
        let Some(conn) = self.conns.get_mut(at).filter(|conn| conn.pinged_at + every <= now) else { return };
        if strict && conn.unanswered > 0 {
            self.lost(at, "no answer to a ping");
            return;
        }
        conn.pinged_at = now;
        conn.unanswered += 1;
        packets::ping(&mut conn.out);
        self.core.mark(at);
    }

    /// Opens closed loops that wait for messages that do not come.
    fn watch_loops(&mut self, now: u64) {
        for (at, conn) in self.conns.iter_mut().enumerate() {
            let Some(publisher) = &mut conn.publisher else { continue };
            let returned =
                self.core.setup.credits.get(publisher.client).map_or(0, |credit| credit.load(Ordering::Relaxed));
            publisher.note_returned(returned, now);
            if conn.link == Link::Up && publisher.moved_at + STALL < now && publisher.waits_for_deliveries(returned) {
                publisher.forgive(returned);
                self.core.recorder.tally.stalls += 1;
            }
            self.core.mark(at);
        }
    }

    /// Begins a connection.
    fn dial(&mut self, at: usize, now: u64) {
        let Some(conn) = self.conns.get_mut(at) else { return };
        let setup = Arc::clone(&self.core.setup);
        let Some((endpoint, address)) = setup.brokers.get(conn.broker) else { return };
        let source = setup.sources.get(conn.client % setup.sources.len().max(1)).copied();
        conn.clear();
        conn.retry_at = now;
        let begun = transport::connect(endpoint, *address, source, &setup.tls).and_then(|mut transport| {
            let interest = Interest::READABLE | Interest::WRITABLE;
            self.core.registry.register(transport.socket(), Token(at), interest)?;
            Ok(transport)
        });
        conn.link = Link::Opening;
        self.core.connecting += 1;
        match begun {
            Ok(transport) => conn.transport = Some(transport),
            Err(error) => self.lost(at, &error.to_string()),
        }
    }

    /// Goes on with a connection that is being established.
    pub(super) fn open(&mut self, at: usize) {
        let Some(conn) = self.conns.get_mut(at) else { return };
        let Some(transport) = &mut conn.transport else { return };
        match transport.open() {
            Ok(true) => {
                conn.link = Link::Greeting;
                let client_id = format!("sb{:08x}-{}", self.core.setup.run, conn.client);
                let persistent = self.core.setup.scenario.persistent && self.core.stage != Stage::Leaving;
                if persistent && !conn.visited.contains(&conn.broker) {
                    conn.visited.push(conn.broker);
                }
                packets::connect(&self.core.introduction, persistent, &client_id, &mut conn.out);
                conn.pinged_at = self.core.setup.clock.now();
                self.core.mark(at);
                // Bytes that came along with the last step of a handshake raise no event of their own.
                self.readable(at, false);
            }
            Ok(false) => {}
            Err(error) => self.refused(at, &error),
        }
    }

    /// Gives the run up if a client that was never connected is refused for good, and its connection otherwise.
    pub(super) fn refused(&mut self, at: usize, error: &std::io::Error) {
        let known = self.conns.get(at).is_some_and(|conn| conn.known);
        if error.kind() == std::io::ErrorKind::InvalidData && !known {
            self.core.fail(format!("a client could not connect: {error}"));
        }
        self.lost(at, &error.to_string());
    }

    /// Drops a connection, and sees to the next if there is to be one.
    pub(super) fn lost(&mut self, at: usize, reason: &str) {
        let now = self.core.setup.clock.now();
        if self.core.stage == Stage::Leaving {
            self.lost_while_leaving(at, now);
            return;
        }
        let reconnect = self.core.setup.scenario.reconnect;
        let brokers = self.core.setup.brokers.len();
        let Some(conn) = self.conns.get_mut(at) else { return };
        conn.clear();
        match conn.link {
            Link::Up => {
                self.core.up -= 1;
                self.core.recorder.tally.disconnects += 1;
            }
            Link::Opening | Link::Greeting => self.core.connecting -= 1,
            Link::Down | Link::Gone => return,
        }
        conn.attempts += 1;
        conn.retry_at = if conn.attempts == 1 && conn.known { now } else { now + RETRY };
        conn.link = if conn.known && !reconnect { Link::Gone } else { Link::Down };
        if conn.known && reconnect {
            conn.broker = (conn.broker + 1) % brokers.max(1);
        }
        if !conn.known {
            let attempts = conn.attempts;
            self.core.could_not_connect(attempts, reason);
        } else if !reconnect && !self.core.is_running() {
            self.core.fail(format!("a client lost its connection: {reason}"));
        }
    }

    /// Subscribes connection `at`, if it is a subscriber's.
    pub(super) fn subscribe(&mut self, at: usize) {
        let qos = self.core.subscribe_qos();
        let Some(conn) = self.conns.get_mut(at) else { return };
        let role = self.core.setup.plan.clients.get(conn.client).map(|client| &client.role);
        if let Some(Role::Subscriber { filter, .. }) = role {
            packets::subscribe(filter, qos, self.core.version, &mut conn.out);
            self.core.mark(at);
        }
    }

    /// Sends the packets to be sent, connection by connection, each with as few writes as possible.
    pub(super) fn work_off(&mut self) {
        let mut turn = 0;
        while let Some(at) = self.core.dirty.get(turn).copied() {
            turn += 1;
            if let Some(queued) = self.core.queued.get_mut(at) {
                *queued = false;
            }
            while self.pump(at) {
                if !self.flush(at) {
                    break;
                }
            }
            self.flush(at);
        }
        self.core.dirty.drain(..turn);
    }

    /// Hands waiting bytes over; true if all are gone.
    fn flush(&mut self, at: usize) -> bool {
        let Some(conn) = self.conns.get_mut(at) else { return false };
        if matches!(conn.link, Link::Opening | Link::Down | Link::Gone) || conn.blocked {
            return false;
        }
        match conn.flush() {
            Ok(()) => conn.pending() == 0,
            Err(error) => {
                self.lost(at, &error.to_string());
                false
            }
        }
    }

    /// Writes messages that connection `at` may send; true if there were any.
    fn pump(&mut self, at: usize) -> bool {
        let core = &mut self.core;
        let Some(conn) = self.conns.get_mut(at) else { return false };
        let Some(publisher) = &mut conn.publisher else { return false };
        if core.stage != Stage::Publishing || conn.link != Link::Up || conn.blocked {
            return false;
        }
        let returned = if publisher.pace == Pace::Room {
            core.setup.credits.get(publisher.client).map_or(0, |credit| credit.load(Ordering::Relaxed))
        } else {
            0
        };
        let window = core.recorder.window();
        let now = core.setup.clock.now();
        // Messages that the open loop has counted as due were due before the end.
        let scheduled = matches!(publisher.pace, Pace::Schedule { .. });
        if now < core.beat.origin || !scheduled && now >= window.end {
            return false;
        }
        let mut wrote = false;
        while conn.out.len() - conn.written < OUT_BYTES && publisher.may_send(returned, now) {
            let sent = match publisher.pace {
                Pace::Schedule { interval, phase } => core.beat.due_at(interval, phase, publisher.sent),
                Pace::Room | Pace::LastMessage { .. } => now,
            };
            let payload = &core.setup.scenario.payload;
            let size = payload.fixed().unwrap_or_else(|| payload.draw(&mut core.rng));
            let stamp = publisher.send(Next { run: core.setup.run, sent, size }, window, &mut conn.out, &core.filler);
            core.recorder.sent(stamp, now);
            core.pauses.extend(publisher.pause(now).map(|until| Reverse((until, at))));
            wrote = true;
        }
        wrote
    }
}
