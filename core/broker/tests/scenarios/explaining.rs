//! Planted non-deliveries: the explanation matches the behaviour (OP-04).

use std::sync::Arc;

use sedge_access::Rules;
use sedge_base::{ClientId, ConnId};
use sedge_broker::{BrokerConfig, Cause, Elsewhere, Explanation, Input, Outcome, Policy, Question};
use sedge_mqtt::{Connect, ConnectProperties, QoS, RetainHandling, SubscriptionOptions, TopicName, Version};

use crate::harness::*;

fn question(topic: &str, qos: QoS) -> Question {
    let topic = TopicName::new(topic).unwrap();
    Question { topic, qos, bytes: 1, publisher: None, expiry: None, retained: false }
}

fn explain(bench: &Bench, client: &str, question: &Question) -> Explanation {
    bench.broker.explain(&ClientId::new(client), question, |_| Elsewhere::default()).expect("there is a session")
}

/// A subscriber "s" with one subscription, and a publisher "p".
fn pair(config: BrokerConfig, filter: &str) -> (Bench, ConnId, ConnId) {
    let mut bench = Bench::with(config);
    let publisher = bench.client(V5, "p");
    let subscriber = bench.connect(persistent(V5, "s"));
    bench.subscribe(subscriber, filter, Q1);
    (bench, publisher, subscriber)
}

/// OP-04: a message that does not match is explained by the nearest subscription, and does not come.
#[test]
fn topics_that_do_not_match_are_explained_by_the_nearest_subscription() {
    for (filter, topic, cause) in [
        ("house/kitchen/lamp", "house/cellar/lamp", Cause::OtherLevel),
        ("house/+/lamp", "house/cellar", Cause::TooFewLevels),
        ("house/+", "house/cellar/lamp", Cause::TooManyLevels),
        ("House/+", "house/cellar", Cause::LetterCase),
        ("house/cellar", "/house/cellar", Cause::Slash),
        ("house/cellar", "house/cellar/", Cause::Slash),
        ("#", "$house/cellar", Cause::Dollar),
        ("garden/pump", "house/cellar", Cause::NoMatch),
    ] {
        let (mut bench, publisher, subscriber) = pair(BrokerConfig::default(), filter);
        let told = explain(&bench, "s", &question(topic, Q1));
        assert_eq!((told.cause, told.outcome), (cause, Outcome::Not), "{filter} {topic}: {}", told.detail);
        assert_eq!(told.filter.is_some(), cause != Cause::NoMatch, "{filter} {topic}");
        bench.publish(publisher, topic, "x", Q1);
        assert_eq!(bench.payloads(subscriber), Vec::<String>::new(), "{filter} {topic}");
    }
}

/// OP-04
#[test]
fn a_connected_client_gets_the_lower_of_both_qos_and_one_without_subscriptions_nothing() {
    let (mut bench, publisher, subscriber) = pair(BrokerConfig::default(), "a/+");
    let told = explain(&bench, "s", &question("a/b", Q2));
    assert_eq!((told.cause, told.outcome, told.qos), (Cause::Connected, Outcome::Sent, Q1));
    bench.publish(publisher, "a/b", "x", Q2);
    assert_eq!(bench.payloads(subscriber), ["x"]);
    assert_eq!(explain(&bench, "p", &question("a/b", Q1)).cause, Cause::NoSubscription);
    assert!(bench.broker.explain(&ClientId::new("nobody"), &question("a/b", Q1), |_| Elsewhere::default()).is_none());
}

/// OP-04
#[test]
fn what_a_client_that_is_away_gets_is_explained_by_qos_and_queue() {
    let config = BrokerConfig { queue_limit_messages: 2, ..BrokerConfig::default() };
    let (mut bench, publisher, subscriber) = pair(config.clone(), "a");
    bench.cut(subscriber);
    let told = explain(&bench, "s", &question("a", Q0));
    assert_eq!((told.cause, told.outcome), (Cause::OfflineQos0, Outcome::Not));
    bench.publish(publisher, "a", "0", Q0);
    assert_eq!(bench.broker.counters().dropped.offline_qos0, 1);
    let told = explain(&bench, "s", &question("a", Q1));
    assert_eq!((told.cause, told.outcome, told.qos), (Cause::Offline, Outcome::Waits, Q1));
    bench.publish(publisher, "a", "1", Q1);
    bench.publish(publisher, "a", "2", Q1);
    let told = explain(&bench, "s", &question("a", Q1));
    assert_eq!((told.cause, told.outcome), (Cause::QueueFull, Outcome::Not));
    bench.publish(publisher, "a", "3", Q1);
    assert_eq!(bench.broker.counters().dropped.queue_full, 1);

    let (mut bench, publisher, subscriber) = pair(BrokerConfig { queue_drops_oldest: true, ..config }, "a");
    bench.cut(subscriber);
    (0..3).for_each(|_| bench.publish(publisher, "a", "1", Q1));
    let told = explain(&bench, "s", &question("a", Q1));
    assert_eq!((told.cause, told.outcome), (Cause::QueueFull, Outcome::Waits), "{}", told.detail);
}

