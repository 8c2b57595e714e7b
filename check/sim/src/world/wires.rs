//! Bytes on wires: windows, delays, cuts and resets.

use std::io::IoSlice;

use bytes::{Bytes, BytesMut};
use sedge_base::{Outbox, ShardId};
use sedge_broker::PublishRate;
use sedge_cluster::{NodeInput, ReceptionResult, ShardInput};

use super::World;
use crate::network::{End, Side, WINDOW_BYTES, Wire, WireId};
use crate::schedule::{Event, delay};

fn at_most(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Takes at most `most` bytes from the front of an outbox, without removing them.
fn front(outbox: &Outbox, most: usize) -> Bytes {
    let mut slices = [IoSlice::new(&[]); 64];
    let filled = outbox.io_slices(&mut slices);
    let mut taken = BytesMut::new();
    for slice in &slices[..filled] {
        let room = most - taken.len();
        taken.extend_from_slice(&slice[..slice.len().min(room)]);
    }
    taken.freeze()
}

impl World {
    /// Which end of the wire this host holds.
    fn side_of(&self, wire: WireId, host: usize) -> Option<Side> {
        let ends = &self.network.wires.get(&wire)?.ends;
        (0..2).find(|side| ends[*side].host() == Some(host) && !matches!(ends[*side], End::Gone { .. }))
    }

    /// The host has something to write on this wire.
    pub(super) fn transmit_from(&mut self, host: usize, wire: WireId) {
        if let Some(side) = self.side_of(wire, host) {
            self.pump(wire, side, WINDOW_BYTES);
        }
    }

    /// Everything that waits is written, whatever the window.
    pub(super) fn flush(&mut self, wire: WireId, host: usize) {
        if let Some(side) = self.side_of(wire, host) {
            self.pump(wire, side, usize::MAX);
        }
    }

    /// Sends from the end `side` as much as the window allows.
    pub(super) fn pump(&mut self, wire: WireId, side: Side, window: usize) {
        loop {
            let Some(found) = self.network.wires.get(&wire) else { return };
            let room = window.saturating_sub(found.under_way[1 - side]);
            let most = room.min(1 + self.net_rng.index(8 * 1024));
            if room == 0 {
                return;
            }
            let bytes = self.take(wire, side, most);
            if bytes.is_empty() {
                return;
            }
            self.send(wire, 1 - side, bytes);
        }
    }

    fn take(&mut self, wire: WireId, side: Side, most: usize) -> Bytes {
        let Some(found) = self.network.wires.get(&wire) else { return Bytes::new() };
        match found.ends[side] {
            End::Client(client) => {
                let out = &mut self.clients[client].out;
                out.split_to(out.len().min(most)).freeze()
            }
            End::Shard { host, shard, conn } => {
                let thread = self.hosts[host].threads.get(usize::from(shard.0));
                let most = thread.map_or(most, |thread| most.min(at_most(thread.may_write(conn))));
                let bytes =
                    self.hosts[host].shard(shard).outbox(conn).map(|outbox| front(outbox, most)).unwrap_or_default();
                if !bytes.is_empty() {
                    // Fed without draining: the caller is draining already, or does it next.
                    let now = self.clocks(host);
                    if let Some(thread) = self.hosts[host].threads.get_mut(usize::from(shard.0)) {
                        thread.wrote(conn, bytes.len());
                    }
                    self.hosts[host].shard(shard).handle(now, ShardInput::Written { conn, bytes: bytes.len() });
                }
                bytes
            }
            End::Link { host, link } => {
                let thread = self.hosts[host].threads.first();
                let most = thread.map_or(most, |thread| most.min(at_most(thread.may_write_link(link))));
                let bytes =
                    self.hosts[host].node.link_outbox(link).map(|outbox| front(outbox, most)).unwrap_or_default();
                if !bytes.is_empty() {
                    let now = self.clocks(host);
                    if let Some(thread) = self.hosts[host].threads.first_mut() {
                        thread.wrote_link(link, bytes.len());
                    }
                    self.hosts[host].node.handle(now, NodeInput::LinkWritten { link, bytes: bytes.len() });
                }
                bytes
            }
            End::Fresh { .. } | End::Gone { .. } => Bytes::new(),
        }
    }

    fn send(&mut self, wire: WireId, to: Side, bytes: Bytes) {
        let when = self.now + delay(&mut self.net_rng, self.options.net_delay);
        let Some(found) = self.network.wires.get_mut(&wire) else { return };
        found.under_way[to] += bytes.len();
        found.last[to] = found.last[to].max(when);
        let when = found.last[to];
        self.schedule.at(when, Event::Arrive { wire, side: to, bytes });
    }

    /// One end closes: the other hears of it behind all bytes.
    pub(super) fn close(&mut self, wire: WireId, host: usize) {
        if let Some(side) = self.side_of(wire, host) {
            self.close_end(wire, side, true);
        }
    }

    /// Closes the end `side`; `tell`: whether the other end hears of it.
    pub(super) fn close_end(&mut self, wire: WireId, side: Side, tell: bool) {
        let when = self.now + delay(&mut self.net_rng, self.options.net_delay);
        let Some(found) = self.network.wires.get_mut(&wire) else { return };
        found.ends[side] = End::Gone { host: found.ends[side].host() };
        found.unread[side].clear();
        if tell {
            found.last[1 - side] = found.last[1 - side].max(when);
            let when = found.last[1 - side];
            self.schedule.at(when, Event::Broken { wire, side: 1 - side });
        }
    }

    pub(super) fn arrive(&mut self, wire: WireId, side: Side, bytes: Bytes) {
        let Some(found) = self.network.wires.get(&wire) else { return };
        let stalled = !found.stalled[side].is_empty() || self.is_stalled(found, side);
        let Some(found) = self.network.wires.get_mut(&wire) else { return };
        if stalled {
            found.stalled[side].push_back(bytes);
        } else if found.held[side] {
            found.unread[side].push_back(bytes);
        } else {
            self.read(wire, side, bytes);
        }
    }

    /// The end `side` reads these bytes.
    fn read(&mut self, wire: WireId, side: Side, bytes: Bytes) {
        let Some(found) = self.network.wires.get_mut(&wire) else { return };
        found.under_way[side] -= bytes.len();
        let (client, link, shard) = match &mut found.ends[side] {
            End::Client(client) => (Some(*client), None, None),
            End::Link { host, link } => (None, Some((*host, *link)), None),
            End::Shard { host, shard, conn } => (None, None, Some((*host, *shard, *conn))),
            End::Fresh { .. } => {
                self.read_fresh(wire, side, bytes);
                return;
            }
            End::Gone { host } => {
                if host.is_none_or(|host| self.hosts[host].up) {
                    self.close_end(wire, side, true);
                }
                return;
            }
        };
        self.trace.note(self.now, format_args!("wire {} side {side} reads {} bytes", wire.0, bytes.len()));
        if let Some(client) = client {
            self.clients[client].received(self.now, bytes, &mut self.oracle);
            self.pump(wire, side, WINDOW_BYTES);
        } else if let Some((host, link)) = link {
            self.node_input(host, NodeInput::LinkReceived { link, bytes });
        } else if let Some((host, shard, conn)) = shard {
            self.shard_input(host, shard, ShardInput::Received { conn, bytes });
        }
        self.pump_and_drain(wire, 1 - side);
    }

    /// The end `side` may send more: its window has opened.
    pub(super) fn pump_and_drain(&mut self, wire: WireId, side: Side) {
        let Some(found) = self.network.wires.get(&wire) else { return };
        if found.ends[side].host().is_some_and(|host| self.stands_still(host)) {
            return;
        }
        if let End::Link { host, .. } = found.ends[side]
            && self.hosts[host].turn_open
        {
            // Links are written at the end of a turn.
            self.drain_node(host);
        }
        self.pump(wire, side, WINDOW_BYTES);
        let Some(found) = self.network.wires.get(&wire) else { return };
        match found.ends[side] {
            End::Shard { host, shard, .. } => self.drain_shard(host, shard),
            End::Link { host, .. } => self.drain_node(host),
            End::Client(_) | End::Fresh { .. } | End::Gone { .. } => {}
        }
    }

    fn read_fresh(&mut self, wire: WireId, side: Side, bytes: Bytes) {
        let Some(found) = self.network.wires.get_mut(&wire) else { return };
        let End::Fresh { host, reception, read } = &mut found.ends[side] else { return };
        let host = *host;
        read.push(bytes.clone());
        let ReceptionResult::Belongs(shard) = reception.feed(bytes) else { return };
        let read = core::mem::take(read);
        let conn = self.hosts[host].next_conn();
        found.ends[side] = End::Shard { host, shard, conn };
        self.hosts[host].conns.insert(conn, wire);
        self.trace.note(self.now, format_args!("host {host} wire {} belongs to shard {}", wire.0, shard.0));
        self.shard_input(
            host,
            shard,
            ShardInput::Opened {
                conn,
                peer: format!("wire {}", wire.0),
                user: None,
                rate: PublishRate::default(),
                inside: false,
            },
        );
        for bytes in read {
            self.shard_input(host, shard, ShardInput::Received { conn, bytes });
        }
    }

    /// Makes the host's end read or stop reading.
    pub(super) fn hold_wire(&mut self, host: usize, wire: WireId, held: bool) {
        let Some(side) = self.side_of(wire, host) else { return };
        let Some(found) = self.network.wires.get_mut(&wire) else { return };
        found.held[side] = held;
        if !held {
            // Read as if it arrived now, in order.
            let unread: Vec<Bytes> = found.unread[side].drain(..).collect();
            found.last[side] = found.last[side].max(self.now);
            if found.stalled[side].is_empty() {
                for bytes in unread {
                    self.schedule.at(self.now, Event::Arrive { wire, side, bytes });
                }
            } else {
                // Ahead of what has come since and waits.
                for bytes in unread.into_iter().rev() {
                    found.stalled[side].push_front(bytes);
                }
                self.schedule.at(self.now, Event::Unstalled { wire, side });
            }
            if core::mem::take(&mut found.unread_break[side]) {
                self.schedule.at(self.now, Event::Broken { wire, side });
            }
        }
    }

    /// News of the other end's closing have come.
    pub(super) fn broken(&mut self, wire: WireId, side: Side) {
        let Some(found) = self.network.wires.get(&wire) else { return };
        let is_stalled = !found.stalled[side].is_empty() || self.is_stalled(found, side);
        let is_unread = self.options.hasty.is_some() && found.held[side];
        if let Some(found) = self.network.wires.get_mut(&wire).filter(|_| is_stalled || is_unread) {
            let waits = if is_stalled { &mut found.stalled_break } else { &mut found.unread_break };
            waits[side] = true;
            return;
        }
        let Some(found) = self.network.wires.get(&wire) else { return };
        self.trace.note(self.now, format_args!("wire {} side {side} broken", wire.0));
        match found.ends[side] {
            End::Client(client) => {
                if self.clients[client].wire == Some(wire) {
                    self.clients[client].closed(self.now, &mut self.oracle);
                }
                self.close_end(wire, side, false);
            }
            End::Link { host, link } => {
                self.close_end(wire, side, false);
                self.hosts[host].links.remove(&link);
                self.node_input(host, NodeInput::LinkClosed { link });
            }
            End::Shard { host, shard, conn } => {
                self.close_end(wire, side, false);
                self.hosts[host].conns.remove(&conn);
                self.shard_input(host, shard, ShardInput::Closed { conn });
            }
            End::Fresh { .. } => self.close_end(wire, side, false),
            End::Gone { .. } => {}
        }
        self.forget_if_dead(wire);
    }

    fn forget_if_dead(&mut self, wire: WireId) {
        if self.network.wires.get(&wire).is_some_and(|wire| wire.ends.iter().all(|end| matches!(end, End::Gone { .. })))
        {
            self.network.wires.remove(&wire);
        }
    }

    /// Whether nothing comes to this end for now: the way is cut, or the shard reads nothing from clients.
    fn is_stalled(&self, wire: &Wire, side: Side) -> bool {
        let is_unread = match &wire.ends[side] {
            End::Shard { host, shard, .. } => self.hosts[*host].shards[usize::from(shard.0)].stands_still(),
            End::Client(_) | End::Fresh { .. } | End::Link { .. } | End::Gone { .. } => false,
        };
        is_unread || self.network.is_wire_cut(wire, side)
    }

    /// Lets bytes go on that waited behind cuts, or for a shard that read nothing.
    pub(super) fn resume_wires(&mut self) {
        for wire in self.network.wires.keys().copied().collect::<Vec<_>>() {
            for side in 0..2 {
                if self.network.wires.get(&wire).is_some_and(|found| self.is_stalled(found, side)) {
                    continue;
                }
                let Some(found) = self.network.wires.get_mut(&wire) else { continue };
                if found.stalled[side].is_empty() && !found.stalled_break[side] {
                    continue;
                }
                let when = self.now + delay(&mut self.net_rng, self.options.net_delay);
                found.last[side] = found.last[side].max(when);
                self.schedule.at(when, Event::Unstalled { wire, side });
            }
        }
    }

    /// Bytes that waited for the end `side` arrive in order; bytes that come later have waited behind them.
    pub(super) fn unstalled(&mut self, wire: WireId, side: Side) {
        loop {
            let Some(found) = self.network.wires.get(&wire) else { return };
            if self.is_stalled(found, side) {
                return;
            }
            let Some(found) = self.network.wires.get_mut(&wire) else { return };
            let Some(bytes) = found.stalled[side].pop_front() else { break };
            if found.held[side] {
                found.unread[side].push_back(bytes);
            } else {
                self.read(wire, side, bytes);
            }
        }
        let Some(found) = self.network.wires.get_mut(&wire) else { return };
        if core::mem::take(&mut found.stalled_break[side]) {
            self.broken(wire, side);
        }
    }

    /// A fresh connection of a client to a host.
    pub(super) fn connect_client(&mut self, client: usize, host: usize) -> WireId {
        let default = ShardId(u16::try_from(self.client_rng.index(usize::from(self.options.shards))).unwrap_or(0));
        let reception = Box::new(sedge_cluster::Reception::new(self.options.shards, default, 1 << 20));
        let ends = [End::Client(client), End::Fresh { host, reception, read: Vec::new() }];
        self.network.connect(ends, self.now)
    }
}
