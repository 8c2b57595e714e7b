//! Handling of the packets that brokers send.

use std::io;
use std::sync::atomic::Ordering;

use mio::event::Event as Readiness;
use sedge_mqtt::ConnAck;

use super::conn::{Conn, Link};
use super::packets::{self, Rare};
use super::state::{Core, Driver, Stage};
use crate::num;
use crate::plan::Role;
use crate::wire::{AckKind, Broken, Seen, Stamp, scan};

/// Bytes read at once.
const READ_BYTES: usize = 262_144;
/// Reads of one connection before the others have their turn.
const READS: usize = 8;

impl Driver {
    /// Follows up what the event loop saw at connection `at`.
    pub(super) fn ready(&mut self, at: usize, event: &Readiness) {
        let Some(conn) = self.conns.get_mut(at) else { return };
        if conn.link == Link::Opening {
            self.open(at);
            return;
        }
        if event.is_writable() {
            // Each arrival says too that there is room to write. That matters to those who lacked it, and to layers that
            // answer by themselves.
            let answers = conn.transport.as_ref().is_some_and(|transport| !transport.short_read_is_last());
            if std::mem::take(&mut conn.blocked) || answers {
                self.core.mark(at);
            }
        }
        if event.is_readable() || event.is_read_closed() || event.is_error() {
            self.readable(at, event.is_read_closed() || event.is_error());
        }
    }

    /// Reads what is there; with `ending` up to the end of the stream.
    pub(super) fn readable(&mut self, at: usize, ending: bool) {
        let mut buffer = std::mem::take(&mut self.core.buffer);
        let result = self.read(at, ending, &mut buffer);
        self.core.buffer = buffer;
        if let Err(error) = result {
            self.refused(at, &error);
        }
        self.report_stage();
    }

    fn read(&mut self, at: usize, ending: bool, buffer: &mut Vec<u8>) -> io::Result<()> {
        let Some(conn) = self.conns.get_mut(at) else { return Ok(()) };
        for _ in 0..READS {
            let Some(transport) = &mut conn.transport else { return Ok(()) };
            let kept = conn.partial.len();
            if buffer.len() < kept + READ_BYTES {
                buffer.resize(kept + READ_BYTES, 0);
            }
            let (before, room) = buffer.split_at_mut(kept);
            before.copy_from_slice(&conn.partial);
            let length = match transport.read(room) {
                Ok(0) => return Err(io::Error::other("the broker closed the connection")),
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let last = length < room.len() && !ending && transport.short_read_is_last();
            let bytes = buffer.get(..kept + length).unwrap_or_default();
            let used = self.core.consume(conn, at, bytes).map_err(io::Error::other)?;
            conn.partial.clear();
            conn.partial.extend_from_slice(bytes.get(used..).unwrap_or_default());
            if last {
                return Ok(());
            }
        }
        self.core.again.push(at);
        Ok(())
    }
}

impl Core {
    /// Takes the whole packets at the beginning of `bytes` in; returns how many bytes they are.
    fn consume(&mut self, conn: &mut Conn, at: usize, bytes: &[u8]) -> Result<usize, String> {
        let now = self.setup.clock.now();
        let mut rest = bytes;
        loop {
            let Some((seen, length)) =
                scan(rest, self.version).map_err(|Broken| "bytes that are no MQTT".to_owned())?
            else {
                return Ok(bytes.len() - rest.len());
            };
            rest = rest.get(length..).unwrap_or_default();
            match seen {
                Seen::Publish { qos, id, payload } => {
                    self.message(conn, (qos, id), payload, now);
                    if qos > 0 {
                        self.mark(at);
                    }
                }
                Seen::Ack { kind, id, refused } => self.ack(conn, at, kind, (id, refused)),
                Seen::Pong => conn.unanswered = 0,
                Seen::Other(packet) => self.rare(conn, at, packet)?,
            }
        }
    }

