//! Messages into sessions and out to clients.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::BytesMut;
use sedge_base::{BufferPool, ClientId, Now};
use sedge_mqtt::{
    Delivery, Message, MessageId, Packet, PacketId, QoS, ReasonCode, TopicFilter, Utf8, Version, encode_publish,
    encode_publish_head, publish_len,
};

use crate::chunks::Chunks;
use crate::connection::{Connection, Fresh, Side};
use crate::inflight::Slot;
use crate::journal::{Journal, Origin, kept};
use crate::latency::Sampler;
use crate::outgoing::{Copies, Outgoing};
use crate::room::{MESSAGE_BYTES, Room, free};
use crate::session::Session;
use crate::trace::{TraceStep, Tracer};
use crate::{BrokerConfig, Cause, Counters, Output};

/// From this size on, payloads are shared between the messages and the outboxes instead of copied.
const SHARE_FROM_BYTES: usize = 4 * 1024;

/// A queue longer than this holds detached messages only, so that a slow client pins few read buffers.
const KEEP_FROM_MESSAGES: usize = 64;
/// With more than this in all queues and windows only detached messages are put there: each may pin a read buffer, and a thousand
/// slow clients would together.
const KEEP_FROM_BYTES: u64 = 1024 * 1024;

/// Everything that a sending needs beside session and connection.
pub(crate) struct Env<'a> {
    pub(crate) config: &'a BrokerConfig,
    pub(crate) counters: &'a mut Counters,
    pub(crate) outputs: &'a mut VecDeque<Output>,
    pub(crate) buffers: &'a mut BufferPool,
    pub(crate) chunks: &'a mut Chunks,
    pub(crate) journal: Option<&'a mut Journal>,
    pub(crate) tracer: Option<&'a mut Tracer>,
    pub(crate) sampler: &'a mut Sampler,
    pub(crate) now: Now,
}

/// One session, with its connection if it has a live one.
pub(crate) struct Link<'a> {
    pub(crate) session: &'a mut Session,
    pub(crate) connection: Option<&'a mut Connection>,
    pub(crate) env: Env<'a>,
}

/// One message encoded for many equal deliveries: QoS 0, no identifiers, no alias. By version and retain flag.
#[derive(Debug, Default)]
pub(crate) struct Encoded {
    /// Boxed: it is moved about with every message, and few have many receivers.
    parts: Option<Box<[BytesMut; 4]>>,
}

impl Encoded {
    /// Forgets the message, keeps the room.
    pub(crate) fn clear(&mut self) {
        self.parts.iter_mut().flat_map(|parts| parts.iter_mut()).for_each(BytesMut::clear);
    }

    fn part(&mut self, version: Version, retain: bool) -> &mut BytesMut {
        &mut self.parts.get_or_insert_default()[usize::from(version == Version::V5) * 2 + usize::from(retain)]
    }
}

/// The result of an attempt to send.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sent {
    Yes,
    /// It was dropped and counted.
    Dropped,
}