/// OP-04
#[test]
fn limits_in_bytes_are_named() {
    let config = BrokerConfig { queue_limit_bytes: 1_000, ..BrokerConfig::default() };
    let (mut bench, publisher, subscriber) = pair(config, "a");
    bench.cut(subscriber);
    bench.publish(publisher, "a", &"x".repeat(900), Q1);
    let told = explain(&bench, "s", &Question { bytes: 100, ..question("a", Q1) });
    assert_eq!((told.cause, told.outcome), (Cause::QueueBytesFull, Outcome::Not));

    let config = BrokerConfig { total_limit_bytes: 2_000, ..BrokerConfig::default() };
    let (mut bench, _, subscriber) = pair(config, "a");
    bench.cut(subscriber);
    let told = explain(&bench, "s", &Question { bytes: 5_000, ..question("a", Q1) });
    assert_eq!((told.cause, told.outcome), (Cause::BuffersFull, Outcome::Not));
}

/// OP-04
#[test]
fn clients_that_lag_are_named_as_slow_or_behind_their_window() {
    let config = BrokerConfig { max_inflight: 1, ..BrokerConfig::default() };
    let (mut bench, publisher, subscriber) = pair(config, "a");
    bench.deafen(subscriber);
    bench.publish(publisher, "a", "1", Q1);
    let told = explain(&bench, "s", &question("a", Q1));
    assert_eq!((told.cause, told.outcome), (Cause::WindowFull, Outcome::Waits), "{}", told.detail);

    let config = BrokerConfig { outbox_high_water: 0, ..BrokerConfig::default() };
    let (mut bench, publisher, subscriber) = pair(config, "a");
    bench.stick(subscriber, true);
    bench.publish(publisher, "a", "1", Q0);
    let told = explain(&bench, "s", &question("a", Q0));
    assert_eq!((told.cause, told.outcome), (Cause::SlowReader, Outcome::Waits), "{}", told.detail);
}

/// OP-04
#[test]
fn packets_that_client_or_broker_do_not_take_are_named() {
    let mut bench = Bench::with(BrokerConfig { max_packet_bytes: 4_096, ..BrokerConfig::default() });
    let properties = ConnectProperties { maximum_packet_size: Some(200), ..ConnectProperties::default() };
    let publisher = bench.client(V5, "p");
    let subscriber = bench.connect(Connect { properties, ..connect(V5, "s") });
    bench.subscribe(subscriber, "a", Q1);
    // 2 of the fixed header, 2 and the topic, 2 of the packet identifier, 1 for no properties: 8 beside the payload, and one of length.
    for (bytes, cause, comes) in [(191, Cause::Connected, 1), (192, Cause::PacketTooLarge, 0)] {
        assert_eq!(explain(&bench, "s", &Question { bytes, ..question("a", Q1) }).cause, cause, "{bytes}");
        bench.publish(publisher, "a", &"x".repeat(bytes), Q1);
        assert_eq!(bench.payloads(subscriber).len(), comes, "{bytes}");
    }
    let large = Question { bytes: 4_096, ..question("a", Q1) };
    let told = explain(&bench, "s", &large);
    assert_eq!(told.cause, Cause::PacketTooLargeForBroker);
    assert!(told.detail.contains("limits.maximum_packet_size"), "{}", told.detail);
}

/// OP-04
#[test]
fn own_publications_and_those_of_other_members_are_named() {
    let (mut bench, _, subscriber) = pair(BrokerConfig::default(), "other");
    let no_local = SubscriptionOptions { qos: Q1, no_local: true, ..SubscriptionOptions::default() };
    bench.subscribe_with(subscriber, "a", no_local, None);
    let own = Question { publisher: Some(ClientId::new("s")), ..question("a", Q1) };
    assert_eq!(explain(&bench, "s", &own).cause, Cause::NoLocal);
    assert_eq!(explain(&bench, "s", &question("a", Q1)).cause, Cause::Connected);

    let other = bench.client(V5, "t");
    bench.subscribe(subscriber, "$share/g/b", Q1);
    bench.subscribe(other, "$share/g/b", Q1);
    let causes = |bench: &Bench| ["s", "t"].map(|client| explain(bench, client, &question("b", Q1)).cause);
    assert_eq!(causes(&bench), [Cause::Connected, Cause::SharedElsewhere]);
    bench.cut(subscriber);
    assert_eq!(causes(&bench), [Cause::SharedElsewhere, Cause::Connected], "members that are away wait");
}

