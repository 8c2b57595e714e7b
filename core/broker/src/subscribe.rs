//! SUBSCRIBE and UNSUBSCRIBE (MQTT 5.0 sections 3.8 to 3.11).

use std::collections::BTreeMap;
use std::sync::Arc;

use sedge_access::Reach;
use sedge_mqtt::{
    Message, Packet, PacketId, QoS, ReasonCode, RetainHandling, SubAck, Subscribe, SubscriptionRequest, TopicFilter,
    TopicName, UnsubAck, Unsubscribe,
};

use crate::access::may_receive;
use crate::api::TicketKind;
use crate::backlog::Part;
use crate::connection::{ConnKey, Request, RequestPacket, Role, Wanted};
use crate::outgoing::{Buffer, Copies, Ids, Outgoing};
use crate::process::Fault;
use crate::room::Room;
use crate::send::Link;
use crate::session::{Session, SessionKey, session_of};
use crate::subscription::{Subscription, weight};
use crate::{Broker, InterestChange, InterestOp, Output, Ticket};

/// So many retained messages, and so many bytes of them, are given to a new subscription at once.
const FEW_RETAINED: usize = 256;
const FEW_RETAINED_BYTES: usize = 256 * 1024;

const fn granted(qos: QoS) -> ReasonCode {
    match qos {
        QoS::AtMostOnce => ReasonCode::Success,
        QoS::AtLeastOnce => ReasonCode::GrantedQoS1,
        QoS::ExactlyOnce => ReasonCode::GrantedQoS2,
    }
}

/// The answer to a request, as a packet.
fn answer(packet: RequestPacket, reasons: Vec<ReasonCode>) -> Packet {
    let (packet_id, reason_string, user) = (packet.id(), None, Vec::new());
    match packet {
        RequestPacket::Subscribe(_) => Packet::SubAck(SubAck { packet_id, reasons, reason_string, user }),
        RequestPacket::Unsubscribe(_) => Packet::UnsubAck(UnsubAck { packet_id, reasons, reason_string, user }),
    }
}

impl Broker {
    /// SUBSCRIBE: in force here at once, answered when it is in force everywhere.
    pub(crate) fn on_subscribe(
        &mut self,
        key: ConnKey,
        session_key: SessionKey,
        subscribe: Subscribe,
    ) -> Result<(), Fault> {
        let Subscribe { packet_id, requests, subscription_id, user: _ } = subscribe;
        let packet = RequestPacket::Subscribe(packet_id);
        if self.is_in_use(key, packet_id) {
            let reasons = vec![ReasonCode::PacketIdentifierInUse; requests.len()];
            self.answer_request(key, packet, reasons);
            return Ok(());
        }
        let shared = |request: &SubscriptionRequest| request.filter.share_group().is_some();
        if requests.iter().any(|request| shared(request) && request.options.no_local) {
            return Err(Fault(ReasonCode::ProtocolError, "No Local on a shared subscription"));
        }
        let mut reasons = Vec::with_capacity(requests.len());
        let elsewhere = self.config.delivers_elsewhere;
        let filters =
            if elsewhere { requests.iter().map(|request| request.filter.detached()).collect() } else { Vec::new() };
        let bridge = self.connections.get(key).is_some_and(|connection| connection.peer.role == Role::Bridge);
        let (mut changes, mut wanted) = (Vec::new(), Vec::new());
        for SubscriptionRequest { filter, mut options } in requests {
            if let Some(refusal) = self.refuse_subscription(session_key, &filter) {
                reasons.push(refusal);
                continue;
            }
            reasons.push(granted(options.qos));
            let filter = filter.detached();
            let id = subscription_id.unwrap_or(0);
            let is_shared = filter.share_group().is_some();
            options.no_local |= bridge && !is_shared;
            options.retain_as_published |= bridge;
            let subscription = Subscription { filter: filter.clone(), options, id, checked: false };
            let is_new = self.subscribe(session_key, subscription);
            let retained = !is_shared
                && match options.retain_handling {
                    RetainHandling::Send => true,
                    RetainHandling::SendIfNew => is_new,
                    RetainHandling::DoNotSend => false,
                };
            if retained {
                wanted.push(Wanted { change: changes.len(), filter: filter.clone(), ids: Ids::One(id) });
            }
            changes.push(InterestChange { filter, op: InterestOp::Add { retained, online: true } });
        }
        self.ask((key, session_key), packet, (reasons, filters), (changes, wanted));
        Ok(())
    }

