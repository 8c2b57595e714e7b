//! PUBLISH from clients and its acknowledgements (MQTT 5.0 sections 3.3 and 4.3).

use std::sync::Arc;

use sedge_mqtt::{Message, Packet, PacketId, Publish, PublishProperties, QoS, ReadAt, ReasonCode, TopicName, Version};

use crate::api::TicketKind;
use crate::clock::expires_at;
use crate::closed::Waiting;
use crate::connection::{ConnKey, Connection, Side};
use crate::disconnect::Ending;
use crate::inbound::{Answer, Arrival};
use crate::journal::kept;
use crate::outgoing::Buffer;
use crate::process::Fault;
use crate::send::much_waits;
use crate::session::{SessionKey, session_of};
use crate::{Births, Broker, Output, Record, Report, Ticket};

/// SUBSCRIBEs and UNSUBSCRIBEs of one client that may settle at the same time before its bytes wait.
const REQUESTS_AT_ONCE: usize = 64;

/// The certificate that the broker keeps of a birth of a Sparkplug edge node or device. An empty birth gives none: it would clear the last.
fn certificate(message: &Message) -> Option<Report> {
    let topic = sedge_sparkplug::certificate(message.topic.as_str()).filter(|_| !message.payload.is_empty())?;
    Some(Report { topic: TopicName::new(&topic).ok()?, payload: message.payload.clone(), expiry: None })
}

/// Replaces a topic alias by what it stands for, or learns it (MQTT 5.0 section 3.3.2.3.4).
fn resolve_topic(connection: &mut Connection, publish: &mut Publish, maximum: u16) -> Result<TopicName, Fault> {
    let alias = publish.properties.as_mut().and_then(|properties| properties.topic_alias.take());
    let topic = publish.topic.take();
    let Some(alias) = alias else {
        return topic.ok_or(Fault(ReasonCode::ProtocolError, "neither topic nor topic alias"));
    };
    if alias == 0 || alias > maximum {
        return Err(Fault(ReasonCode::TopicAliasInvalid, "topic alias out of range"));
    }
    if let Some(topic) = topic {
        connection.incoming_aliases.get_or_insert_default().set(alias, &topic);
        return Ok(topic);
    }
    let known = connection.incoming_aliases.as_ref().and_then(|aliases| aliases.get(alias));
    known.cloned().ok_or(Fault(ReasonCode::ProtocolError, "unknown topic alias"))
}

impl Broker {
    /// PUBLISH of a connected client.
    pub(crate) fn on_publish(&mut self, key: ConnKey, session: SessionKey, mut publish: Publish) -> Result<(), Fault> {
        let Some(connection) = self.connections.get_mut(key) else { return Ok(()) };
        let version = connection.version;
        self.counters.publishes_in[publish.qos as usize] += 1;
        self.counters.payload_bytes_in += publish.payload.len() as u64;
        let named = publish.topic.as_ref().map_or(0, |topic| topic.as_bytes().len());
        let topic = resolve_topic(connection, &mut publish, self.config.topic_alias_maximum)?;
        connection.peer.traffic.note_received(&topic);
        let inside = connection.peer.side != Side::Outside;
        if connection.throttle.is_some() {
            self.charge(key, named + publish.payload.len());
        }
        if self.hot.is_some() {
            self.note_topic(topic.as_str());
        }
        // A name has at most one level more than it has bytes: most need not be counted.
        let max_levels = self.config.max_topic_levels;
        let too_deep = topic.as_bytes().len() >= max_levels && topic.level_count() > max_levels;
        // An acknowledgement can refuse it: without one the client would repeat it at once on its next connection.
        if too_deep && (version == Version::V311 || publish.qos == QoS::AtMostOnce) {
            return Err(Fault(ReasonCode::TopicNameInvalid, "topic name too deep"));
        }
        let sent_ids = publish.properties.as_ref().is_some_and(|properties| !properties.subscription_ids.is_empty());
        if sent_ids {
            return Err(Fault(ReasonCode::ProtocolError, "a subscription identifier from a client"));
        }
        // Only parts of the broker publish to the topics that the broker owns: they keep their state there.
        let owned = self.config.owns(&topic) && !inside;
        let refused = !owned && !too_deep && self.is_refused(key, session, &topic);
        if owned || refused {
            let why =
                if owned { ("the topic belongs to the broker", "") } else { ("it may not publish there", "acl.file") };
            self.note_denied(session, topic.as_str(), (ReasonCode::NotAuthorized, why.0, why.1));
            if self.tracer.is_some() {
                self.trace_refused(session, &topic, ReasonCode::NotAuthorized, why.0);
            }
        }
        if refused && self.policy.disconnect_refused {
            return Err(Fault(ReasonCode::NotAuthorized, "a publication that is not authorized"));
        }
        let Some(id) = publish.packet_id else {
            if owned {
                self.counters.refused_topics += 1;
            } else if !refused {
                self.route(session, topic, publish, None);
            }
            return Ok(());
        };
        let refusal = match (too_deep, owned || refused) {
            (true, _) => Some(ReasonCode::TopicNameInvalid),
            (false, true) => Some(ReasonCode::NotAuthorized),
            (false, false) => None,
        };
        self.on_acknowledged_publish((key, session), id, (topic, publish), refusal)
    }