/// OP-04, MQ-14: a connected member gets it before one that is away, wherever it is.
#[test]
fn members_elsewhere_take_turns_with_those_here() {
    let (mut bench, _, subscriber) = pair(BrokerConfig::default(), "$share/g/b");
    let told = |bench: &Bench, online, offline| {
        let found = bench.broker.explain(&ClientId::new("s"), &question("b", Q1), |_| Elsewhere { online, offline });
        found.map(|told| (told.cause, told.outcome)).unwrap()
    };
    assert_eq!(told(&bench, 0, 5), (Cause::Connected, Outcome::Sent), "those that are away get nothing");
    assert_eq!(told(&bench, 2, 0), (Cause::SharedTurn, Outcome::Sent));
    bench.cut(subscriber);
    assert_eq!(told(&bench, 1, 0), (Cause::SharedElsewhere, Outcome::Not));
    assert_eq!(told(&bench, 0, 1), (Cause::SharedTurn, Outcome::Waits));
    assert_eq!(told(&bench, 0, 0), (Cause::Offline, Outcome::Waits));
}

/// OP-04
#[test]
fn what_no_subscriber_gets_is_named() {
    let config = BrokerConfig { max_topic_levels: 3, ..BrokerConfig::default() };
    let (mut bench, _, _) = pair(config, "a/#");
    assert_eq!(explain(&bench, "s", &question("a/b/c/d", Q1)).cause, Cause::TopicTooDeep);
    let expired = Question { expiry: Some(0), ..question("a", Q1) };
    assert_eq!(explain(&bench, "s", &expired).cause, Cause::Expired);
    let reserved = Question { publisher: Some(ClientId::new("p")), ..question("$SYS/x", Q1) };
    assert_eq!(explain(&bench, "s", &reserved).cause, Cause::ReservedTopic);
    bench.broker.set_full(true);
    assert_eq!(explain(&bench, "s", &question("a", Q1)).cause, Cause::JournalFull);
    assert_eq!(explain(&bench, "s", &question("a", Q0)).cause, Cause::Connected);
}

/// OP-04
#[test]
fn retained_messages_that_do_not_come_are_explained() {
    for (handling, cause) in [
        (RetainHandling::Send, Cause::Retained),
        (RetainHandling::SendIfNew, Cause::RetainHandling),
        (RetainHandling::DoNotSend, Cause::RetainHandling),
    ] {
        let (mut bench, publisher, subscriber) = pair(BrokerConfig::default(), "other");
        bench.retain(publisher, "a", "kept", Q1);
        let options = SubscriptionOptions { retain_handling: handling, qos: Q1, ..SubscriptionOptions::default() };
        bench.subscribe_with(subscriber, "a", options, None);
        bench.payloads(subscriber);
        let told = explain(&bench, "s", &Question { retained: true, ..question("a", Q1) });
        assert_eq!(told.cause, cause);
        bench.subscribe_with(subscriber, "a", options, None);
        assert_eq!(bench.payloads(subscriber).len(), usize::from(cause == Cause::Retained), "{handling:?}");
    }
    let (bench, ..) = pair(BrokerConfig::default(), "$share/g/a");
    let told = explain(&bench, "s", &Question { retained: true, ..question("a", Q1) });
    assert_eq!(told.cause, Cause::RetainedShared);
}

/// OP-04: the line of the rules that decides is named.
#[test]
fn access_rules_that_forbid_are_named_with_their_line() {
    let rules = "topic readwrite public/#\nuser anna\ntopic readwrite home/#\ntopic deny home/cellar/#\n";
    let mut bench = Bench::new();
    let policy = Policy { rules: Some(Arc::new(Rules::parse(rules).unwrap())), ..Policy::default() };
    bench.input(Input::Policy(Policy { authenticate: true, ..policy }));
    bench.certificates = false;
    let named = |version: Version| Connect { username: Some(utf8("anna")), ..persistent(version, "s") };
    let subscriber = bench.connect(named(V5));
    assert!(!bench.subscribe(subscriber, "home/#", Q1).is_error());
    let told = explain(&bench, "s", &question("home/cellar/x", Q1));
    assert_eq!((told.cause, told.outcome), (Cause::NotAuthorized, Outcome::Not));
    assert!(told.detail.contains("line 4 of acl.file"), "{}", told.detail);
    assert_eq!(explain(&bench, "s", &question("home/x", Q1)).cause, Cause::Connected);
    let from = Question { publisher: Some(ClientId::new("s")), ..question("elsewhere", Q1) };
    let told = explain(&bench, "s", &from);
    assert_eq!(told.cause, Cause::PublishNotAuthorized);
    assert!(told.detail.contains("no line of acl.file"), "{}", told.detail);
}
