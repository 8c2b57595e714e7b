//! Connections of clients on one thread.

use std::collections::VecDeque;

use bytes::Bytes;
use mio::{Interest, Registry, Token};
use sedge_base::{ClientId, ConnId, Duration, Instant, ShardId};
use sedge_cluster::Reception;
use sedge_cluster::durable::Allowance;
use slab::Slab;

use super::{AddressSeat, UserSeat};
use crate::transport::{Layers, Peer, Socket};

/// Even tokens from here on are connections of clients.
pub(crate) const TOKEN_BASE: usize = 16;
/// How long the last bytes of a connection, and the other side's last word, are waited for.
pub(crate) const CLOSE_GRACE: Duration = Duration::from_secs(2);

const INDEX_BITS: u32 = 22;
const GENERATION_BITS: u32 = 32;
/// Most connections of one thread: as many as fit into a connection's number.
const CLIENTS_MAX: usize = (1 << INDEX_BITS) - 1;

/// How far a connection has come.
pub(crate) enum Phase {
    /// The connection's first packet is awaited, which names its client.
    Greeting(Box<Greeting>),
    /// The shard has the connection.
    Serving,
    /// The shard has closed the connection; the remaining bytes are written.
    Closing,
    /// Everything is written and said; the other side's end is awaited, for a connection that is dropped with unread bytes is
    /// reset, and the reset overtakes our last words.
    Lingering,
}

/// State of a connection before its CONNECT.
pub(crate) struct Greeting {
    pub(crate) peer: Peer,
    /// The connection is among those that have not finished the layers before MQTT.
    pub(crate) handshaking: bool,
    pub(crate) reception: Reception,
    pub(crate) bytes: Vec<Bytes>,
}

/// A connection.
pub(crate) struct Client {
    pub(crate) id: ConnId,
    pub(crate) socket: Socket,
    /// Layers between the socket and MQTT.
    pub(crate) layers: Option<Box<Layers>>,
    pub(crate) phase: Phase,
    /// Number of its listener.
    pub(crate) listener: u16,
    /// Its place among those of its address, if that is limited.
    pub(crate) seat: Option<Box<AddressSeat>>,
    /// Its place among those of its user, if that is limited.
    pub(crate) account: Option<Box<Account>>,
    reading: Reading,
    /// The other side's end is in sight: a short read does not mean that all was read.
    pub(crate) ended: bool,
    /// The socket took less than it was given.
    pub(crate) blocked: bool,
    /// Bytes written so far.
    pub(crate) written: u64,
    /// How many bytes may be written.
    pub(crate) allowance: Allowance,
    /// It is on the list of those with something to write.
    dirty: bool,
}

/// A client whose user has a limit.
pub(crate) enum Account {
    /// It is being found out who this is.
    Unknown(ClientId),
    /// It counts.
    Known(#[expect(dead_code, reason = "it counts until it is dropped")] UserSeat),
}

#[derive(Default)]
struct Reading {
    /// There may be something to read, and it is on the list for that.
    queued: bool,
    /// The shard wants nothing more from it for now.
    held: bool,
    /// There may be something to read, but it is held.
    waiting: bool,
}

/// All connections of a thread.
pub(crate) struct Clients {
    shard: ShardId,
    slots: Slab<Client>,
    generation: u32,
    ready: VecDeque<usize>,
    /// Those that have had something to write since the last turn, in order.
    dirty: VecDeque<ConnId>,
    /// Those for which the turns before had no time.
    put_off: VecDeque<ConnId>,
    /// When handshakes began, oldest first.
    handshakes: VecDeque<(Instant, ConnId)>,
    /// How many of them are not finished.
    handshaking: usize,
    /// Number of bytes that a new connection may write.
    allowance: Allowance,
    /// Deadlines of greetings, oldest first.
    greetings: VecDeque<(Instant, ConnId)>,
    /// Deadlines of closings, oldest first.
    closings: VecDeque<(Instant, ConnId)>,
}

impl Clients {
    pub(crate) fn new(shard: ShardId) -> Self {
        Self {
            shard,
            slots: Slab::new(),
            generation: 0,
            ready: VecDeque::new(),
            dirty: VecDeque::new(),
            put_off: VecDeque::new(),
            handshakes: VecDeque::new(),
            handshaking: 0,
            allowance: Allowance::UNLIMITED,
            greetings: VecDeque::new(),
            closings: VecDeque::new(),
        }
    }

