//! Shared subscriptions.

use sedge_base::ConnId;
use sedge_broker::{BrokerConfig, Deliver, Input, InterestOp};
use sedge_mqtt::{Connect, Packet, ReasonCode, SubscriptionOptions, TopicFilter};
use smallvec::smallvec;

use crate::harness::*;

const GROUP: &str = "$share/g/a";

fn member(bench: &mut Bench, client: &str) -> ConnId {
    let conn = bench.connect(persistent(V5, client));
    bench.subscribe(conn, GROUP, Q1);
    conn
}

/// MQ-14
#[test]
fn members_take_turns() {
    let mut bench = Bench::new();
    let publisher = bench.client(V5, "p");
    let members = ["x", "y", "z"].map(|client| member(&mut bench, client));
    for number in 0..9 {
        bench.publish(publisher, "a", &number.to_string(), Q0);
    }
    for conn in members {
        assert_eq!(bench.payloads(conn).len(), 3);
    }
    assert!(bench.bounced.is_empty());
}

/// MQ-14
#[test]
fn a_subscriber_of_both_kinds_gets_both() {
    let mut bench = Bench::new();
    let conn = member(&mut bench, "x");
    bench.subscribe(conn, "a", Q0);
    bench.publish(conn, "a", "1", Q0);
    assert_eq!(bench.payloads(conn), ["1", "1"]);
}

/// MQ-14
#[test]
fn members_who_are_away_come_last() {
    let mut bench = Bench::new();
    let publisher = bench.client(V5, "p");
    let (away, here) = (member(&mut bench, "away"), member(&mut bench, "here"));
    bench.cut(away);
    for number in 0..4 {
        bench.publish(publisher, "a", &number.to_string(), Q1);
    }
    assert_eq!(bench.payloads(here).len(), 4);
    bench.cut(here);
    bench.publish(publisher, "a", "4", Q1);
    bench.publish(publisher, "a", "5", Q1);
    let away = bench.connect(Connect { clean_start: false, ..persistent(V5, "away") });
    assert_eq!(bench.payloads(away).len(), 1);
}

/// MQ-14
#[test]
fn members_without_room_are_passed_over() {
    let mut bench = Bench::with(BrokerConfig { max_inflight: 2, ..BrokerConfig::default() });
    let publisher = bench.client(V5, "p");
    let (slow, fast) = (member(&mut bench, "slow"), member(&mut bench, "fast"));
    let mut fast_got = 0;
    for number in 0..10 {
        bench.publish(publisher, "a", &number.to_string(), Q1);
        for publish in bench.publishes(fast) {
            fast_got += 1;
            bench.send(fast, &Packet::PubAck(sedge_mqtt::Ack::new(publish.packet_id.unwrap(), ReasonCode::Success)));
        }
    }
    assert_eq!((bench.payloads(slow).len(), fast_got), (2, 8));
}

/// MQ-14
#[test]
fn without_members_the_message_goes_back() {
    let mut bench = Bench::new();
    let publisher = bench.client(V5, "p");
    bench.publish(publisher, "a", "1", Q1);
    let (message, _) = bench.routed.last().cloned().unwrap();
    let groups = smallvec![TopicFilter::new(GROUP).unwrap()];
    bench.input(Input::Deliver(Deliver { message, plain: false, groups }));
    assert_eq!(bench.bounced.len(), 1);
    assert_eq!(bench.bounced[0].1.as_str(), GROUP);
}

/// MQ-14: at the end of a session its share goes to others, but not QoS 2 that was sent.
#[test]
fn an_ended_session_gives_its_share_back() {
    let mut bench = Bench::with(BrokerConfig { max_inflight: 2, ..BrokerConfig::default() });
    let publisher = bench.client(V5, "p");
    let conn = bench.connect(connect(V5, "x"));
    bench.subscribe(conn, GROUP, Q2);
    for (payload, qos) in [("sent 2", Q2), ("sent 1", Q1), ("queued 2", Q2), ("queued 1", Q1)] {
        bench.publish(publisher, "a", payload, qos);
    }
    bench.cut(conn);
    let bounced: Vec<_> = bench.bounced.iter().map(|(message, ..)| &message.payload[..]).collect();
    assert_eq!(bounced, [&b"sent 1"[..], b"queued 2", b"queued 1"]);
    assert_eq!(bench.broker.counters().queued_messages, 0);
}

/// MQ-14
#[test]
fn those_who_route_hear_who_is_connected() {
    let mut bench = Bench::new();
    let conn = member(&mut bench, "x");
    bench.subscribe(conn, "plain", Q0);
    bench.interest.clear();
    bench.cut(conn);
    bench.connect(persistent(V5, "x"));
    let told: Vec<_> = bench.interest.iter().map(|(_, change)| (change.filter.as_str(), change.op)).collect();
    let add = |online| InterestOp::Add { retained: false, online };
    assert_eq!(told, [(GROUP, add(false)), (GROUP, add(true))]);
}

/// MQ-14
#[test]
fn no_local_on_a_shared_subscription_is_a_protocol_error() {
    let mut bench = Bench::new();
    let conn = bench.client(V5, "x");
    let options = SubscriptionOptions { no_local: true, ..SubscriptionOptions::default() };
    bench.send(conn, &subscribe(1, &[(GROUP, options)], None));
    let Some(Packet::Disconnect(disconnect)) = bench.recv(conn) else { panic!() };
    assert_eq!(disconnect.reason, ReasonCode::ProtocolError);
    assert_eq!(bench.broker.counters().subscriptions, 0);
}
