//! The two connections of a bridge as one conversation.
//!
//! Acknowledgements pass from one end to the other with the packet identifiers they have: the two sessions at the ends know all there is to
//! know of a message, and the relay nothing that could be lost with it. A QoS 2 handshake that one bridge has begun another one ends.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use mio::{Events, Poll};
use sedge_mqtt::{Ack, Packet, PacketId, Publish, QoS, ReasonCode, Version, encoded_len};

use crate::error::BridgeError;
use crate::map::{Map, Stays};
use crate::status::Record;
use crate::wire::{Wire, wait_for_events};

/// Longest sleep: then it is looked whether the bridge is still wanted here.
const NAP: Duration = Duration::from_millis(100);
/// Bytes a second that every path carries: an answer may wait behind the messages that are on their way.
const SLOWEST: usize = 8 * 1024;
/// Packets of one side before the other has its turn.
const PACKETS_PER_TURN: usize = 256;

/// Limits of the other end: its QoS, retained messages, packet size and keep alive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Takes {
    pub(super) qos: QoS,
    pub(super) retain: bool,
    pub(super) packet_bytes: usize,
    pub(super) keep_alive: Duration,
}

/// See the module.
pub(super) struct Relay<'a> {
    pub(super) local: Wire,
    pub(super) remote: Wire,
    pub(super) map: &'a mut Map,
    pub(super) record: &'a Record,
    pub(super) takes: Takes,
    /// QoS 2 messages of the session that the bridge itself answers.
    own_out: BTreeSet<PacketId>,
    /// The same for those of the other end.
    own_in: BTreeSet<PacketId>,
    /// QoS 2 messages of the session that went on with QoS 1.
    lowered: BTreeSet<PacketId>,
    /// QoS 2 messages of the other end that the bridge itself has released.
    released: BTreeSet<PacketId>,
    /// Bytes of each message that the other end has not acknowledged, at most as many messages as it takes at once.
    under_way: BTreeMap<PacketId, usize>,
    ping_sent: Option<Instant>,
}

fn count(counter: &AtomicU64, more: usize) {
    counter.fetch_add(more as u64, Ordering::Relaxed);
}

fn success(id: PacketId) -> Ack {
    Ack::new(id, ReasonCode::Success)
}

/// A reason without words: those of one end are not for the other one.
const fn plain(ack: &Ack) -> Ack {
    Ack::new(ack.packet_id, ack.reason)
}

/// Whether the same message may be taken later.
fn is_passing(reason: ReasonCode) -> bool {
    matches!(reason, ReasonCode::QuotaExceeded | ReasonCode::ServerBusy)
}

impl<'a> Relay<'a> {
    pub(super) fn new((local, remote): (Wire, Wire), map: &'a mut Map, record: &'a Record, takes: Takes) -> Self {
        let (own_out, own_in, lowered, released, under_way) = Default::default();
        Self { local, remote, map, record, takes, own_out, own_in, lowered, released, under_way, ping_sent: None }
    }

    /// The other end has forgotten its session: identifiers of its QoS 2 messages begin anew.
    pub(super) fn release(&mut self, ids: impl Iterator<Item = PacketId>) {
        for id in ids {
            self.local.send(&Packet::PubRel(success(id)));
            self.released.insert(id);
        }
    }

    /// Relays until an end is gone, or the bridge is not wanted here any more.
    pub(super) fn run(&mut self, poll: &mut Poll, goes_on: impl Fn() -> bool) -> Result<(), BridgeError> {
        let mut events = Events::with_capacity(16);
        while goes_on() {
            let more = self.turn()?;
            let nap = if more { Duration::ZERO } else { NAP };
            wait_for_events(poll, &mut events, nap)?;
            for event in &events {
                self.local.event(event);
                self.remote.event(event);
            }
        }
        Ok(())
    }

    /// Says good-bye to both ends.
    pub(super) fn close(mut self) {
        for wire in [&mut self.local, &mut self.remote] {
            wire.send(&Packet::Disconnect(sedge_mqtt::Disconnect::new(ReasonCode::Success)));
            // They may be gone already.
            let _ = wire.flush();
        }
    }

    /// Whether there is more to do at once.
    fn turn(&mut self) -> Result<bool, BridgeError> {
        let mut more = false;
        if self.remote.has_room() {
            more |= self.take_local()?;
        }
        if self.local.has_room() {
            more |= self.take_remote()?;
        }
        self.keep_alive()?;
        self.local.flush()?;
        self.remote.flush()?;
        Ok(more)
    }

