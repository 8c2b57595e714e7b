//! Splits, memory, fast paths.

use core::num::NonZeroU16;

use bytes::{Bytes, BytesMut};
use sedge_base::{Incarnation, NodeId, ShardId};
use smallvec::smallvec;

use super::{LIMIT, Side, decoder, encode, text};
use crate::Version::{V5, V311};
use crate::{
    ConnAck, ConnAckProperties, Decoder, Delivery, Message, MessageId, Packet, PacketId, Publish, PublishProperties,
    QoS, ReadAt, ReasonCode, Stamp, SubAck, TopicAlias, TopicName, Version, encode_publish, encode_publish_head,
    encoded_len, publish_len, trim_to,
};

fn message(payload: Bytes, properties: Option<PublishProperties>) -> Message {
    let (node, shard) = (NodeId::new(1), ShardId(0));
    Message {
        id: MessageId { node, incarnation: Incarnation::new(1), shard, seq: 1 },
        topic: TopicName::new("a/b").unwrap(),
        payload,
        qos: QoS::ExactlyOnce,
        retain: true,
        properties: properties.map(Box::new),
        stamp: Stamp { millis: 1, counter: 0, node, shard },
        expires_at: None,
        publisher: None,
        read_at: ReadAt::default(),
    }
}

/// MQ-16: an idle connection costs the decoder itself and no more.
#[test]
fn an_idle_decoder_holds_no_buffer() {
    assert!(size_of::<Decoder>() <= 80, "{}", size_of::<Decoder>());
    for split in [2, 3, 5] {
        let chunk = Bytes::from(b"\xc0\x00\x40\x02\x00\x01".to_vec());
        let mut decoder = decoder(Side::Client, V311);
        let mut rest = chunk.clone();
        decoder.feed(rest.split_to(split));
        while decoder.next().unwrap().is_some() {}
        decoder.feed(rest);
        while decoder.next().unwrap().is_some() {}
        assert_eq!(decoder.buffered(), 0);
        assert!(chunk.is_unique(), "split {split}");
    }
}

#[test]
fn a_payload_in_one_piece_is_not_copied() {
    let chunk = Bytes::from(b"\xc0\x00\x30\x05\x00\x01apq".to_vec());
    let mut decoder = decoder(Side::Client, V311);
    decoder.feed(chunk.clone());
    assert_eq!(decoder.next(), Ok(Some(Packet::PingReq)));
    let Ok(Some(Packet::Publish(publish))) = decoder.next() else { panic!("a PUBLISH") };
    assert_eq!(publish.payload.as_ptr(), chunk[7..].as_ptr());
    assert_eq!(publish.topic.unwrap().as_bytes().as_ptr(), chunk[6..].as_ptr());
}

/// MQ-12: the length that a header announces is not allocated.
#[test]
fn memory_grows_with_what_arrives() {
    let mut decoder = Decoder::server(268_435_460);
    decoder.feed(Bytes::from_static(b"\x30\xff\xff\xff\x7f"));
    assert_eq!(decoder.next(), Ok(None));
    for _ in 0..100 {
        decoder.feed(Bytes::from_static(&[0; 1_000]));
        assert_eq!(decoder.next(), Ok(None));
    }
    assert_eq!(decoder.buffered(), 100_005);
    assert!(decoder.partial_capacity() < 300_000, "{}", decoder.partial_capacity());
}

#[test]
fn two_feeds_in_a_row_are_joined() {
    let mut decoder = Decoder::server(LIMIT);
    decoder.feed(Bytes::from_static(b"\xc0"));
    decoder.feed(Bytes::from_static(b"\x00\xc0\x00"));
    assert_eq!(decoder.next(), Ok(Some(Packet::PingReq)));
    assert_eq!(decoder.next(), Ok(Some(Packet::PingReq)));
    assert_eq!(decoder.next(), Ok(None));
}

