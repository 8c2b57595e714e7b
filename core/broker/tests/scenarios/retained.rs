//! Retained messages at the time of SUBSCRIBE.

use std::sync::Arc;

use sedge_broker::BrokerConfig;
use sedge_mqtt::{Packet, PublishProperties, RetainHandling, SubscriptionOptions};

use crate::harness::*;

/// MQ-07
#[test]
fn new_subscribers_get_the_last_value_until_it_is_cleared() {
    for version in [V4, V5] {
        let mut bench = Bench::new();
        let publisher = bench.client(version, "p");
        for (payload, qos) in [("1", Q0), ("2", Q1)] {
            bench.retain(publisher, "a/b", payload, qos);
        }
        let subscriber = bench.client(version, "s");
        bench.subscribe(subscriber, "a/#", Q1);
        let got = bench.publishes(subscriber);
        assert_eq!((got.len(), &got[0].payload[..], got[0].retain, got[0].qos), (1, &b"2"[..], true, Q1));
        bench.retain(publisher, "a/b", "", Q0);
        assert_eq!(bench.publishes(subscriber)[0].payload.len(), 0, "the clearing message itself is delivered");
        let late = bench.client(version, "l");
        bench.subscribe(late, "a/#", Q1);
        assert_eq!(bench.drain(late), []);
    }
}

/// MQ-07
#[test]
fn suback_comes_before_the_values() {
    let mut bench = Bench::new();
    let conn = bench.client(V4, "a");
    bench.retain(conn, "a", "1", Q0);
    bench.send(conn, &subscribe(1, &[("a", SubscriptionOptions::default())], None));
    let got = bench.drain(conn);
    assert!(matches!(&got[..], [Packet::SubAck(_), Packet::Publish(_)]), "{got:?}");
}

/// MQ-14
#[test]
fn retain_handling_is_kept() {
    let mut bench = Bench::new();
    let conn = bench.client(V5, "a");
    bench.retain(conn, "a", "1", Q0);
    let mut subscribe = |retain_handling| {
        bench.subscribe_with(conn, "a", SubscriptionOptions { retain_handling, ..Default::default() }, None);
        bench.drain(conn).len()
    };
    assert_eq!(subscribe(RetainHandling::DoNotSend), 0);
    assert_eq!(subscribe(RetainHandling::SendIfNew), 0);
    assert_eq!(subscribe(RetainHandling::Send), 1);
    assert_eq!(subscribe(RetainHandling::Send), 1);
    bench.unsubscribe(conn, "a");
    let options = SubscriptionOptions { retain_handling: RetainHandling::SendIfNew, ..Default::default() };
    bench.subscribe_with(conn, "a", options, None);
    assert_eq!(bench.drain(conn).len(), 1);
}

/// MQ-14
#[test]
fn each_subscription_gets_its_own_copy_with_its_identifier() {
    let mut bench = Bench::new();
    let conn = bench.client(V5, "a");
    bench.retain(conn, "a", "1", Q1);
    let options = SubscriptionOptions { qos: Q1, ..Default::default() };
    bench.send(conn, &subscribe(1, &[("a", options), ("#", options)], Some(77)));
    assert!(matches!(bench.recv(conn), Some(Packet::SubAck(_))));
    let got = bench.publishes(conn);
    assert_eq!(got.len(), 2);
    for publish in got {
        assert!(publish.retain);
        assert_eq!(publish.properties.unwrap().subscription_ids[..], [77]);
    }
}

/// MQ-07: a message that came live while the SUBSCRIBE settled does not come again.
#[test]
fn live_and_kept_do_not_double() {
    let mut bench = Bench::new();
    let publisher = bench.client(V5, "p");
    let subscriber = bench.client(V5, "s");
    bench.retain(publisher, "a", "old", Q0);
    bench.retain(publisher, "b", "old", Q0);
    bench.slow = true;
    bench.send(subscriber, &subscribe(1, &[("#", SubscriptionOptions::default())], None));
    // The snapshot was taken before the next message and still has the old value of `a`.
    bench.retain(publisher, "a", "new", Q0);
    assert_eq!(bench.payloads(subscriber), ["new"]);
    bench.answer_all();
    assert!(matches!(bench.recv(subscriber), Some(Packet::SubAck(_))));
    let got = bench.publishes(subscriber);
    assert_eq!(got.len(), 1);
    assert_eq!(got[0].topic.as_ref().unwrap().as_str(), "b");
}

/// MQ-14
#[test]
fn retained_messages_expire() {
    let mut bench = Bench::new();
    let conn = bench.client(V5, "a");
    let properties = PublishProperties { message_expiry: Some(10), ..Default::default() };
    let Packet::Publish(mut packet) = publish_with("a", "x", Q0, properties) else { unreachable!() };
    packet.retain = true;
    bench.send(conn, &Packet::Publish(packet));
    bench.pass(secs(4));
    bench.subscribe(conn, "a", Q0);
    let got = bench.publishes(conn);
    assert_eq!(got[0].properties.as_ref().unwrap().message_expiry, Some(6));
    bench.pass(secs(6));
    bench.subscribe(conn, "a", Q0);
    assert_eq!(bench.drain(conn), []);
}