impl Link<'_> {
    /// Delivers a message, one for a shared subscription with its filter: sends it, or lets it wait, or drops it by the rules.
    /// Sessions that have to keep the message share the `copies`.
    pub(crate) fn offer(
        &mut self,
        mut outgoing: Outgoing,
        group: Option<&TopicFilter>,
        encoded: Option<&mut Encoded>,
        copies: &mut Copies,
    ) {
        let Some(connection) = self.connection.as_deref_mut() else {
            return self.offer_offline(outgoing, group, copies);
        };
        let limits = (self.env.config, &*self.env.counters);
        if may_send(self.session, connection, (outgoing.qos, outgoing.size()), limits) {
            if outgoing.qos > QoS::AtMostOnce && much_waits(self.env.counters) {
                outgoing.keep_briefly(copies, self.env.chunks);
            }
            self.env.send(self.session, connection, outgoing, Origin::Fresh(group), encoded);
        } else {
            self.enqueue(outgoing, group, copies);
        }
    }

    /// Sends what waits, as far as the client and its outbox take it: first what has to be sent again, then the queue.
    pub(crate) fn pump(&mut self) {
        let Some(connection) = self.connection.as_deref_mut() else { return };
        if self.session.is_held {
            return;
        }
        let limits = self.env.config;
        let takes = |session: &Session, connection: &Connection, qos, counters: &Counters| {
            owes_nothing(session, connection, qos) || fits(session, connection, (0, 0), (limits, counters))
        };
        while takes(self.session, connection, QoS::AtMostOnce, self.env.counters)
            && self.env.resend_one(self.session, connection)
        {}
        while let Some(qos) = self.session.queue.next_qos(self.env.now.wall) {
            if !takes(self.session, connection, qos, self.env.counters) {
                break;
            }
            let blocked = self.session.inflight.is_resending() || !self.session.inflight.has_room(connection.window);
            if qos != QoS::AtMostOnce && blocked {
                break;
            }
            if self.session.queue.backlog_is_next() {
                if let Some(outgoing) = self.session.queue.pop_backlog(self.env.counters) {
                    self.env.send(self.session, connection, outgoing, Origin::Fresh(None), None);
                }
            } else if let Some(outgoing) = self.session.queue.pop_next(self.env.now.wall, self.env.counters) {
                self.env.send(self.session, connection, outgoing, Origin::Queue, None);
            }
        }
    }

    /// The client is gone and its session stays: the rest of the backlog waits in the queue, as far as that has room.
    pub(crate) fn queue_backlog(&mut self) {
        if !self.session.queue.has_backlog() {
            return;
        }
        let left: Vec<Outgoing> = core::iter::from_fn(|| self.session.queue.pop_backlog(self.env.counters)).collect();
        for outgoing in left {
            self.offer_offline(outgoing, None, &mut Copies::default());
        }
        self.session.queue.restore_order();
    }

    fn offer_offline(&mut self, outgoing: Outgoing, group: Option<&TopicFilter>, copies: &mut Copies) {
        if outgoing.qos == QoS::AtMostOnce && !self.env.config.queue_qos0_offline {
            self.env.counters.dropped.offline_qos0 += 1;
        } else {
            self.enqueue(outgoing, group, copies);
        }
    }

    fn enqueue(&mut self, mut outgoing: Outgoing, group: Option<&TopicFilter>, copies: &mut Copies) {
        if is_expired(&outgoing.message, self.env.now) {
            self.env.counters.dropped.expired += 1;
            self.env.trace_dropped(self.session, &outgoing, Cause::Expired);
            return;
        }
        let is_long = self.session.queue.len() >= KEEP_FROM_MESSAGES;
        if self.connection.is_none() || is_long {
            outgoing.keep_long(copies);
        } else if much_waits(self.env.counters) {
            outgoing.keep_briefly(copies, self.env.chunks);
        }
        let room = Room::of(self.env.config, self.session, self.connection.as_deref());
        let Env { counters, journal, now, tracer, .. } = &mut self.env;
        let (now, journal) = (now.wall, journal.as_deref_mut());
        let mut gone_for_good = Vec::new();
        let mut trace = |gone: &Outgoing| {
            if tracer.is_some() {
                gone_for_good.push(Arc::clone(&gone.message));
            }
        };
        if let Some((journal, number)) = kept(journal, self.session) {
            let copy = (outgoing.qos > QoS::AtMostOnce).then(|| outgoing.clone());
            let gone = |gone: &Outgoing| {
                journal.dropped(number, gone);
                trace(gone);
            };
            if self.session.queue.push(outgoing, now, room, counters, gone)
                && let Some(outgoing) = copy
            {
                journal.queued(number, &outgoing, group);
            }
        } else {
            self.session.queue.push(outgoing, now, room, counters, trace);
        }
        for message in gone_for_good {
            self.env.trace(self.session, &message, |client| TraceStep::Dropped { client, cause: Cause::QueueFull });
        }
    }
}

/// QoS 0 waits for the outbox only, and behind QoS 0 that waits already; it passes QoS 1 and 2 that wait for acknowledgements
/// (MQTT 5.0 section 4.9 leaves the choice). QoS 1 and 2 wait behind everything.
pub(crate) fn may_send(
    session: &Session,
    connection: &Connection,
    (qos, size): (QoS, usize),
    (config, counters): (&BrokerConfig, &Counters),
) -> bool {
    if session.is_held {
        return false;
    }
    // At QoS 1 and 2 the message itself stays until it is acknowledged.
    let more = if qos == QoS::AtMostOnce { size } else { 2 * size + MESSAGE_BYTES };
    let queued = session.queue.footprint();
    // A large message has to fit into the free bytes, or it is dropped: a thousand clients that never read would hold one each.
    let is_next =
        owes_nothing(session, connection, qos) && (size <= SHARE_FROM_BYTES || size <= free(config, counters));
    if !is_next && !fits(session, connection, (queued, more), (config, counters)) {
        return false;
    }
    match qos {
        QoS::AtMostOnce => session.queue.qos0() == 0 && !session.queue.has_backlog(),
        QoS::AtLeastOnce | QoS::ExactlyOnce => {
            session.queue.is_empty() && !session.inflight.is_resending() && session.inflight.has_room(connection.window)
        }
    }
}

