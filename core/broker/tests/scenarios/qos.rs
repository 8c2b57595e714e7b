//! QoS 0, 1 and 2 in both directions, and connections that are cut in between.

use sedge_broker::BrokerConfig;
use sedge_mqtt::{Ack, Connect, ConnectProperties, Disconnect, Packet, Publish, ReasonCode};

use crate::harness::*;

fn one(packets: Vec<Packet>) -> Publish {
    match <[Packet; 1]>::try_from(packets) {
        Ok([Packet::Publish(publish)]) => publish,
        other => panic!("not one PUBLISH: {other:?}"),
    }
}

/// MQ-04
#[test]
fn qos_0_has_no_acknowledgements() {
    for version in [V4, V5] {
        let mut bench = Bench::new();
        let (publisher, subscriber) = (bench.client(version, "p"), bench.client(version, "s"));
        assert_eq!(bench.subscribe(subscriber, "a/b", Q2), ReasonCode::GrantedQoS2);
        bench.publish(publisher, "a/b", "x", Q0);
        let got = one(bench.drain(subscriber));
        assert_eq!((got.qos, got.packet_id, got.dup, got.retain), (Q0, None, false, false));
        assert_eq!(bench.drain(publisher), []);
    }
}

/// MQ-05
#[test]
fn qos_1_is_acknowledged_once_it_is_accepted() {
    let mut bench = Bench::new();
    let publisher = bench.client(V5, "p");
    bench.slow = true;
    for packet in [5, 6, 7] {
        bench.send(publisher, &publish("a", "x", Q1, packet));
    }
    assert_eq!(bench.drain(publisher), []);
    bench.waiting.swap(0, 2);
    bench.answer();
    assert_eq!(bench.drain(publisher), [], "answers keep the order of arrival");
    bench.answer_all();
    let ids = [5, 6, 7].map(|number| Packet::PubAck(ack(number)));
    assert_eq!(bench.drain(publisher), ids);
}

/// MQ-05
#[test]
fn an_unacknowledged_message_comes_again_with_dup() {
    for version in [V4, V5] {
        let mut bench = Bench::new();
        let publisher = bench.client(version, "p");
        let subscriber = bench.connect(persistent(version, "s"));
        bench.subscribe(subscriber, "a", Q1);
        bench.publish(publisher, "a", "x", Q1);
        let first = one(bench.drain(subscriber));
        assert!(!first.dup);
        bench.cut(subscriber);
        let (subscriber, connack) = bench.connack(persistent(version, "s"));
        assert!(connack.session_present);
        let again = one(bench.drain(subscriber));
        assert!(again.dup);
        assert_eq!((again.packet_id, &again.payload), (first.packet_id, &first.payload));
        bench.send(subscriber, &Packet::PubAck(Ack::new(again.packet_id.unwrap(), ReasonCode::Success)));
        bench.cut(subscriber);
        let subscriber = bench.connect(persistent(version, "s"));
        assert_eq!(bench.drain(subscriber), []);
        assert_eq!(bench.broker.counters().redeliveries, 1);
    }
}

/// MQ-06: the publisher's side, cut at each of the four steps.
#[test]
fn qos_2_from_a_publisher_that_is_cut_is_routed_once() {
    for version in [V4, V5] {
        for steps in 0..4 {
            let mut bench = Bench::new();
            let publisher = bench.connect(persistent(version, "p"));
            let subscriber = bench.client(version, "s");
            bench.subscribe(subscriber, "a", Q0);
            bench.slow = steps == 0;
            bench.send(publisher, &publish("a", "x", Q2, 9));
            if steps >= 2 {
                bench.send(publisher, &Packet::PubRel(ack(9)));
            }
            let routed_before = bench.routed.len();
            bench.cut(publisher);
            bench.slow = false;
            let publisher = bench.connect(persistent(version, "p"));
            if steps <= 1 {
                let Packet::Publish(mut again) = publish("a", "x", Q2, 9) else { unreachable!() };
                again.dup = true;
                bench.send(publisher, &Packet::Publish(again));
                assert_eq!(bench.drain(publisher), [Packet::PubRec(ack(9))], "{version:?} {steps}");
            }
            bench.send(publisher, &Packet::PubRel(ack(9)));
            let Some(Packet::PubComp(complete)) = bench.recv(publisher) else { panic!() };
            let expected =
                if steps >= 2 && version == V5 { ReasonCode::PacketIdentifierNotFound } else { ReasonCode::Success };
            assert_eq!(complete.reason, expected);
            assert_eq!((routed_before, bench.routed.len()), (1, 1));
            assert_eq!(bench.payloads(subscriber), ["x"]);
        }
    }
}