    /// From now on nothing is written that was not allowed with [`Self::allow`].
    pub(crate) const fn gate(&mut self) {
        self.allowance = Allowance::NONE;
    }

    /// The bytes up to this position wait for the journal: [`Self::allow`] is called when it has what they rest on.
    pub(crate) fn wait(&mut self, id: ConnId, position: u64) {
        if let Some(client) = self.get_mut(id) {
            client.allowance.wait(position);
        }
    }

    /// The bytes up to this position wait for nothing but those before them.
    pub(crate) fn pass(&mut self, id: ConnId, position: u64) {
        if self.get_mut(id).is_some_and(|client| client.allowance.pass(position)) {
            self.mark_dirty(id);
        }
    }

    /// The bytes up to this position may be written, and those behind it that wait for nothing else.
    pub(crate) fn allow(&mut self, id: ConnId, position: u64) {
        if let Some(client) = self.get_mut(id) {
            client.allowance.allow(position);
            self.mark_dirty(id);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Takes a connection in. Both interests are registered once and for all: events come at edges, so that a connection that
    /// is not read, or has nothing to write, costs no system call.
    pub(crate) fn insert(
        &mut self,
        registry: &Registry,
        mut socket: Socket,
        layers: Option<Box<Layers>>,
        listener: u16,
        phase: Phase,
    ) -> std::io::Result<ConnId> {
        if self.slots.len() >= CLIENTS_MAX {
            return Err(std::io::Error::other("more connections than one shard can number"));
        }
        let entry = self.slots.vacant_entry();
        let index = entry.key();
        registry.register(&mut socket, token(index), Interest::READABLE | Interest::WRITABLE)?;
        self.generation = self.generation.wrapping_add(1);
        let id = conn_id(self.shard, self.generation, index);
        let reading = Reading::default();
        entry.insert(Client {
            id,
            socket,
            layers,
            phase,
            listener,
            seat: None,
            account: None,
            reading,
            ended: false,
            blocked: false,
            written: 0,
            allowance: self.allowance,
            dirty: false,
        });
        Ok(id)
    }

    /// Takes a connection out.
    pub(crate) fn remove(&mut self, registry: &Registry, id: ConnId) -> Option<Client> {
        self.get_mut(id)?;
        self.end_handshake(id);
        let mut client = self.slots.try_remove(index_of(id))?;
        // Closing the socket would do it, too, but not while it lives on in another thread.
        if let Err(error) = registry.deregister(&mut client.socket) {
            tracing::debug!(%error, "cannot deregister a connection");
        }
        if self.slots.is_empty() {
            self.slots.shrink_to_fit();
        }
        Some(client)
    }

    pub(crate) fn get_mut(&mut self, id: ConnId) -> Option<&mut Client> {
        self.slots.get_mut(index_of(id)).filter(|client| client.id == id)
    }

    /// The connection an event is about.
    pub(crate) fn by_token(&self, token: Token) -> Option<ConnId> {
        self.slots.get(token.0.checked_sub(TOKEN_BASE)? / 2).map(|client| client.id)
    }

    /// All connections.
    pub(crate) fn ids(&self) -> Vec<ConnId> {
        self.slots.iter().map(|(_, client)| client.id).collect()
    }

    /// There may be something to read.
    pub(crate) fn mark_ready(&mut self, id: ConnId) {
        let Some(client) = self.slots.get_mut(index_of(id)).filter(|client| client.id == id) else { return };
        if client.reading.held && matches!(client.phase, Phase::Serving) {
            client.reading.waiting = true;
        } else if !client.reading.queued {
            client.reading.queued = true;
            self.ready.push_back(index_of(id));
        }
    }

    /// The next connection to read from.
    pub(crate) fn next_ready(&mut self) -> Option<ConnId> {
        while let Some(index) = self.ready.pop_front() {
            if let Some(client) = self.slots.get_mut(index).filter(|client| client.reading.queued) {
                client.reading.queued = false;
                if client.reading.held && matches!(client.phase, Phase::Serving) {
                    client.reading.waiting = true;
                } else {
                    return Some(client.id);
                }
            }
        }
        None
    }

    /// How many connections may have something to read.
    pub(crate) fn ready_len(&self) -> usize {
        self.ready.len()
    }

    /// There is something to write.
    pub(crate) fn mark_dirty(&mut self, id: ConnId) {
        let Some(client) = self.slots.get_mut(index_of(id)).filter(|client| client.id == id) else { return };
        if !client.dirty && !client.blocked {
            client.dirty = true;
            self.dirty.push_back(id);
        }
    }

    /// How many connections have something to write: since this turn, and for longer.
    pub(crate) fn dirty_len(&self) -> (usize, usize) {
        (self.dirty.len(), self.put_off.len())
    }

    /// The next connection that has something to write since this turn.
    pub(crate) fn next_dirty(&mut self) -> Option<ConnId> {
        let id = self.dirty.pop_front()?;
        self.forget_dirty(id);
        Some(id)
    }

    /// The next one of those that were put off.
    pub(crate) fn next_put_off(&mut self) -> Option<ConnId> {
        let id = self.put_off.pop_front()?;
        self.forget_dirty(id);
        Some(id)
    }

    fn forget_dirty(&mut self, id: ConnId) {
        if let Some(client) = self.get_mut(id) {
            client.dirty = false;
        }
    }

    /// It is written to when there is time, behind all that were put off before.
    pub(crate) fn put_off(&mut self, id: ConnId) {
        if let Some(client) = self.get_mut(id).filter(|client| !client.dirty) {
            client.dirty = true;
            self.put_off.push_back(id);
        }
    }

    pub(crate) fn has_dirty(&self) -> bool {
        !self.dirty.is_empty() || !self.put_off.is_empty()
    }

    /// Whether to read from it.
    pub(crate) fn hold(&mut self, id: ConnId, held: bool) {
        let Some(client) = self.get_mut(id) else { return };
        client.reading.held = held;
        if !held && std::mem::take(&mut client.reading.waiting) {
            self.mark_ready(id);
        }
    }

    /// Whether a connection that is held has ended with nothing left to read. One with TLS or WebSocket below MQTT is not looked at.
    pub(crate) fn has_left(&self, id: ConnId) -> bool {
        let client = self.slots.get(index_of(id)).filter(|client| client.id == id && client.layers.is_none());
        client.is_some_and(|client| {
            client.reading.held && matches!(client.phase, Phase::Serving) && client.socket.is_at_end()
        })
    }

    fn greeting(&mut self, id: ConnId) -> Option<&mut Greeting> {
        match &mut self.get_mut(id)?.phase {
            Phase::Greeting(greeting) => Some(greeting),
            Phase::Serving | Phase::Closing | Phase::Lingering => None,
        }
    }

    /// Counts it among those that have not finished what comes before MQTT.
    pub(crate) fn begin_handshake(&mut self, id: ConnId, now: Instant) {
        let Some(greeting) = self.greeting(id) else { return };
        greeting.handshaking = true;
        self.handshaking += 1;
        self.handshakes.push_back((now, id));
    }

    /// It is not among them any more; whether it was.
    pub(crate) fn end_handshake(&mut self, id: ConnId) -> bool {
        let was = self.greeting(id).is_some_and(|greeting| std::mem::take(&mut greeting.handshaking));
        self.handshaking -= usize::from(was);
        while let Some(&(_, first)) = self.handshakes.front() {
            if self.greeting(first).is_some_and(|greeting| greeting.handshaking) {
                break;
            }
            self.handshakes.pop_front();
        }
        was
    }

    /// How many have not finished what comes before MQTT.
    pub(crate) const fn handshaking(&self) -> usize {
        self.handshaking
    }

    /// The one that has tried for the longest time, and since when.
    pub(crate) fn oldest_handshake(&self) -> Option<(Instant, ConnId)> {
        self.handshakes.front().copied()
    }

    /// Waits for the first packet until `deadline`.
    pub(crate) fn expect_greeting(&mut self, id: ConnId, deadline: Instant) {
        self.greetings.push_back((deadline, id));
    }

    /// The shard has closed the connection: the remaining bytes are written, then the other side's end is awaited.
    pub(crate) fn start_closing(&mut self, id: ConnId, now: Instant) {
        let Some(client) = self.get_mut(id) else { return };
        client.phase = Phase::Closing;
        client.reading.held = false;
        let waiting = std::mem::take(&mut client.reading.waiting);
        self.closings.push_back((now + CLOSE_GRACE, id));
        self.mark_dirty(id);
        if waiting {
            self.mark_ready(id);
        }
    }

    /// A connection whose greeting has not come in time; `None`: no further.
    pub(crate) fn overdue_greeting(&mut self, now: Instant) -> Option<ConnId> {
        loop {
            let id = pop_due(&mut self.greetings, now)?;
            if self.get_mut(id).is_some_and(|client| matches!(client.phase, Phase::Greeting(_))) {
                return Some(id);
            }
        }
    }

    /// Listener and peer of a connection that has not said who it is.
    pub(crate) fn greeting_of(&mut self, id: ConnId) -> Option<(u16, Peer)> {
        let client = self.get_mut(id)?;
        let Phase::Greeting(greeting) = &client.phase else { return None };
        Some((client.listener, greeting.peer))
    }

    /// A connection that could not be closed in time; `None`: no further.
    pub(crate) fn overdue_closing(&mut self, now: Instant) -> Option<ConnId> {
        loop {
            let id = pop_due(&mut self.closings, now)?;
            if self.get_mut(id).is_some() {
                return Some(id);
            }
        }
    }

    /// When one of the two is due next.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let fronts = [self.greetings.front(), self.closings.front()];
        fronts.into_iter().flatten().map(|&(at, _)| at).min()
    }
}

fn pop_due(queue: &mut VecDeque<(Instant, ConnId)>, now: Instant) -> Option<ConnId> {
    let &(at, id) = queue.front()?;
    if at > now {
        return None;
    }
    queue.pop_front();
    if queue.is_empty() {
        *queue = VecDeque::new();
    }
    Some(id)
}

fn token(index: usize) -> Token {
    Token(TOKEN_BASE + 2 * index)
}

/// Shard, how many connections it had before, and place in its table. Not used twice before a shard has had 2^32 connections.
fn conn_id(shard: ShardId, generation: u32, index: usize) -> ConnId {
    let place = u64::from(generation) << INDEX_BITS | index as u64;
    ConnId(u64::from(shard.0) << (INDEX_BITS + GENERATION_BITS) | place)
}

fn index_of(id: ConnId) -> usize {
    usize::try_from(id.0 & ((1 << INDEX_BITS) - 1)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_connections_tell_shard_and_place() {
        let id = conn_id(ShardId(3), u32::MAX, CLIENTS_MAX);
        assert_eq!(index_of(id), CLIENTS_MAX);
        assert_eq!(id.0 >> (INDEX_BITS + GENERATION_BITS), 3);
        assert_ne!(conn_id(ShardId(0), 1, 5), conn_id(ShardId(0), 2, 5));
        assert_ne!(conn_id(ShardId(0), 1, 5), conn_id(ShardId(1), 1, 5));
    }
}
