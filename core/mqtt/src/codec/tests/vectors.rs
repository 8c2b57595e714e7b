//! Each packet in both versions, byte for byte.

use bytes::Bytes;
use smallvec::smallvec;

use super::Side::{self, Client, Server};
use super::{decode, encode, text};
use crate::Version::{V5, V311};
use crate::{
    Ack, Auth, ConnAck, ConnAckProperties, Connect, ConnectProperties, Decoder, Disconnect, Packet, PacketId, Publish,
    PublishProperties, QoS, ReasonCode, RetainHandling, SubAck, Subscribe, SubscriptionOptions, SubscriptionRequest,
    TopicFilter, TopicName, UnsubAck, Unsubscribe, Version, Will, WillProperties,
};

/// The bytes are the packet, and the packet is the bytes.
fn same(side: Side, version: Version, bytes: &[u8], packet: &Packet) {
    assert_eq!(decode(side, version, bytes).as_ref(), Ok(packet), "{bytes:02x?}");
    assert_eq!(encode(packet, version), bytes, "{packet:?}");
}

fn id(number: u16) -> PacketId {
    PacketId::new(number).unwrap()
}

fn connect(version: Version) -> Connect {
    Connect {
        version,
        bridge: false,
        clean_start: true,
        keep_alive: 60,
        client_id: text("c"),
        will: None,
        username: None,
        password: None,
        properties: ConnectProperties::default(),
    }
}

/// MQ-01
#[test]
fn connect_311() {
    let bytes = b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x3c\x00\x01c";
    same(Client, V311, bytes, &Packet::Connect(Box::new(connect(V311))));
    let will = Will {
        topic: TopicName::new("w").unwrap(),
        payload: Bytes::from_static(b"x"),
        qos: QoS::AtLeastOnce,
        retain: true,
        properties: WillProperties::default(),
    };
    let full = Connect {
        will: Some(Box::new(will)),
        username: Some(text("u")),
        password: Some(Bytes::from_static(b"p")),
        clean_start: false,
        ..connect(V311)
    };
    let bytes = b"\x10\x19\x00\x04MQTT\x04\xec\x00\x3c\x00\x01c\x00\x01w\x00\x01x\x00\x01u\x00\x01p";
    same(Client, V311, bytes, &Packet::Connect(Box::new(full)));
}

/// MQ-14
#[test]
fn connect_5() {
    let bytes = b"\x10\x0e\x00\x04MQTT\x05\x02\x00\x3c\x00\x00\x01c";
    same(Client, V5, bytes, &Packet::Connect(Box::new(connect(V5))));
    let properties = ConnectProperties {
        session_expiry: Some(16),
        receive_maximum: Some(2),
        maximum_packet_size: Some(256),
        topic_alias_maximum: Some(3),
        request_response_information: Some(true),
        request_problem_information: Some(false),
        user: vec![(text("a"), text("b"))],
        authentication_method: Some(text("m")),
        authentication_data: Some(Bytes::from_static(b"d")),
    };
    let will = Will {
        topic: TopicName::new("w").unwrap(),
        payload: Bytes::new(),
        qos: QoS::ExactlyOnce,
        retain: false,
        properties: WillProperties { delay: Some(5), ..WillProperties::default() },
    };
    let full =
        Connect { properties, will: Some(Box::new(will)), password: Some(Bytes::from_static(b"p")), ..connect(V5) };
    let mut bytes = b"\x10\x43\x00\x04MQTT\x05\x56\x00\x3c".to_vec();
    bytes.extend_from_slice(b"\x23\x11\x00\x00\x00\x10\x21\x00\x02\x27\x00\x00\x01\x00\x22\x00\x03\x19\x01\x17\x00");
    bytes.extend_from_slice(b"\x26\x00\x01a\x00\x01b\x15\x00\x01m\x16\x00\x01d");
    bytes.extend_from_slice(b"\x00\x01c\x05\x18\x00\x00\x00\x05\x00\x01w\x00\x00\x00\x01p");
    bytes[1] = u8::try_from(bytes.len() - 2).unwrap();
    same(Client, V5, &bytes, &Packet::Connect(Box::new(full)));
}

