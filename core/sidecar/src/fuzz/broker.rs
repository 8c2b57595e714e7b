//! A broker that answers, keeps silent, dies or says anything at all, and clients that come, ask and go.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use sedge_base::{ClientId, Duration, Incarnation, Instant, NodeId, Now, Rng, ShardId};
use sedge_mqtt::{
    Ack, ConnAck, ConnAckProperties, Decoder, Message, MessageId, Packet, PacketId, QoS, ReadAt, ReasonCode, Stamp,
    SubAck, SubscriptionOptions, TopicFilter, TopicName, UnsubAck, Version, encode,
};

use crate::{
    Answer, Attach, Input, LinkId, Origin, Output, Publication, Receiver, Request, Share, Sidecar, SidecarConfig,
};

/// Clients, each with at most one conversation.
const CLIENTS: usize = 4;
/// Outputs that one input may cause: each step handles few messages, so that more are a loop without an end.
const OUTPUTS_MAX: usize = 10_000;

/// A connection that the sidecar has asked for.
struct Link {
    id: LinkId,
    /// The broker has accepted it.
    is_open: bool,
    version: Version,
    decoder: Decoder,
}

/// A sidecar with its owner's side: what the owner has asked and was not answered.
struct World {
    sidecar: Sidecar,
    now: Now,
    links: Vec<Link>,
    last_link: u64,
    /// Whether each client waits for its conversation, and whether it has one.
    attaching: [bool; CLIENTS],
    attached: [bool; CLIENTS],
    last_token: u64,
    asked: Vec<u64>,
    published: Vec<u64>,
    pinged: Vec<u64>,
    last_publication: u64,
}

/// Feeds a sidecar. Each step takes a byte with its kind (lower four bits) and a client or connection (upper four), a byte with a length, and
/// that many bytes: a filter, a payload or what the broker says.
///
/// Holds: no panic; every call keeps the machine's invariants; each request is answered at most once, and nothing that was not asked; a
/// connection number comes once; a step has an end.
pub fn broker(data: &[u8]) {
    let grace = Duration::from_secs(2);
    let config = SidecarConfig {
        inlets: 1,
        window: 2,
        grace,
        max_packet_bytes: 4096,
        queue_messages: 4,
        expected_messages: 3,
        ..SidecarConfig::default()
    };
    let mut world = World {
        sidecar: Sidecar::new(config, Rng::new(1)),
        now: Now::default(),
        links: Vec::new(),
        last_link: 0,
        attaching: [false; CLIENTS],
        attached: [false; CLIENTS],
        last_token: 0,
        asked: Vec::new(),
        published: Vec::new(),
        pinged: Vec::new(),
        last_publication: 0,
    };
    world.passes(0);
    let mut rest = data;
    while let [kind, length, more @ ..] = rest {
        let (bytes, behind) = more.split_at(usize::from(*length).min(more.len()));
        rest = behind;
        world.step(kind & 15, usize::from(kind >> 4), bytes);
    }
    world.passes(60_000);
}

fn client(number: usize) -> ClientId {
    ClientId::new(["a", "b", "c", "d"].get(number).copied().unwrap_or("a"))
}

impl World {
    fn step(&mut self, kind: u8, which: usize, bytes: &[u8]) {
        let number = which % CLIENTS;
        let is_attached = self.attached.get(number).copied().unwrap_or_default();
        let name = client(number);
        match kind {
            0 => self.attach(number, which >> 2 & 1 > 0),
            1 if is_attached => {
                let token = self.token();
                self.asked.push(token);
                let (requests, is_brought) = (vec![request(bytes)], which >> 2 & 1 > 0);
                self.input(Input::Subscribe { client: name, token, requests, is_brought });
            }
            2 if is_attached => {
                let token = self.token();
                self.asked.push(token);
                self.input(Input::Unsubscribe { client: name, token, filters: vec![request(bytes).filter] });
            }
            3 => self.publish(is_attached.then_some(name), which, bytes),
            4 if is_attached => {
                let token = self.token();
                self.pinged.push(token);
                self.input(Input::Ping { client: name, token });
            }
            5 if is_attached => self.input(Input::Hold { client: name, held: which >> 2 & 1 > 0 }),
            6 if is_attached => self.input(Input::Flush(name)),
            7 if is_attached || self.attaching.get(number) == Some(&true) => self.detach(number),
            8 if is_attached => self.input(Input::Sync { client: name, requests: vec![request(bytes)] }),
            9 => self.passes(bytes.first().map_or(100, |tenths| u64::from(*tenths) * 100)),
            10 => self.open(which),
            11 => self.close(which),
            12 => self.hears(which, Bytes::copy_from_slice(bytes)),
            _ => self.answers(which),
        }
    }

