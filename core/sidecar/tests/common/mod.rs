//! A sidecar, and a broker of the simplest kind behind it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use sedge_base::{ClientId, Duration, Incarnation, Instant, NodeId, Now, Rng, ShardId};
use sedge_mqtt::{
    Ack, ConnAck, ConnAckProperties, Decoder, Message, MessageId, Packet, PacketId, Publish, QoS, ReadAt, ReasonCode,
    Stamp, SubAck, SubscriptionOptions, TopicFilter, TopicName, Version, encode,
};
use sedge_sidecar::{
    Attach, Input, LinkId, Origin, Output, Publication, Receiver, Request, Share, Sidecar, SidecarConfig,
};

/// One connection at the broker.
struct Peer {
    decoder: Decoder,
    version: Version,
    filters: BTreeSet<TopicFilter>,
    /// QoS 2 publications that wait for PUBREL.
    half: BTreeMap<PacketId, Publish>,
    last_id: u16,
    out: VecDeque<Bytes>,
    inbox: VecDeque<Bytes>,
}

/// A sidecar with some clients, and the broker.
pub(crate) struct World {
    pub(crate) sidecar: Sidecar,
    now: Now,
    rng: Rng,
    version: Version,
    dialled: VecDeque<LinkId>,
    peers: BTreeMap<LinkId, Peer>,
    /// The broker is away until then.
    down_until: Instant,
    delivered: BTreeMap<usize, Vec<u64>>,
    answers: BTreeMap<u64, usize>,
    asked: usize,
    published: u64,
    subscriptions: BTreeMap<usize, TopicFilter>,
    /// Clients by conversation, to break them.
    names: BTreeMap<LinkId, String>,
    /// Whether many payloads are equal.
    equal: bool,
    /// Connections that are not to be read.
    held: BTreeSet<LinkId>,
    /// Deliveries of what did not come from this node.
    pub(crate) foreign: usize,
    /// A client that is held as soon as it gets such a delivery.
    pub(crate) has_room_for_one: Option<usize>,
    pongs: usize,
}

fn client(number: usize) -> ClientId {
    ClientId::new(&format!("client-{number}"))
}

impl World {
    /// So many clients with open conversations.
    pub(crate) fn new(seed: u64, v5: bool, equal: bool, clients: usize) -> Self {
        let version = if v5 { Version::V5 } else { Version::V311 };
        let config = SidecarConfig { grace: Duration::from_hours(1), window: 4, ..SidecarConfig::default() };
        let mut rng = Rng::new(seed);
        let mut world = Self {
            sidecar: Sidecar::new(config, rng.split(1)),
            now: Now::default(),
            rng,
            version,
            dialled: VecDeque::new(),
            peers: BTreeMap::new(),
            down_until: Instant::ZERO,
            delivered: BTreeMap::new(),
            answers: BTreeMap::new(),
            asked: 0,
            published: 0,
            subscriptions: BTreeMap::new(),
            names: BTreeMap::new(),
            equal,
            held: BTreeSet::new(),
            foreign: 0,
            has_room_for_one: None,
            pongs: 0,
        };
        world.sidecar.handle_timeout(world.now);
        for number in 0..clients {
            let origin = Origin { address: String::new(), certificate: None };
            let attach = Attach { client: client(number), version, user: None, password: None, origin };
            world.input(Input::Attach(Box::new(attach)));
        }
        world
    }

    pub(crate) fn subscribe(&mut self, number: usize, filter: &str) {
        // The conversation has to be open, as it is in a shard.
        for _ in 0..20 {
            self.run(100);
            self.wait(10);
        }
        let filter = TopicFilter::new(filter).expect("it is well formed");
        let options = SubscriptionOptions { qos: QoS::ExactlyOnce, ..SubscriptionOptions::default() };
        self.subscriptions.insert(number, filter.clone());
        let requests = vec![Request { filter, options, id: 0, retained: false }];
        self.asked += 1;
        self.input(Input::Subscribe {
            client: client(number),
            token: 1_000_000 + number as u64,
            requests,
            is_brought: false,
        });
    }

