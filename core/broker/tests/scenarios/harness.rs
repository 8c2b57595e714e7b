//! Test clients that speak bytes, and the owner that a broker needs, in one value.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use sedge_access::scram::{Exchange, Mechanism, Verifier};
use sedge_base::{ClientId, ConnId, Duration, Incarnation, Instant, NodeId, Now, Rng, ShardId, Timestamp};
use sedge_broker::{
    Admission, BounceReason, Broker, BrokerConfig, Credentials, Deliver, Event, Identity, Input, InterestChange,
    InterestOp, Output, Place, PublishRate, RetainedConfig, RetainedStore, SessionState, Ticket,
};
use sedge_mqtt::{
    Ack, ConnAck, Connect, ConnectProperties, Decoder, Disconnect, Message, Packet, PacketId, Publish,
    PublishProperties, QoS, ReasonCode, SubAck, Subscribe, SubscriptionOptions, SubscriptionRequest, TopicFilter,
    TopicName, Unsubscribe, Utf8, Version, Will, encode,
};
use smallvec::SmallVec;

pub(crate) const Q0: QoS = QoS::AtMostOnce;
pub(crate) const Q1: QoS = QoS::AtLeastOnce;
pub(crate) const Q2: QoS = QoS::ExactlyOnce;
pub(crate) const V4: Version = Version::V311;
pub(crate) const V5: Version = Version::V5;

/// Result of PBKDF2 for everybody's password.
pub(crate) const PASSWORD: &[u8] = b"salted";

/// One side of a connection.
#[derive(Debug)]
struct Peer {
    decoder: Decoder,
    version: Version,
    inbox: VecDeque<Packet>,
    closed: bool,
    held: bool,
    reading: Reading,
}

/// A peer's handling of the broker's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    Packets,
    /// The peer does not look at what it reads.
    Blindly,
    /// The peer does not read: its outbox fills.
    Nothing,
}

/// A broker, its clients, and a cluster of one.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) broker: Broker,
    pub(crate) now: Now,
    pub(crate) retained: RetainedStore,
    /// Answers of the cluster wait in `waiting` until [`Bench::answer`].
    pub(crate) slow: bool,
    pub(crate) waiting: VecDeque<Input>,
    /// Requests of the broker to its owner, but for `Transmit`.
    pub(crate) log: Vec<String>,
    pub(crate) routed: Vec<(Arc<Message>, bool)>,
    pub(crate) events: Vec<Event>,
    pub(crate) interest: Vec<(ClientId, InterestChange)>,
    pub(crate) bounced: Vec<(Arc<Message>, TopicFilter, BounceReason)>,
    pub(crate) relinquished: Vec<Option<Box<SessionState>>>,
    pub(crate) leaves: Vec<ClientId>,
    pub(crate) stays: Vec<ClientId>,
    pub(crate) ended: Vec<(ClientId, u64)>,
    /// Sessions that the next claim finds elsewhere.
    pub(crate) elsewhere: BTreeMap<ClientId, Box<SessionState>>,
    pub(crate) accept_with: ReasonCode,
    /// Whether the transport of each client proves a user name.
    pub(crate) certificates: bool,
    /// How fast clients may publish.
    pub(crate) rate: PublishRate,
    /// Credentials that the broker asked its owner about.
    pub(crate) asked: Vec<Credentials>,
    /// Reason code with which every client is refused that the broker asks about; `None`: they are who they say.
    pub(crate) refuse_with: Option<ReasonCode>,
    /// Time for which all other clients are let in.
    pub(crate) expires_in: Option<Duration>,
    /// Whether the next connections are those of parts of the process.
    pub(crate) inside: bool,
    groups: BTreeMap<TopicFilter, usize>,
    peers: BTreeMap<ConnId, Peer>,
    next_conn: u64,
    pub(crate) epoch: u64,
}