/// MQ-01
#[test]
fn connack_311() {
    for (code, reason) in [
        (0, ReasonCode::Success),
        (1, ReasonCode::UnsupportedProtocolVersion),
        (2, ReasonCode::ClientIdentifierNotValid),
        (3, ReasonCode::ServerUnavailable),
        (4, ReasonCode::BadUserNameOrPassword),
        (5, ReasonCode::NotAuthorized),
    ] {
        let packet = ConnAck { session_present: false, reason, properties: ConnAckProperties::default() };
        same(Server, V311, &[0x20, 2, 0, code], &Packet::ConnAck(Box::new(packet)));
    }
}

/// MQ-09, MQ-14
#[test]
fn connack_5() {
    let properties = ConnAckProperties {
        session_expiry: Some(1),
        receive_maximum: Some(2),
        maximum_qos: Some(QoS::AtLeastOnce),
        retain_available: Some(true),
        maximum_packet_size: Some(3),
        assigned_client_id: Some(text("i")),
        topic_alias_maximum: Some(4),
        reason_string: Some(text("r")),
        wildcard_subscription_available: Some(true),
        subscription_ids_available: Some(false),
        shared_subscription_available: Some(true),
        server_keep_alive: Some(5),
        ..ConnAckProperties::default()
    };
    let packet = ConnAck { session_present: true, reason: ReasonCode::Success, properties };
    let mut bytes =
        b"\x20\x2b\x01\x00\x28\x11\x00\x00\x00\x01\x21\x00\x02\x24\x01\x25\x01\x27\x00\x00\x00\x03".to_vec();
    bytes.extend_from_slice(b"\x12\x00\x01i\x22\x00\x04\x1f\x00\x01r\x28\x01\x29\x00\x2a\x01\x13\x00\x05");
    bytes[1] = u8::try_from(bytes.len() - 2).unwrap();
    bytes[4] = u8::try_from(bytes.len() - 5).unwrap();
    same(Server, V5, &bytes, &Packet::ConnAck(Box::new(packet)));
}

fn publish(qos: QoS, packet_id: Option<PacketId>) -> Publish {
    let topic = TopicName::new("a/b").ok();
    Publish { dup: false, qos, retain: false, topic, packet_id, payload: Bytes::from_static(b"hi"), properties: None }
}

/// MQ-04, MQ-05, MQ-06, MQ-07
#[test]
fn publish_311() {
    same(Client, V311, b"\x30\x07\x00\x03a/bhi", &Packet::Publish(publish(QoS::AtMostOnce, None)));
    let once = Publish { dup: true, ..publish(QoS::AtLeastOnce, Some(id(258))) };
    same(Server, V311, b"\x3a\x09\x00\x03a/b\x01\x02hi", &Packet::Publish(once));
    let retained = Publish { retain: true, payload: Bytes::new(), ..publish(QoS::ExactlyOnce, Some(id(1))) };
    same(Client, V311, b"\x35\x07\x00\x03a/b\x00\x01", &Packet::Publish(retained));
}

/// MQ-14
#[test]
fn publish_5() {
    same(Client, V5, b"\x30\x08\x00\x03a/b\x00hi", &Packet::Publish(publish(QoS::AtMostOnce, None)));
    let properties = PublishProperties {
        payload_is_utf8: Some(true),
        message_expiry: Some(9),
        topic_alias: Some(7),
        response_topic: Some(text("r")),
        correlation_data: Some(Bytes::from_static(b"c")),
        user: vec![(text("k"), text("v")), (text("k"), text("w"))],
        subscription_ids: smallvec![1, 128],
        content_type: Some(text("t")),
    };
    let packet = Publish { topic: None, properties: Some(Box::new(properties)), ..publish(QoS::AtMostOnce, None) };
    let mut bytes = b"\x30\x00\x00\x00\x00\x02\x00\x00\x00\x09\x23\x00\x07\x0b\x01\x0b\x80\x01\x01\x01".to_vec();
    bytes.extend_from_slice(b"\x08\x00\x01r\x09\x00\x01c\x26\x00\x01k\x00\x01v\x26\x00\x01k\x00\x01w\x03\x00\x01t");
    bytes[4] = u8::try_from(bytes.len() - 5).unwrap();
    bytes.extend_from_slice(b"hi");
    bytes[1] = u8::try_from(bytes.len() - 2).unwrap();
    same(Server, V5, &bytes, &Packet::Publish(packet));
}