    /// A publication, one of three payloads of its publisher where payloads are equal; returns its number.
    pub(crate) fn publish(&mut self, from: Option<usize>, qos: u8) -> u64 {
        self.published += 1;
        let number = self.published;
        let node = NodeId::new(1);
        let text = if self.equal { self.rng.next_u64() % 3 } else { number };
        let payload = Bytes::from(format!("{from:?} {text}"));
        let message = Arc::new(Message {
            id: MessageId { node, incarnation: Incarnation::new(1), shard: ShardId(0), seq: number },
            topic: TopicName::new("t/x").expect("it is well formed"),
            payload,
            qos: QoS::from_u8(qos).expect("it is well formed"),
            retain: false,
            properties: None,
            stamp: Stamp { millis: 0, counter: 0, node, shard: ShardId(0) },
            expires_at: None,
            publisher: from.map(client),
            read_at: ReadAt::default(),
        });
        let matching = self.subscriptions.iter().filter(|(_, filter)| filter.matches(&message.topic));
        let receivers = matching
            .map(|(number, _)| Receiver {
                client: client(*number),
                matches: 1,
                qos: QoS::ExactlyOnce,
                share: Share::Copy,
            })
            .collect();
        let token = (qos > 0).then_some(number);
        let via = from.map(client);
        self.input(Input::Publish(Publication { via, message, retain: false, is_restored: false, token, receivers }));
        number
    }

    fn input(&mut self, input: Input) {
        self.sidecar.handle(self.now, input);
        self.outputs();
    }

    fn outputs(&mut self) {
        self.carry_out();
        while self.sidecar.read_on(self.now) {
            self.carry_out();
        }
    }

    fn carry_out(&mut self) {
        while let Some(output) = self.sidecar.poll_output() {
            match output {
                Output::Dial { link, .. } => self.dialled.push_back(link),
                Output::Transmit(link) => {
                    let Some(outbox) = self.sidecar.outbox(link) else { continue };
                    let pieces = outbox.take();
                    if let Some(peer) = self.peers.get_mut(&link) {
                        peer.inbox.extend(pieces);
                    }
                    self.sidecar.handle(self.now, Input::Written { link, bytes: 0 });
                }
                Output::Close(link) => {
                    self.peers.remove(&link);
                    self.dialled.retain(|other| *other != link);
                }
                Output::Delivered { client, message } => {
                    let number = client.as_str().trim_start_matches("client-").parse().expect("it is well formed");
                    if message.qos > QoS::AtMostOnce {
                        self.delivered.entry(number).or_default().push(message.id.seq);
                    }
                }
                Output::Published { token, reason } => {
                    assert_eq!(reason, ReasonCode::Success);
                    *self.answers.entry(token).or_default() += 1;
                }
                Output::Answered { .. } => self.asked -= 1,
                Output::Foreign { publish, .. } => {
                    assert_eq!(
                        publish.qos,
                        QoS::AtMostOnce,
                        "a delivery of an acknowledged publication was not recognised"
                    );
                    self.foreign += 1;
                    if let Some(number) = self.has_room_for_one {
                        self.sidecar.handle(self.now, Input::Hold { client: client(number), held: true });
                    }
                }
                Output::Hold(link, true) => drop(self.held.insert(link)),
                Output::Hold(link, false) => drop(self.held.remove(&link)),
                Output::Lost(_) => panic!("nobody waits for an hour"),
                Output::Ponged(_) => self.pongs += 1,
                Output::Attached(..) | Output::Restore | Output::Event(_) | Output::Settled(_) => {}
            }
        }
        self.sidecar.validate();
    }

    /// Lets so many things happen, each at any connection.
    pub(crate) fn run(&mut self, count: usize) {
        for _ in 0..count {
            if !self.happen() {
                return;
            }
        }
    }

    fn happen(&mut self) -> bool {
        let busy: Vec<LinkId> = self
            .peers
            .iter()
            .filter(|(link, peer)| !peer.inbox.is_empty() || (!peer.out.is_empty() && !self.held.contains(link)))
            .map(|(link, _)| *link)
            .collect();
        let choices = busy.len() + usize::from(!self.dialled.is_empty());
        if choices == 0 {
            return false;
        }
        let at = usize::try_from(self.rng.next_u64() % choices as u64).expect("it is well formed");
        match busy.get(at) {
            None => self.connect(),
            Some(link) => self.move_on(*link),
        }
        true
    }

