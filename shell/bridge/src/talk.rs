//! Connections of a node that stands beside a broker: to this node and to the broker.

use std::collections::BTreeSet;
use std::time::Duration;

use mio::{Poll, Token};
use sedge_mqtt::{
    Ack, Connect, ConnectProperties, Packet, PacketId, Publish, PublishProperties, QoS, ReasonCode, Utf8, Version,
};

use crate::error::BridgeError;
use crate::host::Host;
use crate::wire::{Stream, Wire, greet};

/// How errors call this node.
pub(crate) const HERE: &str = "this node";
/// Publications on their way to the other side; above, what they come from is not read.
const WINDOW: usize = 1_000;
/// Silence after which the broker is asked whether it is there.
const PING: Duration = Duration::from_secs(20);

/// Publishes on one connection what has come over another.
pub(crate) struct Writer {
    pub(crate) wire: Wire,
    last: u16,
    pub(crate) open: BTreeSet<PacketId>,
}

impl Writer {
    pub(crate) const fn new(wire: Wire) -> Self {
        Self { wire, last: 0, open: BTreeSet::new() }
    }

    /// Publishes under an identifier of its own.
    pub(crate) fn publish(&mut self, mut publish: Publish) {
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

    #[expect(clippy::wildcard_enum_match_arm, reason = "nothing else is of interest")]
    /// Something that the other side answers.
    pub(crate) fn packet(&mut self, packet: Packet) {
        match packet {
            Packet::PubAck(ack) | Packet::PubComp(ack) => _ = self.open.remove(&ack.packet_id),
            Packet::SubAck(ack) => _ = self.open.remove(&ack.packet_id),
            Packet::UnsubAck(ack) => _ = self.open.remove(&ack.packet_id),
            Packet::PubRec(ack) if ack.reason.is_error() => _ = self.open.remove(&ack.packet_id),
            Packet::PubRec(ack) => self.wire.send(&Packet::PubRel(Ack::new(ack.packet_id, ReasonCode::Success))),
            _ => {}
        }
    }

    /// Whether little enough is on its way.
    pub(crate) fn has_room(&self) -> bool {
        self.open.len() < WINDOW && self.wire.has_room()
    }
}

fn acknowledge(wire: &mut Wire, publish: &Publish) {
    if let Some(id) = publish.packet_id {
        let ack = Ack::new(id, ReasonCode::Success);
        wire.send(&if publish.qos == QoS::ExactlyOnce { Packet::PubRec(ack) } else { Packet::PubAck(ack) });
    }
}

/// Answers what a subscriber has to answer; returns a publication.
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
) -> Result<Wire, BridgeError> {
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
    greet(&mut wire, poll, connect, || true)?;
    Ok(wire)
}
