//! How long messages take is measured where it is felt: when bytes are written (OP-01).

use std::sync::Arc;

use sedge_base::{ConnId, Duration, Durations, NodeId, Timestamp};
use sedge_broker::{Deliver, Input};
use sedge_mqtt::ReadAt;

use crate::harness::*;

fn pair() -> (Bench, ConnId, ConnId) {
    let mut bench = Bench::new();
    let publisher = bench.client(V5, "p");
    let subscriber = bench.connect(persistent(V5, "s"));
    bench.subscribe(subscriber, "a/#", Q1);
    (bench, publisher, subscriber)
}

/// Deliveries from here and from elsewhere, and acknowledgements: how many, and their milliseconds together.
fn measured(bench: &Bench) -> [(u64, u128); 3] {
    let of = |durations: &Durations| (durations.count(), durations.sum().as_millis());
    let latencies = bench.broker.latencies();
    [of(&latencies.delivery), of(&latencies.delivery_from_elsewhere), of(&latencies.acknowledgement)]
}

#[test]
fn a_delivery_takes_until_its_bytes_are_written() {
    let (mut bench, publisher, subscriber) = pair();
    bench.publish(publisher, "a/b", "x", Q0);
    assert_eq!(measured(&bench)[0], (1, 0));
    bench.pass(Duration::from_secs(1));
    bench.stick(subscriber, true);
    bench.publish(publisher, "a/b", "y", Q0);
    bench.pass(Duration::from_millis(70));
    assert_eq!(measured(&bench)[0], (1, 0), "nothing is written");
    bench.stick(subscriber, false);
    assert_eq!(measured(&bench), [(2, 70), (0, 0), (0, 0)]);
}

#[test]
fn an_acknowledgement_takes_until_everybody_has_the_publication() {
    let (mut bench, publisher, _) = pair();
    bench.slow = true;
    bench.send(publisher, &publish("a/b", "x", Q1, 1));
    bench.pass(Duration::from_millis(30));
    assert_eq!(measured(&bench)[2], (0, 0));
    bench.answer();
    assert_eq!(measured(&bench)[2], (1, 30));
}

/// Messages that waited while a client was away, or were retained before it came, say nothing of how long messages take.
#[test]
fn what_was_published_before_the_client_came_is_not_measured() {
    let (mut bench, publisher, subscriber) = pair();
    bench.cut(subscriber);
    bench.retain(publisher, "r", "kept", Q1);
    bench.publish(publisher, "a/b", "x", Q1);
    bench.pass(Duration::from_mins(5));
    let subscriber = bench.connect(persistent(V5, "s"));
    assert_eq!(bench.payloads(subscriber), ["x"]);
    bench.subscribe(subscriber, "r", Q1);
    assert_eq!(bench.payloads(subscriber), ["kept"]);
    assert_eq!(measured(&bench)[..2], [(0, 0), (0, 0)]);
}

/// A publication of another node is as old as the time of the cluster says.
#[test]
fn publications_of_other_nodes_count_by_themselves() {
    let (mut bench, publisher, subscriber) = pair();
    bench.pass(Duration::from_secs(1));
    bench.publish(publisher, "a/b", "x", Q0);
    let (message, _) = bench.routed.pop().unwrap();
    let mut message = (*message).clone();
    message.id.node = NodeId::new(99);
    message.read_at = ReadAt::default();
    message.stamp.millis = bench.now.wall.as_millis() - 8;
    bench.pass(Duration::from_secs(1));
    bench.now.wall = Timestamp::from_millis(message.stamp.millis + 8);
    bench.input(Input::Deliver(Deliver { message: Arc::new(message), plain: true, groups: smallvec::SmallVec::new() }));
    assert_eq!(bench.payloads(subscriber).len(), 2);
    assert_eq!(measured(&bench)[..2], [(1, 0), (1, 8)]);
}