    fn connect(&mut self) {
        let Some(link) = self.dialled.pop_front() else { return };
        if self.now.instant < self.down_until {
            return self.input(Input::Closed { link, why: "refused".to_owned() });
        }
        let peer = Peer {
            decoder: Decoder::server(1 << 20),
            version: Version::V311,
            filters: BTreeSet::new(),
            half: BTreeMap::new(),
            last_id: 0,
            out: VecDeque::new(),
            inbox: VecDeque::new(),
        };
        self.peers.insert(link, peer);
        self.input(Input::Opened(link));
    }

    /// The broker reads a piece, or a piece of its reaches the sidecar.
    fn move_on(&mut self, link: LinkId) {
        let Some(peer) = self.peers.get_mut(&link) else { return };
        let is_quiet = peer.out.is_empty() || self.held.contains(&link);
        let reads = !peer.inbox.is_empty() && (is_quiet || self.rng.chance(1, 2));
        if !reads {
            if let Some(bytes) = peer.out.pop_front() {
                self.input(Input::Received { link, bytes });
            }
            return;
        }
        self.read_at_broker(link);
    }

    fn read_at_broker(&mut self, link: LinkId) {
        let Some(peer) = self.peers.get_mut(&link) else { return };
        if let Some(bytes) = peer.inbox.pop_front() {
            peer.decoder.feed(bytes);
        }
        loop {
            let Some(peer) = self.peers.get_mut(&link) else { return };
            match peer.decoder.next().expect("it is well formed") {
                Some(packet) => self.packet(link, packet),
                None => return,
            }
        }
    }

    fn answer(&mut self, link: LinkId, packet: &Packet) {
        let Some(peer) = self.peers.get_mut(&link) else { return };
        let mut out = BytesMut::new();
        encode(packet, peer.version, &mut out);
        peer.out.push_back(out.freeze());
    }

    fn packet(&mut self, link: LinkId, packet: Packet) {
        let ack = |id| Ack::new(id, ReasonCode::Success);
        match packet {
            Packet::Connect(connect) => {
                self.names.insert(link, connect.client_id.as_str().to_owned());
                let accepted = connect.version == Version::V311 || self.version == Version::V5;
                if let Some(peer) = self.peers.get_mut(&link) {
                    peer.version = connect.version;
                }
                let reason = if accepted { ReasonCode::Success } else { ReasonCode::UnsupportedProtocolVersion };
                let properties = ConnAckProperties::default();
                self.answer(link, &Packet::ConnAck(Box::new(ConnAck { session_present: false, reason, properties })));
            }
            Packet::Subscribe(subscribe) => {
                let reasons = vec![ReasonCode::GrantedQoS2; subscribe.requests.len()];
                if let Some(peer) = self.peers.get_mut(&link) {
                    peer.filters.extend(subscribe.requests.into_iter().map(|request| request.filter));
                }
                let (packet_id, reason_string, user) = (subscribe.packet_id, None, Vec::new());
                self.answer(link, &Packet::SubAck(SubAck { packet_id, reasons, reason_string, user }));
            }
            Packet::Publish(publish) => match (publish.qos, publish.packet_id) {
                (QoS::AtLeastOnce, Some(id)) => {
                    self.deliver(&publish);
                    self.answer(link, &Packet::PubAck(ack(id)));
                }
                (QoS::ExactlyOnce, Some(id)) => {
                    if let Some(peer) = self.peers.get_mut(&link) {
                        peer.half.insert(id, publish);
                    }
                    self.answer(link, &Packet::PubRec(ack(id)));
                }
                _ => self.deliver(&publish),
            },
            Packet::PubRel(rel) => {
                let publish = self.peers.get_mut(&link).and_then(|peer| peer.half.remove(&rel.packet_id));
                if let Some(publish) = publish {
                    self.deliver(&publish);
                }
                self.answer(link, &Packet::PubComp(ack(rel.packet_id)));
            }
            Packet::PubRec(rec) => self.answer(link, &Packet::PubRel(ack(rec.packet_id))),
            Packet::PingReq => self.answer(link, &Packet::PingResp),
            Packet::ConnAck(_)
            | Packet::PubAck(_)
            | Packet::PubComp(_)
            | Packet::SubAck(_)
            | Packet::Unsubscribe(_)
            | Packet::UnsubAck(_)
            | Packet::PingResp
            | Packet::Disconnect(_)
            | Packet::Auth(_) => {}
        }
    }

