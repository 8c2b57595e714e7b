//! Receivers of each message, and the way in which it is delivered to them.

use sedge_mqtt::{Packet, ReasonCode, SubscriptionOptions};

use crate::harness::*;

/// MQ-02
#[test]
fn subscribed_messages_come_until_unsubscribed() {
    for version in [V4, V5] {
        let mut bench = Bench::new();
        let (publisher, subscriber) = (bench.client(version, "p"), bench.client(version, "s"));
        bench.subscribe(subscriber, "a/b", Q0);
        bench.publish(publisher, "a/b", "1", Q1);
        bench.publish(publisher, "a/c", "2", Q1);
        assert_eq!(bench.payloads(subscriber), ["1"]);
        assert_eq!(bench.unsubscribe(subscriber, "a/b"), ReasonCode::Success);
        bench.publish(publisher, "a/b", "3", Q0);
        assert_eq!(bench.payloads(subscriber), <[&str; 0]>::default());
        assert_eq!(bench.routed.iter().map(|(_, matched)| *matched).collect::<Vec<_>>(), [true, false, false]);
        assert_eq!(bench.broker.counters().subscriptions, 0);
    }
}

/// MQ-02
#[test]
fn unsubscribing_what_never_was_changes_nothing_in_the_cluster() {
    let mut bench = Bench::new();
    let conn = bench.client(V5, "a");
    bench.slow = true;
    assert_eq!(bench.unsubscribe(conn, "x"), ReasonCode::NoSubscriptionExisted);
    assert!(bench.interest.is_empty());
}

/// MQ-02
#[test]
fn suback_waits_for_the_cluster_but_the_subscription_does_not() {
    let mut bench = Bench::new();
    let subscriber = bench.client(V5, "s");
    let publisher = bench.client(V5, "p");
    bench.slow = true;
    bench.send(subscriber, &subscribe(7, &[("a", SubscriptionOptions::default())], None));
    bench.send(publisher, &publish("a", "x", Q0, 1));
    assert_eq!(bench.payloads(subscriber), ["x"]);
    bench.send(subscriber, &subscribe(7, &[("b", SubscriptionOptions::default())], None));
    let Some(Packet::SubAck(refused)) = bench.recv(subscriber) else { panic!() };
    assert_eq!(refused.reasons, [ReasonCode::PacketIdentifierInUse]);
    bench.answer_all();
    let Some(Packet::SubAck(granted)) = bench.recv(subscriber) else { panic!() };
    assert_eq!(granted.reasons, [ReasonCode::Success]);
}

/// MQ-03
#[test]
fn wildcards_do_not_match_reserved_topics() {
    let mut bench = Bench::new();
    let (publisher, subscriber) = (bench.client(V4, "p"), bench.client(V4, "s"));
    bench.subscribe(subscriber, "#", Q0);
    bench.publish(publisher, "$x/a", "1", Q0);
    bench.publish(publisher, "/a//b", "2", Q0);
    assert_eq!(bench.payloads(subscriber), ["2"]);
    bench.subscribe(subscriber, "$x/+", Q0);
    bench.publish(publisher, "$x/a", "3", Q0);
    assert_eq!(bench.payloads(subscriber), ["3"]);
}

/// MQ-02
#[test]
fn overlapping_subscriptions_give_one_copy_with_the_highest_qos_and_all_identifiers() {
    let mut bench = Bench::new();
    let (publisher, subscriber) = (bench.client(V5, "p"), bench.client(V5, "s"));
    let options = |qos| SubscriptionOptions { qos, ..SubscriptionOptions::default() };
    bench.subscribe_with(subscriber, "a/#", options(Q0), Some(1));
    bench.subscribe_with(subscriber, "a/+", options(Q2), Some(2));
    bench.subscribe_with(subscriber, "a/b", options(Q1), None);
    bench.publish(publisher, "a/b", "x", Q1);
    let got = bench.publishes(subscriber);
    assert_eq!(got.len(), 1);
    assert_eq!(got[0].qos, Q1);
    let mut ids = got[0].properties.as_ref().unwrap().subscription_ids.to_vec();
    ids.sort_unstable();
    assert_eq!(ids, [1, 2]);
}