    /// UNSUBSCRIBE: in force here at once, answered when it is in force everywhere.
    pub(crate) fn on_unsubscribe(&mut self, key: ConnKey, session_key: SessionKey, unsubscribe: &Unsubscribe) {
        let packet = RequestPacket::Unsubscribe(unsubscribe.packet_id);
        if self.is_in_use(key, unsubscribe.packet_id) {
            let reasons = vec![ReasonCode::PacketIdentifierInUse; unsubscribe.filters.len()];
            return self.answer_request(key, packet, reasons);
        }
        let mut reasons = Vec::with_capacity(unsubscribe.filters.len());
        let mut changes = Vec::new();
        for filter in &unsubscribe.filters {
            let session = self.sessions.get_mut(session_key);
            let Some(gone) = session.and_then(|session| session.subscriptions.remove(filter)) else {
                reasons.push(ReasonCode::NoSubscriptionExisted);
                continue;
            };
            if let Some(session) = self.sessions.get_mut(session_key) {
                session.queue.forget_backlog(&gone.filter, &mut self.counters);
                if session.expiry_secs > 0 {
                    self.withdrawn.note(session_key, &gone.filter, session.epoch);
                }
            }
            self.withdraw(session_key, &gone);
            self.note_unsubscribed(session_key, &gone.filter);
            reasons.push(ReasonCode::Success);
            changes.push(InterestChange { filter: gone.filter, op: InterestOp::Remove });
        }
        self.ask((key, session_key), packet, (reasons, Vec::new()), (changes, Vec::new()));
    }

    /// Has changes made in the whole cluster and remembers whom to answer; answers at once if there are none.
    fn ask(
        &mut self,
        (key, session_key): (ConnKey, SessionKey),
        packet: RequestPacket,
        (reasons, filters): (Vec<ReasonCode>, Vec<TopicFilter>),
        (changes, wanted): (Vec<InterestChange>, Vec<Wanted>),
    ) {
        if changes.is_empty() {
            return self.answer_request(key, packet, reasons);
        }
        self.tickets = self.tickets.wrapping_add(1);
        let number = self.tickets;
        let Some(session) = self.sessions.get(session_key) else { return };
        let ticket = session.ticket(session_key, TicketKind::Subscribe, number);
        let client = session.client.clone();
        if let Some(connection) = self.connections.get_mut(key) {
            connection.requests.push(Request { number, packet, reasons, filters, wanted, seen: BTreeMap::new() });
        }
        self.outputs.push_back(Output::Interest { client, changes, ticket: Some(ticket) });
        self.hold_if_busy(key);
    }

    /// The changes of interest that this ticket stands for are in force everywhere.
    pub(crate) fn on_settled(&mut self, ticket: Ticket, retained: Vec<(usize, Vec<Arc<Message>>)>) {
        let Some((session_key, generation)) = session_of(ticket) else { return };
        let session = self.sessions.get(session_key).filter(|session| session.generation == generation);
        let Some(session) = session else { return };
        match ticket.kind {
            TicketKind::Resume => return self.on_resumed(session_key, ticket.number),
            TicketKind::Publish => return,
            TicketKind::Subscribe => {}
        }
        let Some(key) = session.connection else { return };
        let Some(connection) = self.connections.get_mut(key) else { return };
        let asked = connection.requests.iter().position(|request| request.number == ticket.number);
        let Some(Request { packet, reasons, wanted, seen, .. }) = asked.map(|at| connection.requests.remove(at)) else {
            return;
        };
        if connection.requests.is_empty() {
            connection.requests = Vec::new();
        }
        self.answer_request(key, packet, reasons);
        for (change, mut messages) in retained {
            let Some(wanted) = wanted.iter().find(|wanted| wanted.change == change) else { continue };
            for message in &messages {
                self.clock.observe(message.stamp);
            }
            messages.retain(|message| !seen.get(&message.topic).is_some_and(|seen| seen.covers(message)));
            self.give_retained(session_key, wanted, messages);
        }
        if let Some(mut link) = self.link(session_key) {
            link.pump();
        }
        self.release_if_calm(key, session_key);
    }

    /// Delivers the retained messages of one new subscription: a few at once, many as the client takes them.
    fn give_retained(&mut self, session_key: SessionKey, wanted: &Wanted, mut messages: Vec<Arc<Message>>) {
        let bytes: usize = messages.iter().map(|message| message.payload.len()).sum();
        let is_few = messages.len() <= FEW_RETAINED && bytes <= FEW_RETAINED_BYTES;
        let rules = self.policy.rules.clone();
        let Some(link) = self.link(session_key) else { return };
        let is_behind = link.session.queue.has_backlog();
        if !is_few || is_behind {
            let Link { session, connection, env } = link;
            let Some(subscription) = session.subscriptions.get(&wanted.filter) else { return };
            let (options, is_checked) = (subscription.options, subscription.checked);
            let before = messages.len();
            messages.retain(|message| !is_checked || may_receive(rules.as_deref(), session, &message.topic));
            env.counters.dropped.not_authorized += (before - messages.len()) as u64;
            messages.retain(|message| !options.no_local || message.publisher.as_ref() != Some(&session.client));
            let (filter, ids) = (wanted.filter.clone(), wanted.ids.clone());
            let part = Part { filter, ids, qos: options.qos, messages: messages.into() };
            let room = Room::of(env.config, session, connection.as_deref());
            match session.queue.put_backlog(part, room, env.counters) {
                Ok(()) => return,
                Err(part) => messages = part.messages.into(),
            }
        }
        for message in messages {
            self.deliver_retained(session_key, wanted, message);
        }
    }

