//! The clients' part of a turn.

use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::{Bytes, BytesMut};
use mio::Token;
use sedge_base::{ConnId, Duration, Instant, ShardId};
use sedge_cluster::{Reception, ReceptionResult, ShardInput, UpstreamInput};

use super::log::hint;
use super::{SHARE_OF_TURN, Worker};
use crate::runtime::addresses::Excess;
use crate::runtime::clients::{Client, Greeting, Phase};
use crate::runtime::door::{Door, Guest};
use crate::runtime::upstream::Upstreams;
use crate::runtime::wire::{self, Arrival, Departure};
use crate::runtime::{AddressSeat, Handover, Letter};
use crate::transport::{Fault, Flow, Layers, Listener, Peer, Reason, Refused, Socket};

/// Connections read in one turn, one read each: with more waiting, those already read get their answers first.
const READS_PER_TURN: usize = 256;
/// Bytes read in one turn, but for the last read: their effects are written while the bytes are still in the processor's cache, into memory
/// that the turn before has given back.
const BYTES_PER_TURN: usize = 256 * 1024;
/// A connection with more than this to write comes after those with less.
const BULKY_BYTES: usize = 64 * 1024;
/// Writes, and bytes written, before the clock is looked at.
const WRITES_PER_LOOK: usize = 8;
const BYTES_PER_LOOK: usize = 256 * 1024;
/// Reads of unfinished handshakes in one turn: a signature costs as much as hundreds of messages of those who are connected.
const HANDSHAKE_READS_PER_TURN: usize = 16;
/// How long it may take to accept the connections that have waited while none were.
const BACKLOG: Duration = Duration::from_secs(1);
/// A handshake that has taken longer gives way to a new one where there are too many.
const HANDSHAKE_GRACE: Duration = Duration::from_secs(1);

/// Says when the time for writing is over, without looking at the clock for each small write.
struct Stopwatch {
    until: Instant,
    writes: usize,
    bytes: usize,
    is_over: bool,
}

impl Stopwatch {
    const fn until(until: Instant) -> Self {
        Self { until, writes: 0, bytes: 0, is_over: false }
    }

    fn note(&mut self, bytes: usize) {
        self.writes += 1;
        self.bytes += bytes;
    }

    fn is_over(&mut self, clock: impl FnOnce() -> Instant) -> bool {
        if self.writes >= WRITES_PER_LOOK || self.bytes >= BYTES_PER_LOOK {
            (self.writes, self.bytes) = (0, 0);
            self.is_over = clock() >= self.until;
        }
        self.is_over
    }
}

impl Worker {
    pub(super) fn client_event(&mut self, token: Token, event: &mio::event::Event) {
        let Some(id) = self.clients.by_token(token) else { return };
        let Some(client) = self.clients.get_mut(id) else { return };
        client.ended |= event.is_read_closed() || event.is_error();
        let unblocked = event.is_writable() && std::mem::take(&mut client.blocked);
        if unblocked {
            self.clients.mark_dirty(id);
        }
        if event.is_write_closed() || event.is_error() {
            // Nobody is there any more, so that a client that is held need not be waited for.
            self.clients.hold(id, false);
        } else if event.is_read_closed() && self.has_left(id) {
            // A client that has given up waiting for its CONNACK must not take its session from where it is by now.
            return self.end(id);
        }
        if event.is_readable() || event.is_read_closed() || event.is_error() {
            self.clients.mark_ready(id);
        }
    }

    pub(super) fn accept(&mut self) {
        if self.shard.stands_still() || self.hub.as_ref().is_some_and(|hub| !hub.node.is_restored()) {
            self.backlog_until = self.now.instant + BACKLOG;
            return;
        }
        for number in 0..self.door.as_ref().map_or(0, Door::len) {
            self.accept_from(number);
        }
    }

    fn accept_from(&mut self, number: usize) {
        let Some(door) = &mut self.door else { return };
        for _ in 0..door.wanted(number, self.now.instant) {
            let Some(door) = &mut self.door else { return };
            match door.accept(number, self.now.instant) {
                Guest::Welcome(socket, peer) => self.welcome(socket, peer, number),
                Guest::Nobody => return,
                Guest::Starved => {
                    self.stats.no_descriptors += 1;
                    return;
                }
            }
        }
    }

