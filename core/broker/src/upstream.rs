//! A foreign broker behind this node delivers to the ordinary subscriptions here (spec `interworking.md`; see `sedge-sidecar`).

use std::sync::Arc;

use sedge_base::{ClientId, ConnId, Now};
use sedge_mqtt::{
    Connect, Message, Packet, Publish, PublishProperties, QoS, ReadAt, ReasonCode, SubscriptionOptions, TopicFilter,
    TopicName, Version,
};
use smallvec::SmallVec;

use crate::access::may_receive;
use crate::api::TicketKind;
use crate::clock::expires_at;
use crate::connection::{ConnKey, Phase};
use crate::disconnect::Ending;
use crate::outgoing::{Buffer, Copies, Ids, Outgoing};
use crate::session::{SessionKey, session_of};
use crate::subscription::Granted;
use crate::{Broker, Output, Ticket};

/// Subscriptions of one session that are looked at one by one; with more, those of all sessions are looked up.
const SCANNED_AT_MOST: usize = 64;

/// A session with ordinary subscriptions that match a publication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanting {
    /// The client.
    pub client: ClientId,
    /// How many of its subscriptions match.
    pub matches: u16,
    /// The highest QoS that they grant.
    pub qos: QoS,
    /// It published the message itself and asked for No Local.
    pub no_local: bool,
}

impl Broker {
    /// Delivers a client's publication to the ordinary subscriptions that match, unless somebody else does; says whether there is one.
    pub(crate) fn fan_out_own(&mut self, message: &Arc<Message>, buffer: Buffer) -> bool {
        if !self.config.delivers_elsewhere {
            return self.fan_out(message, buffer);
        }
        let mut matched = false;
        self.subscriptions.matches(&message.topic, |_, _: &Granted| matched = true);
        matched
    }

    /// The sessions with an ordinary subscription that matches and that access rules allow, each once. The broker behind this node is about
    /// to deliver to them.
    pub fn receivers(&mut self, message: &Message) -> SmallVec<[Wanting; 2]> {
        self.trace_sessions(message);
        let mut found: SmallVec<[(SessionKey, Wanting); 2]> = SmallVec::new();
        let (sessions, rules) = (&self.sessions, self.policy.rules.as_deref());
        self.subscriptions.matches(&message.topic, |&key, granted: &Granted| {
            let Some(session) = sessions.get(key) else { return };
            if granted.checked && !may_receive(rules, session, &message.topic) {
                return;
            }
            let no_local = granted.no_local && message.publisher.as_ref() == Some(&session.client);
            if let Some((_, wanting)) = found.iter_mut().find(|(known, _)| *known == key) {
                wanting.matches = wanting.matches.saturating_add(1);
                wanting.qos = wanting.qos.max(granted.qos);
                wanting.no_local &= no_local;
                return;
            }
            let client = session.client.clone();
            found.push((key, Wanting { client, matches: 1, qos: granted.qos, no_local }));
        });
        found.into_iter().map(|(_, wanting)| wanting).collect()
    }

    /// Delivers to one session, if one of its ordinary subscriptions matches.
    pub fn deliver_to_one(&mut self, now: Now, client: &ClientId, message: &Arc<Message>) {
        self.now = now;
        self.clock.observe(message.stamp);
        let Some(&key) = self.clients.get(client) else { return };
        self.deliver_matching((client, key), message);
    }

    /// As [`Broker::fan_out`] for one session: the highest QoS and all identifiers of what matches count.
    fn deliver_matching(&mut self, (client, key): (&ClientId, SessionKey), message: &Arc<Message>) {
        let Some(session) = self.sessions.get(key) else { return };
        if session.subscriptions.len() > SCANNED_AT_MOST {
            self.trace_kept(key, message, message.qos);
            return self.fan_out_to(client, message);
        }
        if self.merged.has(key, message.id) {
            return;
        }
        let rules = self.policy.rules.as_deref();
        let (mut best, mut ids) = (None::<Granted>, Ids::NONE);
        for subscription in session.subscriptions.iter() {
            let granted = subscription.granted();
            let is_wanted = !(granted.no_local && message.publisher.as_ref() == Some(&session.client))
                && (!granted.checked || may_receive(rules, session, &message.topic));
            if subscription.is_shared() || !is_wanted || !subscription.filter.matches(&message.topic) {
                continue;
            }
            ids.add(granted.id);
            let so_far = best.get_or_insert(granted);
            so_far.qos = so_far.qos.max(granted.qos);
            so_far.retain_as_published |= granted.retain_as_published;
        }
        let Some(granted) = best else { return };
        let outgoing = Outgoing {
            message: Arc::clone(message),
            ids,
            group: 0,
            qos: message.qos.min(granted.qos),
            retain: granted.retain_as_published && message.retain,
            buffer: Buffer::Read,
        };
        self.trace_kept(key, message, outgoing.qos);
        if let Some(mut link) = self.link(key) {
            link.offer(outgoing, None, None, &mut Copies::default());
        }
    }