/// MQ-02
#[test]
fn subscribing_again_replaces_the_options() {
    let mut bench = Bench::new();
    let (publisher, subscriber) = (bench.client(V5, "p"), bench.client(V5, "s"));
    bench.subscribe_with(subscriber, "a", SubscriptionOptions { qos: Q2, ..Default::default() }, Some(5));
    bench.subscribe(subscriber, "a", Q0);
    bench.publish(publisher, "a", "x", Q2);
    let got = bench.publishes(subscriber);
    assert_eq!((got.len(), got[0].qos, got[0].properties.is_none()), (1, Q0, true));
    assert_eq!(bench.broker.counters().subscriptions, 1);
}

/// MQ-14
#[test]
fn no_local_keeps_own_messages_away() {
    let mut bench = Bench::new();
    let (a, b) = (bench.client(V5, "a"), bench.client(V5, "b"));
    let no_local = SubscriptionOptions { no_local: true, ..SubscriptionOptions::default() };
    bench.subscribe_with(a, "x", no_local, None);
    bench.subscribe(b, "x", Q0);
    bench.publish(a, "x", "1", Q0);
    bench.publish(b, "x", "2", Q0);
    assert_eq!(bench.payloads(a), ["2"]);
    assert_eq!(bench.payloads(b), ["1", "2"]);
    bench.subscribe(a, "#", Q0);
    bench.publish(a, "x", "3", Q0);
    assert_eq!(bench.payloads(a), ["3"], "another subscription may still match");
}

/// MQ-04: many receivers with different versions and options, large and small payloads.
#[test]
fn fan_out_gives_everyone_what_they_asked_for() {
    for size in [10, 5_000, 100_000] {
        let mut bench = Bench::new();
        let publisher = bench.client(V5, "p");
        let plain: Vec<_> =
            (0..20).map(|number| bench.client(if number % 2 == 0 { V4 } else { V5 }, &format!("s{number}"))).collect();
        for &conn in &plain {
            bench.subscribe(conn, "a/+", Q0);
        }
        let kept = bench.client(V5, "kept");
        let options = SubscriptionOptions { qos: Q1, retain_as_published: true, ..SubscriptionOptions::default() };
        bench.subscribe_with(kept, "a/b", options, Some(9));
        let payload = "x".repeat(size);
        bench.retain(publisher, "a/b", &payload, Q1);
        for &conn in &plain {
            let got = bench.publishes(conn);
            assert_eq!((got.len(), got[0].qos, got[0].retain, got[0].payload.len()), (1, Q0, false, size));
        }
        let got = bench.publishes(kept);
        assert_eq!((got[0].qos, got[0].retain, got[0].payload.len()), (Q1, true, size));
        assert_eq!(got[0].properties.as_ref().unwrap().subscription_ids[..], [9]);
    }
}

/// MQ-02
#[test]
fn subscriptions_beyond_the_limits_are_refused() {
    let config = sedge_broker::BrokerConfig { max_subscriptions: 2, max_filter_levels: 3, ..Default::default() };
    let mut bench = Bench::with(config);
    let conn = bench.client(V5, "a");
    let filters = ["a", "b", "c", "a", "a/b/c/d"].map(|filter| (filter, SubscriptionOptions::default()));
    bench.send(conn, &subscribe(1, &filters, None));
    let Some(Packet::SubAck(suback)) = bench.recv(conn) else { panic!() };
    let (ok, quota) = (ReasonCode::Success, ReasonCode::QuotaExceeded);
    assert_eq!(suback.reasons, [ok, ok, quota, ok, ReasonCode::TopicFilterInvalid]);
    assert_eq!(bench.broker.sessions().next().unwrap().subscriptions.len(), 2);
}
