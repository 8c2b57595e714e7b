//! Connections of a node that stands beside a broker: to this node and to the broker.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use mio::{Poll, Token};
use sedge_mqtt::{
    Ack, ConnAck, Connect, ConnectProperties, Packet, PacketId, Publish, PublishProperties, QoS, ReasonCode, Utf8,
    Version,
};
use sedge_sidecar::EXACT_311;

use crate::error::BridgeError;
use crate::host::Host;
use crate::wire::{Stream, Wire, greet};

/// How errors call this node.
pub(crate) const HERE: &str = "this node";
/// Most publications on their way to the other side; above that number, their source is not read.
const WINDOW: usize = 1_000;
/// Silence after which the broker is asked whether it is there.
const PING: Duration = Duration::from_secs(20);

/// How many publications with QoS 1 and 2 a broker takes at once that has answered this (Receive Maximum, MQTT 5.0 3.2.2.3.3).
pub(crate) fn window(version: Version, answer: &ConnAck) -> u16 {
    let granted =
        if version == Version::V5 { answer.properties.receive_maximum.unwrap_or(u16::MAX) } else { EXACT_311 };
    granted.max(1)
}

/// Publishes on one connection the messages that came over another, no more at once than the other side takes
/// (Receive Maximum, MQTT 5.0 3.3.4).
pub(crate) struct Writer {
    pub(crate) wire: Wire,
    last: u16,
    window: usize,
    pub(crate) open: BTreeSet<PacketId>,
    /// Publications that wait until the other side acknowledges earlier ones. The owner of the writer reads on when none waits; only a mirror
    /// hands all retained messages over at once.
    waiting: VecDeque<Publish>,
    /// Publications that the other side did not take, and why the last of them.
    refused: (u64, Option<ReasonCode>),
}

impl Writer {
    /// A connection whose other side has answered this.
    pub(crate) fn new(wire: Wire, version: Version, answer: &ConnAck) -> Self {
        let window = usize::from(window(version, answer)).min(WINDOW);
        Self { wire, last: 0, window, open: BTreeSet::new(), waiting: VecDeque::new(), refused: (0, None) }
    }

    /// Publishes under an identifier of its own, in the order of the calls.
    pub(crate) fn publish(&mut self, publish: Publish) {
        self.waiting.push_back(publish);
        self.go_on();
    }

    /// Sends the publications that wait, as far as the other side takes them.
    fn go_on(&mut self) {
        while let Some(publish) =
            self.waiting.pop_front_if(|publish| publish.qos == QoS::AtMostOnce || self.open.len() < self.window)
        {
            self.send(publish);
        }
    }

    fn send(&mut self, mut publish: Publish) {
        let mut properties = publish.properties.take().unwrap_or_default();
        properties.topic_alias = None;
        properties.subscription_ids.clear();
        publish.properties = (*properties != PublishProperties::default()).then_some(properties);
        publish.dup = false;
        publish.packet_id = if publish.qos == QoS::AtMostOnce { None } else { Some(self.free_id()) };
        self.wire.send(&Packet::Publish(publish));
    }

    /// An identifier that is in use from here on.
    pub(crate) fn free_id(&mut self) -> PacketId {
        loop {
            self.last = self.last.checked_add(1).unwrap_or(1);
            if let Some(id) = PacketId::new(self.last)
                && self.open.insert(id)
            {
                return id;
            }
        }
    }

    /// Something that the other side answers.
    #[expect(clippy::wildcard_enum_match_arm, reason = "nothing else is of interest")]
    pub(crate) fn packet(&mut self, packet: Packet) {
        match packet {
            Packet::PubAck(ack) | Packet::PubComp(ack) => self.over(ack.packet_id, ack.reason),
            Packet::PubRec(ack) if ack.reason.is_error() => self.over(ack.packet_id, ack.reason),
            Packet::PubRec(ack) => self.wire.send(&Packet::PubRel(Ack::new(ack.packet_id, ReasonCode::Success))),
            Packet::SubAck(ack) => _ = self.open.remove(&ack.packet_id),
            Packet::UnsubAck(ack) => _ = self.open.remove(&ack.packet_id),
            _ => {}
        }
        self.go_on();
    }

    fn over(&mut self, id: PacketId, reason: ReasonCode) {
        if self.open.remove(&id) && reason.is_error() {
            self.refused = (self.refused.0 + 1, Some(reason));
        }
    }

    /// How many publications the other side did not take since the last call, and why the last of them.
    pub(crate) fn take_refused(&mut self) -> (u64, Option<ReasonCode>) {
        core::mem::take(&mut self.refused)
    }

    /// Whether little enough is on its way.
    pub(crate) fn has_room(&self) -> bool {
        self.waiting.is_empty() && self.open.len() < self.window && self.wire.has_room()
    }
}

fn acknowledge(wire: &mut Wire, publish: &Publish) {
    if let Some(id) = publish.packet_id {
        let ack = Ack::new(id, ReasonCode::Success);
        wire.send(&if publish.qos == QoS::ExactlyOnce { Packet::PubRec(ack) } else { Packet::PubAck(ack) });
    }
}

/// Answers the packets that a subscriber has to answer; returns a publication.
#[expect(clippy::wildcard_enum_match_arm, reason = "nothing else is of interest")]
pub(crate) fn take(wire: &mut Wire, packet: Packet) -> Option<Publish> {
    match packet {
        Packet::Publish(publish) => {
            acknowledge(wire, &publish);
            Some(publish)
        }
        Packet::PubRel(ack) => {
            wire.send(&Packet::PubComp(Ack::new(ack.packet_id, ReasonCode::Success)));
            None
        }
        _ => None,
    }
}

/// The next packet, if one is there.
pub(crate) fn next(wire: &mut Wire) -> Result<Option<Packet>, BridgeError> {
    loop {
        if let Some(packet) = wire.next()? {
            return Ok(Some(packet));
        }
        if !wire.is_readable() {
            return Ok(None);
        }
        wire.receive()?;
    }
}

/// Asks a broker now and then whether it is there.
pub(crate) fn keep_alive(wire: &mut Wire) -> Result<(), BridgeError> {
    if wire.last_received.elapsed() >= PING * 2 && wire.last_sent.elapsed() >= PING / 2 {
        return Err(BridgeError::NoAnswer { end: wire.end, what: "PINGREQ", seconds: PING.as_secs() });
    }
    let is_silent = wire.last_sent.elapsed() >= PING || wire.last_received.elapsed() >= PING;
    if is_silent && wire.last_sent.elapsed() >= PING / 2 {
        wire.send(&Packet::PingReq);
    }
    Ok(())
}

/// Connects to this node as the client `id`.
pub(crate) fn inside(
    host: &impl Host,
    poll: &mut Poll,
    token: Token,
    id: &str,
    version: Version,
) -> Result<(Wire, ConnAck), BridgeError> {
    let socket = host.connect(id).map_err(BridgeError::Inside)?;
    socket.set_nonblocking(true).map_err(BridgeError::Inside)?;
    let stream = Stream::Unix(mio::net::UnixStream::from_std(socket));
    let mut wire = Wire::new(poll, token, stream, None, (version, HERE))?;
    let v5 = version == Version::V5;
    let connect = Connect {
        version,
        bridge: false,
        clean_start: true,
        keep_alive: 0,
        client_id: Utf8::new(id).unwrap_or_default(),
        will: None,
        username: None,
        password: None,
        properties: ConnectProperties { receive_maximum: v5.then_some(u16::MAX), ..ConnectProperties::default() },
    };
    let answer = greet(&mut wire, poll, connect, || true)?;
    Ok((wire, answer))
}
