//! Where clients come in: all listeners are on the first shard.
//!
//! Not `SO_REUSEPORT` with a listener for each shard: it would let a second sedge of the same user share the port without a
//! word, and the shard that accepts is seldom the one that the client belongs to anyway.

use std::io::{self, ErrorKind};

use mio::Token;
use sedge_base::{Duration, Instant};

use crate::transport::{Acceptor, Peer, Socket};

/// From here on, events are those of listeners: beyond all that connections can have.
pub(crate) const TOKEN_BASE: usize = 1 << 24;
/// Connections taken from one listener in one turn.
const ACCEPTS_PER_TURN: usize = 64;
/// How long to wait for file descriptors when there are none.
const PAUSE: Duration = Duration::from_millis(250);
/// The log says at most once in this time that connections are refused.
const LOG_PERIOD: Duration = Duration::from_secs(10);

/// The listeners for clients.
pub(crate) struct Door {
    entries: Vec<Entry>,
    paused_until: Option<Instant>,
    refused: Throttle,
    crowded: Throttle,
    starved: Throttle,
    flooded: Throttle,
    fast: Throttle,
}

struct Entry {
    acceptor: Acceptor,
    /// There may be connections to accept.
    knocked: bool,
}

/// Result of accepting a connection.
pub(crate) enum Guest {
    /// A connection.
    Welcome(Socket, Peer),
    /// No connection for now.
    Nobody,
    /// The process has no file descriptors left.
    Starved,
}

impl Door {
    pub(crate) fn new(acceptors: Vec<Acceptor>) -> Self {
        let entries = acceptors.into_iter().map(|acceptor| Entry { acceptor, knocked: true }).collect();
        let (refused, crowded, starved, flooded, fast) = Default::default();
        Self { entries, paused_until: None, refused, crowded, starved, flooded, fast }
    }

    pub(crate) fn register(&mut self, registry: &mio::Registry) -> io::Result<()> {
        for (number, entry) in self.entries.iter_mut().enumerate() {
            entry.acceptor.register(registry, Token(TOKEN_BASE + number))?;
        }
        Ok(())
    }

    /// There may be connections to accept.
    pub(crate) fn knock(&mut self, token: Token) {
        let entry = token.0.checked_sub(TOKEN_BASE).and_then(|number| self.entries.get_mut(number));
        if let Some(entry) = entry {
            entry.knocked = true;
        }
    }

    /// No more connections.
    pub(crate) fn close(&mut self) {
        self.entries.clear();
        self.paused_until = None;
    }

    /// How many listeners there are.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// How often to call [`Self::accept`] at most.
    pub(crate) fn wanted(&mut self, number: usize, now: Instant) -> usize {
        if self.paused_until.is_some_and(|until| until > now) {
            return 0;
        }
        self.paused_until = None;
        if self.entries.get(number).is_some_and(|entry| entry.knocked) { ACCEPTS_PER_TURN } else { 0 }
    }

    pub(crate) fn accept(&mut self, number: usize, now: Instant) -> Guest {
        let Some(entry) = self.entries.get_mut(number) else { return Guest::Nobody };
        loop {
            let error = match entry.acceptor.accept() {
                Ok((socket, peer)) => return Guest::Welcome(socket, peer),
                Err(error) => error,
            };
            // The client was faster away than we were here.
            let again = [ErrorKind::Interrupted, ErrorKind::ConnectionAborted, ErrorKind::ConnectionReset];
            if again.contains(&error.kind()) {
                continue;
            }
            if error.kind() == ErrorKind::WouldBlock {
                entry.knocked = false;
                return Guest::Nobody;
            }
            self.paused_until = Some(now + PAUSE);
            if let Some(more) = self.starved.say(now) {
                tracing::warn!(%error, more, "cannot accept clients; raise the limit of open files (ulimit -n)");
            }
            return Guest::Starved;
        }
    }

    /// Notes that a client was refused because there are too many.
    pub(crate) fn note_refused(&mut self, now: Instant, peer: Peer, limit: usize) {
        if let Some(more) = self.refused.say(now) {
            tracing::warn!(%peer, more, limit, "client refused: as many are connected as limits.max_connections and the limit of open files (ulimit -n) allow");
        }
    }

    /// Notes that a client was refused because too many are in the middle of their handshakes.
    pub(crate) fn note_crowded(&mut self, now: Instant, peer: Peer, limit: usize) {
        if let Some(more) = self.crowded.say(now) {
            tracing::warn!(%peer, more, limit, "connection dropped: as many are in the middle of TLS, WebSocket or PROXY handshakes as limits.max_handshakes allows");
        }
    }

    /// Notes that a client was refused because there is too much from its address.
    pub(crate) fn note_flood(&mut self, now: Instant, peer: Peer, key: &str) {
        if let Some(more) = self.flooded.say(now) {
            tracing::warn!(%peer, more, "connection closed: its address has or makes more than {key} allows");
        }
    }

    /// Notes that a client was refused because connections come too fast.
    pub(crate) fn note_fast(&mut self, now: Instant, peer: Peer, listener: &str) {
        if let Some(more) = self.fast.say(now) {
            tracing::warn!(%peer, more, listener, "connection closed: more come than max_connect_rate allows");
        }
    }

    /// When to look again, if that is known.
    pub(crate) fn next_deadline(&self, now: Instant) -> Option<Instant> {
        if self.entries.iter().any(|entry| entry.knocked) { Some(self.paused_until.unwrap_or(now)) } else { None }
    }
}

/// Lets one line through in each period and counts the others.
#[derive(Default)]
struct Throttle {
    next: Instant,
    silenced: u64,
}

impl Throttle {
    /// How many were held back since the last line, if it is time for one.
    fn say(&mut self, now: Instant) -> Option<u64> {
        if now < self.next {
            self.silenced += 1;
            return None;
        }
        self.next = now + LOG_PERIOD;
        Some(std::mem::take(&mut self.silenced))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_throttle_says_how_much_it_held_back() {
        let mut throttle = Throttle::default();
        let at = Instant::from_millis;
        assert_eq!(throttle.say(at(0)), Some(0));
        assert_eq!(throttle.say(at(1)), None);
        assert_eq!(throttle.say(at(2)), None);
        assert_eq!(throttle.say(at(20_000)), Some(2));
    }
}
