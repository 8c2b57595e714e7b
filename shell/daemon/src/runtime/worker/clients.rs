//! The clients' part of a turn.

use std::net::{Shutdown, SocketAddr};
use std::sync::atomic::Ordering;

use bytes::Bytes;
use mio::Token;
use mio::net::TcpStream;
use sedge_base::{ConnId, ShardId};
use sedge_cluster::{Reception, ReceptionResult, ShardInput};

use super::Worker;
use crate::runtime::clients::{Greeting, Phase};
use crate::runtime::door::Guest;
use crate::runtime::wire::{self, Arrival, Departure};
use crate::runtime::{Handover, Letter, sockets};

/// Connections read in one turn, one read each: with more waiting, those already read get their answers first.
const READS_PER_TURN: usize = 256;
/// Bytes read in one turn, but for the last read: what they become is written while it is still in the processor's cache, into
/// memory that the turn before has given back.
const BYTES_PER_TURN: usize = 256 * 1024;

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
        }
        if event.is_readable() || event.is_read_closed() || event.is_error() {
            self.clients.mark_ready(id);
        }
    }

    pub(super) fn accept(&mut self) {
        let Some(door) = &mut self.door else { return };
        for _ in 0..door.wanted(self.now.instant) {
            let Some(door) = &mut self.door else { return };
            match door.accept(self.now.instant) {
                Guest::Welcome(stream, peer) => self.welcome(stream, peer),
                Guest::Nobody => return,
                Guest::Starved => {
                    self.stats.no_descriptors += 1;
                    return;
                }
            }
        }
    }

    fn welcome(&mut self, stream: TcpStream, peer: SocketAddr) {
        let limit = self.shared.connections_max;
        if self.shared.connections.load(Ordering::Relaxed) >= limit {
            self.stats.over_limit += 1;
            if let Some(door) = &mut self.door {
                door.note_refused(self.now.instant, peer, limit);
            }
            return;
        }
        self.stats.accepted += 1;
        sockets::prepare(&stream);
        let shards = u16::try_from(self.shared.boxes.len()).unwrap_or(1);
        self.next_default = (self.next_default + 1) % shards;
        let reception = Reception::new(shards, ShardId(self.next_default), self.max_packet_bytes);
        let greeting = Phase::Greeting(Box::new(Greeting { reception, bytes: Vec::new() }));
        match self.clients.insert(self.poll.registry(), stream, peer, greeting) {
            Ok(id) => {
                self.shared.connections.fetch_add(1, Ordering::Relaxed);
                self.clients.expect_greeting(id, self.now.instant + self.connect_timeout);
            }
            Err(error) => tracing::warn!(%peer, %error, "cannot take a client in"),
        }
    }

    /// A connection that another thread has accepted for this one.
    pub(super) fn take_over(&mut self, handover: Handover) {
        let Handover { stream, peer, bytes } = handover;
        let registered = self.clients.insert(self.poll.registry(), stream, peer, Phase::Serving);
        match registered {
            Ok(id) if self.stopping.is_none() => self.open(id, peer, bytes),
            Ok(id) => self.drop_client(id),
            Err(error) => {
                self.shared.connections.fetch_sub(1, Ordering::Relaxed);
                tracing::warn!(%peer, %error, "cannot take a client over");
            }
        }
    }

    fn open(&mut self, conn: ConnId, peer: SocketAddr, bytes: Vec<Bytes>) {
        self.shard.handle(self.now, ShardInput::Opened { conn, peer: peer.to_string(), user: None });
        for bytes in bytes {
            self.shard.handle(self.now, ShardInput::Received { conn, bytes });
        }
        self.settle();
    }

    /// One read from each connection that may have something, so that none is served twice before all were served once.
    pub(super) fn read_clients(&mut self) {
        let mut budget = BYTES_PER_TURN;
        for _ in 0..self.clients.ready_len().min(READS_PER_TURN) {
            let Some(id) = self.clients.next_ready() else { return };
            budget = budget.saturating_sub(self.read_client(id));
            if budget == 0 {
                return;
            }
        }
    }

    /// Reads once; returns how many bytes came.
    fn read_client(&mut self, id: ConnId) -> usize {
        let Some(client) = self.clients.get_mut(id) else { return 0 };
        let ended = client.ended;
        let (arrival, greeting) = match client.phase {
            Phase::Greeting(_) => (self.chunk.read(&mut client.stream), true),
            Phase::Serving => (self.chunk.read(&mut client.stream), false),
            Phase::Closing | Phase::Lingering => {
                self.read_last(id);
                return 0;
            }
        };
        let mut read = 0;
        match arrival {
            Arrival::Bytes(bytes, more) => {
                self.stats.reads += 1;
                read = bytes.len();
                if greeting {
                    self.greet(id, bytes);
                } else {
                    self.shard.handle(self.now, ShardInput::Received { conn: id, bytes });
                    self.settle();
                }
                if more || ended {
                    self.clients.mark_ready(id);
                }
            }
            Arrival::Nothing => {}
            Arrival::End | Arrival::Broken if greeting => self.drop_client(id),
            Arrival::End => {
                // A client that only stopped sending may still read what it is owed.
                self.write_client(id);
                self.lose(id);
            }
            Arrival::Broken => self.lose(id),
        }
        read
    }

    fn greet(&mut self, id: ConnId, bytes: Bytes) {
        let Some(client) = self.clients.get_mut(id) else { return };
        let Phase::Greeting(greeting) = &mut client.phase else { return };
        greeting.bytes.push(bytes.clone());
        let ReceptionResult::Belongs(shard) = greeting.reception.feed(bytes) else { return };
        let peer = client.peer;
        let bytes = std::mem::take(&mut greeting.bytes);
        client.phase = Phase::Serving;
        if shard == self.id {
            return self.open(id, peer, bytes);
        }
        if let Some(client) = self.clients.remove(self.poll.registry(), id) {
            self.stats.handovers += 1;
            let handover = Handover { stream: client.stream, peer, bytes };
            self.office.put(shard, Letter::Handover(Box::new(handover)));
        }
    }

    /// Reads from a connection that is being closed: only its end matters.
    fn read_last(&mut self, id: ConnId) {
        let Some(client) = self.clients.get_mut(id) else { return };
        match self.chunk.discard(&mut client.stream) {
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

    pub(super) fn flush_clients(&mut self) {
        let dirty = self.clients.take_dirty();
        for &id in &dirty {
            self.write_client(id);
        }
        self.clients.recycle(dirty);
    }

    /// One vectored write.
    fn write_client(&mut self, id: ConnId) {
        let Some(client) = self.clients.get_mut(id) else { return };
        let Some(outbox) = self.shard.outbox(id) else { return self.written_out(id) };
        match wire::write(&mut client.stream, outbox) {
            Departure::Written(bytes, all) => {
                self.stats.writes += 1;
                self.stats.writes_blocked += u64::from(!all);
                client.blocked = !all;
                if bytes > 0 {
                    self.shard.handle(self.now, ShardInput::Written { conn: id, bytes });
                    self.settle();
                }
                if self.shard.outbox(id).is_some_and(|outbox| !outbox.is_empty()) {
                    self.clients.mark_dirty(id);
                } else {
                    self.written_out(id);
                }
            }
            Departure::Broken => self.lose(id),
        }
    }

    /// Everything is written: if that was the last, says so to the other side.
    fn written_out(&mut self, id: ConnId) {
        let Some(client) = self.clients.get_mut(id) else { return };
        if !matches!(client.phase, Phase::Closing) {
            return;
        }
        if client.ended || client.stream.shutdown(Shutdown::Write).is_err() {
            return self.drop_client(id);
        }
        client.phase = Phase::Lingering;
    }

    pub(super) fn client_timers(&mut self) {
        while let Some(id) = self.clients.overdue_greeting(self.now.instant) {
            self.stats.connect_timeouts += 1;
            self.drop_client(id);
        }
        while let Some(id) = self.clients.overdue_closing(self.now.instant) {
            self.drop_client(id);
        }
    }

    /// The connection is gone without the shard having asked for it.
    fn lose(&mut self, id: ConnId) {
        let serving = self.clients.get_mut(id).is_some_and(|client| matches!(client.phase, Phase::Serving));
        self.drop_client(id);
        if serving {
            self.shard.handle(self.now, ShardInput::Closed { conn: id });
            self.settle();
        }
    }

    pub(super) fn drop_client(&mut self, id: ConnId) {
        if self.clients.remove(self.poll.registry(), id).is_some() {
            self.shared.connections.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
