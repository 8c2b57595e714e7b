//! A simulated MQTT client: keeps the protocol to the letter, and tells the oracle of the messages it saw.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::{Bytes, BytesMut};
use sedge_base::Instant;
use sedge_mqtt::{
    Ack, Connect, ConnectProperties, Decoder, Packet, PacketId, Publish, PublishProperties, QoS, ReasonCode, Subscribe,
    SubscriptionOptions, SubscriptionRequest, TopicFilter, TopicName, Unsubscribe, Utf8, Version, encode,
};

use crate::network::WireId;
use crate::oracle::{Delivery, Oracle, Publication, Subscription};

/// QoS 1 and 2 publications of a client under way.
const WINDOW: usize = 20;

/// Seconds a session outlives its connection: longer than any run.
const EXPIRY_SECS: u32 = 3_600;

/// An own QoS 1 or 2 publication that is not completed.
#[derive(Debug)]
struct Outgoing {
    packet_id: PacketId,
    publication: usize,
    retain: bool,
    /// PUBREC has come: from now on it is PUBREL that is repeated.
    released: bool,
}

/// A simulated MQTT client.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) index: usize,
    pub(crate) version: Version,
    pub(crate) persistent: bool,
    pub(crate) wire: Option<WireId>,
    pub(crate) connected: bool,
    /// Bytes that the client wants to write.
    pub(crate) out: BytesMut,
    pub(crate) last_heard: Instant,
    /// The host it connects to.
    pub(crate) home: usize,
    /// Seconds after which the client's publications expire; 0: never.
    pub(crate) expiry: u32,
    subscriptions: BTreeMap<TopicFilter, QoS>,
    connection: u64,
    session: u64,
    had_session: bool,
    dropped_at: Instant,
    decoder: Decoder,
    next_packet_id: u16,
    outgoing: VecDeque<Outgoing>,
    incoming: BTreeSet<PacketId>,
    subscribing: BTreeMap<PacketId, (TopicFilter, QoS)>,
    unsubscribing: BTreeMap<PacketId, TopicFilter>,
    /// The last request for each filter: answers may come in another order.
    newest: BTreeMap<TopicFilter, PacketId>,
}

impl Client {
    pub(crate) fn new(index: usize, version: Version, persistent: bool, home: usize) -> Self {
        Self {
            index,
            version,
            persistent,
            wire: None,
            connected: false,
            out: BytesMut::new(),
            last_heard: Instant::ZERO,
            home,
            expiry: 0,
            subscriptions: BTreeMap::new(),
            connection: 0,
            session: 0,
            had_session: false,
            dropped_at: Instant::ZERO,
            decoder: Decoder::client(1 << 20),
            next_packet_id: 0,
            outgoing: VecDeque::new(),
            incoming: BTreeSet::new(),
            subscribing: BTreeMap::new(),
            unsubscribing: BTreeMap::new(),
            newest: BTreeMap::new(),
        }
    }

    /// Its client identifier.
    pub(crate) fn id(&self) -> String {
        format!("client-{}", self.index)
    }