    fn on_acknowledged_publish(
        &mut self,
        (key, session_key): (ConnKey, SessionKey),
        id: PacketId,
        (topic, publish): (TopicName, Publish),
        forbidden: Option<ReasonCode>,
    ) -> Result<(), Fault> {
        let is_full = self.full || self.cannot_await(&topic);
        let Some(session) = self.sessions.get_mut(session_key) else { return Ok(()) };
        let Some(connection) = self.connections.get_mut(key) else { return Ok(()) };
        let v5 = connection.version == Version::V5;
        let inbound = session.inbound.get_or_insert_default();
        let exactly_once = publish.qos == QoS::ExactlyOnce;
        connection.peer.has_repeated |= exactly_once;
        let in_use = inbound.is_exact(id);
        if v5 && connection.inbound >= self.config.receive_maximum && !(in_use && exactly_once) {
            return Err(Fault(ReasonCode::ReceiveMaximumExceeded, "more publications than the receive maximum"));
        }
        let size = topic.as_bytes().len() + publish.payload.len();
        let (closed, can_wait) = self.closed.look(&topic, (v5, size), in_use || forbidden.is_some());
        let waits = can_wait && !is_full;
        let full = (is_full || closed) && !in_use && !waits;
        let refusal = match (in_use, forbidden) {
            (false, None) if full => {
                self.counters.refused_full += 1;
                self.counters.refused_closed += u64::from(!self.full);
                Some(ReasonCode::QuotaExceeded)
            }
            (true, _) if !exactly_once && v5 => Some(ReasonCode::PacketIdentifierInUse),
            (true, _) if !exactly_once => {
                return Err(Fault(ReasonCode::ProtocolError, "packet identifier in use"));
            }
            (true, _) | (false, None) => None,
            (false, Some(reason)) => {
                let counts = reason == ReasonCode::TopicNameInvalid || self.config.owns(&topic);
                self.counters.refused_topics += u64::from(counts);
                Some(if v5 { reason } else { ReasonCode::Success })
            }
        };
        let number = match refusal {
            Some(reason) => {
                inbound.answer(id, exactly_once, reason);
                connection.inbound = connection.inbound.saturating_add(1);
                if exactly_once
                    && !reason.is_error()
                    && let Some((journal, session)) = kept(self.journal.as_deref_mut(), session)
                {
                    journal.push(Record::Received { session, packet_id: id, answer: Some(reason), message: None });
                }
                None
            }
            None if exactly_once => match inbound.exactly_once(id) {
                Arrival::New(number) => Some(number),
                Arrival::Again { count } => {
                    connection.inbound = connection.inbound.saturating_add(u16::from(count));
                    None
                }
            },
            None => Some(inbound.at_least_once(id)),
        };
        let Some(number) = number else {
            self.answer_at_once(session_key, &topic, refusal);
            return Ok(());
        };
        connection.note_inbound(&mut self.sampled_acks, id, self.now.instant);
        // A 5.0 client keeps to the receive maximum itself, and has its pings read meanwhile.
        let most = usize::from(self.config.receive_maximum) + usize::from(v5);
        if session.inbound.as_ref().is_some_and(|inbound| inbound.owed() >= most) {
            connection.hold(&mut self.outputs);
        }
        let ticket = session.ticket(session_key, TicketKind::Publish, number);
        let exact = exactly_once.then_some(id);
        if waits {
            self.closed.wait(Waiting { topic, publish, ticket, exact });
            return Ok(());
        }
        self.route(session_key, topic, publish, Some((ticket, exact)));
        Ok(())
    }