    fn welcome(&mut self, socket: Socket, peer: Peer, number: usize) {
        let shared = Arc::clone(&self.shared);
        let limit = shared.connections_max;
        let Some(listener) = shared.listeners.get(number) else { return };
        if shared.connections.load(Ordering::Relaxed) >= limit {
            self.stats.over_limit += 1;
            if let Some(door) = &mut self.door {
                door.note_refused(self.now.instant, peer, limit);
            }
            return;
        }
        let Ok(seat) = self.seat(peer, listener) else { return };
        if listener.has_handshakes() && !self.has_room_for_handshake(peer) {
            return;
        }
        let layers = match listener.welcome(peer) {
            Ok(layers) => layers,
            Err(Refused::Full) => return,
            Err(Refused::Fault(reason)) => {
                tracing::debug!(%peer, listener = listener.name, ?reason, "connection refused");
                return self.stats.note(reason);
            }
        };
        self.stats.accepted += 1;
        shared.connections.fetch_add(1, Ordering::Relaxed);
        let shards = u16::try_from(shared.boxes.len()).unwrap_or(1);
        self.next_default = (self.next_default + 1) % shards;
        let reception = Reception::new(shards, ShardId(self.next_default), self.max_packet_bytes);
        let greeting = Phase::Greeting(Box::new(Greeting { peer, handshaking: false, reception, bytes: Vec::new() }));
        let layered = layers.is_some();
        let number = u16::try_from(number).unwrap_or(u16::MAX);
        match self.clients.insert(self.poll.registry(), socket, layers, number, greeting) {
            Ok(id) => {
                self.take_seat(id, seat);
                self.clients.expect_greeting(id, self.now.instant + self.connect_timeout);
                if layered {
                    self.clients.begin_handshake(id, self.now.instant);
                }
            }
            Err(error) => {
                shared.client_gone(number);
                tracing::warn!(%peer, %error, "cannot take a client in");
            }
        }
    }

    /// The place of a new connection among those of its address and its listener, if there is one left. That of a client behind a
    /// balancer is looked for when it is known who it is. An address that has used up its share takes nothing from its listener's.
    fn seat(&mut self, peer: Peer, listener: &Listener) -> Result<Option<Box<AddressSeat>>, Excess> {
        let seat = match peer {
            Peer::Network(address) if !listener.awaits_source(peer) => self.seat_at(address)?,
            Peer::Network(_) | Peer::Local | Peer::Inside => None,
        };
        if listener.has_token(self.now.instant) {
            return Ok(seat);
        }
        if let Some(door) = &mut self.door {
            door.note_fast(self.now.instant, peer, &listener.name);
        }
        Err(Excess::Rate)
    }

    fn take_seat(&mut self, id: ConnId, seat: Option<Box<AddressSeat>>) {
        if let Some(client) = self.clients.get_mut(id) {
            client.seat = seat;
        }
    }

    fn seat_at(&mut self, address: SocketAddr) -> Result<Option<Box<AddressSeat>>, Excess> {
        let Some(addresses) = &self.shared.addresses else { return Ok(None) };
        let entered = addresses.enter(address.ip(), self.now.instant);
        if let (Err(excess), Some(door)) = (&entered, &mut self.door) {
            let key = match excess {
                Excess::Number => "limits.max_connections_per_address",
                Excess::Rate => "limits.max_connect_rate_per_address",
            };
            door.note_flood(self.now.instant, Peer::Network(address), key);
        }
        entered.map(Some)
    }

    /// Whether one more may begin; one that has tried for long gives way.
    fn has_room_for_handshake(&mut self, peer: Peer) -> bool {
        if self.clients.handshaking() < self.max_handshakes {
            return true;
        }
        self.stats.note(Reason::Crowded);
        if let Some(door) = &mut self.door {
            door.note_crowded(self.now.instant, peer, self.max_handshakes);
        }
        match self.clients.oldest_handshake() {
            Some((since, id)) if since + HANDSHAKE_GRACE <= self.now.instant => {
                self.drop_client(id);
                true
            }
            _ => false,
        }
    }

    /// A connection that another thread has accepted for this one.
    pub(super) fn take_over(&mut self, handover: Handover) {
        let Handover { socket, layers, listener, peer, seat, user, bytes } = handover;
        let flow = layers.as_deref().map(|layers| (layers.has_output(), layers.has_ended()));
        match self.clients.insert(self.poll.registry(), socket, layers, listener, Phase::Serving) {
            Ok(id) if self.stopping.is_none() => {
                self.take_seat(id, seat);
                self.open(id, peer, user, bytes);
                let (output, ended) = flow.unwrap_or_default();
                if output {
                    self.clients.mark_dirty(id);
                }
                if ended {
                    self.clients.mark_ready(id);
                }
            }
            Ok(id) => self.drop_client(id),
            Err(error) => {
                self.shared.client_gone(listener);
                tracing::warn!(%peer, %error, "cannot take a client over");
            }
        }
    }

