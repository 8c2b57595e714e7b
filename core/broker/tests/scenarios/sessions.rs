//! Sessions that outlive their connections.

use sedge_base::ClientId;
use sedge_broker::BrokerConfig;
use sedge_mqtt::{Connect, ConnectProperties, Disconnect, Packet, ReasonCode};

use crate::harness::*;

fn expiring(client: &str, secs: u32, clean_start: bool) -> Connect {
    let properties = ConnectProperties { session_expiry: Some(secs), ..ConnectProperties::default() };
    Connect { properties, clean_start, ..connect(V5, client) }
}

/// MQ-09
#[test]
fn an_absent_subscriber_finds_what_it_missed() {
    for version in [V4, V5] {
        let mut bench = Bench::new();
        let publisher = bench.client(version, "p");
        let subscriber = bench.connect(persistent(version, "s"));
        bench.subscribe(subscriber, "a", Q2);
        bench.leave(subscriber, ReasonCode::Success);
        for (payload, qos) in [("0", Q0), ("1", Q1), ("2", Q2)] {
            bench.publish(publisher, "a", payload, qos);
        }
        let (subscriber, connack) = bench.connack(persistent(version, "s"));
        assert!(connack.session_present);
        let got = bench.publishes(subscriber);
        assert_eq!(got.iter().map(|publish| &publish.payload[..]).collect::<Vec<_>>(), [b"1", b"2"]);
        assert!(got.iter().all(|publish| !publish.dup));
        assert_eq!(bench.broker.counters().dropped.offline_qos0, 1);
    }
}

/// MQ-09
#[test]
fn qos_0_waits_too_where_it_is_configured() {
    let mut bench = Bench::with(BrokerConfig { queue_qos0_offline: true, ..BrokerConfig::default() });
    let publisher = bench.client(V4, "p");
    let subscriber = bench.connect(persistent(V4, "s"));
    bench.subscribe(subscriber, "a", Q2);
    bench.cut(subscriber);
    bench.publish(publisher, "a", "0", Q0);
    let subscriber = bench.connect(persistent(V4, "s"));
    assert_eq!(bench.payloads(subscriber), ["0"]);
}

/// MQ-09
#[test]
fn a_clean_start_forgets_the_session() {
    for version in [V4, V5] {
        let mut bench = Bench::new();
        let subscriber = bench.connect(persistent(version, "s"));
        bench.subscribe(subscriber, "a", Q1);
        bench.cut(subscriber);
        bench.interest.clear();
        let (conn, connack) = bench.connack(connect(version, "s"));
        assert!(!connack.session_present);
        assert_eq!(bench.interest.len(), 1, "the interest is withdrawn");
        assert_eq!(bench.ended, [], "the ownership goes on");
        bench.publish(conn, "a", "x", Q0);
        assert_eq!(bench.drain(conn), []);
        bench.cut(conn);
        let (_, connack) = bench.connack(persistent(version, "s"));
        assert!(!connack.session_present, "a clean 3.1.1 session ends with its connection, and so does expiry 0");
    }
}

/// MQ-14
#[test]
fn sessions_expire() {
    let mut bench = Bench::new();
    let conn = bench.connect(expiring("s", 100, true));
    bench.subscribe(conn, "a", Q1);
    bench.pass(secs(1_000));
    bench.cut(conn);
    bench.pass(secs(99));
    let found = bench.broker.session(&ClientId::new("s")).unwrap();
    assert!(found.connection.is_none() && found.disconnected_at.is_some());
    assert_eq!(bench.broker.sessions().collect::<Vec<_>>(), [found]);
    bench.pass(secs(1));
    assert_eq!(bench.broker.sessions().count(), 0);
    assert_eq!(bench.broker.session(&ClientId::new("s")), None);
    assert_eq!(bench.ended, [(ClientId::new("s"), 1)]);
    assert_eq!(bench.broker.counters().sessions_expired, 1);
    let (_, connack) = bench.connack(expiring("s", 100, false));
    assert!(!connack.session_present);
}