    /// Whether nothing of its own is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.connected && self.outgoing.is_empty() && self.subscribing.is_empty() && self.unsubscribing.is_empty()
    }

    fn send(&mut self, packet: &Packet) {
        encode(packet, self.version, &mut self.out);
    }

    fn packet_id(&mut self) -> PacketId {
        loop {
            self.next_packet_id = self.next_packet_id.wrapping_add(1);
            let Some(id) = PacketId::new(self.next_packet_id) else { continue };
            let taken = self.outgoing.iter().any(|sent| sent.packet_id == id)
                || self.subscribing.contains_key(&id)
                || self.unsubscribing.contains_key(&id);
            if !taken {
                return id;
            }
        }
    }

    /// A connection to the broker stands: says CONNECT.
    pub(crate) fn opened(&mut self, now: Instant, wire: WireId) {
        self.wire = Some(wire);
        self.connected = false;
        self.connection += 1;
        self.last_heard = now;
        self.out.clear();
        self.decoder = Decoder::client(1 << 20);
        self.decoder.set_version(self.version);
        let properties = ConnectProperties {
            session_expiry: (self.persistent && self.version == Version::V5).then_some(EXPIRY_SECS),
            ..ConnectProperties::default()
        };
        let connect = Connect {
            bridge: false,
            version: self.version,
            clean_start: !self.persistent,
            keep_alive: 0,
            client_id: Utf8::new(&self.id()).unwrap_or_else(|_| unreachable!("plain letters")),
            will: None,
            username: None,
            password: None,
            properties,
        };
        self.send(&Packet::Connect(Box::new(connect)));
    }

    /// The connection is gone.
    pub(crate) fn closed(&mut self, now: Instant, oracle: &mut Oracle) {
        self.wire = None;
        self.connected = false;
        self.out.clear();
        self.dropped_at = now;
        self.subscribing.clear();
        self.unsubscribing.clear();
        self.newest.clear();
        if !self.persistent {
            self.end_session(now, oracle);
        }
    }

    fn end_session(&mut self, at: Instant, oracle: &mut Oracle) {
        oracle.ended(self.index, self.session, at);
        self.session += 1;
        self.had_session = false;
        self.outgoing.clear();
        self.incoming.clear();
        self.subscriptions.clear();
    }

    /// Says DISCONNECT; the connection is then to be closed.
    pub(crate) fn disconnect(&mut self) {
        self.send(&Packet::Disconnect(sedge_mqtt::Disconnect::new(ReasonCode::Success)));
    }

    /// Says PINGREQ.
    pub(crate) fn ping(&mut self) {
        self.send(&Packet::PingReq);
    }

    /// Publishes; does nothing while too much is under way.
    pub(crate) fn publish(&mut self, now: Instant, topic: TopicName, qos: QoS, retain: bool, oracle: &mut Oracle) {
        if qos != QoS::AtMostOnce && self.outgoing.len() >= WINDOW {
            return;
        }
        let publication = oracle.publications.len();
        oracle.publications.push(Publication {
            publisher: self.index,
            connection: self.connection,
            topic,
            qos,
            sent: now,
            repeated: false,
            acknowledged: None,
        });
        let packet_id = (qos != QoS::AtMostOnce).then(|| self.packet_id());
        if let Some(packet_id) = packet_id {
            self.outgoing.push_back(Outgoing { packet_id, publication, retain, released: false });
        }
        self.send_publish(publication, packet_id, retain, false, oracle);
    }

    fn send_publish(&mut self, number: usize, packet_id: Option<PacketId>, retain: bool, dup: bool, oracle: &Oracle) {
        let publication = &oracle.publications[number];
        let expiry = (self.version == Version::V5 && self.expiry > 0).then_some(self.expiry);
        let properties = expiry
            .map(|expiry| Box::new(PublishProperties { message_expiry: Some(expiry), ..PublishProperties::default() }));
        let packet = Packet::Publish(Publish {
            dup,
            qos: publication.qos,
            retain,
            topic: Some(publication.topic.clone()),
            packet_id,
            payload: Bytes::from(format!("p{number}")),
            properties,
        });
        self.send(&packet);
    }

    /// Subscribes. Until the SUBACK of a renewal, whether the old or the new quality of service holds is open.
    pub(crate) fn subscribe(&mut self, now: Instant, filter: TopicFilter, qos: QoS, oracle: &mut Oracle) {
        oracle.unsubscribed(self.index, self.session, &filter, now);
        let packet_id = self.packet_id();
        self.subscribing.insert(packet_id, (filter.clone(), qos));
        self.newest.insert(filter.clone(), packet_id);
        let options = SubscriptionOptions { qos, ..SubscriptionOptions::default() };
        self.send(&Packet::Subscribe(Subscribe {
            packet_id,
            requests: vec![SubscriptionRequest { filter, options }],
            subscription_id: None,
            user: Vec::new(),
        }));
    }

    /// A subscription that stands and is not being renewed.
    pub(crate) fn settled_subscription(&self) -> Option<TopicFilter> {
        let renewed = |filter: &TopicFilter| self.subscribing.values().any(|(pending, _)| pending == filter);
        self.subscriptions.keys().find(|filter| !renewed(filter)).cloned()
    }

    /// Whether it has a subscription, or has asked for one.
    pub(crate) fn is_subscribed(&self) -> bool {
        !self.subscriptions.is_empty() || !self.subscribing.is_empty()
    }

    /// Unsubscribes: from here on the client has no right to messages that match.
    pub(crate) fn unsubscribe(&mut self, now: Instant, filter: TopicFilter, oracle: &mut Oracle) {
        self.subscriptions.remove(&filter);
        oracle.unsubscribed(self.index, self.session, &filter, now);
        let packet_id = self.packet_id();
        self.unsubscribing.insert(packet_id, filter.clone());
        self.send(&Packet::Unsubscribe(Unsubscribe { packet_id, filters: vec![filter], user: Vec::new() }));
    }

    /// Bytes have come.
    pub(crate) fn received(&mut self, now: Instant, bytes: Bytes, oracle: &mut Oracle) {
        self.last_heard = now;
        self.decoder.feed(bytes);
        loop {
            match self.decoder.next() {
                Ok(Some(packet)) => self.packet(now, packet, oracle),
                Ok(None) => return,
                Err(error) => {
                    oracle.protocol.push(format!("{}: the broker sent {error}", self.id()));
                    return;
                }
            }
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "all that a broker must not send is one case")]
    fn packet(&mut self, now: Instant, packet: Packet, oracle: &mut Oracle) {
        if !self.connected && !matches!(packet, Packet::ConnAck(_) | Packet::Disconnect(_)) {
            oracle.protocol.push(format!("{}: {packet:?} before CONNACK", self.id()));
        }
        match packet {
            Packet::ConnAck(connack) if connack.reason == ReasonCode::Success => {
                self.accepted(now, connack.session_present, oracle);
            }
            Packet::Publish(publish) => self.message(now, &publish, oracle),
            Packet::PubAck(ack) => self.completed(now, &ack, oracle),
            Packet::PubRec(ack) => self.received_pubrec(now, &ack, oracle),
            Packet::PubComp(ack) => self.outgoing.retain(|sent| sent.packet_id != ack.packet_id),
            Packet::PubRel(ack) => {
                self.incoming.remove(&ack.packet_id);
                self.send(&Packet::PubComp(Ack::new(ack.packet_id, ReasonCode::Success)));
            }
            Packet::SubAck(suback) => self.subscribed(now, suback.packet_id, &suback.reasons, oracle),
            Packet::UnsubAck(unsuback) => {
                self.unsubscribing.remove(&unsuback.packet_id);
            }
            Packet::PingResp | Packet::Disconnect(_) | Packet::ConnAck(_) => {}
            other => oracle.protocol.push(format!("{}: unexpected {other:?}", self.id())),
        }
    }

    fn accepted(&mut self, now: Instant, session_present: bool, oracle: &mut Oracle) {
        self.connected = true;
        oracle.served(self.index, now);
        if session_present && !self.had_session {
            oracle.protocol.push(format!("{}: session present, but there was none", self.id()));
        }
        if !session_present {
            if self.had_session {
                oracle.lost_sessions.push(format!("{}: session {} was gone at {now}", self.id(), self.session));
            }
            let at = self.dropped_at;
            self.end_session(at, oracle);
        }
        self.had_session = self.persistent;
        let repeated: Vec<(usize, PacketId, bool, bool)> =
            self.outgoing.iter().map(|sent| (sent.publication, sent.packet_id, sent.retain, sent.released)).collect();
        for (publication, packet_id, retain, released) in repeated {
            if released {
                self.send(&Packet::PubRel(Ack::new(packet_id, ReasonCode::Success)));
            } else {
                oracle.publications[publication].repeated = true;
                self.send_publish(publication, Some(packet_id), retain, true, oracle);
            }
        }
    }

    fn message(&mut self, now: Instant, publish: &Publish, oracle: &mut Oracle) {
        let first = match (publish.qos, publish.packet_id) {
            (QoS::AtMostOnce, None) => true,
            (QoS::AtLeastOnce, Some(packet_id)) => {
                self.send(&Packet::PubAck(Ack::new(packet_id, ReasonCode::Success)));
                true
            }
            (QoS::ExactlyOnce, Some(packet_id)) => {
                self.send(&Packet::PubRec(Ack::new(packet_id, ReasonCode::Success)));
                self.incoming.insert(packet_id)
            }
            other => {
                oracle.protocol.push(format!("{}: a PUBLISH with {other:?}", self.id()));
                return;
            }
        };
        let text = core::str::from_utf8(&publish.payload).unwrap_or_default();
        let number: Option<usize> = text.strip_prefix('p').and_then(|digits| digits.parse().ok());
        let Some(publication) = number.filter(|number| *number < oracle.publications.len()) else {
            oracle.protocol.push(format!("{}: a message nobody published: {:?}", self.id(), publish.payload));
            return;
        };
        let life = publish.properties.as_ref().and_then(|properties| properties.message_expiry);
        if life.is_some_and(|life| !oracle.may_live(publication, life, now)) {
            oracle.protocol.push(format!("{}: p{publication} is said to live {life:?} s", self.id()));
        }
        if publish.topic.as_ref() != Some(&oracle.publications[publication].topic) {
            oracle.protocol.push(format!("{}: p{publication} came with topic {:?}", self.id(), publish.topic));
        }
        if first {
            let (dup, retained) = (publish.dup, publish.retain);
            let delivery = Delivery { publication, at: now, qos: publish.qos, dup, retained };
            oracle.delivered(self.index, self.session, delivery);
        }
    }

    fn completed(&mut self, now: Instant, ack: &Ack, oracle: &mut Oracle) {
        if let Some(at) = self.outgoing.iter().position(|sent| sent.packet_id == ack.packet_id) {
            let sent = self.outgoing.remove(at);
            if let Some(sent) = sent.filter(|_| !ack.reason.is_error()) {
                oracle.publications[sent.publication].acknowledged.get_or_insert(now);
            }
        }
    }

    fn received_pubrec(&mut self, now: Instant, ack: &Ack, oracle: &mut Oracle) {
        if ack.reason.is_error() {
            self.outgoing.retain(|sent| sent.packet_id != ack.packet_id);
            return;
        }
        if let Some(sent) = self.outgoing.iter_mut().find(|sent| sent.packet_id == ack.packet_id) {
            sent.released = true;
            oracle.publications[sent.publication].acknowledged.get_or_insert(now);
        }
        self.send(&Packet::PubRel(Ack::new(ack.packet_id, ReasonCode::Success)));
    }

    fn subscribed(&mut self, now: Instant, packet_id: PacketId, reasons: &[ReasonCode], oracle: &mut Oracle) {
        let Some((filter, qos)) = self.subscribing.remove(&packet_id) else {
            oracle.protocol.push(format!("{}: SUBACK {packet_id} for nothing", self.id()));
            return;
        };
        if reasons.iter().any(|reason| reason.is_error()) || self.newest.get(&filter) != Some(&packet_id) {
            return;
        }
        self.subscriptions.insert(filter.clone(), qos);
        oracle.subscribed(Subscription {
            client: self.index,
            session: self.session,
            filter,
            qos,
            persistent: self.persistent,
            from: now,
            until: None,
        });
    }
}