    fn open(&mut self, conn: ConnId, peer: Peer, user: Option<String>, bytes: Vec<Bytes>) {
        let listener = self.clients.get_mut(conn).map(|client| usize::from(client.listener));
        let listener = listener.and_then(|number| self.shared.listeners.get(number));
        let rate = listener.map(|listener| listener.publish_rate).unwrap_or_default();
        let inside = peer == Peer::Inside;
        if self.upstreams.as_ref().is_some_and(Upstreams::tells_origins) {
            let layers = self.clients.get_mut(conn).and_then(|client| client.layers.as_deref());
            if let Some(name) = layers.and_then(Layers::certificate_name) {
                self.shard.handle(self.now, ShardInput::Upstream(UpstreamInput::Certificate { conn, name }));
            }
        }
        self.shard.handle(self.now, ShardInput::Opened { conn, peer: peer.to_string(), user, rate, inside });
        for bytes in bytes {
            self.shard.handle(self.now, ShardInput::Received { conn, bytes });
        }
        self.settle();
    }

    /// One read from each connection that may have something, so that none is served twice before all were served once.
    pub(super) fn read_clients(&mut self) {
        let mut budget = BYTES_PER_TURN;
        let mut begun = self.clock();
        let until = begun + SHARE_OF_TURN;
        self.handshake_reads = HANDSHAKE_READS_PER_TURN;
        for _ in 0..self.clients.ready_len().min(READS_PER_TURN) {
            let Some(id) = self.clients.next_ready() else { return };
            let read = self.read_client(id);
            budget = budget.saturating_sub(read);
            let now = self.clock();
            self.chunk.pace(read, now.since(begun));
            begun = now;
            if budget == 0 || now >= until {
                return;
            }
        }
    }

    /// Reads once; returns how many bytes came.
    fn read_client(&mut self, id: ConnId) -> usize {
        let Some(client) = self.clients.get_mut(id) else { return 0 };
        let ended = client.ended;
        if ended && matches!(client.phase, Phase::Greeting(_)) && self.now.instant < self.backlog_until {
            // It has given up waiting. Its CONNECT would take the session from where the client is by now.
            self.lose(id);
            return 0;
        }
        let greeting = match client.phase {
            Phase::Greeting(_) => true,
            Phase::Serving => false,
            Phase::Closing | Phase::Lingering => {
                self.read_last(id);
                return 0;
            }
        };
        if let Some(layers) = &client.layers {
            if greeting && !layers.is_open() {
                if self.handshake_reads == 0 {
                    self.clients.mark_ready(id);
                    return 0;
                }
                self.handshake_reads -= 1;
            }
            if layers.has_ended() {
                self.end(id);
                return 0;
            }
        }
        let mut read = 0;
        match self.chunk.read(&mut client.socket) {
            Arrival::Bytes(bytes, more) => {
                self.stats.reads += 1;
                read = bytes.len();
                if client.layers.is_some() {
                    self.unwrap(id, bytes);
                } else if greeting {
                    self.greet(id, std::iter::once(bytes.freeze()));
                } else {
                    self.shard.handle(self.now, ShardInput::Received { conn: id, bytes: bytes.freeze() });
                    self.settle();
                }
                if ended && self.has_left(id) {
                    self.end(id);
                } else if more || ended {
                    self.clients.mark_ready(id);
                }
            }
            Arrival::Nothing => {}
            Arrival::End => self.end(id),
            Arrival::Broken => self.lose(id),
        }
        read
    }

    /// Whether a client has given up waiting for its CONNACK. Packets that it has sent behind its CONNECT count, whether it waits or not.
    fn has_left(&self, id: ConnId) -> bool {
        self.clients.has_left(id) && self.shard.broker().waits_for_connack(id)
    }

    /// The other side has said its last word.
    fn end(&mut self, id: ConnId) {
        // A client that only stopped sending may still read what it is owed.
        self.write_client(id);
        self.lose(id);
    }

