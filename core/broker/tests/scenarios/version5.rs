//! Features that only MQTT 5.0 has.

use sedge_broker::BrokerConfig;
use sedge_mqtt::{Connect, ConnectProperties, Packet, PublishProperties, ReasonCode};

use crate::harness::*;

fn alias(alias: u16) -> PublishProperties {
    PublishProperties { topic_alias: Some(alias), ..PublishProperties::default() }
}

/// MQ-14
#[test]
fn topic_aliases_of_the_client_are_resolved() {
    let mut bench = Bench::new();
    let (publisher, subscriber) = (bench.client(V5, "p"), bench.client(V4, "s"));
    bench.subscribe(subscriber, "#", Q0);
    bench.send(publisher, &publish_with("a/b", "1", Q0, alias(64)));
    bench.send(publisher, &publish_with("", "2", Q0, alias(64)));
    bench.send(publisher, &publish_with("c/d", "3", Q0, alias(64)));
    bench.send(publisher, &publish_with("", "4", Q0, alias(64)));
    let got = bench.publishes(subscriber);
    let topics: Vec<_> = got.iter().map(|publish| publish.topic.as_ref().unwrap().as_str()).collect();
    assert_eq!(topics, ["a/b", "a/b", "c/d", "c/d"]);
    assert!(bench.routed.iter().all(|(message, _)| message.properties.is_none()));
}

/// MQ-14
#[test]
fn unusable_topic_aliases_are_refused() {
    for (topic, number, reason) in [("a", 65, ReasonCode::TopicAliasInvalid), ("", 3, ReasonCode::ProtocolError)] {
        let mut bench = Bench::new();
        let conn = bench.client(V5, "p");
        bench.send(conn, &publish_with(topic, "1", Q0, alias(number)));
        let Some(Packet::Disconnect(disconnect)) = bench.recv(conn) else { panic!() };
        assert_eq!(disconnect.reason, reason);
    }
}

/// MQ-14
#[test]
fn aliases_end_with_their_connection() {
    let mut bench = Bench::new();
    let conn = bench.connect(persistent(V5, "p"));
    bench.send(conn, &publish_with("a/b", "1", Q0, alias(1)));
    bench.cut(conn);
    let conn = bench.connect(persistent(V5, "p"));
    bench.send(conn, &publish_with("", "1", Q0, alias(1)));
    assert!(bench.is_closed(conn));
}

/// MQ-14
#[test]
fn the_broker_uses_the_aliases_a_client_offers() {
    let mut bench = Bench::new();
    let publisher = bench.client(V5, "p");
    let properties = ConnectProperties { topic_alias_maximum: Some(2), ..ConnectProperties::default() };
    let subscriber = bench.connect(Connect { properties, ..connect(V5, "s") });
    bench.subscribe(subscriber, "#", Q1);
    for topic in ["long/topic/1", "long/topic/1", "long/topic/2", "long/topic/3", "long/topic/2", "x"] {
        bench.publish(publisher, topic, "", Q1);
    }
    let got = bench.publishes(subscriber);
    let seen: Vec<_> = got
        .iter()
        .map(|publish| {
            let alias = publish.properties.as_ref().and_then(|properties| properties.topic_alias);
            (publish.topic.as_ref().map_or("", |topic| topic.as_str()), alias)
        })
        .collect();
    let expected = [
        ("long/topic/1", Some(1)),
        ("", Some(1)),
        ("long/topic/2", Some(2)),
        ("long/topic/3", None),
        ("", Some(2)),
        ("x", None),
    ];
    assert_eq!(seen, expected);
}

/// MQ-14
#[test]
fn properties_travel_with_the_message() {
    let mut bench = Bench::new();
    let (publisher, modern, old) = (bench.client(V5, "p"), bench.client(V5, "m"), bench.client(V4, "o"));
    bench.subscribe(modern, "a", Q0);
    bench.subscribe(old, "a", Q0);
    let properties = PublishProperties {
        payload_is_utf8: Some(true),
        response_topic: Some(utf8("r")),
        correlation_data: Some(bytes::Bytes::from_static(b"c")),
        user: vec![(utf8("k"), utf8("1")), (utf8("k"), utf8("2"))],
        content_type: Some(utf8("t")),
        ..PublishProperties::default()
    };
    bench.send(publisher, &publish_with("a", "x", Q0, properties.clone()));
    assert_eq!(bench.publishes(modern)[0].properties.as_deref(), Some(&properties));
    assert_eq!(bench.publishes(old)[0].properties, None);
}

/// MQ-14
#[test]
fn a_topic_that_is_too_deep_is_refused() {
    let mut bench = Bench::with(BrokerConfig { max_topic_levels: 3, ..BrokerConfig::default() });
    let conn = bench.client(V5, "p");
    bench.send(conn, &publish("a/b/c", "", Q0, 1));
    assert!(!bench.is_closed(conn));
    bench.send(conn, &publish("a/b/c/d", "", Q0, 1));
    let Some(Packet::Disconnect(disconnect)) = bench.recv(conn) else { panic!() };
    assert_eq!(disconnect.reason, ReasonCode::TopicNameInvalid);
}

/// MQ-14: a publisher that would repeat the message is told in the acknowledgement, and stays connected.
#[test]
fn a_topic_that_is_too_deep_is_refused_by_its_acknowledgement() {
    let mut bench = Bench::with(BrokerConfig { max_topic_levels: 3, ..BrokerConfig::default() });
    let conn = bench.client(V5, "p");
    for (qos, id) in [(Q1, 1), (Q2, 2), (Q2, 2)] {
        bench.send(conn, &publish("a/b/c/d", "", qos, id));
        let Some(Packet::PubAck(ack) | Packet::PubRec(ack)) = bench.recv(conn) else { panic!("no answer") };
        assert_eq!((ack.packet_id.get(), ack.reason), (id, ReasonCode::TopicNameInvalid));
    }
    bench.publish(conn, "a/b/c", "", Q2);
    assert!(!bench.is_closed(conn));
    assert_eq!((bench.routed.len(), bench.broker.counters().refused_topics), (1, 3));
    let conn = bench.client(V4, "q");
    bench.send(conn, &publish("a/b/c/d", "", Q1, 1));
    assert!(bench.is_closed(conn));
}
