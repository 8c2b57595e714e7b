//! The packets of one client and the broker's answers.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use sedge_base::Instant;
use sedge_mqtt::{
    Decoder, Packet, PacketId, Publish, PublishProperties, ReasonCode, TopicFilter, TopicName, Version, Will,
};

use super::stream::Stream;

/// Largest packet of a client that is read.
const PACKET_BYTES: u32 = 16 * 1024 * 1024;
/// Packets that a client may send before the broker has taken it, requests that the broker has not answered, and topic aliases.
const WAITING: usize = 1_000;

/// The consequence of a packet.
#[derive(Debug)]
pub(super) enum Act {
    /// The broker has taken the client. Whether its session begins anew, and whether it outlives the connection.
    Began { id: String, clean: bool, keeps: bool },
    /// The client has published.
    Publish(Box<Publish>),
    /// The broker has granted these.
    Subscribed(Vec<TopicFilter>),
    /// The broker has taken these away.
    Unsubscribed(Vec<TopicFilter>),
}

/// Reason why a connection is not followed any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lost {
    /// A part of the connection was not captured.
    Hole,
    /// The connection is TLS.
    Encrypted,
    /// The connection is no MQTT, or more packets wait than may.
    Malformed,
    /// The connection is one of a node of the cluster.
    Own,
}

#[derive(Debug)]
enum Request {
    Subscribe(Vec<TopicFilter>),
    Unsubscribe(Vec<TopicFilter>),
}

/// One direction.
#[derive(Debug)]
struct Half {
    stream: Stream,
    decoder: Decoder,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Client {
    /// Number of the first byte, by which a repeated beginning is known.
    pub(super) first: u32,
    up: Half,
    down: Option<Half>,
    /// The client's identifier, once it has sent CONNECT.
    pub(super) id: Option<String>,
    begins: (bool, bool),
    is_taken: bool,
    has_spoken: bool,
    held: Vec<Packet>,
    will: Option<Box<Will>>,
    aliases: BTreeMap<u16, TopicName>,
    /// QoS 2 publications that the client has not released: a repeated one is no news.
    unreleased: BTreeSet<PacketId>,
    requests: BTreeMap<PacketId, Request>,
}

impl Client {
    /// A client whose connection begins with this number.
    pub(super) fn new(first: u32) -> Self {
        let up = Half { stream: Stream::new(first.wrapping_add(1)), decoder: Decoder::server(PACKET_BYTES) };
        Self {
            first,
            up,
            down: None,
            id: None,
            begins: (true, false),
            is_taken: false,
            has_spoken: false,
            held: Vec::new(),
            will: None,
            aliases: BTreeMap::new(),
            unreleased: BTreeSet::new(),
            requests: BTreeMap::new(),
        }
    }

    /// The broker's direction begins.
    pub(super) fn answered(&mut self, first: u32) {
        self.down.get_or_insert_with(|| Half {
            stream: Stream::new(first.wrapping_add(1)),
            decoder: Decoder::client(PACKET_BYTES).lenient(),
        });
    }

    /// Takes a piece of the client's bytes.
    pub(super) fn said(
        &mut self,
        now: Instant,
        (seq, bytes, fin): (u32, Bytes, bool),
        own: &str,
        acts: &mut Vec<Act>,
    ) -> Result<(), Lost> {
        self.up.stream.take(now, seq, &bytes, fin).map_err(|_hole| Lost::Hole)?;
        while let Some(bytes) = self.up.stream.next() {
            if !core::mem::replace(&mut self.has_spoken, true) && bytes.first() == Some(&22) {
                return Err(Lost::Encrypted);
            }
            self.up.decoder.feed(bytes);
            while let Some(packet) = self.up.decoder.next().map_err(|_error| Lost::Malformed)? {
                if self.id.is_none() {
                    self.connects(packet, own)?;
                } else if self.is_taken {
                    self.act(packet, acts)?;
                } else if self.held.len() < WAITING {
                    self.held.push(packet);
                } else {
                    return Err(Lost::Malformed);
                }
            }
        }
        Ok(())
    }

    /// Takes a piece of the broker's bytes.
    pub(super) fn heard(
        &mut self,
        now: Instant,
        (seq, bytes, fin): (u32, Bytes, bool),
        acts: &mut Vec<Act>,
    ) -> Result<(), Lost> {
        let Some(down) = &mut self.down else { return Err(Lost::Hole) };
        down.stream.take(now, seq, &bytes, fin).map_err(|_hole| Lost::Hole)?;
        let mut packets = Vec::new();
        while let Some(bytes) = down.stream.next() {
            down.decoder.feed(bytes);
            while let Some(packet) = down.decoder.next().map_err(|_error| Lost::Malformed)? {
                packets.push(packet);
            }
        }
        packets.into_iter().try_for_each(|packet| self.answer(packet, acts))
    }