/// MQ-14
#[test]
fn a_session_in_use_does_not_expire() {
    let mut bench = Bench::new();
    let conn = bench.connect(expiring("s", 100, true));
    bench.cut(conn);
    bench.pass(secs(50));
    let (conn, connack) = bench.connack(expiring("s", 100, false));
    assert!(connack.session_present);
    bench.pass(secs(1_000));
    bench.cut(conn);
    bench.pass(secs(99));
    assert_eq!(bench.broker.sessions().count(), 1);
}

/// MQ-14
#[test]
fn disconnect_changes_the_expiry() {
    let mut bench = Bench::new();
    let conn = bench.connect(expiring("s", 100, true));
    let zero = Disconnect { session_expiry: Some(0), ..Disconnect::new(ReasonCode::Success) };
    bench.send(conn, &Packet::Disconnect(zero));
    assert_eq!(bench.broker.sessions().count(), 0);
    let conn = bench.connect(connect(V5, "s"));
    let longer = Disconnect { session_expiry: Some(5), ..Disconnect::new(ReasonCode::Success) };
    bench.send(conn, &Packet::Disconnect(longer.clone()));
    let Some(Packet::Disconnect(refused)) = bench.recv(conn) else { panic!() };
    assert_eq!(refused.reason, ReasonCode::ProtocolError);
    let conn = bench.connect(expiring("s", 100, true));
    bench.send(conn, &Packet::Disconnect(longer));
    bench.pass(secs(4));
    assert_eq!(bench.broker.sessions().count(), 1);
    bench.pass(secs(1));
    assert_eq!(bench.broker.sessions().count(), 0);
}

/// MQ-11
#[test]
fn a_takeover_keeps_a_session_that_outlives_its_connection() {
    for (expiry, present) in [(100, true), (0, false)] {
        let mut bench = Bench::new();
        let first = bench.connect(expiring("s", expiry, true));
        bench.subscribe(first, "a", Q1);
        let (second, connack) = bench.connack(expiring("s", expiry, false));
        assert_eq!(connack.session_present, present);
        assert!(bench.is_closed(first));
        bench.publish(second, "a", "x", Q0);
        assert_eq!(bench.drain(second).len(), usize::from(present));
    }
}

/// MQ-09
#[test]
fn resent_and_queued_messages_keep_to_a_smaller_window() {
    let mut bench = Bench::new();
    let publisher = bench.client(V5, "p");
    let subscriber = bench.connect(expiring("s", 100, true));
    bench.subscribe(subscriber, "a", Q1);
    for number in 0..8 {
        bench.publish(publisher, "a", &number.to_string(), Q1);
    }
    bench.cut(subscriber);
    bench.publish(publisher, "a", "8", Q1);
    let mut again = expiring("s", 100, false);
    again.properties.receive_maximum = Some(3);
    let subscriber = bench.connect(again);
    let mut seen = Vec::new();
    loop {
        let got = bench.publishes(subscriber);
        if got.is_empty() {
            break;
        }
        assert!(got.len() <= 3);
        for publish in got {
            assert_eq!(publish.dup, seen.len() < 8);
            seen.push(String::from_utf8(publish.payload.to_vec()).unwrap());
            let ack = sedge_mqtt::Ack::new(publish.packet_id.unwrap(), ReasonCode::Success);
            bench.send(subscriber, &Packet::PubAck(ack));
        }
    }
    assert_eq!(seen, ["0", "1", "2", "3", "4", "5", "6", "7", "8"]);
}

/// FT-09
#[test]
fn sessions_are_listed() {
    let mut bench = Bench::new();
    let conn = bench.connect(expiring("s", 100, true));
    bench.subscribe(conn, "a/#", Q1);
    let session = bench.broker.sessions().next().unwrap();
    assert_eq!((session.client, session.connection, session.clean), (ClientId::new("s"), Some(conn), false));
    assert_eq!((session.peer.as_deref(), session.user.as_deref()), (Some("peer-1"), Some("user-1")));
    assert_eq!(session.subscriptions[0].filter.as_str(), "a/#");
    assert_eq!((session.expiry_secs, session.disconnected_at), (100, None));
    bench.pass(secs(2));
    bench.cut(conn);
    let session = bench.broker.sessions().next().unwrap();
    assert_eq!((session.connection, session.disconnected_at), (None, Some(bench.now.wall)));
}