/// MQ-06: accepted while the publisher is away; the repetition is answered all the same.
#[test]
fn qos_2_accepted_while_the_publisher_reconnects_is_answered() {
    for accepted_before in [true, false] {
        let mut bench = Bench::new();
        let publisher = bench.connect(persistent(V5, "p"));
        bench.slow = true;
        bench.send(publisher, &publish("a", "x", Q2, 9));
        bench.cut(publisher);
        if accepted_before {
            bench.answer();
        }
        let publisher = bench.dial(persistent(V5, "p"));
        let claimed = bench.waiting.pop_back().unwrap();
        bench.input(claimed);
        bench.drain(publisher);
        bench.send(publisher, &publish("a", "x", Q2, 9));
        assert_eq!(bench.drain(publisher).len(), usize::from(accepted_before));
        bench.answer_all();
        bench.send(publisher, &publish("b", "y", Q2, 10));
        let records = usize::from(!accepted_before) + 1;
        assert_eq!(bench.drain(publisher).len(), records);
        assert_eq!(bench.routed.len(), 2);
    }
}

/// MQ-06: the subscriber's side, cut at each of the four steps.
#[test]
fn qos_2_to_a_subscriber_that_is_cut_is_delivered_once() {
    for version in [V4, V5] {
        for steps in 0..4 {
            let mut bench = Bench::new();
            let publisher = bench.client(version, "p");
            let mut subscriber = bench.connect(persistent(version, "s"));
            bench.subscribe(subscriber, "a", Q2);
            bench.publish(publisher, "a", "x", Q2);
            let first = one(bench.drain(subscriber));
            let id = first.packet_id.unwrap();
            if steps >= 1 {
                bench.send(subscriber, &Packet::PubRec(Ack::new(id, ReasonCode::Success)));
                assert_eq!(bench.drain(subscriber), [Packet::PubRel(Ack::new(id, ReasonCode::Success))]);
            }
            if steps >= 3 {
                bench.send(subscriber, &Packet::PubComp(Ack::new(id, ReasonCode::Success)));
            }
            bench.cut(subscriber);
            subscriber = bench.connect(persistent(version, "s"));
            match steps {
                0 => {
                    let again = one(bench.drain(subscriber));
                    assert_eq!((again.dup, again.packet_id), (true, Some(id)));
                    bench.send(subscriber, &Packet::PubRec(Ack::new(id, ReasonCode::Success)));
                    assert_eq!(bench.drain(subscriber), [Packet::PubRel(Ack::new(id, ReasonCode::Success))]);
                }
                1 | 2 => assert_eq!(bench.drain(subscriber), [Packet::PubRel(Ack::new(id, ReasonCode::Success))]),
                _ => assert_eq!(bench.drain(subscriber), []),
            }
            bench.send(subscriber, &Packet::PubComp(Ack::new(id, ReasonCode::Success)));
            assert_eq!(bench.broker.sessions().map(|session| session.inflight).sum::<usize>(), 0);
            bench.cut(subscriber);
            subscriber = bench.connect(persistent(version, "s"));
            assert_eq!(bench.drain(subscriber), []);
        }
    }
}

/// MQ-06
#[test]
fn a_repeated_publish_on_one_connection_is_routed_once() {
    let mut bench = Bench::new();
    let publisher = bench.client(V4, "p");
    for _ in 0..3 {
        bench.send(publisher, &publish("a", "x", Q2, 3));
    }
    assert_eq!(bench.drain(publisher).len(), 3);
    assert_eq!(bench.routed.len(), 1);
    bench.send(publisher, &Packet::PubRel(ack(3)));
    bench.send(publisher, &publish("a", "x", Q2, 3));
    assert_eq!(bench.routed.len(), 2, "after PUBREL the identifier is new");
}

/// MQ-14
#[test]
fn errors_in_acknowledgements_end_the_flow() {
    let mut bench = Bench::new();
    let publisher = bench.client(V5, "p");
    let subscriber = bench.connect(persistent(V5, "s"));
    bench.subscribe(subscriber, "a", Q2);
    for qos in [Q1, Q2] {
        bench.publish(publisher, "a", "x", qos);
        let id = one(bench.drain(subscriber)).packet_id.unwrap();
        let refusal = Ack::new(id, ReasonCode::QuotaExceeded);
        bench.send(subscriber, &if qos == Q1 { Packet::PubAck(refusal) } else { Packet::PubRec(refusal) });
        assert_eq!(bench.drain(subscriber), []);
    }
    bench.cut(subscriber);
    let subscriber = bench.connect(persistent(V5, "s"));
    assert_eq!(bench.drain(subscriber), []);
}