/// MQ-05, MQ-06
#[test]
fn acknowledgements() {
    let plain = Ack::new(id(258), ReasonCode::Success);
    for version in [V311, V5] {
        for side in [Client, Server] {
            same(side, version, b"\x40\x02\x01\x02", &Packet::PubAck(plain.clone()));
            same(side, version, b"\x50\x02\x01\x02", &Packet::PubRec(plain.clone()));
            same(side, version, b"\x62\x02\x01\x02", &Packet::PubRel(plain.clone()));
            same(side, version, b"\x70\x02\x01\x02", &Packet::PubComp(plain.clone()));
        }
    }
    let nobody = Ack::new(id(1), ReasonCode::NoMatchingSubscribers);
    same(Server, V5, b"\x50\x03\x00\x01\x10", &Packet::PubRec(nobody));
    let unknown = Ack {
        properties: Some(Box::new((Some(text("r")), vec![(text("k"), text("v"))]))),
        ..Ack::new(id(1), ReasonCode::PacketIdentifierNotFound)
    };
    same(Server, V5, b"\x70\x0f\x00\x01\x92\x0b\x1f\x00\x01r\x26\x00\x01k\x00\x01v", &Packet::PubComp(unknown));
    assert_eq!(decode(Client, V5, b"\x40\x03\x01\x02\x00"), Ok(Packet::PubAck(plain.clone())));
    assert_eq!(decode(Client, V5, b"\x40\x04\x01\x02\x00\x00"), Ok(Packet::PubAck(plain)));
}

/// MQ-02, IL-05: a broker's packet with a reason code that the standard does not list for it is taken only by a lenient decoder.
#[test]
fn foreign_reason_codes_of_acknowledgements_are_success_or_unspecified_error_for_a_lenient_decoder() {
    let read = |decoder: Decoder, bytes: &'static [u8]| {
        let mut decoder = decoder;
        decoder.feed(Bytes::from_static(bytes));
        decoder.next()
    };
    let lenient = |bytes| read(Decoder::client(1_024).lenient(), bytes);
    let ack = |reason| Ack::new(id(0x102), reason);
    // 0x01, 0x8e and 0x05 are no reason codes of these packets; 0x10 and 0x87 are.
    assert_eq!(lenient(b"\x40\x03\x01\x02\x01"), Ok(Some(Packet::PubAck(ack(ReasonCode::Success)))));
    assert_eq!(lenient(b"\x50\x03\x01\x02\x8e"), Ok(Some(Packet::PubRec(ack(ReasonCode::UnspecifiedError)))));
    assert_eq!(lenient(b"\x70\x04\x01\x02\x05\x00"), Ok(Some(Packet::PubComp(ack(ReasonCode::Success)))));
    assert_eq!(lenient(b"\x40\x03\x01\x02\x10"), Ok(Some(Packet::PubAck(ack(ReasonCode::NoMatchingSubscribers)))));
    assert_eq!(lenient(b"\x40\x03\x01\x02\x87"), Ok(Some(Packet::PubAck(ack(ReasonCode::NotAuthorized)))));
    assert!(read(Decoder::client(1_024), b"\x40\x03\x01\x02\x01").is_err(), "else the packet is malformed");
    assert!(lenient(b"\xe0\x01\x05").is_err(), "an unknown reason to end the connection stays an error");
}