    /// Whether one of both directions has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.up.stream.has_ended() || self.down.as_ref().is_some_and(|down| down.stream.has_ended())
    }

    /// The will that the broker publishes when the connection ends.
    pub(super) fn will(&mut self) -> Option<Publish> {
        let will = self.will.take().filter(|_| self.is_taken)?;
        let properties = will.properties;
        let properties = PublishProperties {
            message_expiry: properties.message_expiry,
            content_type: properties.content_type,
            response_topic: properties.response_topic,
            correlation_data: properties.correlation_data,
            user: properties.user,
            ..PublishProperties::default()
        };
        Some(Publish {
            dup: false,
            qos: will.qos,
            retain: will.retain,
            topic: Some(will.topic),
            packet_id: None,
            payload: will.payload,
            properties: Some(Box::new(properties)),
        })
    }

    fn connects(&mut self, packet: Packet, own: &str) -> Result<(), Lost> {
        let Packet::Connect(connect) = packet else { return Err(Lost::Malformed) };
        if connect.client_id.starts_with(own) {
            return Err(Lost::Own);
        }
        let keeps = match connect.version {
            Version::V5 => connect.properties.session_expiry.unwrap_or(0) > 0,
            Version::V311 => !connect.clean_start,
        };
        self.begins = (connect.clean_start, keeps);
        self.id = Some(connect.client_id.as_str().to_owned());
        self.will = connect.will;
        if let Some(down) = &mut self.down {
            down.decoder.set_version(connect.version);
        }
        Ok(())
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "nothing else is of interest")]
    fn answer(&mut self, packet: Packet, acts: &mut Vec<Act>) -> Result<(), Lost> {
        match packet {
            Packet::ConnAck(ack) if !ack.reason.is_error() && self.id.is_some() && !self.is_taken => {
                self.is_taken = true;
                let given = ack.properties.assigned_client_id.as_ref().map(|id| id.as_str().to_owned());
                self.id = given.or_else(|| self.id.take());
                let (clean, keeps) = self.begins;
                acts.push(Act::Began { id: self.id.clone().unwrap_or_default(), clean, keeps });
                core::mem::take(&mut self.held).into_iter().try_for_each(|packet| self.act(packet, acts))
            }
            Packet::SubAck(ack) => {
                if let Some(Request::Subscribe(filters)) = self.requests.remove(&ack.packet_id) {
                    let granted = filters.into_iter().zip(ack.reasons).filter(|(_, reason)| !reason.is_error());
                    acts.push(Act::Subscribed(granted.map(|(filter, _)| filter).collect()));
                }
                Ok(())
            }
            Packet::UnsubAck(ack) => {
                if let Some(Request::Unsubscribe(filters)) = self.requests.remove(&ack.packet_id) {
                    acts.push(Act::Unsubscribed(filters));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "nothing else is of interest")]
    fn act(&mut self, packet: Packet, acts: &mut Vec<Act>) -> Result<(), Lost> {
        match packet {
            Packet::Publish(publish) => self.publishes(publish, acts)?,
            Packet::PubRel(ack) => _ = self.unreleased.remove(&ack.packet_id),
            Packet::Subscribe(subscribe) => {
                let filters = subscribe.requests.into_iter().map(|request| request.filter).collect();
                self.asks(subscribe.packet_id, Request::Subscribe(filters))?;
            }
            Packet::Unsubscribe(unsubscribe) => {
                self.asks(unsubscribe.packet_id, Request::Unsubscribe(unsubscribe.filters))?;
            }
            Packet::Disconnect(disconnect) if disconnect.reason != ReasonCode::DisconnectWithWill => {
                self.will = None;
            }
            _ => {}
        }
        Ok(())
    }

    fn asks(&mut self, id: PacketId, request: Request) -> Result<(), Lost> {
        if self.requests.len() >= WAITING {
            return Err(Lost::Malformed);
        }
        self.requests.insert(id, request);
        Ok(())
    }

    fn publishes(&mut self, mut publish: Publish, acts: &mut Vec<Act>) -> Result<(), Lost> {
        let alias = publish.properties.as_mut().and_then(|properties| properties.topic_alias.take());
        match (&publish.topic, alias) {
            (Some(topic), Some(alias)) => {
                if self.aliases.len() >= WAITING && !self.aliases.contains_key(&alias) {
                    return Err(Lost::Malformed);
                }
                self.aliases.insert(alias, topic.detached());
            }
            (None, Some(alias)) => publish.topic = self.aliases.get(&alias).cloned(),
            (_, None) => {}
        }
        if publish.topic.is_none() {
            return Err(Lost::Malformed);
        }
        if publish.qos == sedge_mqtt::QoS::ExactlyOnce
            && let Some(id) = publish.packet_id
            && !self.unreleased.insert(id)
        {
            return Ok(());
        }
        acts.push(Act::Publish(Box::new(publish)));
        Ok(())
    }
}
