//! Messages with latency bounds (FW-02).

use std::sync::Arc;

use sedge_base::ConnId;
use sedge_broker::{BrokerConfig, DeadlineNames};
use sedge_mqtt::{Connect, Packet, PublishProperties, QoS};

use crate::harness::*;

fn config(counts: bool) -> BrokerConfig {
    let deadlines = DeadlineNames { property: Some("deadline-ms".into()), payload_tag: Some("deadline_ms".into()) };
    BrokerConfig { deadlines: counts.then(|| Arc::new(deadlines)), ..BrokerConfig::default() }
}

/// A subscriber that takes one message at a time.
fn slow(version: sedge_mqtt::Version) -> Connect {
    let mut connect = persistent(version, "slow");
    connect.properties.receive_maximum = Some(1);
    connect
}

/// Everything that comes, each acknowledged before the next.
fn taken(bench: &mut Bench, conn: ConnId) -> Vec<String> {
    let mut payloads = Vec::new();
    while let Some(packet) = bench.recv(conn) {
        let answer = match packet {
            Packet::Publish(publish) => {
                payloads.push(String::from_utf8_lossy(&publish.payload).into_owned());
                let ack = ack(publish.packet_id.expect("QoS 1 or 2").get());
                if publish.qos == Q2 { Packet::PubRec(ack) } else { Packet::PubAck(ack) }
            }
            Packet::PubRel(ack) => Packet::PubComp(ack),
            other => panic!("{other:?}"),
        };
        bench.send(conn, &answer);
    }
    payloads
}

fn urgent(topic: &str, payload: &str, qos: QoS, bound: &str) -> Packet {
    let user = vec![(utf8("deadline-ms"), utf8(bound))];
    publish_with(topic, payload, qos, PublishProperties { user, ..PublishProperties::default() })
}

/// FW-02: user property and payload; each publisher's messages to one topic stay in order.
#[test]
fn the_earliest_deadline_goes_first_where_messages_wait() {
    for counts in [true, false] {
        let mut bench = Bench::with(config(counts));
        let publisher = bench.client(V5, "p");
        let slow = bench.connect(slow(V5));
        bench.subscribe(slow, "#", Q1);
        for number in 0..3 {
            bench.publish(publisher, "bulk", &format!("bulk {number}"), Q1);
        }
        bench.publish(publisher, "alarm", "alarm before", Q1);
        let later = r#"later {"deadline_ms": 900}"#;
        bench.publish(publisher, "payload", later, Q1);
        for (payload, bound) in [("alarm", "500"), ("no number", "soon")] {
            bench.send(publisher, &urgent("alarm", payload, Q1, bound));
            bench.run();
        }
        let got = taken(&mut bench, slow);
        let by_deadline = ["bulk 0", "alarm before", "alarm", later, "bulk 1", "bulk 2", "no number"];
        let in_order = ["bulk 0", "bulk 1", "bulk 2", "alarm before", later, "alarm", "no number"];
        assert_eq!(got, if counts { by_deadline } else { in_order });
    }
}

/// FW-02: a persistent session that comes back gets what is urgent first, with QoS 2 once.
#[test]
fn deadlines_count_for_what_waited_for_a_client_that_was_away() {
    let mut bench = Bench::with(config(true));
    let publisher = bench.client(V5, "p");
    let conn = bench.connect(slow(V5));
    bench.subscribe(conn, "#", Q2);
    bench.cut(conn);
    bench.publish(publisher, "bulk", "bulk", Q2);
    bench.send(publisher, &urgent("alarm", "alarm", Q1, "5000"));
    bench.run();
    let conn = bench.connect(slow(V5));
    assert_eq!(taken(&mut bench, conn), ["alarm", "bulk"]);
    assert_eq!(bench.broker.counters().deadlines_first, 1);
}
