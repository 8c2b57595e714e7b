//! An MQTT client that answers what has to be answered and remembers what came.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{Bytes, BytesMut};
use sedge_base::{ConnId, ShardId};
use sedge_cluster::{Reception, ReceptionResult};
use sedge_mqtt::packet::{
    Ack, ConnAck, Connect, ConnectProperties, Packet, PacketId, Publish, QoS, SubAck, Subscribe, SubscriptionOptions,
    SubscriptionRequest, Unsubscribe, Version, Will, WillProperties,
};
use sedge_mqtt::{Decoder, PublishProperties, ReasonCode, TopicFilter, TopicName, Utf8, encode};

/// A message that came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Got {
    pub(crate) topic: String,
    pub(crate) payload: String,
    pub(crate) qos: QoS,
    pub(crate) retain: bool,
    pub(crate) dup: bool,
    /// Seconds that the message still lives.
    pub(crate) expiry: Option<u32>,
}

/// How a client connects.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    pub(crate) clean: bool,
    pub(crate) expiry: u32,
    pub(crate) will: Option<(String, String)>,
    /// Seconds.
    pub(crate) will_delay: u32,
    /// Whether it leaves QoS 1 and 2 messages unanswered.
    pub(crate) silent: bool,
}

/// One connection of a client.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) id: String,
    pub(crate) node: u64,
    pub(crate) conn: ConnId,
    pub(crate) shard: Option<ShardId>,
    pub(crate) open: bool,
    pub(crate) silent: bool,
    pub(crate) connack: Option<ConnAck>,
    pub(crate) got: Vec<Got>,
    pub(crate) subacks: Vec<SubAck>,
    pub(crate) unsubacks: usize,
    /// Reasons of PUBACK and PUBCOMP, in order.
    pub(crate) acked: Vec<ReasonCode>,
    pub(crate) disconnect: Option<ReasonCode>,
    reception: Reception,
    pub(crate) held: Vec<Bytes>,
    decoder: Decoder,
    next_packet: u16,
    exact: BTreeSet<PacketId>,
    /// Publications without PUBACK or PUBCOMP, and whether they have their PUBREC.
    unanswered: BTreeMap<PacketId, (Publish, bool)>,
}

/// The part of its session that a client keeps from one connection to the next.
#[derive(Debug)]
pub(crate) struct Carried {
    next_packet: u16,
    exact: BTreeSet<PacketId>,
    unanswered: BTreeMap<PacketId, (Publish, bool)>,
}

impl Client {
    pub(crate) fn new(id: &str, node: u64, conn: ConnId, shards: u16) -> Self {
        Self {
            id: id.to_owned(),
            node,
            conn,
            shard: None,
            open: true,
            silent: false,
            connack: None,
            got: Vec::new(),
            subacks: Vec::new(),
            unsubacks: 0,
            acked: Vec::new(),
            disconnect: None,
            reception: Reception::new(shards, ShardId(0), 1024 * 1024),
            held: Vec::new(),
            decoder: Decoder::client(u32::MAX),
            next_packet: 0,
            exact: BTreeSet::new(),
            unanswered: BTreeMap::new(),
        }
    }

    /// Feeds the first bytes of a connection, as a driver does: returns the shard once it is known.
    pub(crate) fn receive_at_node(&mut self, bytes: Bytes) -> Option<ShardId> {
        self.held.push(bytes.clone());
        match self.reception.feed(bytes) {
            ReceptionResult::NeedMore => None,
            ReceptionResult::Belongs(shard) => {
                self.shard = Some(shard);
                self.shard
            }
        }
    }

    pub(crate) fn connect(&mut self, options: Options) -> Bytes {
        self.silent = options.silent;
        let will = options.will.map(|(topic, payload)| {
            Box::new(Will {
                topic: TopicName::new(&topic).unwrap(),
                payload: Bytes::from(payload),
                qos: QoS::AtLeastOnce,
                retain: false,
                properties: WillProperties { delay: Some(options.will_delay), ..WillProperties::default() },
            })
        });
        let properties = ConnectProperties { session_expiry: Some(options.expiry), ..ConnectProperties::default() };
        encoded(&Packet::Connect(Box::new(Connect {
            version: Version::V5,
            bridge: false,
            clean_start: options.clean,
            keep_alive: 0,
            client_id: Utf8::new(&self.id).unwrap(),
            will,
            username: None,
            password: None,
            properties,
        })))
    }

    fn packet_id(&mut self) -> PacketId {
        self.next_packet = self.next_packet % u16::MAX + 1;
        PacketId::new(self.next_packet).unwrap()
    }

    pub(crate) fn subscribe(&mut self, filter: &str, qos: QoS) -> Bytes {
        let options = SubscriptionOptions { qos, ..SubscriptionOptions::default() };
        let requests = vec![SubscriptionRequest { filter: TopicFilter::new(filter).unwrap(), options }];
        let packet_id = self.packet_id();
        encoded(&Packet::Subscribe(Subscribe { packet_id, requests, subscription_id: None, user: Vec::new() }))
    }

    pub(crate) fn unsubscribe(&mut self, filter: &str) -> Bytes {
        let filters = vec![TopicFilter::new(filter).unwrap()];
        let packet_id = self.packet_id();
        encoded(&Packet::Unsubscribe(Unsubscribe { packet_id, filters, user: Vec::new() }))
    }

