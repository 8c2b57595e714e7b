//! Limits of queues, message expiry, maximum packet size.

use sedge_base::ConnId;
use sedge_broker::{BrokerConfig, Input, QueueLimits};
use sedge_mqtt::{Ack, Connect, ConnectProperties, Packet, PublishProperties, QoS, ReasonCode, TopicFilter};

use crate::harness::*;

/// MQ-09
#[test]
fn a_full_queue_drops_the_newest_acknowledged_message() {
    let mut bench = Bench::with(BrokerConfig { queue_limit_messages: 3, ..BrokerConfig::default() });
    let publisher = bench.client(V4, "p");
    let subscriber = bench.connect(persistent(V4, "s"));
    bench.subscribe(subscriber, "a", Q1);
    bench.cut(subscriber);
    for number in 0..5 {
        bench.publish(publisher, "a", &number.to_string(), Q1);
    }
    assert_eq!(bench.broker.counters().dropped.queue_full, 2);
    assert_eq!(bench.broker.counters().queued_messages, 3);
    let subscriber = bench.connect(persistent(V4, "s"));
    assert_eq!(bench.payloads(subscriber), ["0", "1", "2"]);
}

/// MQ-04
#[test]
fn a_full_queue_drops_the_oldest_qos_0_message() {
    let config = BrokerConfig { queue_limit_messages: 4, outbox_high_water: 0, ..BrokerConfig::default() };
    let mut bench = Bench::with(config);
    let publisher = bench.client(V4, "p");
    let subscriber = bench.client(V4, "s");
    bench.subscribe(subscriber, "#", Q1);
    bench.stick(subscriber, true);
    bench.publish(publisher, "a", "first", Q0);
    for number in 0..3 {
        bench.publish(publisher, "a", &format!("q0 {number}"), Q0);
    }
    bench.publish(publisher, "a", "q1 a", Q1);
    bench.publish(publisher, "a", "q1 b", Q1);
    bench.publish(publisher, "a", "q0 3", Q0);
    assert_eq!(bench.broker.counters().queued_messages, 4);
    assert_eq!(bench.broker.counters().dropped.queue_full_qos0, 2);
    bench.stick(subscriber, false);
    assert_eq!(bench.payloads(subscriber), ["first", "q0 2", "q1 a", "q1 b", "q0 3"]);
}

/// MQ-09
#[test]
fn the_queue_is_limited_in_bytes_too() {
    let mut bench = Bench::with(BrokerConfig { queue_limit_bytes: 1_000, ..BrokerConfig::default() });
    let publisher = bench.client(V4, "p");
    let subscriber = bench.connect(persistent(V4, "s"));
    bench.subscribe(subscriber, "a", Q1);
    bench.cut(subscriber);
    for size in [300, 300, 300, 10, 2_000] {
        bench.publish(publisher, "a", &"x".repeat(size), Q1);
    }
    let counters = bench.broker.counters();
    assert_eq!((counters.queued_messages, counters.dropped.queue_full), (3, 2));
    assert!(counters.queued_bytes <= 1_000);
}

/// MQ-14
#[test]
fn messages_expire_while_they_wait() {
    let mut bench = Bench::new();
    let publisher = bench.client(V5, "p");
    let subscriber = bench.connect(persistent(V5, "s"));
    bench.subscribe(subscriber, "a", Q1);
    bench.cut(subscriber);
    for (payload, expiry) in [("short", 10), ("long", 100)] {
        let properties = PublishProperties { message_expiry: Some(expiry), ..PublishProperties::default() };
        bench.send(publisher, &publish_with("a", payload, Q1, properties));
    }
    bench.pass(secs(30));
    let subscriber = bench.connect(persistent(V5, "s"));
    let got = bench.publishes(subscriber);
    assert_eq!(got.len(), 1);
    assert_eq!(got[0].properties.as_ref().unwrap().message_expiry, Some(70));
    assert_eq!(bench.broker.counters().dropped.expired, 1);
}

