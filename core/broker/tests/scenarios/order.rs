//! Order per publisher and topic.

use sedge_broker::BrokerConfig;
use sedge_mqtt::{Ack, Packet, ReasonCode};

use crate::harness::*;

/// MQ-13
#[test]
fn ten_thousand_messages_arrive_in_order_at_every_qos() {
    for qos in [Q0, Q1, Q2] {
        let mut bench = Bench::new();
        let publisher = bench.client(V4, "p");
        let subscriber = bench.client(V5, "s");
        bench.subscribe(subscriber, "a/#", qos);
        let mut expected = 0_u32;
        for number in 0..10_000 {
            bench.publish(publisher, "a/b", &number.to_string(), qos);
            // The subscriber answers in bursts, so that windows fill and queues grow.
            if number % 700 == 699 || number == 9_999 {
                take(&mut bench, subscriber, &mut expected);
            }
        }
        take(&mut bench, subscriber, &mut expected);
        assert_eq!(expected, 10_000);
        assert_eq!(bench.broker.counters().queued_messages, 0);
        assert_eq!(bench.broker.counters().queued_bytes, 0);
    }
}

fn take(bench: &mut Bench, subscriber: sedge_base::ConnId, expected: &mut u32) {
    while let Some(packet) = bench.recv(subscriber) {
        match packet {
            Packet::Publish(publish) => {
                assert_eq!(publish.payload, expected.to_string().as_bytes());
                *expected += 1;
                let Some(id) = publish.packet_id else { continue };
                let ack = Ack::new(id, ReasonCode::Success);
                bench.send(subscriber, &if publish.qos == Q1 { Packet::PubAck(ack) } else { Packet::PubRec(ack) });
            }
            Packet::PubRel(ack) => bench.send(subscriber, &Packet::PubComp(ack)),
            other => panic!("{other:?}"),
        }
    }
}

/// MQ-13: neither a full outbox nor a lost connection changes the order.
#[test]
fn order_survives_a_slow_reader_and_a_reconnect() {
    let config = BrokerConfig { outbox_high_water: 2_000, ..BrokerConfig::default() };
    let mut bench = Bench::with(config);
    let publisher = bench.client(V4, "p");
    let subscriber = bench.connect(persistent(V4, "s"));
    bench.subscribe(subscriber, "a", Q1);
    bench.stick(subscriber, true);
    for number in 0..1_000 {
        bench.publish(publisher, "a", &number.to_string(), Q1);
    }
    bench.stick(subscriber, false);
    let got = bench.publishes(subscriber);
    assert!(got.len() < 1_000);
    for publish in got.iter().take(got.len() / 2) {
        bench.send(subscriber, &Packet::PubAck(Ack::new(publish.packet_id.unwrap(), ReasonCode::Success)));
    }
    bench.cut(subscriber);
    let subscriber = bench.connect(persistent(V4, "s"));
    let mut expected = u32::try_from(got.len() / 2).unwrap();
    take(&mut bench, subscriber, &mut expected);
    assert_eq!(expected, 1_000);
}

/// MQ-13
#[test]
fn qos_0_keeps_its_order_behind_a_full_outbox() {
    let config = BrokerConfig { outbox_high_water: 500, ..BrokerConfig::default() };
    let mut bench = Bench::with(config);
    let publisher = bench.client(V4, "p");
    let subscriber = bench.client(V4, "s");
    bench.subscribe(subscriber, "a", Q0);
    bench.stick(subscriber, true);
    for number in 0..100 {
        bench.publish(publisher, "a", &number.to_string(), Q0);
    }
    assert!(bench.broker.counters().queued_messages > 0);
    bench.stick(subscriber, false);
    for number in 100..110 {
        bench.publish(publisher, "a", &number.to_string(), Q0);
    }
    let mut expected = 0;
    take(&mut bench, subscriber, &mut expected);
    assert_eq!(expected, 110);
}
