//! The packets that are rare, by the codec.

use bytes::{Bytes, BytesMut};
use sedge_mqtt::{
    ConnAck, Connect, ConnectProperties, Decoder, Disconnect, Packet, PacketId, QoS, ReasonCode, Subscribe,
    SubscriptionOptions, SubscriptionRequest, TopicFilter, Utf8, Version, encode,
};

use crate::wire::AckKind;

/// Largest packet a client takes.
const MAX_PACKET: u32 = 64 << 20;

/// How clients introduce themselves.
#[derive(Clone, Debug)]
pub(super) struct Introduction {
    pub(super) version: Version,
    pub(super) keep_alive: u16,
    pub(super) username: Option<String>,
    pub(super) password: Option<String>,
}

fn write(packet: &Packet, version: Version, out: &mut Vec<u8>) {
    let mut bytes = BytesMut::new();
    encode(packet, version, &mut bytes);
    out.extend_from_slice(&bytes);
}

/// Introduces `client_id`, whose session outlives the connection if `persistent`; otherwise there is none afterwards.
pub(super) fn connect(introduction: &Introduction, persistent: bool, client_id: &str, out: &mut Vec<u8>) {
    let session_expiry = persistent.then_some(3_600);
    let text = |text: &String| Utf8::new(text).ok();
    let connect = Connect {
        version: introduction.version,
        bridge: false,
        clean_start: !persistent,
        keep_alive: introduction.keep_alive,
        client_id: Utf8::new(client_id).unwrap_or_default(),
        will: None,
        username: introduction.username.as_ref().and_then(text),
        password: introduction.password.as_ref().map(|password| Bytes::copy_from_slice(password.as_bytes())),
        properties: ConnectProperties { session_expiry, ..ConnectProperties::default() },
    };
    write(&Packet::Connect(Box::new(connect)), introduction.version, out);
}

pub(super) fn subscribe(filter: &TopicFilter, qos: u8, version: Version, out: &mut Vec<u8>) {
    let options = SubscriptionOptions { qos: QoS::from_u8(qos).unwrap_or_default(), ..SubscriptionOptions::default() };
    let packet = Packet::Subscribe(Subscribe {
        packet_id: PacketId::MIN,
        requests: vec![SubscriptionRequest { filter: filter.clone(), options }],
        subscription_id: None,
        user: Vec::new(),
    });
    write(&packet, version, out);
}

/// Says good-bye.
pub(super) fn disconnect(version: Version, out: &mut Vec<u8>) {
    let packet = Disconnect::new(ReasonCode::Success);
    write(&Packet::Disconnect(packet), version, out);
}

/// An acknowledgement without a reason, which both versions write the same way.
pub(super) fn ack(kind: AckKind, id: u16, out: &mut Vec<u8>) {
    let first = match kind {
        AckKind::Ack => 0x40,
        AckKind::Rec => 0x50,
        AckKind::Rel => 0x62,
        AckKind::Comp => 0x70,
    };
    let [high, low] = id.to_be_bytes();
    out.extend_from_slice(&[first, 2, high, low]);
}

/// Appends PINGREQ.
pub(super) fn ping(out: &mut Vec<u8>) {
    out.extend_from_slice(&[0xc0, 0]);
}

/// A packet from the broker that is no message, acknowledgement or PINGRESP.
pub(super) enum Rare {
    Connected(Box<ConnAck>),
    Subscribed { refused: Option<ReasonCode> },
    Disconnected(ReasonCode),
    Unexpected,
}

/// Reads one whole packet.
pub(super) fn rare(bytes: &[u8], version: Version) -> Result<Rare, String> {
    let mut decoder = Decoder::client(MAX_PACKET);
    decoder.set_version(version);
    decoder.feed(Bytes::copy_from_slice(bytes));
    let packet = decoder.next().map_err(|error| error.to_string())?;
    Ok(match packet {
        Some(Packet::ConnAck(connack)) => Rare::Connected(connack),
        Some(Packet::SubAck(suback)) => {
            Rare::Subscribed { refused: suback.reasons.into_iter().find(|reason| reason.is_error()) }
        }
        Some(Packet::Disconnect(disconnect)) => Rare::Disconnected(disconnect.reason),
        _ => Rare::Unexpected,
    })
}