/// MQ-14
#[test]
fn a_full_queue_first_forgets_what_has_expired() {
    let mut bench = Bench::with(BrokerConfig { queue_limit_messages: 2, ..BrokerConfig::default() });
    let publisher = bench.client(V5, "p");
    let subscriber = bench.connect(persistent(V5, "s"));
    bench.subscribe(subscriber, "a", Q1);
    bench.cut(subscriber);
    let properties = PublishProperties { message_expiry: Some(10), ..PublishProperties::default() };
    for payload in ["1", "2"] {
        bench.send(publisher, &publish_with("a", payload, Q1, properties.clone()));
    }
    bench.drain(publisher);
    bench.pass(secs(20));
    bench.publish(publisher, "a", "3", Q1);
    let subscriber = bench.connect(persistent(V5, "s"));
    assert_eq!(bench.payloads(subscriber), ["3"]);
}

/// MQ-14
#[test]
fn packets_larger_than_the_client_takes_are_skipped() {
    let mut bench = Bench::new();
    let publisher = bench.client(V5, "p");
    let properties = ConnectProperties { maximum_packet_size: Some(100), ..ConnectProperties::default() };
    let subscriber = bench.connect(Connect { properties, ..connect(V5, "s") });
    let other = bench.client(V5, "o");
    bench.subscribe(subscriber, "a", Q1);
    bench.subscribe(other, "a", Q1);
    for qos in [Q0, Q1] {
        bench.publish(publisher, "a", &"x".repeat(95), qos);
        bench.publish(publisher, "a", "small", qos);
    }
    assert_eq!(bench.payloads(subscriber), ["small", "small"]);
    assert_eq!(bench.publishes(other).len(), 4);
    assert_eq!(bench.broker.counters().dropped.too_large, 2);
}

/// MQ-14
#[test]
fn a_client_may_not_send_more_than_the_maximum_packet() {
    let mut bench = Bench::with(BrokerConfig { max_packet_bytes: 200, ..BrokerConfig::default() });
    let conn = bench.client(V5, "a");
    bench.send(conn, &publish("a", &"x".repeat(300), Q0, 1));
    let Some(Packet::Disconnect(disconnect)) = bench.recv(conn) else { panic!() };
    assert_eq!(disconnect.reason, ReasonCode::PacketTooLarge);
}

/// MQ-12: a client that sends but never reads fills no memory.
#[test]
fn a_client_that_reads_nothing_is_read_no_more() {
    let config = BrokerConfig { outbox_high_water: 1_000, ..BrokerConfig::default() };
    let mut bench = Bench::with(config);
    let conn = bench.connect(Connect { keep_alive: 100, ..connect(V4, "a") });
    bench.stick(conn, true);
    let pings = bytes::Bytes::from([0xc0, 0].repeat(100_000));
    bench.send_bytes(conn, pings.clone());
    assert!(!bench.is_held(conn));
    bench.send_bytes(conn, pings);
    assert!(bench.is_held(conn));
    bench.stick(conn, false);
    assert!(!bench.is_held(conn));
    assert_eq!(bench.drain(conn).len(), 200_000);
    bench.stick(conn, true);
    bench.send_bytes(conn, bytes::Bytes::from([0xc0, 0].repeat(200_000)));
    assert!(bench.is_held(conn));
    bench.pass(secs(150));
    assert!(bench.is_closed(conn), "it shows no sign of life");
}

/// Reads and acknowledges until nothing comes any more.
fn read_all(bench: &mut Bench, client: ConnId) -> Vec<String> {
    let mut payloads = Vec::new();
    loop {
        let come = bench.publishes(client);
        if come.is_empty() {
            return payloads;
        }
        for publish in come {
            payloads.push(String::from_utf8_lossy(&publish.payload).into_owned());
            if let Some(packet_id) = publish.packet_id {
                bench.send(client, &Packet::PubAck(Ack::new(packet_id, ReasonCode::Success)));
            }
        }
    }
}

/// Sixteen clients that do not read, each with a subscription to everything.
fn with_slow_readers(bench: &mut Bench, qos: QoS) -> Vec<ConnId> {
    let slow: Vec<ConnId> = (0..16).map(|number| bench.connect(persistent(V5, &format!("slow-{number}")))).collect();
    for &client in &slow {
        bench.subscribe(client, "#", qos);
        bench.stick(client, true);
    }
    slow
}