/// Whether the client has read, and at QoS 1 and 2 acknowledged, everything: it gets its next message however much is held for others, unless
/// that is large and finds no room at all.
fn owes_nothing(session: &Session, connection: &Connection, qos: QoS) -> bool {
    connection.outbox.is_empty() && (qos == QoS::AtMostOnce || session.inflight.len() == 0)
}

/// Whether `more` bytes fit into the outbox and the room of the session, with `queued` bytes in the queue.
fn fits(
    session: &Session,
    connection: &Connection,
    (queued, more): (usize, usize),
    (config, counters): (&BrokerConfig, &Counters),
) -> bool {
    let is_above = connection.outbox.len() > config.outbox_high_water;
    !is_above && Room::of(config, session, Some(connection)).allows(queued, more, counters)
}

/// Whether what waits for all clients together is worth copies that pin no read buffers.
pub(crate) const fn much_waits(counters: &Counters) -> bool {
    counters.queued_bytes + counters.inflight_bytes > KEEP_FROM_BYTES
}

/// Whether so little waits that it is not about to become much.
pub(crate) const fn little_waits(counters: &Counters) -> bool {
    counters.queued_bytes + counters.inflight_bytes < KEEP_FROM_BYTES / 2
}

fn is_expired(message: &Message, now: Now) -> bool {
    message.expires_at.is_some_and(|at| at <= now.wall)
}

/// User property with the identity of a message, which bridges are told: `node/incarnation/shard/number`.
pub const ID_PROPERTY: &str = "sedge-id";

/// User property with the client id of the publisher, which bridges are told.
pub const CLIENT_PROPERTY: &str = "sedge-client";

/// The message with its identity in a user property. One that came from elsewhere with an identity keeps that.
fn named(message: &Message) -> Message {
    let mut message = message.clone();
    let properties = message.properties.get_or_insert_default();
    if !properties.user.iter().any(|(name, _)| name.as_str() == ID_PROPERTY) {
        let MessageId { node, incarnation, shard, seq } = message.id;
        let id = format!("{node}/{}/{}/{seq}", incarnation.get(), shard.0);
        properties.user.push((Utf8::from_static(ID_PROPERTY), Utf8::new(&id).unwrap_or_default()));
    }
    if let Some(client) = message.publisher.as_ref().and_then(|client| Utf8::new(client.as_str()).ok()) {
        properties.user.push((Utf8::from_static(CLIENT_PROPERTY), client));
    }
    message
}