/// MQ-02
#[test]
fn subscribe_and_suback() {
    let request = |filter: &str, options| SubscriptionRequest { filter: TopicFilter::new(filter).unwrap(), options };
    let qos = |qos| SubscriptionOptions { qos, ..SubscriptionOptions::default() };
    let requests = vec![request("a/+", qos(QoS::AtMostOnce)), request("#", qos(QoS::ExactlyOnce))];
    let packet = Subscribe { packet_id: id(10), requests, subscription_id: None, user: Vec::new() };
    same(Client, V311, b"\x82\x0c\x00\x0a\x00\x03a/+\x00\x00\x01#\x02", &Packet::Subscribe(packet));
    let options = SubscriptionOptions {
        qos: QoS::AtLeastOnce,
        no_local: true,
        retain_as_published: true,
        retain_handling: RetainHandling::DoNotSend,
    };
    let requests = vec![request("a", options)];
    let packet = Subscribe { packet_id: id(10), requests, subscription_id: Some(200), user: Vec::new() };
    same(Client, V5, b"\x82\x0a\x00\x0a\x03\x0b\xc8\x01\x00\x01a\x2d", &Packet::Subscribe(packet));

    let reasons = vec![ReasonCode::Success, ReasonCode::GrantedQoS2, ReasonCode::UnspecifiedError];
    let mut packet = SubAck { packet_id: id(10), reasons, reason_string: None, user: Vec::new() };
    same(Server, V311, b"\x90\x05\x00\x0a\x00\x02\x80", &Packet::SubAck(packet.clone()));
    packet.reasons[2] = ReasonCode::NotAuthorized;
    same(Server, V5, b"\x90\x06\x00\x0a\x00\x00\x02\x87", &Packet::SubAck(packet.clone()));
    assert_eq!(encode(&Packet::SubAck(packet), V311), &b"\x90\x05\x00\x0a\x00\x02\x80"[..]);
}

/// MQ-02
#[test]
fn unsubscribe_and_unsuback() {
    let filters = vec![TopicFilter::new("a/+").unwrap(), TopicFilter::new("b").unwrap()];
    let packet = Packet::Unsubscribe(Unsubscribe { packet_id: id(10), filters, user: Vec::new() });
    same(Client, V311, b"\xa2\x0a\x00\x0a\x00\x03a/+\x00\x01b", &packet);
    same(Client, V5, b"\xa2\x0b\x00\x0a\x00\x00\x03a/+\x00\x01b", &packet);

    let old = UnsubAck { packet_id: id(10), reasons: Vec::new(), reason_string: None, user: Vec::new() };
    same(Server, V311, b"\xb0\x02\x00\x0a", &Packet::UnsubAck(old.clone()));
    let new = UnsubAck { reasons: vec![ReasonCode::Success, ReasonCode::NoSubscriptionExisted], ..old };
    same(Server, V5, b"\xb0\x05\x00\x0a\x00\x00\x11", &Packet::UnsubAck(new));
}

/// MQ-10
#[test]
fn pings() {
    for version in [V311, V5] {
        same(Client, version, b"\xc0\x00", &Packet::PingReq);
        same(Server, version, b"\xd0\x00", &Packet::PingResp);
    }
}

/// MQ-01, MQ-14
#[test]
fn disconnect() {
    let plain = Packet::Disconnect(Disconnect::new(ReasonCode::Success));
    same(Client, V311, b"\xe0\x00", &plain);
    same(Client, V5, b"\xe0\x00", &plain);
    assert_eq!(decode(Client, V5, b"\xe0\x01\x00"), Ok(plain));
    let taken = Packet::Disconnect(Disconnect::new(ReasonCode::SessionTakenOver));
    same(Server, V5, b"\xe0\x01\x8e", &taken);
    assert_eq!(decode(Server, V5, b"\xe0\x02\x8e\x00"), Ok(taken));
    let leaving = Disconnect { session_expiry: Some(2), ..Disconnect::new(ReasonCode::DisconnectWithWill) };
    same(Client, V5, b"\xe0\x07\x04\x05\x11\x00\x00\x00\x02", &Packet::Disconnect(leaving));
    let moved = Disconnect {
        server_reference: Some(text("n")),
        reason_string: Some(text("r")),
        ..Disconnect::new(ReasonCode::ServerMoved)
    };
    same(Server, V5, b"\xe0\x0a\x9d\x08\x1f\x00\x01r\x1c\x00\x01n", &Packet::Disconnect(moved));
}

/// MQ-14
#[test]
fn auth() {
    let none = Auth { reason: ReasonCode::Success, method: None, data: None, reason_string: None, user: Vec::new() };
    same(Server, V5, b"\xf0\x00", &Packet::Auth(none.clone()));
    assert_eq!(encode(&Packet::Auth(none.clone()), V311), &b""[..]);
    let step = Auth {
        reason: ReasonCode::ContinueAuthentication,
        method: Some(text("m")),
        data: Some(Bytes::from_static(b"d")),
        ..none
    };
    same(Client, V5, b"\xf0\x0a\x18\x08\x15\x00\x01m\x16\x00\x01d", &Packet::Auth(step));
}