    fn take_local(&mut self) -> Result<bool, BridgeError> {
        for _ in 0..PACKETS_PER_TURN {
            match self.local.next()? {
                Some(packet) => self.local_packet(packet)?,
                None if self.local.is_readable() => {
                    self.local.receive()?;
                    return Ok(true);
                }
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    fn take_remote(&mut self) -> Result<bool, BridgeError> {
        for _ in 0..PACKETS_PER_TURN {
            match self.remote.next()? {
                Some(packet) => self.remote_packet(packet)?,
                None if self.remote.is_readable() => {
                    self.remote.receive()?;
                    return Ok(true);
                }
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// An outage that hangs says nothing: the other end is asked, and given up if it does not answer.
    fn keep_alive(&mut self) -> Result<(), BridgeError> {
        let (now, every) = (Instant::now(), self.takes.keep_alive);
        if every.is_zero() {
            return Ok(());
        }
        if let Some(sent) = self.ping_sent {
            if self.remote.last_received > sent {
                self.ping_sent = None;
            } else {
                let seconds = every.as_secs() + (self.under_way.values().sum::<usize>() / SLOWEST) as u64;
                if now.saturating_duration_since(sent).as_secs() >= seconds {
                    return Err(BridgeError::NoAnswer { end: self.remote.end, what: "PINGREQ", seconds });
                }
            }
        } else {
            let idle = self.remote.last_received.min(self.remote.last_sent);
            if now.saturating_duration_since(idle) >= every {
                self.remote.send(&Packet::PingReq);
                self.ping_sent = Some(now);
            }
        }
        Ok(())
    }

    /// A packet of the session.
    #[expect(clippy::wildcard_enum_match_arm, reason = "other packets are none of a server's")]
    pub(super) fn local_packet(&mut self, packet: Packet) -> Result<(), BridgeError> {
        match packet {
            Packet::Publish(publish) => self.outward(publish),
            Packet::PubRel(ack) if self.own_out.remove(&ack.packet_id) => {
                self.local.send(&Packet::PubComp(success(ack.packet_id)));
            }
            Packet::PubRel(ack) => self.remote.send(&Packet::PubRel(success(ack.packet_id))),
            Packet::PubAck(ack) => {
                self.judge(&ack, "this node")?;
                self.remote.send(&Packet::PubAck(plain(&ack)));
            }
            Packet::PubRec(ack) => {
                self.judge(&ack, "this node")?;
                self.remote.send(&Packet::PubRec(plain(&ack)));
            }
            Packet::PubComp(ack) if self.released.remove(&ack.packet_id) => {}
            Packet::PubComp(ack) => self.remote.send(&Packet::PubComp(success(ack.packet_id))),
            Packet::PingResp | Packet::SubAck(_) | Packet::UnsubAck(_) => {}
            packet => return Err(BridgeError::Unexpected { end: self.local.end, kind: packet.kind() }),
        }
        Ok(())
    }

    /// A packet of the other end.
    #[expect(clippy::wildcard_enum_match_arm, reason = "other packets are none of a server's")]
    pub(super) fn remote_packet(&mut self, packet: Packet) -> Result<(), BridgeError> {
        match packet {
            Packet::Publish(publish) => self.inward(publish),
            Packet::PubRel(ack) if self.own_in.remove(&ack.packet_id) => {
                self.remote.send(&Packet::PubComp(success(ack.packet_id)));
            }
            Packet::PubRel(ack) => self.local.send(&Packet::PubRel(success(ack.packet_id))),
            Packet::PubAck(ack) => {
                self.judge(&ack, "the remote broker")?;
                self.arrived(&ack);
                if self.lowered.remove(&ack.packet_id) {
                    self.answer_out(ack.packet_id);
                } else {
                    self.local.send(&Packet::PubAck(plain(&ack)));
                }
            }
            Packet::PubRec(ack) => {
                self.judge(&ack, "the remote broker")?;
                self.arrived(&ack);
                self.local.send(&Packet::PubRec(plain(&ack)));
            }
            Packet::PubComp(ack) => {
                let forgotten = ack.reason == ReasonCode::PacketIdentifierNotFound;
                count(&self.record.counters.forgotten, usize::from(forgotten));
                self.local.send(&Packet::PubComp(success(ack.packet_id)));
            }
            Packet::PingResp => self.ping_sent = None,
            Packet::SubAck(_) | Packet::UnsubAck(_) => {}
            packet => return Err(BridgeError::Unexpected { end: self.remote.end, kind: packet.kind() }),
        }
        Ok(())
    }

    fn arrived(&mut self, ack: &Ack) {
        self.under_way.remove(&ack.packet_id);
        count(&self.record.counters.messages_out, usize::from(!ack.reason.is_error()));
    }

    /// Judges the acknowledgement of a message by the receiving end. An error means that the message has to come again later.
    fn judge(&self, ack: &Ack, end: &'static str) -> Result<(), BridgeError> {
        if !ack.reason.is_error() {
            return Ok(());
        }
        if is_passing(ack.reason) {
            return Err(BridgeError::Busy { end, reason: ack.reason });
        }
        count(&self.record.counters.refused, 1);
        self.record.note(&format!("{end} refused a message: {:?} (0x{:02x})", ack.reason, ack.reason.as_u8()));
        Ok(())
    }

    /// The bridge itself answers the session, which then may forget the QoS 2 message.
    fn answer_out(&mut self, id: PacketId) {
        self.own_out.insert(id);
        self.local.send(&Packet::PubRec(success(id)));
    }

    fn outward(&mut self, publish: Publish) {
        let (id, qos) = (publish.packet_id, publish.qos);
        let mut message = match self.map.outward(publish) {
            Ok(message) => message,
            Err(why) => return self.stays(why, id, qos, true),
        };
        message.retain &= self.takes.retain;
        message.qos = message.qos.min(self.takes.qos);
        if message.qos == QoS::AtMostOnce {
            (message.packet_id, message.dup) = (None, false);
        }
        if self.remote.version == Version::V311 {
            message.properties = None;
        }
        let bytes = message.payload.len();
        let under_way = message.packet_id;
        let packet = Packet::Publish(message);
        let size = encoded_len(&packet, self.remote.version);
        if size > self.takes.packet_bytes {
            self.record.note("a message is larger than the remote broker takes");
            return self.stays(Stays::Nameless, id, qos, true);
        }
        count(&self.record.counters.bytes_out, bytes);
        self.remote.send(&packet);
        self.under_way.extend(under_way.map(|id| (id, size)));
        match (id, qos, qos.min(self.takes.qos)) {
            (Some(id), QoS::ExactlyOnce, QoS::AtLeastOnce) => {
                self.lowered.insert(id);
            }
            // Nobody will acknowledge it.
            (Some(id), QoS::ExactlyOnce, QoS::AtMostOnce) => self.answer_out(id),
            (Some(id), QoS::AtLeastOnce, QoS::AtMostOnce) => self.local.send(&Packet::PubAck(success(id))),
            _ => {}
        }
        if qos.min(self.takes.qos) == QoS::AtMostOnce {
            count(&self.record.counters.messages_out, 1);
        }
    }

    fn inward(&mut self, publish: Publish) {
        let (id, qos) = (publish.packet_id, publish.qos);
        count(&self.record.counters.messages_in, 1);
        count(&self.record.counters.bytes_in, publish.payload.len());
        match self.map.inward(publish) {
            Ok(message) => self.local.send(&Packet::Publish(message)),
            Err(why) => self.stays(why, id, qos, false),
        }
    }

    /// A message does not go: its sender need not wait.
    fn stays(&mut self, why: Stays, id: Option<PacketId>, qos: QoS, out: bool) {
        let counters = &self.record.counters;
        match why {
            Stays::Transformed => count(&counters.kept, 1),
            Stays::Hops | Stays::Nameless => count(&counters.dropped, 1),
        }
        match why {
            Stays::Hops => {
                self.record.note("a message has crossed as many bridges as max_hops allows: is there a loop?");
            }
            Stays::Nameless | Stays::Transformed => {}
        }
        let (wire, own) = if out { (&mut self.local, &mut self.own_out) } else { (&mut self.remote, &mut self.own_in) };
        match (id, qos) {
            (Some(id), QoS::AtLeastOnce) => wire.send(&Packet::PubAck(success(id))),
            (Some(id), QoS::ExactlyOnce) => {
                own.insert(id);
                wire.send(&Packet::PubRec(success(id)));
            }
            _ => {}
        }
    }
}