/// MQ-14
#[test]
fn unknown_acknowledgements_do_no_harm() {
    for version in [V4, V5] {
        let mut bench = Bench::new();
        let conn = bench.client(version, "a");
        bench.send(conn, &Packet::PubAck(ack(4)));
        bench.send(conn, &Packet::PubComp(ack(4)));
        assert_eq!(bench.drain(conn), []);
        bench.send(conn, &Packet::PubRec(ack(4)));
        let not_found = if version == V5 { ReasonCode::PacketIdentifierNotFound } else { ReasonCode::Success };
        assert_eq!(bench.drain(conn), [Packet::PubRel(Ack::new(id(4), not_found))]);
        bench.send(conn, &Packet::PubRel(ack(4)));
        assert_eq!(bench.drain(conn), [Packet::PubComp(Ack::new(id(4), not_found))]);
        assert!(!bench.is_closed(conn));
    }
}

/// MQ-14
#[test]
fn acknowledgements_of_the_wrong_kind_are_a_protocol_error() {
    let mut bench = Bench::new();
    let publisher = bench.client(V5, "p");
    for (qos, wrong) in [(Q1, Packet::PubRec as fn(Ack) -> Packet), (Q2, Packet::PubAck), (Q2, Packet::PubComp)] {
        let subscriber = bench.client(V5, "s");
        bench.subscribe(subscriber, "a", Q2);
        bench.publish(publisher, "a", "x", qos);
        let id = one(bench.drain(subscriber)).packet_id.unwrap();
        bench.send(subscriber, &wrong(Ack::new(id, ReasonCode::Success)));
        let got = bench.drain(subscriber);
        let [Packet::Disconnect(Disconnect { reason: ReasonCode::ProtocolError, .. })] = &got[..] else {
            panic!("{got:?}")
        };
    }
}

/// MQ-14
#[test]
fn more_than_the_receive_maximum_is_an_error() {
    let config = BrokerConfig { receive_maximum: 3, ..BrokerConfig::default() };
    let mut bench = Bench::with(config);
    let publisher = bench.client(V5, "p");
    for packet in 1..=3 {
        bench.send(publisher, &publish("a", "x", Q2, packet));
    }
    bench.drain(publisher);
    bench.send(publisher, &Packet::PubRel(ack(2)));
    bench.drain(publisher);
    bench.send(publisher, &publish("a", "x", Q2, 2));
    assert!(!bench.is_closed(publisher));
    bench.drain(publisher);
    bench.send(publisher, &publish("a", "x", Q1, 4));
    let Some(Packet::Disconnect(disconnect)) = bench.recv(publisher) else { panic!() };
    assert_eq!(disconnect.reason, ReasonCode::ReceiveMaximumExceeded);
    assert_eq!(bench.routed.len(), 4);
}

/// MQ-05: 3.1.1 knows no receive maximum; its bytes wait instead.
#[test]
fn a_client_ahead_of_the_cluster_is_held() {
    let config = BrokerConfig { receive_maximum: 4, ..BrokerConfig::default() };
    let mut bench = Bench::with(config);
    let publisher = bench.client(V4, "p");
    bench.slow = true;
    for packet in 1..=10 {
        bench.send(publisher, &publish("a", "x", Q1, packet));
    }
    assert!(bench.is_held(publisher));
    assert_eq!(bench.routed.len(), 4);
    bench.answer_all();
    assert!(!bench.is_held(publisher));
    let all: Vec<_> = (1..=10).map(|packet| Packet::PubAck(ack(packet))).collect();
    assert_eq!(bench.drain(publisher), all);
    assert_eq!(bench.routed.len(), 10);
}