    /// Answers a publication that goes nowhere: it is refused, or was there before.
    fn answer_at_once(&mut self, session: SessionKey, topic: &TopicName, refusal: Option<ReasonCode>) {
        let why = match refusal {
            Some(ReasonCode::QuotaExceeded) => Some("there is no room to keep it"),
            Some(ReasonCode::TopicNameInvalid) => Some("the topic has more levels than limits.max_topic_levels"),
            Some(_) | None => None,
        };
        if let (Some(reason), Some(why), Some(_)) = (refusal, why, &self.tracer) {
            self.trace_refused(session, topic, reason, why);
        }
        self.flush_answers(session);
    }

    /// Delivers here and has the rest done elsewhere.
    pub(crate) fn route(
        &mut self,
        session: SessionKey,
        topic: TopicName,
        publish: Publish,
        ticket: Option<(Ticket, Option<PacketId>)>,
    ) {
        let Publish { dup: _, qos, retain, topic: _, packet_id: _, payload, mut properties } = publish;
        let expiry = properties.as_mut().and_then(|properties| properties.message_expiry.take());
        let properties = properties.filter(|properties| **properties != PublishProperties::default());
        // Somebody is likely to have to keep it: one copy now saves another one of the whole message.
        let is_kept = qos > QoS::AtMostOnce && properties.is_none() && much_waits(&self.counters);
        let content = if is_kept { self.chunks.content(&topic, &payload) } else { None };
        let buffer = if content.is_some() { Buffer::Shared } else { Buffer::Read };
        let (topic, payload) = content.unwrap_or((topic, payload));
        let message = Arc::new(Message {
            id: self.clock.next_id(),
            topic,
            payload,
            qos,
            retain,
            properties,
            stamp: self.clock.next_stamp(self.now),
            expires_at: expiry.map(|secs| expires_at(self.now, secs)),
            publisher: self.sessions.get(session).map(|session| session.client.clone()),
            read_at: ReadAt::at(self.now.instant),
        });
        if let Some((_, Some(packet_id))) = ticket
            && let Some(session) = self.sessions.get(session)
            && let Some((journal, session)) = kept(self.journal.as_deref_mut(), session)
        {
            journal.received(session, packet_id, &message);
        }
        let ticket = ticket.map(|(ticket, _)| ticket);
        if self.tracer.is_some() {
            self.trace_received(&message, ticket);
        }
        if self.watched.is_some() {
            self.note_value(&message);
        }
        let birth = if self.config.births == Births::Keep { certificate(&message) } else { None };
        let matched = self.fan_out_own(&message, buffer);
        if let Some(ticket) = ticket {
            self.note_awaited(&message, ticket);
        }
        self.outputs.push_back(Output::Route { message, ticket, matched });
        if let Some(report) = birth {
            self.on_report(report);
        }
    }

    /// Publishes what the node tells about itself, retained and at QoS 0.
    pub(crate) fn on_report(&mut self, report: Report) {
        let Report { topic, payload, expiry } = report;
        let message = Arc::new(Message {
            id: self.clock.next_id(),
            topic,
            payload,
            qos: QoS::AtMostOnce,
            retain: true,
            properties: None,
            stamp: self.clock.next_stamp(self.now),
            expires_at: expiry.map(|expiry| self.now.wall + expiry),
            publisher: None,
            read_at: ReadAt::at(self.now.instant),
        });
        let matched = self.fan_out(&message, Buffer::Read);
        self.outputs.push_back(Output::Route { message, ticket: None, matched });
    }

    /// A publication was accepted, or not: answers it in its turn, unless somebody else is waited for.
    pub(crate) fn on_accepted(&mut self, ticket: Ticket, reason: ReasonCode) {
        if let Some(reason) = self.accepted_so_far(ticket, reason) {
            self.answer(ticket, reason);
        }
    }