impl Env<'_> {
    /// Sends a message for the first time.
    fn send(
        &mut self,
        session: &mut Session,
        connection: &mut Connection,
        outgoing: Outgoing,
        origin: Origin<'_>,
        encoded: Option<&mut Encoded>,
    ) {
        if is_expired(&outgoing.message, self.now) {
            self.counters.dropped.expired += 1;
            self.trace_dropped(session, &outgoing, Cause::Expired);
            self.note_dropped(session, &outgoing, origin);
            return;
        }
        let waited = matches!(origin, Origin::Queue);
        if outgoing.qos == QoS::AtMostOnce {
            let outside = connection.peer.side != Side::Bridge;
            let plain = outside && outgoing.ids.is_none() && connection.outgoing_aliases.is_none();
            match encoded {
                Some(encoded) if plain => self.copy(connection, &outgoing, encoded),
                _ => {
                    self.publish(connection, &outgoing, None, false);
                }
            }
            self.trace_sent(session, &outgoing, waited);
            return;
        }
        let id = session.inflight.next_id();
        if self.publish(connection, &outgoing, Some(id), false) == Sent::Yes {
            if let Some((journal, number)) = kept(self.journal.as_deref_mut(), session) {
                journal.sent(number, id, &outgoing, origin);
            }
            self.trace_sent(session, &outgoing, waited);
            self.counters.inflight_bytes += outgoing.footprint() as u64;
            session.inflight.push(outgoing);
        } else {
            self.trace_dropped(session, &outgoing, Cause::PacketTooLarge);
            self.note_dropped(session, &outgoing, origin);
        }
    }

    /// Notes a step of one session, if a trace runs.
    fn trace(&mut self, session: &Session, message: &Message, step: impl FnOnce(ClientId) -> TraceStep) {
        if let Some(tracer) = &mut self.tracer {
            tracer.note_of(self.now, message, session, step);
        }
    }

    fn trace_sent(&mut self, session: &Session, outgoing: &Outgoing, waited: bool) {
        let qos = outgoing.qos;
        self.trace(session, &outgoing.message, |client| TraceStep::Sent { client, qos, waited });
    }

    fn trace_dropped(&mut self, session: &Session, outgoing: &Outgoing, cause: Cause) {
        self.trace(session, &outgoing.message, |client| TraceStep::Dropped { client, cause });
    }

    /// The client has acknowledged the message with this identifier.
    fn trace_acknowledged(&mut self, session: &Session, id: PacketId) {
        if self.tracer.is_some()
            && let Some(Slot::Sent(outgoing)) = session.inflight.get(id)
        {
            let message = Arc::clone(&outgoing.message);
            self.trace(session, &message, |client| TraceStep::Acknowledged { client });
        }
    }

    /// A message that waited is not sent.
    fn note_dropped(&mut self, session: &Session, outgoing: &Outgoing, origin: Origin<'_>) {
        if let (Origin::Queue, Some((journal, number))) = (origin, kept(self.journal.as_deref_mut(), session)) {
            journal.dropped(number, outgoing);
        }
    }

    /// PUBREC has come.
    pub(crate) fn release(&mut self, session: &mut Session, id: PacketId) {
        self.trace_acknowledged(session, id);
        if let Some((journal, number)) = kept(self.journal.as_deref_mut(), session)
            && let Some(slot) = session.inflight.get(id)
        {
            journal.released(number, id, slot);
        }
        let before = session.inflight.bytes();
        session.inflight.release(id);
        self.counters.inflight_bytes -= (before - session.inflight.bytes()) as u64;
    }

    /// A flow is complete.
    pub(crate) fn complete(&mut self, session: &mut Session, id: PacketId) {
        self.trace_acknowledged(session, id);
        self.forget(session, id);
    }

    fn forget(&mut self, session: &mut Session, id: PacketId) {
        if let Some((journal, number)) = kept(self.journal.as_deref_mut(), session)
            && let Some(slot) = session.inflight.get(id)
        {
            journal.completed(number, id, slot);
        }
        let before = session.inflight.bytes();
        session.inflight.complete(id);
        self.counters.inflight_bytes -= (before - session.inflight.bytes()) as u64;
    }

    /// Sends the next thing of an earlier connection again; false if there is nothing, or no room for it.
    fn resend_one(&mut self, session: &mut Session, connection: &mut Connection) -> bool {
        let room = session.inflight.has_room(connection.window);
        let (id, dropped) = match session.inflight.peek_resend() {
            None => return false,
            Some((id, Slot::Sent(outgoing))) => {
                if !room {
                    return false;
                }
                self.counters.redeliveries += 1;
                (id, self.publish(connection, outgoing, Some(id), true) == Sent::Dropped)
            }
            Some((id, Slot::Released | Slot::Done)) => {
                self.acknowledge(connection, id, ReasonCode::Success, Packet::PubRel);
                (id, false)
            }
        };
        session.inflight.resent();
        if dropped {
            self.forget(session, id);
        }
        true
    }

    /// Sends PUBACK, PUBREC, PUBREL or PUBCOMP.
    pub(crate) fn acknowledge(
        &mut self,
        connection: &mut Connection,
        id: PacketId,
        reason: ReasonCode,
        packet: impl FnOnce(sedge_mqtt::Ack) -> Packet,
    ) {
        connection.send(&packet(sedge_mqtt::Ack::new(id, reason)), self.counters, self.outputs);
    }

    fn publish(&mut self, connection: &mut Connection, outgoing: &Outgoing, id: Option<PacketId>, dup: bool) -> Sent {
        let named = (connection.peer.side == Side::Bridge).then(|| named(&outgoing.message));
        let message = named.as_ref().unwrap_or(&outgoing.message);
        let v5 = connection.version == Version::V5;
        let alias = connection.outgoing_aliases.as_ref().and_then(|aliases| aliases.alias(&message.topic));
        let delivery = Delivery {
            qos: outgoing.qos,
            dup,
            retain: outgoing.retain,
            packet_id: id,
            topic_alias: alias.filter(|_| v5),
            subscription_ids: outgoing.ids.to_small(),
            message_expiry: self.remaining(message).filter(|_| v5),
        };
        if !self.fits(connection, message, &delivery) {
            return Sent::Dropped;
        }
        let (version, before) = (connection.version, connection.outbox.footprint());
        connection.outbox.lend(self.buffers);
        if message.payload.len() < SHARE_FROM_BYTES {
            let room = outgoing.size();
            connection.outbox.append_about(room, |out| encode_publish(message, &delivery, version, out));
        } else {
            connection.outbox.append(|out| encode_publish_head(message, &delivery, version, out));
            connection.outbox.push(message.payload.clone());
        }
        if let (Some(aliases), Some(alias)) = (&mut connection.outgoing_aliases, delivery.topic_alias) {
            aliases.sent(&message.topic, alias);
        }
        self.counters.note_outbox(before, connection.outbox.footprint());
        self.count_publish(connection, outgoing.qos, message);
        if !dup {
            self.measure(connection, outgoing);
        }
        Sent::Yes
    }

    /// Sends a QoS 0 message that many receive alike: encoded once, copied to each.
    fn copy(&mut self, connection: &mut Connection, outgoing: &Outgoing, encoded: &mut Encoded) {
        let message = &*outgoing.message;
        let version = connection.version;
        let shares = message.payload.len() >= SHARE_FROM_BYTES;
        let part = encoded.part(version, outgoing.retain);
        if part.is_empty() {
            let v5 = version == Version::V5;
            let message_expiry = self.remaining(message).filter(|_| v5);
            let delivery = Delivery { retain: outgoing.retain, message_expiry, ..Delivery::default() };
            let encode = if shares { encode_publish_head } else { encode_publish };
            encode(message, &delivery, version, part);
        }
        let size = part.len() + if shares { message.payload.len() } else { 0 };
        if size > usize::try_from(connection.max_packet).unwrap_or(usize::MAX) {
            self.counters.dropped.too_large += 1;
            return;
        }
        let before = connection.outbox.footprint();
        connection.outbox.lend(self.buffers);
        connection.outbox.extend_from_slice(part);
        if shares {
            connection.outbox.push(message.payload.clone());
        }
        self.counters.note_outbox(before, connection.outbox.footprint());
        self.count_publish(connection, QoS::AtMostOnce, message);
        self.measure(connection, outgoing);
    }

    /// A delivery is the last in the outbox. Retained messages for a new subscriber say nothing of how long messages take.
    fn measure(&mut self, connection: &mut Connection, outgoing: &Outgoing) {
        if !outgoing.retain && self.sampler.takes(self.now.instant) {
            connection.probe_delivery(&outgoing.message, self.now);
        }
    }

    fn count_publish(&mut self, connection: &mut Connection, qos: QoS, message: &Message) {
        if message.qos > QoS::AtMostOnce {
            connection.fresh = Fresh::Depends;
        }
        connection.peer.traffic.note_sent();
        self.counters.packets_out += 1;
        self.counters.publishes_out[qos as usize] += 1;
        self.counters.payload_bytes_out += message.payload.len() as u64;
        connection.transmit(self.outputs);
    }

    /// A packet larger than the client takes is not sent; the flow counts as complete (MQTT 5.0 section 3.1.2.11.4).
    fn fits(&mut self, connection: &Connection, message: &Message, delivery: &Delivery) -> bool {
        if connection.max_packet == u32::MAX {
            return true;
        }
        let limit = usize::try_from(connection.max_packet).unwrap_or(usize::MAX);
        let fits = publish_len(message, delivery, connection.version) <= limit;
        self.counters.dropped.too_large += u64::from(!fits);
        fits
    }

    /// Seconds the message still lives; 1 for a repetition that outlived it.
    ///
    /// Rounded to the nearest second: the clock of the node that stamped the message may be a little ahead of this one's, and a
    /// subscriber must not be told more than the publisher asked for (MQTT 5.0, 3.3.2.3.3).
    fn remaining(&self, message: &Message) -> Option<u32> {
        let left = message.expires_at?.since(self.now.wall).as_millis().saturating_add(500) / 1_000;
        let left = left.max(1);
        Some(u32::try_from(left).unwrap_or(u32::MAX))
    }
}