    fn message(&mut self, conn: &mut Conn, (qos, id): (u8, u16), payload: &[u8], now: u64) {
        match qos {
            0 => {}
            1 => packets::ack(AckKind::Ack, id, &mut conn.out),
            _ => {
                packets::ack(AckKind::Rec, id, &mut conn.out);
                // Between PUBREC and PUBREL the same identifier is the same message sent again, which a client does not
                // pass on (MQTT 5.0 section 4.3.3).
                if !conn.held.insert(id) {
                    return;
                }
            }
        }
        let (Some(place), Some(stamp)) = (conn.place, Stamp::read(payload)) else {
            self.recorder.tally.foreign += 1;
            return;
        };
        if self.recorder.arrived(place, stamp, now) && self.closed_loop {
            let stream = self.setup.plan.streams.get(num::index(u64::from(stamp.stream)));
            let Some(publisher) = stream.map(|stream| stream.publisher) else { return };
            if let Some(credit) = self.setup.credits.get(publisher) {
                if self.alone {
                    // A credit that only this thread writes needs no lock of the bus, which costs more than all the rest here.
                    credit.store(credit.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                } else {
                    credit.fetch_add(1, Ordering::Relaxed);
                }
            }
            if let Some(local) = self.conn_of.get(publisher).copied().flatten() {
                self.mark(local);
            }
        }
    }

    fn ack(&mut self, conn: &mut Conn, at: usize, kind: AckKind, (id, refused): (u16, bool)) {
        if kind == AckKind::Rel {
            conn.held.remove(&id);
            packets::ack(AckKind::Comp, id, &mut conn.out);
            self.mark(at);
            return;
        }
        let Some(publisher) = &mut conn.publisher else { return };
        self.recorder.tally.refused += u64::from(refused);
        if kind == AckKind::Rec && !refused {
            publisher.release(id);
            packets::ack(AckKind::Rel, id, &mut conn.out);
        } else {
            publisher.complete(id);
        }
        self.mark(at);
    }

    fn rare(&mut self, conn: &mut Conn, at: usize, packet: &[u8]) -> Result<(), String> {
        match packets::rare(packet, self.version)? {
            Rare::Connected(connack) => self.greeted(conn, at, &connack),
            Rare::Subscribed { refused: None } => {
                if !std::mem::replace(&mut conn.subscribed, true) {
                    self.subscribed += 1;
                }
                Ok(())
            }
            Rare::Subscribed { refused: Some(reason) } => {
                self.fail(format!("the broker refused a subscription: {reason:?}"));
                Ok(())
            }
            Rare::Disconnected(reason) => Err(format!("the broker disconnected a client: {reason:?}")),
            Rare::Unexpected => Err("a packet that a client does not get".to_owned()),
        }
    }

    fn greeted(&mut self, conn: &mut Conn, at: usize, connack: &ConnAck) -> Result<(), String> {
        if connack.reason.is_error() {
            return Err(format!("the broker refused a client: {:?}", connack.reason));
        }
        if conn.link != Link::Greeting {
            return Err("a second CONNACK".to_owned());
        }
        if self.stage == Stage::Leaving {
            self.removed(conn);
            return Ok(());
        }
        conn.link = Link::Up;
        conn.attempts = 0;
        self.up += 1;
        self.connecting -= 1;
        if !connack.session_present {
            conn.held.clear();
        }
        if let Some(publisher) = &mut conn.publisher {
            publisher.set_receive_maximum(connack.properties.receive_maximum.unwrap_or(u16::MAX));
            for (id, slot) in publisher.unfinished() {
                if !slot.released || !connack.session_present {
                    publisher.resend(id, &slot, connack.session_present, &mut conn.out, &self.filler);
                    self.recorder.tally.resent += 1;
                } else {
                    packets::ack(AckKind::Rel, id, &mut conn.out);
                }
            }
        }
        if std::mem::replace(&mut conn.known, true)
            && conn.subscribed
            && !connack.session_present
            && let Some(Role::Subscriber { filter, .. }) =
                self.setup.plan.clients.get(conn.client).map(|client| &client.role)
        {
            packets::subscribe(filter, self.subscribe_qos(), self.version, &mut conn.out);
        }
        self.mark(at);
        Ok(())
    }

    pub(super) fn subscribe_qos(&self) -> u8 {
        self.setup.scenario.subscribe_qos.unwrap_or(self.setup.scenario.qos)
    }

    /// Whether a lost connection is part of what is measured.
    pub(super) fn is_running(&self) -> bool {
        matches!(self.stage, Stage::Publishing | Stage::Published | Stage::Waiting)
    }

    /// Gives up or goes on after `text` went wrong with a client that was never connected.
    pub(super) fn could_not_connect(&mut self, attempts: u32, text: &str) {
        if attempts >= super::outgoing::MOST_ATTEMPTS {
            self.fail(format!("a client could not connect: {text}"));
        }
    }
}