    /// Takes bytes through the layers of a connection.
    fn unwrap(&mut self, id: ConnId, bytes: BytesMut) {
        let Some(client) = self.clients.get_mut(id) else { return };
        let Some(layers) = &mut client.layers else { return };
        let listener = self.shared.listeners.get(usize::from(client.listener));
        let hint = if layers.is_open() { None } else { hint(listener, &bytes) };
        let mut pieces = std::mem::take(&mut self.pieces);
        let flow = layers.receive(bytes, &mut pieces);
        let (output, open) = (layers.has_output(), layers.is_open());
        let source = layers.take_source();
        if layers.is_spent() {
            client.layers = None;
        }
        if let (Some(source), Phase::Greeting(greeting)) = (source, &mut client.phase) {
            greeting.peer = Peer::Network(source);
            let Ok(seat) = self.seat_at(source) else {
                pieces.clear();
                self.pieces = pieces;
                return self.drop_client(id);
            };
            self.take_seat(id, seat);
        }
        let Some(client) = self.clients.get_mut(id) else { return };
        let greeting = matches!(client.phase, Phase::Greeting(_));
        if output {
            self.clients.mark_dirty(id);
        }
        if open && self.clients.end_handshake(id) {
            self.stats.handshakes += 1;
        }
        if greeting {
            self.greet(id, pieces.drain(..));
        } else {
            for bytes in pieces.drain(..) {
                self.shard.handle(self.now, ShardInput::Received { conn: id, bytes });
            }
            self.settle();
        }
        self.pieces = pieces;
        match flow {
            Ok(Flow::Open) => {}
            Ok(Flow::End) => self.end(id),
            Err(fault) => self.fail(id, &fault, hint),
        }
    }

    /// Ends a connection that breaks the rules below MQTT, after what its layers have to say about it.
    fn fail(&mut self, id: ConnId, fault: &Fault, hint: Option<&'static str>) {
        // Another shard may have it already; its layers tell it that this is the end.
        self.stats.note(fault.reason());
        let Some(client) = self.clients.get_mut(id) else { return };
        let listener = client.listener;
        let peer = match &client.phase {
            Phase::Greeting(greeting) => Some(greeting.peer),
            Phase::Serving => None,
            Phase::Closing | Phase::Lingering => return,
        };
        self.log_fault(listener, peer, fault, hint);
        self.clients.end_handshake(id);
        self.clients.start_closing(id, self.now.instant);
        if peer.is_none() {
            self.shard.handle(self.now, ShardInput::Closed { conn: id });
            self.settle();
        }
    }

    fn greet(&mut self, id: ConnId, pieces: impl Iterator<Item = Bytes>) {
        let Some(client) = self.clients.get_mut(id) else { return };
        let Phase::Greeting(greeting) = &mut client.phase else { return };
        let mut found = None;
        for bytes in pieces {
            greeting.bytes.push(bytes.clone());
            if found.is_none()
                && let ReceptionResult::Belongs(shard) = greeting.reception.feed(bytes)
            {
                found = Some(shard);
            }
        }
        let Some(shard) = found else { return };
        let listener = self.shared.listeners.get(usize::from(client.listener));
        let user = listener.map_or(Ok(None), |listener| listener.user(client.layers.as_deref()));
        let user = match user {
            Ok(user) => user,
            Err(fault) => return self.fail(id, &fault, None),
        };
        let peer = greeting.peer;
        let bytes = std::mem::take(&mut greeting.bytes);
        client.phase = Phase::Serving;
        if shard == self.id {
            return self.open(id, peer, user, bytes);
        }
        if let Some(client) = self.clients.remove(self.poll.registry(), id) {
            self.stats.handovers += 1;
            let Client { socket, layers, listener, seat, .. } = client;
            let handover = Handover { socket, layers, listener, peer, seat, user, bytes };
            self.office.put(shard, Letter::Handover(Box::new(handover)));
        }
    }

    /// Reads from a connection that is being closed: only its end matters.
    fn read_last(&mut self, id: ConnId) {
        let Some(client) = self.clients.get_mut(id) else { return };
        match self.chunk.discard(&mut client.socket) {
            Arrival::Bytes(_, more) => {
                if more || client.ended {
                    self.clients.mark_ready(id);
                }
            }
            Arrival::Nothing => {}
            Arrival::End if matches!(client.phase, Phase::Closing) => {
                // There is still something to write, and the other side may still read.
                client.ended = true;
                self.clients.mark_dirty(id);
            }
            Arrival::End | Arrival::Broken => self.drop_client(id),
        }
    }