    fn deliver(&mut self, publish: &Publish) {
        let topic = publish.topic.clone().expect("it is well formed");
        let links: Vec<LinkId> = self
            .peers
            .iter()
            .filter(|(_, peer)| peer.filters.iter().any(|filter| filter.matches(&topic)))
            .map(|(link, _)| *link)
            .collect();
        for link in links {
            let Some(peer) = self.peers.get_mut(&link) else { continue };
            let mut copy = Publish { dup: false, packet_id: None, ..publish.clone() };
            if copy.qos > QoS::AtMostOnce {
                peer.last_id = peer.last_id.wrapping_add(1).max(1);
                copy.packet_id = PacketId::new(peer.last_id);
            }
            self.answer(link, &Packet::Publish(copy));
        }
    }

    /// The broker dies with all it knows, and is away for a moment.
    pub(crate) fn crash(&mut self) {
        self.down_until = self.now.instant + Duration::from_millis(self.rng.next_u64() % 500);
        for link in core::mem::take(&mut self.peers).into_keys() {
            self.input(Input::Closed { link, why: "crashed".to_owned() });
        }
    }

    /// One connection breaks; the broker goes on, and hears no more of it.
    pub(crate) fn break_link(&mut self, number: usize) {
        let name = format!("client-{number}");
        let link = self.peers.keys().copied().find(|link| self.names.get(link) == Some(&name));
        if let Some(link) = link {
            self.peers.remove(&link);
            self.input(Input::Closed { link, why: "broken".to_owned() });
        }
    }

    pub(crate) fn wait(&mut self, millis: u64) {
        self.now.instant = self.now.instant + Duration::from_millis(millis);
        self.sidecar.handle_timeout(self.now);
        self.outputs();
    }

    /// The broker does nothing for a while; what it has said arrives.
    pub(crate) fn hang(&mut self, millis: u64) {
        let links: Vec<LinkId> = self.peers.keys().filter(|link| !self.held.contains(link)).copied().collect();
        for link in links {
            while let Some(bytes) = self.peers.get_mut(&link).and_then(|peer| peer.out.pop_front()) {
                self.input(Input::Received { link, bytes });
            }
        }
        for _ in 0..millis / 50 {
            self.wait(50);
        }
    }

    /// A client has no room for more, or room again.
    pub(crate) fn hold(&mut self, number: usize, held: bool) {
        self.input(Input::Hold { client: client(number), held });
    }

    /// A client asks whether anybody is there; returns how many answers have come so far.
    pub(crate) fn ping(&mut self, number: usize) -> usize {
        self.input(Input::Ping { client: client(number), token: 1 });
        self.pongs
    }

    /// All packets that the broker has to send on a connection come in one piece.
    pub(crate) fn join_packets(&mut self) {
        for peer in self.peers.values_mut() {
            let joined: Vec<u8> = peer.out.drain(..).flatten().collect();
            peer.out.extend((!joined.is_empty()).then(|| Bytes::from(joined)));
        }
    }

    /// The broker hears everything, and nothing that it says arrives.
    pub(crate) fn hear(&mut self) {
        while let Some(link) = self.peers.iter().find(|(_, peer)| !peer.inbox.is_empty()).map(|(link, _)| *link) {
            self.read_at_broker(link);
        }
    }

    /// Whether nothing is open any more.
    pub(crate) fn is_at_rest(&self) -> bool {
        let quiet = self.peers.values().all(|peer| peer.inbox.is_empty() && peer.out.is_empty());
        quiet && self.dialled.is_empty() && self.asked == 0 && self.sidecar.settled() == self.sidecar.last()
    }

    /// Numbers of the publications with QoS 1 and 2 that have come to a client, in their order.
    pub(crate) fn delivered(&self, number: usize) -> Vec<u64> {
        self.delivered.get(&number).cloned().unwrap_or_default()
    }

    /// Whether every publication was answered, and none twice.
    pub(crate) fn answered_once(&self) -> bool {
        self.answers.values().all(|times| *times == 1)
    }
}