pub(crate) fn place() -> Place {
    Place { node: NodeId::new(1), incarnation: Incarnation::new(1), shard: ShardId(1), shards: 3 }
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::with(BrokerConfig::default())
    }

    pub(crate) fn with(config: BrokerConfig) -> Self {
        Self {
            broker: Broker::new(config, place(), Rng::new(7)),
            now: Now { instant: Instant::from_millis(1_000), wall: Timestamp::from_millis(1_000_000) },
            retained: RetainedStore::new(RetainedConfig::default()),
            slow: false,
            waiting: VecDeque::new(),
            log: Vec::new(),
            routed: Vec::new(),
            events: Vec::new(),
            interest: Vec::new(),
            bounced: Vec::new(),
            relinquished: Vec::new(),
            leaves: Vec::new(),
            stays: Vec::new(),
            ended: Vec::new(),
            elsewhere: BTreeMap::new(),
            accept_with: ReasonCode::Success,
            certificates: true,
            rate: PublishRate::default(),
            asked: Vec::new(),
            refuse_with: None,
            expires_in: None,
            inside: false,
            groups: BTreeMap::new(),
            peers: BTreeMap::new(),
            next_conn: 0,
            epoch: 0,
        }
    }

    /// Opens a connection that says nothing yet.
    pub(crate) fn open(&mut self, version: Version) -> ConnId {
        self.next_conn += 1;
        let conn = ConnId(self.next_conn);
        let mut decoder = Decoder::client(1 << 28);
        decoder.set_version(version);
        let inbox = VecDeque::new();
        let peer = Peer { decoder, version, inbox, closed: false, held: false, reading: Reading::Packets };
        self.peers.insert(conn, peer);
        let user = self.certificates.then(|| format!("user-{}", conn.0));
        let rate = self.rate;
        self.input(Input::Opened { conn, peer: format!("peer-{}", conn.0), user, rate, inside: self.inside });
        conn
    }

    /// Opens a connection and sends CONNECT.
    pub(crate) fn dial(&mut self, connect: Connect) -> ConnId {
        let conn = self.open(connect.version);
        self.send(conn, &Packet::Connect(Box::new(connect)));
        conn
    }

    /// Connects and returns the connection with its CONNACK.
    pub(crate) fn connack(&mut self, connect: Connect) -> (ConnId, ConnAck) {
        let conn = self.dial(connect);
        match self.recv(conn) {
            Some(Packet::ConnAck(connack)) => (conn, *connack),
            other => panic!("no CONNACK but {other:?}"),
        }
    }

    /// Connects with success.
    pub(crate) fn connect(&mut self, connect: Connect) -> ConnId {
        let (conn, connack) = self.connack(connect);
        assert_eq!(connack.reason, ReasonCode::Success);
        conn
    }

    /// A client with a clean session.
    pub(crate) fn client(&mut self, version: Version, id: &str) -> ConnId {
        self.connect(connect(version, id))
    }

    /// As [`Bench::client`] while the cluster is slow: only this client's claim is answered.
    pub(crate) fn client_now(&mut self, version: Version, id: &str) -> ConnId {
        let conn = self.dial(connect(version, id));
        let claimed = self.waiting.pop_back().expect("the claim is the last question");
        self.input(claimed);
        self.drain(conn);
        conn
    }

    pub(crate) fn send(&mut self, conn: ConnId, packet: &Packet) {
        let version = self.peers[&conn].version;
        let mut bytes = BytesMut::new();
        encode(packet, version, &mut bytes);
        self.send_bytes(conn, bytes.freeze());
    }

    pub(crate) fn send_bytes(&mut self, conn: ConnId, bytes: Bytes) {
        self.input(Input::Received { conn, bytes });
    }

    pub(crate) fn recv(&mut self, conn: ConnId) -> Option<Packet> {
        self.peers.get_mut(&conn)?.inbox.pop_front()
    }

    /// Everything that has come.
    pub(crate) fn drain(&mut self, conn: ConnId) -> Vec<Packet> {
        self.peers.get_mut(&conn).map(|peer| peer.inbox.drain(..).collect()).unwrap_or_default()
    }

    /// All PUBLISH packets that have come; there is nothing else.
    pub(crate) fn publishes(&mut self, conn: ConnId) -> Vec<Publish> {
        let publish = |packet| match packet {
            Packet::Publish(publish) => publish,
            other => panic!("no PUBLISH but {other:?}"),
        };
        self.drain(conn).into_iter().map(publish).collect()
    }

    /// Payloads of all PUBLISH packets that have come.
    pub(crate) fn payloads(&mut self, conn: ConnId) -> Vec<String> {
        self.publishes(conn).iter().map(|publish| String::from_utf8_lossy(&publish.payload).into_owned()).collect()
    }

    pub(crate) fn is_closed(&self, conn: ConnId) -> bool {
        self.peers[&conn].closed
    }

    pub(crate) fn is_held(&self, conn: ConnId) -> bool {
        self.peers[&conn].held
    }

    /// The client stops reading, or reads again.
    pub(crate) fn stick(&mut self, conn: ConnId, stuck: bool) {
        self.peers.get_mut(&conn).unwrap().reading = if stuck { Reading::Nothing } else { Reading::Packets };
        self.transmit(conn);
        self.run();
    }

    /// The process ends and another one begins: nobody is connected, and the new broker has what the old one's journal held.
    pub(crate) fn restart(&mut self, broker: Broker) {
        self.broker = broker;
        self.waiting.clear();
        self.peers.values_mut().for_each(|peer| peer.closed = true);
    }

    /// The client no longer looks at what it reads.
    pub(crate) fn deafen(&mut self, conn: ConnId) {
        self.peers.get_mut(&conn).unwrap().reading = Reading::Blindly;
    }

    /// A part of the process that subscribed with QoS 1 and is not connected any more; its session waits.
    pub(crate) fn part_that_left(&mut self, client: &str, filter: &str) {
        self.inside = true;
        let part = self.connect(persistent(Version::V5, client));
        self.subscribe(part, filter, QoS::AtLeastOnce);
        self.cut(part);
        self.inside = false;
    }

    /// The network loses the connection.
    pub(crate) fn cut(&mut self, conn: ConnId) {
        self.peers.get_mut(&conn).unwrap().closed = true;
        self.input(Input::Closed { conn });
    }

    /// DISCONNECT with a reason.
    pub(crate) fn leave(&mut self, conn: ConnId, reason: ReasonCode) {
        self.send(conn, &Packet::Disconnect(Disconnect::new(reason)));
        assert!(self.is_closed(conn));
    }

    pub(crate) fn subscribe(&mut self, conn: ConnId, filter: &str, qos: QoS) -> ReasonCode {
        self.subscribe_with(conn, filter, SubscriptionOptions { qos, ..SubscriptionOptions::default() }, None)
    }

    pub(crate) fn subscribe_with(
        &mut self,
        conn: ConnId,
        filter: &str,
        options: SubscriptionOptions,
        id: Option<u32>,
    ) -> ReasonCode {
        self.send(conn, &subscribe(7, &[(filter, options)], id));
        match self.recv(conn) {
            Some(Packet::SubAck(SubAck { packet_id, reasons, .. })) => {
                assert_eq!(packet_id.get(), 7);
                reasons[0]
            }
            other => panic!("no SUBACK but {other:?}"),
        }
    }

    pub(crate) fn unsubscribe(&mut self, conn: ConnId, filter: &str) -> ReasonCode {
        let filters = vec![TopicFilter::new(filter).unwrap()];
        self.send(conn, &Packet::Unsubscribe(Unsubscribe { packet_id: id(8), filters, user: Vec::new() }));
        match self.recv(conn) {
            Some(Packet::UnsubAck(unsuback)) => unsuback.reasons.first().copied().unwrap_or(ReasonCode::Success),
            other => panic!("no UNSUBACK but {other:?}"),
        }
    }

    /// Publishes with packet id 1 and goes through the whole handshake.
    pub(crate) fn publish(&mut self, conn: ConnId, topic: &str, payload: &str, qos: QoS) {
        self.send(conn, &publish(topic, payload, qos, 1));
        match qos {
            QoS::AtMostOnce => {}
            QoS::AtLeastOnce => assert!(matches!(self.recv(conn), Some(Packet::PubAck(ack)) if !ack.reason.is_error())),
            QoS::ExactlyOnce => {
                assert!(matches!(self.recv(conn), Some(Packet::PubRec(ack)) if !ack.reason.is_error()));
                self.send(conn, &Packet::PubRel(ack(1)));
                assert_eq!(self.recv(conn), Some(Packet::PubComp(ack(1))));
            }
        }
    }

    pub(crate) fn retain(&mut self, conn: ConnId, topic: &str, payload: &str, qos: QoS) {
        let Packet::Publish(mut packet) = publish(topic, payload, qos, 1) else { unreachable!() };
        packet.retain = true;
        self.send(conn, &Packet::Publish(packet));
        self.drain(conn);
    }

    /// Lets time pass, timers included.
    pub(crate) fn pass(&mut self, time: Duration) {
        let end = self.now.instant + time;
        while let Some(at) = self.broker.poll_timeout().filter(|&at| at <= end) {
            self.advance_to(at.max(self.now.instant));
            self.broker.handle_timeout(self.now);
            self.run();
        }
        self.advance_to(end);
    }

    fn advance_to(&mut self, instant: Instant) {
        self.now.wall = self.now.wall + instant.since(self.now.instant);
        self.now.instant = instant;
    }

    pub(crate) fn input(&mut self, input: Input) {
        self.broker.handle(self.now, input);
        self.run();
    }

    /// Lets the cluster give its next answer.
    pub(crate) fn answer(&mut self) -> bool {
        let Some(input) = self.waiting.pop_front() else { return false };
        self.input(input);
        true
    }

    /// Lets the cluster give all answers, also from now on.
    pub(crate) fn answer_all(&mut self) {
        self.slow = false;
        while self.answer() {}
    }

    pub(crate) fn run(&mut self) {
        loop {
            while let Some(output) = self.broker.poll_output() {
                self.on_output(output);
            }
            if self.slow || !self.answer_quietly() {
                return;
            }
        }
    }

    fn answer_quietly(&mut self) -> bool {
        let Some(input) = self.waiting.pop_front() else { return false };
        self.broker.handle(self.now, input);
        true
    }

    fn on_output(&mut self, output: Output) {
        if !matches!(output, Output::Transmit { .. }) {
            self.log.push(format!("{output:?}"));
        }
        match output {
            Output::Transmit { conn } => self.transmit(conn),
            Output::Close { conn } => {
                self.transmit(conn);
                self.peers.get_mut(&conn).unwrap().closed = true;
            }
            Output::Hold { conn } => self.peers.get_mut(&conn).unwrap().held = true,
            Output::Release { conn } => self.peers.get_mut(&conn).unwrap().held = false,
            Output::Proceed { conn, data, exchange } => {
                let user = Some(exchange.user().into());
                let answer = exchange.finish(&data).ok().ok_or(ReasonCode::NotAuthorized);
                let admit = |data: String| Admission {
                    identity: Identity { user },
                    data: Some(Bytes::from(data)),
                    ..Admission::default()
                };
                self.waiting.push_back(Input::Authenticated { conn, answer: answer.map(admit) });
            }
            // These brokers have no foreign broker behind them, and no other shards that count sessions.
            Output::Ping { .. } | Output::Census(_) => {}
            Output::Authenticate(credentials) if credentials.method.is_some() => {
                let answer = Self::challenge(&credentials);
                self.waiting.push_back(answer);
                self.asked.push(*credentials);
            }
            Output::Authenticate(credentials) => {
                if !self.slow {
                    let user = credentials.user.as_deref().map(Box::from);
                    let admission =
                        Admission { expires_in: self.expires_in, account: true, ..Identity { user }.into() };
                    let answer = self.refuse_with.map_or(Ok(admission), Err);
                    self.waiting.push_back(Input::Authenticated { conn: credentials.conn, answer });
                }
                self.asked.push(*credentials);
            }
            Output::Claim { client, conn, clean_start } => {
                self.epoch += 1;
                let session = self.elsewhere.remove(&client).filter(|_| !clean_start);
                self.waiting.push_back(Input::Claimed { client, conn: Some(conn), epoch: self.epoch, session });
            }
            Output::Relinquished { session, .. } => self.relinquished.push(session),
            Output::Leaves { client } => self.leaves.push(client),
            Output::Stays { client } => self.stays.push(client),
            Output::Ended { client, epoch } => self.ended.push((client, epoch)),
            Output::Interest { client, changes, ticket } => self.on_interest(&client, changes, ticket),
            Output::Route { message, ticket, matched } => self.on_route(message, ticket, matched),
            Output::Bounced { message, group, reason } => self.bounced.push((message, group, reason)),
            Output::Event(event) => self.events.push(event),
        }
    }

    /// The owner's answer to the beginning of an enhanced authentication: everybody's password is [`PASSWORD`].
    fn challenge(credentials: &Credentials) -> Input {
        let conn = credentials.conn;
        let Some(method) = credentials.method.as_ref().filter(|method| method.name == "SCRAM-SHA-256") else {
            return Input::Authenticated { conn, answer: Err(ReasonCode::BadAuthenticationMethod) };
        };
        let verifier = |_: &str| Verifier::new(Mechanism::Sha256, 4096, b"salt", PASSWORD);
        match Exchange::begin(&method.data, "server", verifier) {
            Ok(exchange) => {
                let data = Bytes::copy_from_slice(exchange.server_first().as_bytes());
                Input::Challenge { conn, data, exchange: Box::new(exchange) }
            }
            Err(_) => Input::Authenticated { conn, answer: Err(ReasonCode::NotAuthorized) },
        }
    }

    fn transmit(&mut self, conn: ConnId) {
        let Some(peer) = self.peers.get_mut(&conn) else { return };
        if peer.reading == Reading::Nothing || peer.closed {
            return;
        }
        let Some(outbox) = self.broker.outbox(conn) else { return };
        let mut slices = [std::io::IoSlice::new(&[]); 64];
        let filled = outbox.io_slices(&mut slices);
        let bytes: Vec<u8> = slices[..filled].iter().flat_map(|slice| slice.iter().copied()).collect();
        let written = bytes.len();
        peer.decoder.feed(if peer.reading == Reading::Blindly { Bytes::new() } else { Bytes::from(bytes) });
        while let Some(packet) = peer.decoder.next().expect("the broker sends what is well formed") {
            peer.inbox.push_back(packet);
        }
        self.broker.handle(self.now, Input::Written { conn, bytes: written });
    }

    fn on_interest(&mut self, client: &ClientId, changes: Vec<InterestChange>, ticket: Option<Ticket>) {
        let mut retained = Vec::new();
        for (index, change) in changes.into_iter().enumerate() {
            if let InterestOp::Add { retained: true, .. } = change.op {
                let mut messages = Vec::new();
                self.retained.matching(&change.filter, self.now.wall, |message| messages.push(Arc::clone(message)));
                retained.push((index, messages));
            }
            if change.filter.share_group().is_some() {
                self.groups.entry(change.filter.clone()).or_default();
            }
            self.interest.push((client.clone(), change));
        }
        if let Some(ticket) = ticket {
            self.waiting.push_back(Input::Settled { ticket, retained });
        }
    }

    fn on_route(&mut self, message: Arc<Message>, ticket: Option<Ticket>, matched: bool) {
        if message.retain {
            self.retained.set(&message);
        }
        let groups: SmallVec<[TopicFilter; 1]> =
            self.groups.keys().filter(|group| group.matches(&message.topic)).cloned().collect();
        if !groups.is_empty() {
            let deliver = Deliver { message: Arc::clone(&message), plain: false, groups };
            self.waiting.push_back(Input::Deliver(deliver));
        }
        self.routed.push((message, matched));
        if let Some(ticket) = ticket {
            let reason = self.accept_with;
            self.waiting.push_back(Input::Accepted { ticket, reason });
        }
    }
}

