//! How fast clients may publish.

use bytes::BytesMut;
use sedge_base::{ConnId, Duration, Rate};
use sedge_broker::{BrokerConfig, PublishRate};
use sedge_mqtt::{Connect, Packet, encode};

use crate::harness::*;

fn rate(messages: u64, bytes: u64) -> PublishRate {
    let burst = 0;
    PublishRate { messages: Rate { per_second: messages, burst }, bytes: Rate { per_second: bytes, burst } }
}

/// All in one piece, as they lie in a buffer that was read before the client was held.
fn publish_at_once(bench: &mut Bench, client: ConnId, count: usize, payload: &str) {
    let mut bytes = BytesMut::new();
    for _ in 0..count {
        encode(&publish("t", payload, Q0, 0), V5, &mut bytes);
    }
    bench.send_bytes(client, bytes.freeze());
}

fn published(bench: &Bench) -> u64 {
    bench.broker.counters().publishes_in[0]
}

#[test]
fn who_publishes_too_fast_waits_and_loses_nothing() {
    let mut bench = Bench::new();
    let free = bench.client(V5, "free");
    bench.rate = rate(10, 0);
    let client = bench.client(V5, "fast");
    publish_at_once(&mut bench, client, 35, "x");
    assert!(bench.is_held(client));
    assert_eq!(published(&bench), 11, "what was in the bucket, and one owed");
    bench.pass(Duration::from_secs(1));
    assert_eq!(published(&bench), 21);
    // Others do not wait.
    publish_at_once(&mut bench, free, 100, "x");
    assert!(!bench.is_held(free));
    assert_eq!(published(&bench), 121);
    bench.pass(Duration::from_secs(3));
    assert!(!bench.is_held(client));
    assert_eq!(published(&bench), 135);
    let counters = bench.broker.counters();
    assert_eq!((counters.publish_pauses, counters.publish_pause_micros), (25, 2_500_000));
    assert_eq!(counters.malformed, 0);
}

#[test]
fn bytes_are_limited_too_and_answers_do_not_end_a_pause() {
    let mut bench = Bench::new();
    bench.rate = rate(0, 1_000);
    let client = bench.client(V5, "large");
    // One byte of topic, 999 of payload.
    let payload = "x".repeat(999);
    for id in 1..=4 {
        bench.send(client, &publish("t", &payload, Q1, id));
    }
    assert!(bench.is_held(client), "although the answers were sent");
    assert_eq!(bench.broker.counters().publishes_in[1], 2);
    bench.pass(Duration::from_millis(900));
    assert_eq!(bench.broker.counters().publishes_in[1], 2);
    bench.pass(Duration::from_millis(1_200));
    assert_eq!(bench.broker.counters().publishes_in[1], 4);
    assert_eq!(bench.drain(client).len(), 4);
}

/// MQ-10: the broker does not take a client for silent that it does not read.
#[test]
fn a_pause_is_bounded_and_outlasts_no_keep_alive() {
    let mut bench = Bench::with(BrokerConfig { max_packet_bytes: 1 << 20, ..BrokerConfig::default() });
    bench.rate = rate(0, 10);
    let client = bench.connect(Connect { keep_alive: 2, ..connect(V5, "patient") });
    publish_at_once(&mut bench, client, 1, &"x".repeat(100_000));
    assert!(bench.is_held(client));
    bench.pass(Duration::from_secs(9));
    assert!(bench.is_held(client) && !bench.is_closed(client));
    bench.pass(Duration::from_secs(2));
    assert!(!bench.is_held(client) && !bench.is_closed(client));
    bench.send(client, &Packet::PingReq);
    assert_eq!(bench.drain(client), [Packet::PingResp]);
    bench.pass(Duration::from_secs(4));
    assert!(bench.is_closed(client), "this one was silent");
}

#[test]
fn a_client_may_go_while_it_waits() {
    let mut bench = Bench::new();
    bench.rate = rate(1, 0);
    let client = bench.client(V5, "a");
    publish_at_once(&mut bench, client, 5, "x");
    assert!(bench.is_held(client));
    bench.cut(client);
    bench.rate = PublishRate::default();
    let other = bench.client(V5, "b");
    bench.pass(Duration::from_secs(20));
    assert_eq!(published(&bench), 2);
    publish_at_once(&mut bench, other, 5, "x");
    assert_eq!(published(&bench), 7);
}