    /// Delivers to one session a message that the broker behind this node has sent for it, and did not get from this node: a retained message, or
    /// a publication of a client that is connected to that broker only. QoS and retain flag are the broker's. A message that no subscription of the
    /// session matches is not delivered: that broker may still have those of a session ended by a clean start, or know other rules for wildcards.
    pub fn deliver_foreign(&mut self, now: Now, client: &ClientId, publish: Publish, version: Version) {
        self.now = now;
        let Some(&key) = self.clients.get(client) else { return };
        let Publish { qos, retain, topic: Some(topic), payload, mut properties, .. } = publish else { return };
        let Some(matching) = self.ids_of_matching(key, &topic) else { return };
        let Some(session) = self.sessions.get(key) else { return };
        if self.policy.rules.is_some() && !may_receive(self.policy.rules.as_deref(), session, &topic) {
            self.counters.dropped.not_authorized += 1;
            return;
        }
        let sent_ids = properties.as_mut().map(|properties| core::mem::take(&mut properties.subscription_ids));
        // A 3.1.1 broker knows no identifiers.
        let ids =
            if version == Version::V311 { matching } else { sent_ids.map_or(Ids::NONE, |ids| Ids::from(&ids[..])) };
        let expiry = properties.as_mut().and_then(|properties| properties.message_expiry.take());
        let properties = properties.filter(|properties| **properties != PublishProperties::default());
        let message = Arc::new(Message {
            id: self.clock.next_id(),
            topic,
            payload,
            qos,
            retain,
            properties,
            stamp: self.clock.next_stamp(now),
            expires_at: expiry.map(|secs| expires_at(now, secs)),
            publisher: None,
            read_at: ReadAt::at(now.instant),
        });
        let outgoing = Outgoing { message, ids, group: 0, qos, retain, buffer: Buffer::Read };
        if let Some(mut link) = self.link(key) {
            link.offer(outgoing, None, None, &mut Copies::default());
        }
    }

    /// Whether a client is connected, and a `part`th of what may wait for it waits.
    pub fn is_behind(&self, client: &ClientId, part: usize) -> bool {
        let session = self.clients.get(client).and_then(|key| self.sessions.get(*key));
        session.filter(|session| session.connection.is_some()).is_some_and(|session| {
            let limits = self.config.queue_limits(Some(client));
            let is_much = |waiting: usize, limit: usize| limit != 0 && waiting >= (limit / part).max(1);
            is_much(session.queue.len(), limits.messages) || is_much(session.queue.bytes(), limits.bytes)
        })
    }

    /// The identifiers of those ordinary subscriptions of a session that match; `None`: none matches.
    fn ids_of_matching(&mut self, key: SessionKey, topic: &TopicName) -> Option<Ids> {
        let session = self.sessions.get(key)?;
        let mut found = None;
        if session.subscriptions.len() > SCANNED_AT_MOST {
            self.subscriptions.matches(topic, |&of, granted: &Granted| {
                if of == key {
                    found.get_or_insert(Ids::NONE).add(granted.id);
                }
            });
        } else {
            for subscription in session.subscriptions.iter() {
                if !subscription.is_shared() && subscription.filter.matches(topic) {
                    found.get_or_insert(Ids::NONE).add(subscription.id);
                }
            }
        }
        found
    }