    /// Writes once to each connection that has output, as far as there is time. Large output, and output for which no time is left, is put
    /// off: an answer to one does not wait behind copies for thousands. Connections that were put off have half of the time at least.
    pub(super) fn flush_clients(&mut self) {
        let (fresh, waiting) = self.clients.dirty_len();
        let begun = self.clock();
        let mut watch = Stopwatch::until(begun + if waiting > 0 { SHARE_OF_TURN / 2 } else { SHARE_OF_TURN });
        for _ in 0..fresh {
            let Some(id) = self.clients.next_dirty() else { break };
            if watch.is_over(|| self.clock()) || self.is_bulky(id) {
                self.clients.put_off(id);
            } else {
                watch.note(self.write_client(id));
            }
        }
        let mut watch = Stopwatch::until(begun + SHARE_OF_TURN);
        for _ in 0..self.clients.dirty_len().1 {
            if watch.is_over(|| self.clock()) {
                break;
            }
            let Some(id) = self.clients.next_put_off() else { break };
            watch.note(self.write_client(id));
        }
        self.stats.put_off = self.clients.dirty_len().1;
    }

    /// Whether so much may leave on a connection that others go first.
    fn is_bulky(&mut self, id: ConnId) -> bool {
        self.shard.outbox(id).is_some_and(|outbox| outbox.ready() > BULKY_BYTES)
    }

    /// One vectored write; how many bytes were taken.
    fn write_client(&mut self, id: ConnId) -> usize {
        let Some(client) = self.clients.get_mut(id) else { return 0 };
        let limit = usize::try_from(client.allowance.position().saturating_sub(client.written)).unwrap_or(usize::MAX);
        let departure = match (&mut client.layers, self.shard.outbox(id)) {
            (None, Some(outbox)) if limit == 0 && !outbox.is_empty() => return 0,
            (None, Some(outbox)) => wire::write(&mut client.socket, outbox, limit),
            (None, None) => {
                self.written_out(id);
                return 0;
            }
            (Some(layers), outbox) => layers.write(&mut client.socket, outbox.as_deref(), limit),
        };
        match departure {
            Departure::Written(bytes, all) => {
                self.note_written(id, bytes, all);
                bytes
            }
            Departure::Broken => {
                self.lose(id);
                0
            }
        }
    }

    /// So many bytes of its outbox have left, and whether the socket takes more.
    fn note_written(&mut self, id: ConnId, bytes: usize, all: bool) {
        let Some(client) = self.clients.get_mut(id) else { return };
        self.stats.writes += 1;
        self.stats.writes_blocked += u64::from(!all);
        client.blocked = !all;
        client.written += bytes as u64;
        let may_write = client.written < client.allowance.position();
        if bytes > 0 {
            self.shard.handle(self.now, ShardInput::Written { conn: id, bytes });
            self.settle();
        }
        let (waiting, ready) = self.waits_for(id);
        if waiting {
            if may_write && ready {
                self.clients.mark_dirty(id);
            }
        } else if all {
            self.written_out(id);
        }
    }

    /// Whether there is anything to write, and whether any of it may leave. Looking at the outbox makes the shard say anew when there
    /// is more.
    fn waits_for(&mut self, id: ConnId) -> (bool, bool) {
        self.shard.outbox(id).map_or((false, false), |outbox| (!outbox.is_empty(), outbox.ready() > 0))
    }

    /// Everything is written: if that was the last, says so to the other side.
    fn written_out(&mut self, id: ConnId) {
        let Some(client) = self.clients.get_mut(id) else { return };
        if !matches!(client.phase, Phase::Closing) {
            return;
        }
        if client.layers.as_deref_mut().is_some_and(Layers::finish) {
            return self.clients.mark_dirty(id);
        }
        if client.ended || client.socket.shutdown(Shutdown::Write).is_err() {
            return self.drop_client(id);
        }
        client.phase = Phase::Lingering;
    }

    pub(super) fn client_timers(&mut self) {
        while let Some(id) = self.clients.overdue_greeting(self.now.instant) {
            self.stats.connect_timeouts += 1;
            self.log_late(id);
            if self.clients.end_handshake(id) {
                self.stats.note(Reason::Timeout);
            }
            self.drop_client(id);
        }
        while let Some(id) = self.clients.overdue_closing(self.now.instant) {
            self.drop_client(id);
        }
    }

    /// The connection is gone without the shard having asked for it.
    fn lose(&mut self, id: ConnId) {
        let serving = self.clients.get_mut(id).is_some_and(|client| matches!(client.phase, Phase::Serving));
        if self.clients.end_handshake(id) {
            self.stats.note(Reason::Ended);
        }
        self.drop_client(id);
        if serving {
            self.shard.handle(self.now, ShardInput::Closed { conn: id });
            self.settle();
        }
    }

    pub(super) fn drop_client(&mut self, id: ConnId) {
        if let Some(client) = self.clients.remove(self.poll.registry(), id) {
            self.shared.client_gone(client.listener);
        }
    }
}