    /// Delivers a retained message for one new subscription (MQTT 5.0 section 3.3.1.3).
    fn deliver_retained(&mut self, session_key: SessionKey, wanted: &Wanted, message: Arc<Message>) {
        let rules = self.policy.rules.clone();
        let allowed = |session: &Session, topic: &TopicName| may_receive(rules.as_deref(), session, topic);
        let Some(mut link) = self.link(session_key) else { return };
        let Some(subscription) = link.session.subscriptions.get(&wanted.filter) else { return };
        let options = subscription.options;
        if subscription.checked && !allowed(link.session, &message.topic) {
            link.env.counters.dropped.not_authorized += 1;
            return;
        }
        if options.no_local && message.publisher.as_ref() == Some(&link.session.client) {
            return;
        }
        let qos = message.qos.min(options.qos);
        let outgoing = Outgoing { message, ids: wanted.ids.clone(), group: 0, qos, retain: true, buffer: Buffer::Own };
        link.offer(outgoing, None, None, &mut Copies::default());
    }

    fn answer_request(&mut self, key: ConnKey, packet: RequestPacket, reasons: Vec<ReasonCode>) {
        if let Some(connection) = self.connections.get_mut(key) {
            connection.send(&answer(packet, reasons), &mut self.counters, &mut self.outputs);
        }
    }

    fn is_in_use(&self, key: ConnKey, id: PacketId) -> bool {
        let requests = self.connections.get(key).map_or(&[][..], |connection| &connection.requests);
        requests.iter().any(|request| request.packet.id() == id)
    }

    fn refuse_subscription(&mut self, key: SessionKey, filter: &TopicFilter) -> Option<ReasonCode> {
        let why = self.find_refusal(key, filter)?;
        self.note_denied(key, filter.as_str(), why);
        Some(why.0)
    }

    /// Why a subscription is refused, in words, and the key of the configuration that decides.
    fn find_refusal(
        &mut self,
        key: SessionKey,
        filter: &TopicFilter,
    ) -> Option<(ReasonCode, &'static str, &'static str)> {
        if filter.level_count() > self.config.max_filter_levels {
            return Some((
                ReasonCode::TopicFilterInvalid,
                "the filter has too many levels",
                "limits.max_filter_levels",
            ));
        }
        if self.policy.rules.is_some() && self.reach(key, filter) == Reach::Nothing {
            self.counters.refused_subscriptions += 1;
            return Some((ReasonCode::NotAuthorized, "it may receive nothing of that", "acl.file"));
        }
        let session = self.sessions.get(key)?;
        if session.subscriptions.get(filter).is_some() {
            return None;
        }
        let (limits, own, weight) = (&self.config, &session.subscriptions, weight(filter));
        let share = limits.max_node_subscription_bytes / usize::from(self.place.shards.max(1));
        let all = usize::try_from(self.counters.subscription_bytes).unwrap_or(usize::MAX);
        let why = if own.len() >= limits.max_subscriptions {
            ("it has as many subscriptions as it may", "limits.max_subscriptions")
        } else if own.bytes().saturating_add(weight) > limits.max_subscription_bytes {
            ("its subscriptions have as many bytes as they may", "limits.max_subscription_bytes")
        } else if all.saturating_add(weight) > share {
            ("the subscriptions of all clients have as many bytes as they may", "limits.max_node_subscription_bytes")
        } else {
            return None;
        };
        self.counters.refused_over_quota += 1;
        Some((ReasonCode::QuotaExceeded, why.0, why.1))
    }

    /// Enters a subscription here; says whether it is new.
    pub(crate) fn subscribe(&mut self, key: SessionKey, mut subscription: Subscription) -> bool {
        subscription.checked = self.policy.rules.is_some() && self.reach(key, &subscription.filter) != Reach::All;
        let Some(session) = self.sessions.get_mut(key) else { return false };
        let granted = subscription.granted();
        let is_shared = subscription.is_shared();
        if is_shared {
            self.groups.join(&subscription.filter, key, granted);
        } else {
            self.subscriptions.insert(&subscription.filter, key, granted);
        }
        let filter = subscription.filter.clone();
        self.withdrawn.forget(key, &filter);
        let is_new = session.subscriptions.insert(subscription);
        self.counters.subscriptions += u64::from(is_new);
        self.counters.subscription_bytes += if is_new { weight(&filter) as u64 } else { 0 };
        self.counters.shared_subscriptions += u64::from(is_new && is_shared);
        self.note_subscribed(key, &filter);
        is_new
    }

    /// Takes a subscription that left its session out of the tables.
    pub(crate) fn withdraw(&mut self, key: SessionKey, subscription: &Subscription) {
        if subscription.is_shared() {
            self.groups.leave(&subscription.filter, key);
        } else {
            self.subscriptions.remove(&subscription.filter, &key);
        }
        self.counters.subscriptions -= 1;
        self.counters.subscription_bytes -= subscription.weight() as u64;
        self.counters.shared_subscriptions -= u64::from(subscription.is_shared());
    }
}