pub(crate) fn id(number: u16) -> PacketId {
    PacketId::new(number).unwrap()
}

pub(crate) fn ack(number: u16) -> Ack {
    Ack::new(id(number), ReasonCode::Success)
}

pub(crate) fn utf8(text: &str) -> Utf8 {
    Utf8::new(text).unwrap()
}

/// A clean CONNECT without keep alive.
pub(crate) fn connect(version: Version, client: &str) -> Connect {
    Connect {
        version,
        bridge: false,
        clean_start: true,
        keep_alive: 0,
        client_id: utf8(client),
        will: None,
        username: None,
        password: None,
        properties: ConnectProperties::default(),
    }
}

/// A CONNECT for a session that stays.
pub(crate) fn persistent(version: Version, client: &str) -> Connect {
    let properties = match version {
        Version::V5 => ConnectProperties { session_expiry: Some(3_600), ..ConnectProperties::default() },
        Version::V311 => ConnectProperties::default(),
    };
    Connect { clean_start: false, properties, ..connect(version, client) }
}

pub(crate) fn will(topic: &str, payload: &str, qos: QoS) -> Box<Will> {
    Box::new(Will {
        topic: TopicName::new(topic).unwrap(),
        payload: Bytes::copy_from_slice(payload.as_bytes()),
        qos,
        retain: false,
        properties: sedge_mqtt::WillProperties::default(),
    })
}

pub(crate) fn publish(topic: &str, payload: &str, qos: QoS, packet: u16) -> Packet {
    Packet::Publish(Publish {
        dup: false,
        qos,
        retain: false,
        topic: (!topic.is_empty()).then(|| TopicName::new(topic).unwrap()),
        packet_id: (qos != Q0).then(|| id(packet)),
        payload: Bytes::copy_from_slice(payload.as_bytes()),
        properties: None,
    })
}

pub(crate) fn publish_with(topic: &str, payload: &str, qos: QoS, properties: PublishProperties) -> Packet {
    let Packet::Publish(mut packet) = publish(topic, payload, qos, 1) else { unreachable!() };
    packet.properties = Some(Box::new(properties));
    Packet::Publish(packet)
}

pub(crate) fn subscribe(packet: u16, filters: &[(&str, SubscriptionOptions)], id: Option<u32>) -> Packet {
    let request = |(filter, options): &(&str, _)| SubscriptionRequest {
        filter: TopicFilter::new(filter).unwrap(),
        options: *options,
    };
    Packet::Subscribe(Subscribe {
        packet_id: self::id(packet),
        requests: filters.iter().map(request).collect(),
        subscription_id: id,
        user: Vec::new(),
    })
}

pub(crate) fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}