/// MQ-01: the version follows the CONNECT.
#[test]
fn a_connect_sets_the_version() {
    let mut decoder = Decoder::server(LIMIT);
    decoder.feed(Bytes::from_static(b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x00\x00\x00\x30\x04\x00\x01ap"));
    assert!(matches!(decoder.next(), Ok(Some(Packet::Connect(_)))));
    assert_eq!(decoder.version(), V311);
    let Ok(Some(Packet::Publish(publish))) = decoder.next() else { panic!("a PUBLISH") };
    assert_eq!(publish.payload, "p");
}

/// The fast path writes what the packet would.
fn check_delivery(message: &Message, delivery: &Delivery, version: Version, expected: Publish) {
    let mut fast = BytesMut::new();
    encode_publish(message, delivery, version, &mut fast);
    assert_eq!(fast, encode(&Packet::Publish(expected), version));
    assert_eq!(fast.len(), publish_len(message, delivery, version));
    let mut head = BytesMut::new();
    encode_publish_head(message, delivery, version, &mut head);
    head.extend_from_slice(&message.payload);
    assert_eq!(head, fast);
}

/// MQ-05, MQ-06, MQ-14
#[test]
fn a_delivery_writes_what_its_packet_would() {
    let payload = Bytes::from(vec![7; 200]);
    let kept = PublishProperties {
        payload_is_utf8: Some(false),
        response_topic: Some(text("r")),
        correlation_data: Some(Bytes::from_static(b"c")),
        user: vec![(text("k"), text("v"))],
        content_type: Some(text("t")),
        ..PublishProperties::default()
    };
    let message = message(payload.clone(), Some(kept.clone()));
    let (alias, packet_id) = (NonZeroU16::new(3).unwrap(), PacketId::new(9));
    let delivery = Delivery {
        qos: QoS::AtLeastOnce,
        dup: true,
        retain: true,
        packet_id,
        topic_alias: Some(TopicAlias { alias, omit_topic: true }),
        subscription_ids: smallvec![5, 6],
        message_expiry: Some(8),
    };
    let properties =
        PublishProperties { message_expiry: Some(8), topic_alias: Some(3), subscription_ids: smallvec![5, 6], ..kept };
    let (qos, dup, retain) = (QoS::AtLeastOnce, true, true);
    let new = Publish { dup, qos, retain, topic: None, packet_id, payload, properties: Some(Box::new(properties)) };
    let old = Publish { topic: Some(message.topic.clone()), properties: None, ..new.clone() };
    check_delivery(&message, &delivery, V5, new);
    check_delivery(&message, &delivery, V311, old);
}

/// MQ-07, MQ-08: a message that is kept does not keep the buffer it came in.
#[test]
fn detached_copies_let_go_of_the_buffer() {
    let mut bytes = b"\x30\x1c\x00\x01a\x16\x08\x00\x01r\x09\x00\x01c\x26\x00\x01k\x00\x01v\x03\x00\x01thi".to_vec();
    bytes[1] = u8::try_from(bytes.len() - 2).unwrap();
    bytes[5] = u8::try_from(bytes.len() - 8).unwrap();
    let chunk = Bytes::from(bytes);
    let mut decoder = decoder(Side::Client, V5);
    decoder.feed(chunk.clone());
    let Ok(Some(Packet::Publish(publish))) = decoder.next() else { panic!("a PUBLISH") };
    let mut kept = message(publish.payload, publish.properties.map(|properties| *properties));
    kept.topic = publish.topic.unwrap();
    assert!(!chunk.is_unique());
    let copy = kept.detached();
    assert_eq!(copy, kept);
    drop(kept);
    assert!(chunk.is_unique());

    let chunk = Bytes::from(b"\x10\x14\x00\x04MQTT\x05\x06\x00\x3c\x00\x00\x00\x00\x00\x01w\x00\x01x".to_vec());
    decoder.feed(chunk.clone());
    let Ok(Some(Packet::Connect(connect))) = decoder.next() else { panic!("a CONNECT") };
    let will = connect.will.as_ref().unwrap().detached();
    assert_eq!(Some(&will), connect.will.as_deref());
    drop(connect);
    assert!(chunk.is_unique());
}

/// MQ-04
#[test]
fn a_plain_delivery_is_short() {
    let message = message(Bytes::from_static(b"hi"), None);
    let mut out = BytesMut::new();
    encode_publish(&message, &Delivery::default(), V311, &mut out);
    encode_publish(&message, &Delivery::default(), V5, &mut out);
    assert_eq!(out, &b"\x30\x07\x00\x03a/bhi\x30\x08\x00\x03a/b\x00hi"[..]);
}

/// MQ-14: reason string and user properties give way to the client's maximum packet size.
#[test]
fn answers_are_trimmed_to_fit() {
    let properties = ConnAckProperties {
        reason_string: Some(text("because")),
        user: vec![(text("k"), text("v"))],
        topic_alias_maximum: Some(1),
        ..ConnAckProperties::default()
    };
    let full = ConnAck { session_present: false, reason: ReasonCode::Banned, properties };
    let mut packet = Packet::ConnAck(Box::new(full.clone()));
    let whole = encoded_len(&packet, V5);
    assert!(trim_to(&mut packet, V5, whole));
    assert_eq!(packet, Packet::ConnAck(Box::new(full)));
    assert!(trim_to(&mut packet, V5, whole - 1));
    let Packet::ConnAck(connack) = &packet else { panic!("a CONNACK") };
    assert!(connack.properties.user.is_empty() && connack.properties.reason_string.is_some());
    assert!(trim_to(&mut packet, V5, 8));
    assert_eq!(encoded_len(&packet, V5), 8);
    assert!(!trim_to(&mut packet, V5, 7));

    let packet_id = PacketId::new(1).unwrap();
    let suback = SubAck { packet_id, reasons: vec![ReasonCode::Success; 10], reason_string: None, user: Vec::new() };
    assert!(!trim_to(&mut Packet::SubAck(suback), V311, 13));
}