    pub(crate) fn publish(&mut self, topic: &str, payload: &str, qos: QoS, retain: bool) -> Bytes {
        let packet_id = (qos > QoS::AtMostOnce).then(|| self.packet_id());
        let publish = Publish {
            dup: false,
            qos,
            retain,
            topic: Some(TopicName::new(topic).unwrap()),
            packet_id,
            payload: Bytes::copy_from_slice(payload.as_bytes()),
            properties: None,
        };
        self.unanswered.extend(packet_id.map(|id| (id, (publish.clone(), false))));
        encoded(&Packet::Publish(publish))
    }

    /// Takes on the state of the client's connection before this one; returns what the client sends again (MQTT 5.0 section 4.4).
    pub(crate) fn carry_on(&mut self, before: Carried) -> Vec<Bytes> {
        (self.next_packet, self.unanswered, self.exact) = (before.next_packet, before.unanswered, before.exact);
        let again = |(id, (publish, is_taken)): (&PacketId, &(Publish, bool))| {
            let release = Packet::PubRel(Ack::new(*id, ReasonCode::Success));
            let again = Packet::Publish(Publish { dup: true, ..publish.clone() });
            encoded(if *is_taken { &release } else { &again })
        };
        self.unanswered.iter().map(again).collect()
    }

    /// The state of this connection that [`Client::carry_on`] needs.
    pub(crate) fn carried(&self) -> Carried {
        Carried { next_packet: self.next_packet, exact: self.exact.clone(), unanswered: self.unanswered.clone() }
    }

    /// How many publications have no PUBACK or PUBCOMP yet.
    pub(crate) fn unanswered(&self) -> usize {
        self.unanswered.len()
    }

    /// A message with QoS 1 that lives for so many seconds.
    pub(crate) fn publish_for(&mut self, seconds: u32, topic: &str, payload: &str, retain: bool) -> Bytes {
        let properties = PublishProperties { message_expiry: Some(seconds), ..PublishProperties::default() };
        encoded(&Packet::Publish(Publish {
            dup: false,
            qos: QoS::AtLeastOnce,
            retain,
            topic: Some(TopicName::new(topic).unwrap()),
            packet_id: Some(self.packet_id()),
            payload: Bytes::copy_from_slice(payload.as_bytes()),
            properties: Some(Box::new(properties)),
        }))
    }

    /// Takes bytes from the broker in; returns the answers.
    pub(crate) fn receive(&mut self, bytes: Bytes) -> Vec<Bytes> {
        let mut answers = Vec::new();
        self.decoder.feed(bytes);
        while let Some(packet) = self.decoder.next().expect("a broker speaks MQTT") {
            answers.extend(self.packet(packet).as_ref().map(encoded));
        }
        answers
    }

    fn packet(&mut self, packet: Packet) -> Option<Packet> {
        match packet {
            Packet::ConnAck(connack) => self.connack = Some(*connack),
            Packet::Publish(publish) => return self.publication(publish),
            Packet::PubAck(ack) | Packet::PubComp(ack) => {
                self.unanswered.remove(&ack.packet_id);
                self.acked.push(ack.reason);
            }
            Packet::PubRec(ack) if ack.reason.is_error() => {
                self.unanswered.remove(&ack.packet_id);
                self.acked.push(ack.reason);
            }
            Packet::PubRec(ack) => {
                if let Some((_, is_taken)) = self.unanswered.get_mut(&ack.packet_id) {
                    *is_taken = true;
                }
                return Some(Packet::PubRel(Ack::new(ack.packet_id, ReasonCode::Success)));
            }
            Packet::PubRel(ack) => {
                self.exact.remove(&ack.packet_id);
                return Some(Packet::PubComp(Ack::new(ack.packet_id, ReasonCode::Success)));
            }
            Packet::SubAck(suback) => self.subacks.push(suback),
            Packet::UnsubAck(_) => self.unsubacks += 1,
            Packet::Disconnect(disconnect) => self.disconnect = Some(disconnect.reason),
            Packet::Connect(_)
            | Packet::Subscribe(_)
            | Packet::Unsubscribe(_)
            | Packet::PingReq
            | Packet::PingResp
            | Packet::Auth(_) => panic!("nobody asked for {packet:?}"),
        }
        None
    }

    fn publication(&mut self, publish: Publish) -> Option<Packet> {
        let known = publish.qos == QoS::ExactlyOnce && !self.exact.insert(publish.packet_id?);
        if !known {
            self.got.push(Got {
                topic: publish.topic.expect("no aliases were allowed").as_str().to_owned(),
                payload: String::from_utf8(publish.payload.to_vec()).unwrap(),
                qos: publish.qos,
                retain: publish.retain,
                dup: publish.dup,
                expiry: publish.properties.as_ref().and_then(|properties| properties.message_expiry),
            });
        }
        let packet_id = publish.packet_id.filter(|_| !self.silent)?;
        let ack = Ack::new(packet_id, ReasonCode::Success);
        Some(if publish.qos == QoS::ExactlyOnce { Packet::PubRec(ack) } else { Packet::PubAck(ack) })
    }

    /// Whether no QoS 2 message is in the middle of its handshake.
    pub(crate) fn is_idle(&self) -> bool {
        self.exact.is_empty()
    }

    pub(crate) fn payloads(&self) -> Vec<&str> {
        self.got.iter().map(|got| got.payload.as_str()).collect()
    }
}

fn encoded(packet: &Packet) -> Bytes {
    let mut bytes = BytesMut::new();
    encode(packet, Version::V5, &mut bytes);
    bytes.freeze()
}