    /// Tells a publisher what became of its publication, in its turn.
    pub(crate) fn answer(&mut self, ticket: Ticket, reason: ReasonCode) {
        let Some((key, generation)) = session_of(ticket) else { return };
        let session = self.sessions.get_mut(key).filter(|session| session.generation == generation);
        let Some(session) = session else { return };
        let Some(inbound) = &mut session.inbound else { return };
        let exact = inbound.accepted(ticket.number, reason);
        if let Some(packet_id) = exact
            && let Some((journal, session)) = kept(self.journal.as_deref_mut(), session)
        {
            journal.answered(session, packet_id, reason);
        }
        if self.tracer.is_some() {
            self.trace_answered(ticket, key, reason);
        }
        self.flush_answers(key);
    }

    /// Sends the answers whose turn it is.
    fn flush_answers(&mut self, session_key: SessionKey) {
        let Some(session) = self.sessions.get_mut(session_key) else { return };
        let Some(key) = session.connection else { return };
        let Some(connection) = self.connections.get_mut(key) else { return };
        let mut refused = None;
        while let Some((answer, reason)) = session.inbound.as_mut().and_then(|inbound| inbound.pop_answer()) {
            let Answer { packet_id, exactly_once, reason: _ } = answer;
            let mut freed = !exactly_once;
            if exactly_once && reason.is_error() {
                freed = session.inbound.as_mut().is_some_and(|inbound| inbound.refuse(packet_id));
                if let Some((journal, session)) = kept(self.journal.as_deref_mut(), session) {
                    journal.forgotten(session, packet_id);
                }
            }
            connection.inbound = connection.inbound.saturating_sub(u16::from(freed));
            let mut ack = sedge_mqtt::Ack::new(packet_id, reason);
            if connection.version == Version::V311 {
                // There is no way to say no but to close the connection (3.1.1 section 3.3.5); the client will try again.
                if reason.is_error() && reason != ReasonCode::NotAuthorized {
                    refused = Some(reason);
                    break;
                }
                ack.reason = ReasonCode::Success;
            }
            let packet = if exactly_once { Packet::PubRec(ack) } else { Packet::PubAck(ack) };
            let fresh = connection.fresh;
            connection.send(&packet, &mut self.counters, &mut self.outputs);
            connection.note_acked(packet_id);
            if reason.is_error() {
                // A journal without room could not keep it back for long: a refused publisher has to hear of it.
                connection.fresh = fresh;
            }
        }
        match refused {
            Some(reason) => self.end_connection(key, Ending::server(reason, "a publication could not be taken")),
            None => self.release_if_calm(key, session_key),
        }
    }

    /// Lets a held connection go on once little is owed to it.
    pub(crate) fn release_if_calm(&mut self, key: ConnKey, session_key: SessionKey) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let waits = connection.is_pausing() || self.parked.contains_key(&key);
        if !connection.held || waits || connection.outbox.len() > self.config.outbox_high_water {
            return;
        }
        let inbound = self.sessions.get(session_key).and_then(|session| session.inbound.as_ref());
        let owed = inbound.map_or(0, |inbound| inbound.owed());
        if owed <= usize::from(self.config.receive_maximum) / 2 && connection.requests.len() <= REQUESTS_AT_ONCE / 2 {
            connection.release(&mut self.outputs);
            self.process(key);
        }
    }

    /// Holds a connection that waits for the cluster with many requests.
    pub(crate) fn hold_if_busy(&mut self, key: ConnKey) {
        if let Some(connection) = self.connections.get_mut(key)
            && connection.requests.len() >= REQUESTS_AT_ONCE
        {
            connection.hold(&mut self.outputs);
        }
    }

    /// PUBREL of a connected client (MQTT 5.0 section 3.6).
    pub(crate) fn on_pubrel(&mut self, key: ConnKey, session_key: SessionKey, id: PacketId) {
        let Some(session) = self.sessions.get_mut(session_key) else { return };
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.peer.has_repeated = true;
        if session.is_held {
            self.released.insert((session_key, id));
        }
        let known = session.inbound.as_mut().and_then(|inbound| inbound.complete(id));
        if known.is_some()
            && let Some((journal, session)) = kept(self.journal.as_deref_mut(), session)
        {
            journal.forgotten(session, id);
        }
        connection.inbound = connection.inbound.saturating_sub(u16::from(known.unwrap_or(false)));
        let reason = if known.is_some() || connection.version == Version::V311 {
            ReasonCode::Success
        } else {
            ReasonCode::PacketIdentifierNotFound
        };
        let packet = Packet::PubComp(sedge_mqtt::Ack::new(id, reason));
        connection.send(&packet, &mut self.counters, &mut self.outputs);
    }
}