/// MQ-14
#[test]
fn shared_subscriptions_get_no_retained_messages() {
    let mut bench = Bench::new();
    let conn = bench.client(V5, "a");
    bench.retain(conn, "a", "1", Q0);
    bench.subscribe(conn, "$share/g/a", Q0);
    assert_eq!(bench.drain(conn), []);
    let own = SubscriptionOptions { no_local: true, ..Default::default() };
    bench.subscribe_with(conn, "a", own, None);
    assert_eq!(bench.drain(conn), [], "no local holds for retained messages too");
}

/// MQ-07
#[test]
fn kept_messages_pin_no_read_buffer() {
    let mut bench = Bench::new();
    let conn = bench.client(V4, "a");
    bench.retain(conn, "a", "small", Q0);
    let (live, _) = bench.routed.last().cloned().unwrap();
    let mut kept = Vec::new();
    let all = sedge_mqtt::TopicFilter::new("#").unwrap();
    bench.retained.matching(&all, bench.now.wall, |message| kept.push(Arc::clone(message)));
    assert_eq!(kept[0], live);
    assert_ne!(kept[0].payload.as_ptr(), live.payload.as_ptr());
    assert_ne!(kept[0].topic.as_bytes().as_ptr(), live.topic.as_bytes().as_ptr());
}

/// Takes and acknowledges what comes until nothing comes any more.
fn take_all(bench: &mut Bench, conn: sedge_base::ConnId) -> Vec<String> {
    let mut all = Vec::new();
    loop {
        let got = bench.drain(conn);
        if got.is_empty() {
            return all;
        }
        for packet in got {
            let answer = match packet {
                Packet::PubRel(released) => Packet::PubComp(ack(released.packet_id.get())),
                Packet::Publish(publish) => {
                    all.push(String::from_utf8(publish.payload.to_vec()).unwrap());
                    match (publish.qos, publish.packet_id) {
                        (Q1, Some(id)) => Packet::PubAck(ack(id.get())),
                        (Q2, Some(id)) => Packet::PubRec(ack(id.get())),
                        _ => continue,
                    }
                }
                other => panic!("{other:?}"),
            };
            bench.send(conn, &answer);
        }
    }
}

/// MQ-07, MQ-09: more retained messages than a queue holds, for clients that read and acknowledge at their pace; later publications come
/// behind them (mosquitto#2887, mosquitto#2196).
#[test]
fn the_limits_of_the_queue_cut_no_retained_messages() {
    for (qos, inflight) in [(Q0, 20), (Q1, 20), (Q2, 3)] {
        let config = BrokerConfig { queue_limit_messages: 30, max_inflight: inflight, ..BrokerConfig::default() };
        let mut bench = Bench::with(config);
        let publisher = bench.client(V5, "p");
        let wanted: Vec<String> = (0..1_000).map(|number| format!("{number:04}")).collect();
        for payload in &wanted {
            bench.retain(publisher, &format!("a/{payload}"), payload, qos);
            if qos == Q2 {
                bench.send(publisher, &Packet::PubRel(ack(1)));
                bench.drain(publisher);
            }
        }
        let subscriber = bench.client(V5, "s");
        bench.stick(subscriber, true);
        bench.send(subscriber, &subscribe(1, &[("a/#", SubscriptionOptions { qos, ..Default::default() })], None));
        for number in 0..10 {
            bench.publish(publisher, "a/0999", &format!("live {number}"), qos);
        }
        bench.stick(subscriber, false);
        assert!(matches!(bench.recv(subscriber), Some(Packet::SubAck(_))));
        let mut got = take_all(&mut bench, subscriber);
        let live = got.split_off(1_000);
        got.sort();
        assert_eq!(got, wanted, "{qos:?}");
        assert_eq!(live, (0..10).map(|number| format!("live {number}")).collect::<Vec<_>>());
        assert_eq!(bench.broker.counters().dropped.queue_full + bench.broker.counters().dropped.queue_full_qos0, 0);
        assert_eq!(bench.broker.counters().queued_bytes, 0);
    }
}

/// MQ-07: the client goes in the middle. The retained messages that its session has room for come when it is back; those of `b/#`, which it has
/// unsubscribed from, do not come.
#[test]
fn what_is_left_of_the_retained_messages_waits_with_the_session() {
    let mut bench = Bench::new();
    let publisher = bench.client(V5, "p");
    for number in 0..600 {
        for topic in ["a", "b"] {
            bench.retain(publisher, &format!("{topic}/{number}"), &format!("{topic} {number}"), Q1);
        }
    }
    let subscriber = bench.connect(persistent(V5, "s"));
    let options = SubscriptionOptions { qos: Q1, ..Default::default() };
    bench.send(subscriber, &subscribe(1, &[("a/#", options), ("b/#", options)], None));
    assert!(matches!(bench.recv(subscriber), Some(Packet::SubAck(_))));
    let first = bench.publishes(subscriber).len();
    assert!(first < 600, "the window is full");
    bench.unsubscribe(subscriber, "b/#");
    bench.cut(subscriber);
    let again = bench.connect(persistent(V5, "s"));
    let got: std::collections::BTreeSet<String> = take_all(&mut bench, again).into_iter().collect();
    assert_eq!(got.iter().filter(|payload| payload.starts_with('a')).count(), 600);
    assert_eq!(got.iter().filter(|payload| payload.starts_with('b')).count(), 0);
    assert_eq!(bench.broker.counters().queued_bytes, 0);
}