/// MQ-05
#[test]
fn the_window_of_the_client_is_kept() {
    let mut bench = Bench::new();
    let publisher = bench.client(V5, "p");
    let properties = ConnectProperties { receive_maximum: Some(2), ..ConnectProperties::default() };
    let subscriber = bench.connect(Connect { properties, ..connect(V5, "s") });
    bench.subscribe(subscriber, "a", Q2);
    for number in 0..6 {
        bench.publish(publisher, "a", &number.to_string(), if number % 2 == 0 { Q1 } else { Q2 });
    }
    let mut seen = Vec::new();
    let mut open = 0;
    loop {
        let packets = bench.drain(subscriber);
        if packets.is_empty() {
            break;
        }
        for packet in packets {
            match packet {
                Packet::Publish(publish) => {
                    open += 1;
                    assert!(open <= 2);
                    seen.push(String::from_utf8(publish.payload.to_vec()).unwrap());
                    let ack = Ack::new(publish.packet_id.unwrap(), ReasonCode::Success);
                    open -= u32::from(publish.qos == Q1);
                    bench.send(subscriber, &if publish.qos == Q1 { Packet::PubAck(ack) } else { Packet::PubRec(ack) });
                }
                Packet::PubRel(release) => {
                    open -= 1;
                    bench.send(subscriber, &Packet::PubComp(release));
                }
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(seen, ["0", "1", "2", "3", "4", "5"]);
}

/// MQ-05
#[test]
fn refused_publications_are_told() {
    let mut bench = Bench::new();
    bench.accept_with = ReasonCode::QuotaExceeded;
    let modern = bench.client(V5, "p");
    bench.send(modern, &publish("a", "x", Q1, 1));
    assert_eq!(bench.drain(modern), [Packet::PubAck(Ack::new(id(1), ReasonCode::QuotaExceeded))]);
    bench.send(modern, &publish("a", "x", Q2, 2));
    assert_eq!(bench.drain(modern), [Packet::PubRec(Ack::new(id(2), ReasonCode::QuotaExceeded))]);
    bench.accept_with = ReasonCode::Success;
    bench.send(modern, &publish("a", "x", Q2, 2));
    assert_eq!(bench.drain(modern), [Packet::PubRec(ack(2))], "the identifier was free again");
    assert_eq!(bench.routed.len(), 3);
    bench.accept_with = ReasonCode::QuotaExceeded;
    let old = bench.client(V4, "q");
    bench.send(old, &publish("a", "x", Q1, 1));
    assert_eq!(bench.drain(old), []);
    assert!(bench.is_closed(old), "3.1.1 has no other way to say no");
}

/// MQ-14
#[test]
fn a_qos_1_publish_with_the_identifier_of_a_qos_2_flow_is_refused() {
    let mut bench = Bench::new();
    let publisher = bench.client(V5, "p");
    bench.send(publisher, &publish("a", "x", Q2, 1));
    bench.drain(publisher);
    bench.send(publisher, &publish("a", "y", Q1, 1));
    assert_eq!(bench.drain(publisher), [Packet::PubAck(Ack::new(id(1), ReasonCode::PacketIdentifierInUse))]);
}

/// MQ-12
#[test]
fn topics_of_the_broker_are_refused() {
    let mut bench = Bench::new();
    let modern = bench.client(V5, "p");
    for topic in ["$SYS/x", "$SYS", "$sedge/cluster"] {
        bench.send(modern, &publish(topic, "x", Q0, 1));
        bench.send(modern, &publish(topic, "x", Q1, 1));
        bench.send(modern, &publish(topic, "x", Q2, 2));
        let refused = [
            Packet::PubAck(Ack::new(id(1), ReasonCode::NotAuthorized)),
            Packet::PubRec(Ack::new(id(2), ReasonCode::NotAuthorized)),
        ];
        assert_eq!(bench.drain(modern), refused);
    }
    let old = bench.client(V4, "q");
    bench.publish(old, "$SYS/x", "x", Q1);
    bench.publish(old, "$SYS/x", "x", Q2);
    assert_eq!(bench.routed.len(), 0);
    assert_eq!(bench.broker.counters().refused_topics, 11);
    bench.publish(old, "$other/x", "x", Q1);
    assert_eq!(bench.routed.len(), 1);
}

/// MQ-05, emqx#17897: a message that is never acknowledged does not stop those after it, not even when all packet identifiers have been used.
#[test]
fn an_open_delivery_stops_no_others() {
    for qos in [Q1, Q2] {
        let mut bench = Bench::new();
        let publisher = bench.client(V4, "p");
        let subscriber = bench.connect(persistent(V5, "s"));
        bench.subscribe(subscriber, "a", qos);
        bench.publish(publisher, "a", "never", qos);
        let open = one(bench.drain(subscriber));
        for _ in 0..66_000 {
            bench.publish(publisher, "a", "x", qos);
            let id = one(bench.drain(subscriber)).packet_id.expect("a packet id").get();
            assert_ne!(Some(id), open.packet_id.map(std::num::NonZero::get));
            if qos == Q1 {
                bench.send(subscriber, &Packet::PubAck(ack(id)));
            } else {
                bench.send(subscriber, &Packet::PubRec(ack(id)));
                bench.drain(subscriber);
                bench.send(subscriber, &Packet::PubComp(ack(id)));
            }
        }
        bench.cut(subscriber);
        let subscriber = bench.connect(persistent(V5, "s"));
        let again = one(bench.drain(subscriber));
        assert_eq!((again.packet_id, again.dup, &again.payload[..]), (open.packet_id, true, &b"never"[..]));
    }
}
