//! Traces: the notes match the events (OP-07).

use std::sync::Arc;

use sedge_base::{ClientId, ConnId};
use sedge_broker::{BrokerConfig, Cause, Input, TRACE_BYTES_MAX, TRACE_EVENTS_MAX, TRACES_MAX, TraceSpec, TraceStep};
use sedge_mqtt::{QoS, ReasonCode, TopicFilter};

use crate::harness::*;

fn spec(id: u64, client: Option<&str>, filter: &str) -> Arc<TraceSpec> {
    let client = client.map(ClientId::new);
    Arc::new(TraceSpec { id, client, filters: vec![TopicFilter::new(filter).unwrap()], one_in: 1 })
}

fn steps(bench: &Bench, id: u64) -> Vec<TraceStep> {
    let tracer = bench.broker.tracer().expect("a trace runs");
    tracer.events(id, 0, usize::MAX).into_iter().map(|event| event.step.clone()).collect()
}

/// A subscriber "s" of "a/#" with QoS 1, and a publisher "p".
fn pair(config: BrokerConfig) -> (Bench, ConnId, ConnId) {
    let mut bench = Bench::with(config);
    let publisher = bench.client(V5, "p");
    let subscriber = bench.connect(persistent(V5, "s"));
    bench.subscribe(subscriber, "a/#", Q1);
    (bench, publisher, subscriber)
}

fn causes(bench: &Bench, id: u64) -> Vec<Cause> {
    let cause = |step: TraceStep| match step {
        TraceStep::Session { explanation, .. } => Some(explanation.cause),
        TraceStep::Dropped { cause, .. } => Some(cause),
        _ => None,
    };
    steps(bench, id).into_iter().filter_map(cause).collect()
}

/// OP-07: only what is chosen is noted, in the order in which it happens.
#[test]
fn the_steps_of_a_publication_are_noted_in_order() {
    let (mut bench, publisher, subscriber) = pair(BrokerConfig::default());
    assert!(bench.broker.tracer().is_none());
    bench.publish(publisher, "a/b", "before", Q1);
    bench.broker.set_traces(&[spec(1, None, "a/+"), spec(2, None, "other")]);
    bench.publish(publisher, "a/b", "x", Q1);
    assert_eq!(bench.payloads(subscriber), ["before", "x"]);
    bench.publish(publisher, "a/b/c", "not chosen", Q1);
    let (p, s) = (ClientId::new("p"), ClientId::new("s"));
    let told = steps(&bench, 1);
    assert!(
        matches!(&told[0], TraceStep::Received { publisher: Some(of), qos: QoS::AtLeastOnce, bytes: 1, .. } if *of == p)
    );
    assert!(
        matches!(&told[1], TraceStep::Session { client, explanation } if *client == s && explanation.cause == Cause::Connected)
    );
    assert!(matches!(&told[2], TraceStep::Sent { client, waited: false, .. } if *client == s));
    assert!(told[3..].iter().any(|step| matches!(step, TraceStep::Answered { publisher, .. } if *publisher == p)));
    assert_eq!(steps(&bench, 2), []);
    bench.broker.set_traces(&[spec(2, None, "other"), spec(1, None, "a/+")]);
    assert_eq!(steps(&bench, 1), told, "a trace goes on whatever others begin and end");
    bench.broker.set_traces(&[]);
    assert!(bench.broker.tracer().is_none());
}

/// OP-07: each way of not arriving has its cause.
#[test]
fn what_does_not_arrive_is_noted_with_its_cause() {
    let config = BrokerConfig { queue_limit_messages: 1, ..BrokerConfig::default() };
    let (mut bench, publisher, subscriber) = pair(config);
    bench.broker.set_traces(&[spec(1, Some("s"), "#")]);
    bench.publish(publisher, "b", "x", Q1);
    bench.cut(subscriber);
    bench.publish(publisher, "a", "x", Q0);
    bench.publish(publisher, "a", "x", Q1);
    bench.publish(publisher, "a", "x", Q1);
    assert_eq!(causes(&bench, 1), [Cause::NoMatch, Cause::OfflineQos0, Cause::Offline, Cause::QueueFull]);
    bench.input(Input::ClosedTopics(Arc::new([TopicFilter::new("full/#").unwrap()])));
    bench.broker.set_traces(&[spec(2, None, "full/#")]);
    bench.send(publisher, &publish("full/x", "x", Q1, 9));
    let refused = steps(&bench, 2);
    assert!(matches!(&refused[..], [TraceStep::Refused { reason: ReasonCode::QuotaExceeded, .. }]), "{refused:?}");
}

/// OP-07: kept notes are bounded in number and bytes, and those that made room are counted.
#[test]
fn notes_are_bounded_and_what_is_lost_is_counted() {
    let (mut bench, publisher, subscriber) = pair(BrokerConfig::default());
    let specs: Vec<_> = (0..20).map(|id| spec(id, None, "a/#")).collect();
    bench.broker.set_traces(&specs);
    let long = format!("a/{}", "x".repeat(4_000));
    for turn in 0..2_000 {
        bench.publish(publisher, if turn % 2 == 0 { "a/b" } else { &long }, "x", Q0);
        bench.payloads(subscriber);
    }
    let tracer = bench.broker.tracer().unwrap();
    let (notes, bytes) = tracer.kept();
    assert!(notes > 100 && notes <= TRACE_EVENTS_MAX && bytes <= TRACE_BYTES_MAX, "{notes} {bytes}");
    assert_eq!(tracer.dropped() + notes as u64, tracer.last());
    assert_eq!(tracer.events(u64::try_from(TRACES_MAX).unwrap() - 1, 0, usize::MAX).len(), notes);
    assert_eq!(
        tracer.events(u64::try_from(TRACES_MAX).unwrap(), 0, usize::MAX).len(),
        0,
        "one trace more than may run"
    );
}

/// OP-07: one publication of so many is the same one for everybody, and about as many are chosen.
#[test]
fn a_sample_is_a_part() {
    let (mut bench, publisher, _) = pair(BrokerConfig::default());
    let sample = Arc::new(TraceSpec { one_in: 10, ..(*spec(1, None, "#")).clone() });
    bench.broker.set_traces(&[sample]);
    for _ in 0..1_000 {
        bench.publish(publisher, "b", "x", Q0);
    }
    let chosen = steps(&bench, 1).iter().filter(|step| matches!(step, TraceStep::Received { .. })).count();
    assert!((60..=140).contains(&chosen), "{chosen}");
}