    const fn token(&mut self) -> u64 {
        self.last_token += 1;
        self.last_token
    }

    fn attach(&mut self, number: usize, is_v5: bool) {
        let (Some(attaching), Some(attached)) = (self.attaching.get_mut(number), self.attached.get(number)) else {
            return;
        };
        if *attaching || *attached {
            return;
        }
        *attaching = true;
        let version = if is_v5 { Version::V5 } else { Version::V311 };
        let origin = Origin { address: String::new(), certificate: None };
        let attach = Attach { client: client(number), version, user: None, password: None, origin };
        self.input(Input::Attach(Box::new(attach)));
    }

    fn detach(&mut self, number: usize) {
        self.forget(&client(number));
        self.input(Input::Detach(client(number)));
    }

    fn forget(&mut self, name: &ClientId) {
        for number in (0..CLIENTS).filter(|number| client(*number) == *name) {
            for known in [&mut self.attaching, &mut self.attached] {
                known.get_mut(number).map(core::mem::take);
            }
        }
    }

    fn publish(&mut self, via: Option<ClientId>, which: usize, payload: &[u8]) {
        let Ok(topic) = TopicName::new("t/x") else { return };
        let (node, shard) = (NodeId::new(1), ShardId(0));
        self.last_publication += 1;
        let qos = QoS::from_u8(u8::try_from(which % 3).unwrap_or(0)).unwrap_or_default();
        let message = Arc::new(Message {
            id: MessageId { node, incarnation: Incarnation::new(1), shard, seq: self.last_publication },
            topic,
            payload: Bytes::copy_from_slice(payload),
            qos,
            retain: false,
            properties: None,
            stamp: Stamp { millis: 0, counter: 0, node, shard },
            expires_at: None,
            publisher: via.clone(),
            read_at: ReadAt::default(),
        });
        let to = (0..CLIENTS).filter(|number| self.attached.get(*number) == Some(&true)).map(client);
        let receivers = to.map(|client| Receiver { client, matches: 1, qos, share: Share::Copy }).collect();
        let token = (qos > QoS::AtMostOnce).then(|| self.token());
        self.published.extend(token);
        self.input(Input::Publish(Publication { via, message, retain: false, is_restored: false, token, receivers }));
    }

    /// Time passes up to each timeout, and at most so long.
    fn passes(&mut self, millis: u64) {
        let end = self.now.instant + Duration::from_millis(millis);
        for _ in 0..1_000 {
            let next = self.sidecar.poll_timeout().unwrap_or(Instant::ZERO).max(self.now.instant);
            if next > end {
                break;
            }
            self.now.instant = next;
            self.sidecar.handle_timeout(self.now);
            self.outputs();
        }
        self.now.instant = end;
    }

    fn open(&mut self, which: usize) {
        let waiting = self.links.iter_mut().filter(|link| !link.is_open);
        let Some(link) = waiting.into_iter().nth(which % 4) else { return };
        link.is_open = true;
        let id = link.id;
        self.input(Input::Opened(id));
    }

    fn close(&mut self, which: usize) {
        if which < self.links.len() {
            let link = self.links.remove(which).id;
            self.input(Input::Closed { link, why: "it ends".to_owned() });
        }
    }

    fn hears(&mut self, which: usize, bytes: Bytes) {
        if let Some(link) = self.links.get(which).filter(|link| link.is_open).map(|link| link.id) {
            self.input(Input::Received { link, bytes });
        }
    }

    /// The broker reads what a connection has to write, and answers it in one piece as MQTT has it; publications come back.
    fn answers(&mut self, which: usize) {
        let Some(link) = self.links.get_mut(which).filter(|link| link.is_open) else { return };
        let id = link.id;
        let Some(pieces) = self.sidecar.outbox(id).map(sedge_base::Outbox::take) else { return };
        let mut out = BytesMut::new();
        for piece in pieces {
            link.decoder.feed(piece);
        }
        loop {
            match link.decoder.next() {
                Ok(Some(packet)) => link.version = answer(&packet, link.version, &mut out),
                Ok(None) => break,
                Err(error) => unreachable!("the sidecar has written no MQTT: {error:?}"),
            }
        }
        self.input(Input::Written { link: id, bytes: 0 });
        self.hears(which, out.freeze());
    }

    fn input(&mut self, input: Input) {
        self.sidecar.handle(self.now, input);
        self.outputs();
    }

