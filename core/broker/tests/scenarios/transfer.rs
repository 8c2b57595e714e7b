//! Sessions that move between owners.

use sedge_base::ClientId;
use sedge_broker::{InflightPhase, Input, InterestOp, SessionState};
use sedge_mqtt::{Ack, Connect, Disconnect, Packet, ReasonCode};

use crate::harness::*;

fn relinquish(bench: &mut Bench, client: &str, epoch: u64, clean_start: bool) -> Option<Box<SessionState>> {
    bench.input(Input::Relinquish { client: ClientId::new(client), epoch, clean_start });
    bench.relinquished.pop().expect("it is always answered")
}

/// A session with something of everything, given away by its first owner.
fn moved() -> (Bench, Box<SessionState>) {
    let mut bench = Bench::new();
    let publisher = bench.client(V5, "p");
    let mut asked = persistent(V5, "s");
    asked.properties.receive_maximum = Some(2);
    asked.will = Some(will("w", "gone", Q0));
    asked.will.as_mut().unwrap().properties.delay = Some(60);
    let conn = bench.connect(asked);
    bench.subscribe(conn, "a", Q2);
    bench.subscribe(conn, "$share/g/b", Q1);
    for payload in ["0", "1", "2"] {
        bench.publish(publisher, "a", payload, Q2);
    }
    bench.publish(publisher, "b", "3", Q1);
    let got = bench.publishes(conn);
    bench.send(conn, &Packet::PubRec(Ack::new(got[0].packet_id.unwrap(), ReasonCode::Success)));
    bench.send(conn, &publish("c", "mine", Q2, 77));
    bench.drain(conn);
    bench.interest.clear();
    let state = relinquish(&mut bench, "s", 100, false).unwrap();
    assert!(matches!(
        bench.recv(conn),
        Some(Packet::Disconnect(Disconnect { reason: ReasonCode::SessionTakenOver, .. }))
    ));
    let withdrawn = bench.interest.iter().filter(|(_, change)| change.op == InterestOp::Remove).count();
    assert_eq!(withdrawn, 2);
    (bench, state)
}

/// MQ-11
#[test]
fn a_relinquished_session_is_whole_and_leaves_nothing_behind() {
    let (bench, state) = moved();
    assert_eq!((state.client.as_str(), state.epoch, state.expiry_secs), ("s", 2, 3_600));
    assert_eq!(state.subscriptions.len(), 2);
    assert_eq!(state.inflight.len(), 2);
    assert_eq!(state.inflight[0].phase, InflightPhase::Released);
    assert!(matches!(&state.inflight[1].phase, InflightPhase::Sent(sent) if &sent.message.payload[..] == b"1"));
    assert_eq!(state.queue.len(), 2);
    assert_eq!(state.queue[1].group.as_ref().unwrap().as_str(), "$share/g/b");
    assert_eq!(state.inbound.len(), 1);
    assert_eq!(state.will.as_ref().unwrap().remaining, secs(60));
    assert_eq!(bench.broker.sessions().count(), 1);
    let counters = bench.broker.counters();
    assert_eq!((counters.queued_messages, counters.subscriptions, counters.queued_bytes), (0, 0, 0));
    assert!(bench.ended.is_empty() && bench.bounced.is_empty());
}

