//! Bytes that are not MQTT close their own connection and nothing else.

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use sedge_mqtt::{Packet, ReasonCode, encode};

use crate::harness::*;

/// MQ-12
#[test]
fn a_wildcard_in_a_topic_name_is_refused() {
    for version in [V4, V5] {
        let mut bench = Bench::new();
        let conn = bench.client(version, "a");
        let other = bench.client(version, "b");
        let mut body = vec![0, 3, b'a', b'/', b'#'];
        if version == V5 {
            body.push(0);
        }
        let mut bytes = vec![0x30, u8::try_from(body.len()).unwrap()];
        bytes.extend(body);
        bench.send_bytes(conn, Bytes::from(bytes));
        assert!(bench.is_closed(conn));
        let told = bench.drain(conn);
        match version {
            V5 => {
                assert!(matches!(&told[..], [Packet::Disconnect(why)] if why.reason == ReasonCode::TopicNameInvalid));
            }
            _ => assert_eq!(told, []),
        }
        assert!(!bench.is_closed(other));
        assert!(bench.routed.is_empty());
        assert_eq!(bench.broker.counters().malformed, 1);
    }
}

/// MQ-12
#[test]
fn a_malformed_connect_is_answered_in_its_own_version() {
    let mut bench = Bench::new();
    // Reserved flag set.
    let connect = |level| Bytes::from(vec![0x10, 14, 0, 4, b'M', b'Q', b'T', b'T', level, 3, 0, 0, 0, 0, 1, b'a']);
    let modern = bench.open(V5);
    bench.send_bytes(modern, connect(5));
    let Some(Packet::ConnAck(connack)) = bench.recv(modern) else { panic!() };
    assert_eq!(connack.reason, ReasonCode::MalformedPacket);
    let old = bench.open(V4);
    bench.send_bytes(old, connect(4));
    assert_eq!(bench.drain(old), []);
    assert!(bench.is_closed(modern) && bench.is_closed(old));
    assert_eq!(bench.broker.counters().connections_refused, 2);
}

fn whole_session() -> Vec<u8> {
    let mut bytes = BytesMut::new();
    let options = sedge_mqtt::SubscriptionOptions::default();
    for packet in [
        Packet::Connect(Box::new(persistent(V5, "fuzz"))),
        subscribe(1, &[("a/+", options), ("$share/g/a", options)], Some(1)),
        publish("a/b", "payload", Q1, 1),
        publish("a/b", "payload", Q2, 2),
        Packet::PubRel(ack(2)),
        Packet::PingReq,
    ] {
        encode(&packet, V5, &mut bytes);
    }
    bytes.to_vec()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// MQ-12
    #[test]
    fn damaged_bytes_close_only_their_own_connection(
        damage in prop::collection::vec((0_usize..200, any::<u8>()), 0..6),
        cuts in prop::collection::vec(1_usize..40, 1..10),
    ) {
        let mut bench = Bench::new();
        let other = bench.client(V5, "other");
        let mut bytes = whole_session();
        for (at, value) in damage {
            let at = at % bytes.len();
            bytes[at] = value;
        }
        let conn = bench.open(V5);
        // The damage may have turned it into a client of another version.
        bench.deafen(conn);
        let mut rest = &bytes[..];
        for cut in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, tail) = rest.split_at((*cut).min(rest.len()));
            bench.send_bytes(conn, Bytes::copy_from_slice(piece));
            rest = tail;
        }
        prop_assert!(!bench.is_closed(other));
        bench.send(other, &Packet::PingReq);
        let answer = bench.drain(other).pop();
        prop_assert_eq!(answer, Some(Packet::PingResp));
    }
}