/// MQ-09: however much is published to however many clients that do not read, the bytes held for them stay below the limit, and a client
/// that reads gets everything.
#[test]
fn slow_readers_share_what_may_be_held() {
    let limit = 400_000;
    for qos in [Q0, Q1] {
        let mut bench = Bench::with(BrokerConfig { total_limit_bytes: limit, ..BrokerConfig::default() });
        let publisher = bench.client(V5, "p");
        let fast = bench.client(V5, "fast");
        bench.subscribe(fast, "#", qos);
        let slow = with_slow_readers(&mut bench, qos);
        for number in 0..500 {
            bench.publish(publisher, "busy", &format!("{number:0100}"), qos);
            assert_eq!(read_all(&mut bench, fast), [format!("{number:0100}")]);
            let held = bench.broker.counters().buffered_bytes();
            assert!(held <= limit as u64, "{held} bytes at {qos:?} after {number}");
        }
        let counters = bench.broker.counters().clone();
        assert!(counters.buffered_bytes() > limit as u64 / 2, "{counters:?}");
        assert!(counters.dropped.buffers_full > 1_000 && counters.dropped.queue_full == 0, "{counters:?}");
        // One that comes later has its share, too.
        let late = bench.client(V5, "late");
        bench.subscribe(late, "#", Q1);
        bench.stick(late, true);
        bench.publish(publisher, "busy", "for everybody", Q1);
        bench.stick(late, false);
        assert_eq!(read_all(&mut bench, late), ["for everybody"]);
        read_all(&mut bench, fast);
        for client in slow {
            bench.stick(client, false);
            let read = read_all(&mut bench, client).len();
            assert!(read > 20, "{read} at {qos:?}");
        }
        let counters = bench.broker.counters();
        assert_eq!(counters.buffered_bytes(), 0, "everything is read and acknowledged: {counters:?}");
    }
}

/// MQ-09: the memory of those who are away comes from the same store, and is given back with their sessions.
#[test]
fn clients_that_are_away_share_it_too() {
    let limit = 100_000;
    let mut bench = Bench::with(BrokerConfig { total_limit_bytes: limit, ..BrokerConfig::default() });
    let publisher = bench.client(V5, "p");
    for number in 0..8 {
        let client = bench.connect(persistent(V5, &format!("away-{number}")));
        bench.subscribe(client, "#", Q1);
        bench.cut(client);
    }
    for number in 0..300 {
        bench.publish(publisher, "busy", &number.to_string(), Q1);
        assert!(bench.broker.counters().buffered_bytes() <= limit as u64);
    }
    let counters = bench.broker.counters();
    assert!(counters.dropped.buffers_full > 0 && counters.queued_messages > 8 * 10, "{counters:?}");
    for number in 0..8 {
        let client = bench.client(V5, &format!("away-{number}"));
        bench.cut(client);
    }
    assert_eq!(bench.broker.counters().buffered_bytes(), 0);
}

/// MQ-09: so does a client that reads and acknowledges nothing.
#[test]
fn what_is_not_acknowledged_counts_too() {
    let limit = 100_000;
    let mut bench = Bench::with(BrokerConfig { total_limit_bytes: limit, ..BrokerConfig::default() });
    let publisher = bench.client(V5, "p");
    let deaf: Vec<ConnId> = (0..8).map(|number| bench.connect(persistent(V5, &format!("deaf-{number}")))).collect();
    for &client in &deaf {
        bench.subscribe(client, "#", Q1);
    }
    for number in 0..300 {
        bench.publish(publisher, "busy", &number.to_string(), Q1);
        let held = bench.broker.counters().buffered_bytes();
        assert!(held <= limit as u64, "{held} bytes after {number}");
    }
    assert!(bench.broker.counters().dropped.buffers_full > 0);
    for client in deaf {
        assert!(read_all(&mut bench, client).len() > 10);
    }
    assert_eq!(bench.broker.counters().buffered_bytes(), 0);
}

/// MQ-09: a client that sends and does not read its answers is read no further when it takes more than is free.
#[test]
fn answers_count_too() {
    let mut bench = Bench::with(BrokerConfig { total_limit_bytes: 10_000, ..BrokerConfig::default() });
    let client = bench.client(V5, "c");
    bench.stick(client, true);
    for _ in 0..10_000 {
        bench.send(client, &Packet::PingReq);
    }
    // Half of it, for as much has to stay free; and the growth of the buffer before it came that far.
    assert!(bench.broker.counters().buffered_bytes() <= 10_000, "{:?}", bench.broker.counters());
    assert!(bench.is_held(client));
    bench.stick(client, false);
    assert!(!bench.is_held(client));
    assert_eq!(bench.broker.counters().buffered_bytes(), 0);
}

