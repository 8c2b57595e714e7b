//! One client's connection.

use std::collections::BTreeSet;

use crate::measure::Place;
use crate::transport::Transport;

use super::publisher::Publisher;

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// Not there; to be tried at `Conn::retry_at`.
    Down,
    /// Being established.
    Opening,
    /// CONNECT is sent.
    Greeting,
    /// CONNACK has come.
    Up,
    /// Not there, and not to come back.
    Gone,
}

/// One client's connection.
pub(super) struct Conn {
    /// Number of the client in the plan.
    pub(super) client: usize,
    pub(super) link: Link,
    pub(super) transport: Option<Box<dyn Transport>>,
    /// Bytes of a packet that has not come whole.
    pub(super) partial: Vec<u8>,
    /// Bytes not yet taken by the connection.
    pub(super) out: Vec<u8>,
    pub(super) written: usize,
    /// The connection takes no more at the moment.
    pub(super) blocked: bool,
    pub(super) broker: usize,
    /// Brokers that have a session of this client which outlives its connections.
    pub(super) visited: Vec<usize>,
    /// Sessions that could not be removed.
    pub(super) given_up: usize,
    pub(super) retry_at: u64,
    pub(super) attempts: u32,
    pub(super) pinged_at: u64,
    /// Pings without an answer.
    pub(super) unanswered: u32,
    /// It was up at least once.
    pub(super) known: bool,
    pub(super) subscribed: bool,
    /// Identifiers of QoS 2 messages that have come and are not yet released.
    pub(super) held: BTreeSet<u16>,
    /// Where its messages are counted.
    pub(super) place: Option<Place>,
    pub(super) publisher: Option<Box<Publisher>>,
}

impl Conn {
    pub(super) fn new(client: usize, broker: usize) -> Self {
        Self {
            client,
            link: Link::Down,
            transport: None,
            partial: Vec::new(),
            out: Vec::new(),
            written: 0,
            blocked: false,
            broker,
            visited: Vec::new(),
            given_up: 0,
            retry_at: 0,
            attempts: 0,
            pinged_at: 0,
            unanswered: 0,
            known: false,
            subscribed: false,
            held: BTreeSet::new(),
            place: None,
            publisher: None,
        }
    }

    /// Bytes that wait to be sent.
    pub(super) const fn pending(&self) -> usize {
        self.out.len() - self.written
    }

    /// Forgets everything about the connection that was.
    pub(super) fn clear(&mut self) {
        self.transport = None;
        self.partial = Vec::new();
        self.out = Vec::new();
        self.written = 0;
        self.blocked = false;
        self.unanswered = 0;
    }

    /// Hands waiting bytes over as far as the connection takes them.
    pub(super) fn flush(&mut self) -> std::io::Result<()> {
        let Some(transport) = &mut self.transport else { return Ok(()) };
        while self.written < self.out.len() {
            match transport.write(self.out.get(self.written..).unwrap_or_default()) {
                Ok(0) => return Err(std::io::ErrorKind::WriteZero.into()),
                Ok(length) => self.written += length,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    self.blocked = true;
                    return Ok(());
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.out.clear();
        self.written = 0;
        self.blocked = !transport.flush()?;
        Ok(())
    }
}