/// MQ-11
#[test]
fn a_session_from_elsewhere_goes_on_where_it_was() {
    let (_, state) = moved();
    let mut bench = Bench::new();
    bench.elsewhere.insert(ClientId::new("s"), state);
    bench.slow = true;
    let conn = bench.dial(persistent(V5, "s"));
    bench.answer();
    assert_eq!(bench.drain(conn), [], "CONNACK waits for the interest");
    assert_eq!(bench.interest.len(), 2);
    let publisher = bench.client_now(V5, "p");
    bench.send(publisher, &publish("a", "4", Q1, 9));
    bench.answer_all();
    let got = bench.drain(conn);
    let [Packet::ConnAck(connack), Packet::PubRel(_), Packet::Publish(one), rest @ ..] = &got[..] else {
        panic!("{got:?}")
    };
    assert!(connack.session_present);
    assert!(one.dup);
    assert_eq!(&one.payload[..], b"1");
    let rest: Vec<_> = rest
        .iter()
        .map(|packet| match packet {
            Packet::Publish(publish) if !publish.dup => &publish.payload[..],
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(rest, [b"2", b"3", b"4"]);
    bench.send(conn, &publish("c", "mine", Q2, 77));
    assert_eq!(bench.drain(conn), [Packet::PubRec(ack(77))]);
    assert_eq!(bench.routed.len(), 1, "the repeated publication is not routed again");
    bench.pass(secs(100));
    assert_eq!(bench.routed.len(), 1, "the will was for a client that did not come back");
}

/// MQ-11
#[test]
fn resumption_does_not_wait_for_ever() {
    let (_, state) = moved();
    let mut bench = Bench::new();
    bench.elsewhere.insert(ClientId::new("s"), state);
    bench.slow = true;
    let conn = bench.dial(persistent(V5, "s"));
    bench.answer();
    bench.pass(secs(5));
    assert!(matches!(bench.recv(conn), Some(Packet::ConnAck(connack)) if connack.session_present));
    bench.answer_all();
    assert!(!bench.is_closed(conn));
}

/// MQ-11
#[test]
fn a_session_whose_client_left_meanwhile_is_kept() {
    let (_, state) = moved();
    let mut bench = Bench::new();
    bench.elsewhere.insert(ClientId::new("s"), state);
    bench.slow = true;
    let conn = bench.dial(persistent(V5, "s"));
    bench.cut(conn);
    bench.answer_all();
    let session = bench.broker.sessions().next().unwrap();
    assert_eq!((session.queued, session.inflight, session.connection, session.epoch), (2, 2, None, 1));
    assert!(bench.interest.iter().all(|(_, change)| change.op == InterestOp::Add { retained: false, online: false }));
    bench.pass(secs(60));
    assert_eq!(bench.routed.len(), 1, "its will is due");
    bench.pass(secs(3_540));
    assert_eq!(bench.broker.sessions().count(), 0);
    assert_eq!(bench.ended, [(ClientId::new("s"), 1)]);
}

/// MQ-11
#[test]
fn relinquish_for_an_older_epoch_changes_nothing() {
    let mut bench = Bench::new();
    let conn = bench.connect(persistent(V5, "s"));
    assert_eq!(relinquish(&mut bench, "s", 1, true), None);
    assert!(!bench.is_closed(conn));
    assert_eq!(relinquish(&mut bench, "unknown", 9, true), None);
}

/// MQ-11
#[test]
fn relinquish_for_a_clean_start_ends_the_session() {
    let mut bench = Bench::new();
    let mut asked = persistent(V5, "s");
    asked.will = Some(will("w", "gone", Q0));
    asked.will.as_mut().unwrap().properties.delay = Some(60);
    let conn = bench.connect(asked);
    assert_eq!(relinquish(&mut bench, "s", 2, true), None);
    assert!(bench.is_closed(conn));
    assert_eq!(bench.routed.len(), 1, "the session of the will has ended");
    assert_eq!(bench.broker.sessions().count(), 0);
    assert!(bench.ended.is_empty(), "the new owner goes on");
}

/// MQ-11
#[test]
fn a_session_that_ends_with_its_connection_is_not_given_away() {
    let mut bench = Bench::new();
    let conn = bench.connect(Connect { will: Some(will("w", "gone", Q0)), ..connect(V4, "s") });
    assert_eq!(relinquish(&mut bench, "s", 2, false), None);
    assert!(bench.is_closed(conn));
    assert_eq!(bench.routed.len(), 1);
}

/// MQ-11
#[test]
fn relinquish_reaches_a_connection_that_resumes() {
    let (_, state) = moved();
    let mut bench = Bench::new();
    bench.elsewhere.insert(ClientId::new("s"), state);
    bench.slow = true;
    let conn = bench.dial(persistent(V5, "s"));
    bench.answer();
    let state = relinquish(&mut bench, "s", 9, false).unwrap();
    assert_eq!((state.queue.len(), state.inflight.len()), (2, 2));
    assert!(bench.is_closed(conn));
    bench.answer_all();
    assert_eq!(bench.broker.sessions().count(), 0);
}
