//! Where clients come in: one listener on the first shard.
//!
//! Not `SO_REUSEPORT` with a listener for each shard: it would let a second sedge of the same user share the port without a
//! word, and the shard that accepts is seldom the one that the client belongs to anyway.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;

use mio::Token;
use mio::net::{TcpListener, TcpStream};
use sedge_base::{Duration, Instant};

/// The event of the listener.
pub(crate) const TOKEN: Token = Token(1);
/// Connections taken in one turn.
const ACCEPTS_PER_TURN: usize = 64;
/// How long to wait for file descriptors when there are none.
const PAUSE: Duration = Duration::from_millis(250);
/// The log says at most once in this time that connections are refused.
const LOG_PERIOD: Duration = Duration::from_secs(10);

/// The listener for clients.
pub(crate) struct Door {
    listener: Option<TcpListener>,
    /// There may be connections to accept.
    knocked: bool,
    paused_until: Option<Instant>,
    refused: Throttle,
    starved: Throttle,
}

/// What came of accepting.
pub(crate) enum Guest {
    /// A connection.
    Welcome(TcpStream, SocketAddr),
    /// Nobody for now.
    Nobody,
    /// The process has no file descriptors left.
    Starved,
}

impl Door {
    pub(crate) fn new(listener: TcpListener) -> Self {
        let (refused, starved) = (Throttle::default(), Throttle::default());
        Self { listener: Some(listener), knocked: true, paused_until: None, refused, starved }
    }

    pub(crate) fn register(&mut self, registry: &mio::Registry) -> io::Result<()> {
        self.listener.as_mut().map_or(Ok(()), |listener| registry.register(listener, TOKEN, mio::Interest::READABLE))
    }

    /// There may be connections to accept.
    pub(crate) fn knock(&mut self) {
        self.knocked = true;
    }

    /// No more connections.
    pub(crate) fn close(&mut self) {
        self.listener = None;
        self.knocked = false;
        self.paused_until = None;
    }

    /// Whether to call [`Self::accept`], and how often at most.
    pub(crate) fn wanted(&mut self, now: Instant) -> usize {
        if self.paused_until.is_some_and(|until| until > now) {
            return 0;
        }
        self.paused_until = None;
        if self.knocked { ACCEPTS_PER_TURN } else { 0 }
    }

    pub(crate) fn accept(&mut self, now: Instant) -> Guest {
        let Some(listener) = &self.listener else { return Guest::Nobody };
        loop {
            let error = match listener.accept() {
                Ok((stream, peer)) => return Guest::Welcome(stream, peer),
                Err(error) => error,
            };
            // The client was faster away than we were here.
            let again = [ErrorKind::Interrupted, ErrorKind::ConnectionAborted, ErrorKind::ConnectionReset];
            if again.contains(&error.kind()) {
                continue;
            }
            if error.kind() == ErrorKind::WouldBlock {
                self.knocked = false;
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
    pub(crate) fn note_refused(&mut self, now: Instant, peer: SocketAddr, limit: usize) {
        if let Some(more) = self.refused.say(now) {
            tracing::warn!(%peer, more, limit, "client refused: as many are connected as limits.max_connections and the limit of open files (ulimit -n) allow");
        }
    }

    /// When to look again, if that is known.
    pub(crate) fn next_deadline(&self, now: Instant) -> Option<Instant> {
        if self.knocked { Some(self.paused_until.unwrap_or(now)) } else { None }
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