fn filters(texts: &[&str]) -> Input {
    Input::ClosedTopics(texts.iter().map(|text| TopicFilter::new(text).unwrap()).collect())
}

/// DP-03: while the keeper of a topic has no room, 5.0 publishers are told, QoS 0 goes on, and so do other topics.
#[test]
fn publications_to_closed_topics_are_refused() {
    let mut bench = Bench::new();
    let publisher = bench.client(V5, "p");
    bench.input(filters(&["up/#"]));
    for (topic, qos, number) in [("up/a", Q0, 0), ("up/a", Q1, 1), ("up/b", Q2, 2), ("down", Q1, 3)] {
        bench.send(publisher, &publish(topic, "x", qos, number));
    }
    let reasons = |bench: &mut Bench| -> Vec<ReasonCode> {
        let packets = bench.drain(publisher);
        let reason =
            |packet| if let Packet::PubAck(ack) | Packet::PubRec(ack) = packet { Some(ack.reason) } else { None };
        packets.into_iter().filter_map(reason).collect()
    };
    assert_eq!(reasons(&mut bench), [ReasonCode::QuotaExceeded, ReasonCode::QuotaExceeded, ReasonCode::Success]);
    assert_eq!((bench.routed.len(), bench.broker.counters().refused_full), (2, 2));
    bench.input(filters(&[]));
    bench.send(publisher, &publish("up/a", "x", Q1, 9));
    assert_eq!(reasons(&mut bench), [ReasonCode::Success]);
}

/// DP-03: 3.1.1 has no word for it: no acknowledgement until there is room, in the order of the publications.
#[test]
fn publications_of_older_clients_to_closed_topics_wait_for_their_acknowledgement() {
    let mut bench = Bench::new();
    let publisher = bench.client(V4, "p");
    bench.input(filters(&["up/#"]));
    for (number, topic, qos) in [(1, "up/a", Q1), (2, "up/b", Q2), (3, "down", Q1)] {
        bench.send(publisher, &publish(topic, "x", qos, number));
    }
    assert_eq!((bench.drain(publisher).len(), bench.routed.len()), (0, 1), "only the other topic went on");
    bench.input(filters(&["up/b"]));
    assert_eq!((bench.drain(publisher).len(), bench.routed.len()), (1, 2));
    bench.input(filters(&[]));
    let acks = bench.drain(publisher);
    assert!(matches!(acks[..], [Packet::PubRec(_), Packet::PubAck(_)]), "{acks:?}");
    assert_eq!((bench.routed.len(), bench.broker.counters().refused_full), (3, 0));
    // A client that is gone has no acknowledgement, and repeats it.
    bench.input(filters(&["up/#"]));
    bench.send(publisher, &publish("up/a", "gone", Q1, 9));
    bench.cut(publisher);
    bench.input(filters(&[]));
    assert_eq!(bench.routed.len(), 3);
}

/// DP-03: an acknowledged publication is kept, however full the queue is; QoS 0 keeps to its limit.
#[test]
fn a_queue_that_refuses_loses_nothing_that_was_acknowledged() {
    let limits = QueueLimits { messages: 2, bytes: 1_000, drops_oldest: false, refuses: true };
    let inside_queues = [("$bridge/a".into(), limits)].into();
    let mut bench = Bench::with(BrokerConfig { inside_queues, queue_qos0_offline: true, ..BrokerConfig::default() });
    let publisher = bench.client(V5, "p");
    bench.inside = true;
    let bridge = bench.connect(persistent(V5, "$bridge/a"));
    bench.subscribe(bridge, "a", Q1);
    bench.cut(bridge);
    for (number, qos) in [Q1, Q1, Q1, Q0, Q1].into_iter().enumerate() {
        bench.publish(publisher, "a", &number.to_string(), qos);
    }
    let dropped = &bench.broker.counters().dropped;
    assert_eq!((dropped.queue_full, dropped.queue_full_qos0, bench.broker.counters().queued_messages), (0, 1, 4));
}
