//! Two owners of one session that find each other: QoS 2 flows that the client had begun at the other one.

use std::collections::BTreeSet;
use std::sync::Arc;

use sedge_base::{ClientId, ConnId};
use sedge_broker::{Input, SubscriptionState};
use sedge_mqtt::{Ack, Message, Packet, Publish, ReasonCode, SubscriptionOptions, TopicFilter, TopicName};

use crate::harness::*;

/// A session that is held back, whose client comes to it from the other owner.
fn reuniting() -> (Bench, ConnId) {
    let mut bench = Bench::new();
    let conn = bench.connect(persistent(V5, "c"));
    bench.cut(conn);
    hold(&mut bench);
    let conn = bench.connect(persistent(V5, "c"));
    (bench, conn)
}

fn again(packet: u16) -> Packet {
    let Packet::Publish(publish) = publish("t", "twice?", Q2, packet) else { panic!() };
    Packet::Publish(Publish { dup: true, ..publish })
}

fn release(packet: u16) -> Packet {
    Packet::PubRel(Ack::new(id(packet), ReasonCode::Success))
}

fn hold(bench: &mut Bench) {
    bench.broker.hold(&ClientId::new("c"));
}

fn let_go(bench: &mut Bench) {
    bench.broker.let_go(bench.now, &ClientId::new("c"));
    bench.run();
}

/// The other owner took these, and the client left it for this node's first epoch or a later one.
fn merge(bench: &mut Bench, next: u64, received: &[u16]) {
    let received: Vec<_> = received.iter().copied().map(id).collect();
    bench.broker.merge_received(&ClientId::new("c"), next, &received);
}

/// MQ-06, FT-31
#[test]
fn what_the_other_owner_has_taken_is_not_published_again() {
    let (mut bench, conn) = reuniting();
    bench.send(conn, &again(7));
    bench.send(conn, &release(8));
    bench.send(conn, &publish("t", "new", Q1, 9));
    assert!(bench.is_held(conn) && bench.drain(conn).is_empty(), "nobody knows yet");
    merge(&mut bench, 1_000, &[7, 8]);
    let_go(&mut bench);
    assert!(!bench.is_held(conn));
    let got = bench.drain(conn);
    assert_eq!(got, [Packet::PubRec(ack(7)), Packet::PubComp(ack(8)), Packet::PubAck(ack(9))]);
    assert_eq!(bench.routed.len(), 1, "only the new one");
    bench.send(conn, &release(7));
    assert_eq!(bench.drain(conn), [Packet::PubComp(ack(7))]);
    bench.send(conn, &publish("t", "later", Q2, 7));
    assert_eq!(bench.routed.len(), 2, "the identifier is free again");
}

/// MQ-06, FT-31
#[test]
fn what_no_other_owner_has_taken_is_published_after_all() {
    let (mut bench, conn) = reuniting();
    bench.send(conn, &again(7));
    let_go(&mut bench);
    assert_eq!(bench.routed.len(), 1);
    assert_eq!(bench.drain(conn), [Packet::PubRec(ack(7))]);
}

/// MQ-06, FT-31: the client has come with that already, and been served, so that its identifiers mean something else by now.
#[test]
fn what_the_client_has_begun_anew_since_counts() {
    let mut bench = Bench::new();
    let conn = bench.connect(persistent(V5, "c"));
    let left_before = bench.broker.sessions().next().unwrap().epoch;
    bench.send(conn, &again(7));
    bench.send(conn, &release(7));
    bench.cut(conn);
    hold(&mut bench);
    let conn = bench.connect(persistent(V5, "c"));
    bench.send(conn, &again(7));
    merge(&mut bench, left_before, &[7]);
    let_go(&mut bench);
    assert_eq!(bench.routed.len(), 2);
    assert_eq!(bench.drain(conn), [Packet::PubRec(ack(7))]);
}

/// MQ-06, FT-31: the client was here before anybody knew of the other owner, and has gone on publishing with these identifiers.
#[test]
fn what_a_client_publishes_that_was_here_before_is_its_own() {
    let mut bench = Bench::new();
    let conn = bench.connect(persistent(V5, "c"));
    let served = bench.broker.sessions().next().unwrap().epoch;
    bench.send(conn, &again(7));
    bench.send(conn, &release(7));
    hold(&mut bench);
    merge(&mut bench, served, &[7]);
    let_go(&mut bench);
    merge(&mut bench, 1_000, &[7]);
    bench.drain(conn);
    bench.send(conn, &publish("t", "new", Q2, 7));
    assert_eq!(bench.routed.len(), 2);
    assert_eq!(bench.drain(conn), [Packet::PubRec(ack(7))]);
}