    fn outputs(&mut self) {
        for count in 0.. {
            assert!(count < OUTPUTS_MAX, "one step has no end");
            let Some(output) = self.sidecar.poll_output() else { break };
            self.output(output);
        }
        self.sidecar.validate();
    }

    fn output(&mut self, output: Output) {
        match output {
            Output::Dial { link, .. } => {
                assert!(link.0 > self.last_link, "{link:?} again");
                self.last_link = link.0;
                let decoder = Decoder::server(1 << 20);
                self.links.push(Link { id: link, is_open: false, version: Version::V311, decoder });
            }
            Output::Close(link) => self.links.retain(|known| known.id != link),
            Output::Transmit(link) | Output::Hold(link, _) => {
                assert!(self.links.iter().any(|known| known.id == link), "{link:?} is none");
            }
            Output::Attached(name, answer) => {
                let number = (0..CLIENTS).find(|number| client(*number) == name).unwrap_or_default();
                let waited = self.attaching.get_mut(number).map(core::mem::take);
                assert_eq!(waited, Some(true), "{name:?} has not asked: {answer:?}");
                if let (Answer::Open, Some(attached)) = (answer, self.attached.get_mut(number)) {
                    *attached = true;
                }
            }
            Output::Answered { token, reasons } => {
                assert_eq!(reasons.len(), 1);
                done(&mut self.asked, token);
            }
            Output::Published { token, .. } => done(&mut self.published, token),
            Output::Ponged(token) => done(&mut self.pinged, token),
            // Its session stays, and the owner attaches it again when it comes back.
            Output::Lost(name) => {
                assert!((0..CLIENTS).any(|number| client(number) == name));
                self.forget(&name);
                self.sidecar.handle(self.now, Input::Detach(name));
            }
            Output::Delivered { .. }
            | Output::Foreign { .. }
            | Output::Settled(_)
            | Output::Restore
            | Output::Event(_) => {}
        }
    }
}

/// A request is answered that was asked and not answered before.
fn done(open: &mut Vec<u64>, token: u64) {
    let at = open.iter().position(|asked| *asked == token);
    assert!(at.is_some(), "an answer to nothing: {token}");
    open.retain(|asked| *asked != token);
}

fn request(bytes: &[u8]) -> Request {
    let filter = core::str::from_utf8(bytes).ok().and_then(|text| TopicFilter::new(text).ok());
    let plain = filter.filter(|filter| filter.share_group().is_none());
    let Some(filter) = plain.or_else(|| TopicFilter::new("t/#").ok()) else { unreachable!("t/# is a filter") };
    let options = SubscriptionOptions { qos: QoS::ExactlyOnce, ..SubscriptionOptions::default() };
    Request { filter, options, id: 0, retained: false }
}

/// Writes what a broker answers; returns the version that the connection has from here on.
fn answer(packet: &Packet, version: Version, out: &mut BytesMut) -> Version {
    let ack = |id: PacketId| Ack::new(id, ReasonCode::Success);
    let reply = match packet {
        Packet::Connect(connect) => {
            let properties = ConnAckProperties::default();
            let reply = ConnAck { session_present: false, reason: ReasonCode::Success, properties };
            encode(&Packet::ConnAck(Box::new(reply)), connect.version, out);
            return connect.version;
        }
        Packet::Subscribe(subscribe) => Packet::SubAck(SubAck {
            packet_id: subscribe.packet_id,
            reasons: vec![ReasonCode::GrantedQoS2; subscribe.requests.len()],
            reason_string: None,
            user: Vec::new(),
        }),
        Packet::Unsubscribe(unsubscribe) => Packet::UnsubAck(UnsubAck {
            packet_id: unsubscribe.packet_id,
            reasons: vec![ReasonCode::Success; unsubscribe.filters.len()],
            reason_string: None,
            user: Vec::new(),
        }),
        Packet::Publish(publish) => {
            encode(packet, version, out);
            match (publish.qos, publish.packet_id) {
                (QoS::AtLeastOnce, Some(id)) => Packet::PubAck(ack(id)),
                (QoS::ExactlyOnce, Some(id)) => Packet::PubRec(ack(id)),
                _ => return version,
            }
        }
        Packet::PubRel(release) => Packet::PubComp(ack(release.packet_id)),
        Packet::PubRec(received) => Packet::PubRel(ack(received.packet_id)),
        Packet::PingReq => Packet::PingResp,
        Packet::ConnAck(_)
        | Packet::PubAck(_)
        | Packet::PubComp(_)
        | Packet::SubAck(_)
        | Packet::UnsubAck(_)
        | Packet::PingResp
        | Packet::Disconnect(_)
        | Packet::Auth(_) => return version,
    };
    encode(&reply, version, out);
    version
}