    /// The CONNECT of a connection that waits for its client id to become ours, and where its client is.
    pub fn connecting(&self, conn: ConnId) -> Option<(&Connect, &str)> {
        let connection = self.connections.get(self.connections.key(conn)?)?;
        let pending = connection.pending.as_ref().filter(|_| connection.phase == Phase::Claiming)?;
        Some((&pending.connect, &connection.peer.address))
    }

    /// The broker behind this node does not let the client of a connection in that waits for its client id.
    pub fn refuse(&mut self, now: Now, conn: ConnId, reason: ReasonCode, words: String) {
        self.now = now;
        let key = self.connections.key(conn);
        let claiming =
            key.and_then(|key| self.connections.get(key)).is_some_and(|found| found.phase == Phase::Claiming);
        if let (true, Some(key)) = (claiming, key) {
            self.end_connection(key, Ending::server(reason, words).decided_by("upstream.address"));
        }
    }

    /// The broker behind this node is away for too long: the connection of a client ends, its session stays.
    pub fn lose(&mut self, now: Now, client: &ClientId) {
        self.now = now;
        if let Some(key) = self.connection_of(client) {
            let words = "the broker behind this node does not answer";
            self.end_connection(key, Ending::server(ReasonCode::ServerBusy, words).decided_by("upstream.grace"));
        }
    }

    /// PINGREQ: a broker behind this node answers it, so that both ends are known to live.
    pub(crate) fn on_pingreq(&mut self, key: ConnKey, session: SessionKey) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        match self.sessions.get(session) {
            Some(session) if self.config.delivers_elsewhere => {
                let (client, conn) = (session.client.clone(), connection.id);
                self.outputs.push_back(Output::Ping { client, conn });
            }
            Some(_) | None => connection.send(&Packet::PingResp, &mut self.counters, &mut self.outputs),
        }
    }

    /// The broker behind this node has answered a client's PINGREQ.
    pub fn pong(&mut self, now: Now, conn: ConnId) {
        self.now = now;
        let Some(connection) = self.connections.key(conn).and_then(|key| self.connections.get_mut(key)) else { return };
        if connection.phase == Phase::Live {
            connection.send(&Packet::PingResp, &mut self.counters, &mut self.outputs);
        }
    }

    /// How a client has subscribed to a filter: options and identifier, 0 for none.
    pub fn options_of(&self, client: &ClientId, filter: &TopicFilter) -> Option<(SubscriptionOptions, u32)> {
        let session = self.sessions.get(*self.clients.get(client)?)?;
        session.subscriptions.get(filter).map(|subscription| (subscription.options, subscription.id))
    }

    /// The ordinary subscriptions of a client, with options and identifiers, 0 for none.
    pub fn ordinary_subscriptions(&self, client: &ClientId) -> Vec<(TopicFilter, SubscriptionOptions, u32)> {
        let Some(session) = self.clients.get(client).and_then(|key| self.sessions.get(*key)) else { return Vec::new() };
        let ordinary = session.subscriptions.iter().filter(|subscription| !subscription.is_shared());
        ordinary.map(|found| (found.filter.clone(), found.options, found.id)).collect()
    }

    /// The broker behind this node refuses some filters of a request that has not settled: the client has no such subscriptions, and its
    /// SUBACK says so.
    pub fn refuse_filters(&mut self, client: &ClientId, ticket: Option<Ticket>, refused: &[(TopicFilter, ReasonCode)]) {
        let Some(&key) = self.clients.get(client) else { return };
        let number = ticket.filter(|ticket| {
            let mine = session_of(*ticket).is_some_and(|(session, _)| session == key);
            mine && ticket.kind == TicketKind::Subscribe
        });
        let connection = self.sessions.get(key).and_then(|session| session.connection);
        for (filter, reason) in refused {
            let Some(session) = self.sessions.get_mut(key) else { return };
            let Some(gone) = session.subscriptions.remove(filter) else { continue };
            self.withdraw(key, &gone);
            self.note_unsubscribed(key, filter);
            let Some(connection) = connection.and_then(|key| self.connections.get_mut(key)) else { continue };
            let request =
                connection.requests.iter_mut().find(|request| Some(request.number) == number.map(|t| t.number));
            if let Some(request) = request {
                request.refuse(filter, *reason);
            }
        }
    }
}