/// MQ-06, FT-31: the other owner is found before the client has said anything on its new connection.
#[test]
fn a_client_that_has_only_just_come_has_not_repeated_anything() {
    for away in [false, true] {
        let mut bench = Bench::new();
        let mut conn = bench.connect(persistent(V5, "c"));
        let served = bench.broker.sessions().next().unwrap().epoch;
        bench.send(conn, &publish("t", "other", Q1, 3));
        bench.drain(conn);
        if away {
            bench.cut(conn);
        }
        hold(&mut bench);
        if away {
            conn = bench.connect(persistent(V5, "c"));
        }
        bench.send(conn, &again(7));
        merge(&mut bench, served, &[7, 8]);
        let_go(&mut bench);
        bench.send(conn, &release(8));
        assert_eq!(bench.routed.len(), 1);
        assert_eq!(bench.drain(conn), [Packet::PubRec(ack(7)), Packet::PubComp(ack(8))]);
    }
}

/// MQ-06, FT-31: a QoS 2 flow that was in progress here, too, and was completed while the session was held back.
#[test]
fn what_a_client_completes_while_it_waits_is_complete() {
    let mut bench = Bench::new();
    let conn = bench.connect(persistent(V5, "c"));
    bench.send(conn, &publish("t", "old", Q2, 7));
    bench.cut(conn);
    hold(&mut bench);
    let conn = bench.connect(persistent(V5, "c"));
    bench.send(conn, &release(7));
    merge(&mut bench, 1_000, &[7]);
    bench.drain(conn);
    bench.send(conn, &publish("t", "new", Q2, 7));
    assert_eq!(bench.routed.len(), 2);
    let_go(&mut bench);
    assert_eq!(bench.drain(conn), [Packet::PubRec(ack(7))]);
}

/// MQ-06, FT-31: a client that gives up while it waits has said nothing here.
#[test]
fn a_client_that_comes_again_while_it_waits_is_known_still() {
    let (mut bench, conn) = reuniting();
    let served = bench.broker.sessions().next().unwrap().epoch;
    bench.send(conn, &again(7));
    bench.cut(conn);
    let conn = bench.connect(persistent(V5, "c"));
    merge(&mut bench, served, &[7]);
    bench.send(conn, &again(7));
    let_go(&mut bench);
    assert!(bench.routed.is_empty());
    assert_eq!(bench.drain(conn), [Packet::PubRec(ack(7))]);
}

/// MQ-05: whatever cannot have begun elsewhere is not held up.
#[test]
fn what_begins_here_does_not_wait() {
    let (mut bench, conn) = reuniting();
    bench.send(conn, &publish("t", "1", Q2, 7));
    bench.send(conn, &again(7));
    bench.send(conn, &release(7));
    bench.send(conn, &publish("t", "2", Q1, 8));
    let got = bench.drain(conn);
    assert_eq!(got, [Packet::PubRec(ack(7)), Packet::PubRec(ack(7)), Packet::PubComp(ack(7)), Packet::PubAck(ack(8))]);
    assert!(!bench.is_held(conn));
}

/// FT-31: a message kept for others is for sessions that have missed it, and not for clients that have subscribed since.
#[test]
fn only_those_named_get_what_they_missed() {
    let mut bench = Bench::new();
    let clients = ["a", "b"].map(|client| bench.client(V5, client));
    for conn in clients {
        bench.subscribe(conn, "t", Q1);
    }
    let publisher = bench.client(V5, "p");
    bench.publish(publisher, "u", "missed", Q1);
    let (message, _) = bench.routed.last().cloned().unwrap();
    let message = Arc::new(Message { topic: TopicName::new("t").unwrap(), ..(*message).clone() });
    bench.broker.deliver_to_some(bench.now, &message, &[ClientId::new("b")].into());
    bench.run();
    assert_eq!(clients.map(|conn| bench.payloads(conn)), [vec![], vec!["missed".to_owned()]]);
}

/// MQ-06, FT-31: the client may be in the middle of a message of the other owner that has this packet identifier.
#[test]
fn a_new_message_has_no_identifier_that_the_other_owner_has_used() {
    for is_merged in [false, true] {
        let mut bench = Bench::new();
        let conn = bench.connect(persistent(V5, "c"));
        bench.subscribe(conn, "t", Q2);
        let publisher = bench.client(V5, "p");
        let next = |bench: &mut Bench| {
            bench.publish(publisher, "t", "m", Q1);
            let sent = bench.drain(conn).into_iter().find_map(|packet| match packet {
                Packet::Publish(publish) => publish.packet_id,
                _ => None,
            });
            sent.expect("a PUBLISH").get()
        };
        let first = next(&mut bench);
        if is_merged {
            bench.broker.merge_sent(&ClientId::new("c"), id(first + 5));
        }
        assert_eq!(next(&mut bench) - first, if is_merged { 6 } else { 1 });
        bench.broker.merge_sent(&ClientId::new("nobody"), id(first));
    }
}

/// FT-21, MQ-06: packets that the broker has in memory when the process stands still are no different from those in the socket.
#[test]
fn nothing_that_waits_in_memory_is_taken_during_a_standstill() {
    for is_held in [false, true] {
        let (mut bench, conn) = reuniting();
        bench.send(conn, &again(7));
        bench.send(conn, &publish("t", "behind it", Q1, 8));
        bench.broker.stand_still();
        let_go(&mut bench);
        bench.send(conn, &publish("t", "late", Q1, 9));
        assert!(bench.routed.is_empty() && bench.drain(conn).is_empty());
        if is_held {
            hold(&mut bench);
        }
        bench.broker.go_on(bench.now);
        bench.run();
        if is_held {
            assert!(bench.routed.is_empty(), "the other owner may know of it still");
            let_go(&mut bench);
        }
        assert_eq!(bench.drain(conn), [Packet::PubRec(ack(7)), Packet::PubAck(ack(8)), Packet::PubAck(ack(9))]);
        assert_eq!(bench.routed.len(), 3);
    }
}

/// FT-21, MQ-06: the client has gone on at another node meanwhile.
#[test]
fn a_client_that_left_during_a_standstill_takes_its_packets_along() {
    let (mut bench, conn) = reuniting();
    bench.send(conn, &again(7));
    bench.broker.stand_still();
    let_go(&mut bench);
    bench.cut(conn);
    bench.broker.go_on(bench.now);
    bench.run();
    assert!(bench.routed.is_empty());
}

/// MQ-06, FT-31: nodes have just found each other, and another owner of a session that comes now may yet be found.
#[test]
fn a_session_that_comes_while_all_are_held_back_is_held_back() {
    let (mut former, client) = (Bench::new(), ClientId::new("c"));
    let conn = former.connect(persistent(V5, "c"));
    former.subscribe(conn, "t", Q1);
    former.cut(conn);
    let publisher = former.client(V5, "p");
    former.publish(publisher, "t", "waits", Q1);
    former.input(Input::Relinquish { client: client.clone(), epoch: 100, clean_start: false });
    let session = former.relinquished.pop().flatten().unwrap();
    let mut bench = Bench::new();
    bench.broker.hold_all();
    bench.elsewhere.insert(client, session);
    let conn = bench.connect(persistent(V5, "c"));
    bench.send(conn, &again(7));
    assert!(bench.drain(conn).is_empty() && bench.routed.is_empty());
    merge(&mut bench, 1_000, &[7]);
    bench.broker.let_go_all(bench.now, |_| false);
    bench.run();
    let got = bench.drain(conn);
    assert!(
        matches!(&got[..], [Packet::Publish(waited), Packet::PubRec(_)] if &waited.payload[..] == b"waits"),
        "{got:?}"
    );
    assert!(bench.routed.is_empty(), "the other owner has published it");
}

/// MQ-05: the broker gives the place of a session that has ended to the next one, which has had nothing of what that one had.
#[test]
fn what_was_merged_into_a_session_that_has_ended_is_new_to_the_next_one() {
    let mut bench = Bench::new();
    let publisher = bench.client(V5, "p");
    bench.publish(publisher, "t", "1", Q1);
    let message = Arc::clone(&bench.routed[0].0);
    for client in ["a", "b"] {
        let conn = bench.client(V5, client);
        bench.subscribe(conn, "t", Q1);
        bench.broker.merge(bench.now, &ClientId::new(client), &[Arc::clone(&message)], &BTreeSet::new());
        bench.run();
        assert_eq!(bench.payloads(conn), ["1"], "{client}");
        bench.leave(conn, ReasonCode::Success);
    }
}

/// MQ-11, FT-31: the other owner still has a subscription that the client has ended here.
#[test]
fn a_subscription_that_the_client_has_ended_since_it_left_the_other_owner_stays_ended() {
    let mut bench = Bench::new();
    let conn = bench.connect(persistent(V5, "c"));
    bench.subscribe(conn, "t/#", Q2);
    bench.unsubscribe(conn, "t/#");
    let epoch = bench.broker.sessions().next().unwrap().epoch;
    let brings = |bench: &mut Bench, next: u64| {
        let options = SubscriptionOptions { qos: Q2, ..SubscriptionOptions::default() };
        let theirs = SubscriptionState { filter: TopicFilter::new("t/#").unwrap(), options, id: None };
        bench.broker.resubscribe(bench.now, &ClientId::new("c"), next, vec![theirs], |_| true).len()
    };
    assert_eq!(brings(&mut bench, epoch), 0);
    assert_eq!(brings(&mut bench, epoch + 1), 1, "the client may have made it there since");
    assert_eq!(brings(&mut bench, epoch + 1), 0, "it is in force");
}
