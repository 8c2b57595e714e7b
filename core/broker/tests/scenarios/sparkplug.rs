//! A broker keeps certificates of Sparkplug births (specification 3.0, a Sparkplug Aware MQTT Server).

use sedge_broker::{Births, BrokerConfig};
use sedge_mqtt::{Packet, ReasonCode};

use crate::harness::*;

const NODE: &str = "$sparkplug/certificates/spBv1.0/g/NBIRTH/e";
const DEVICE: &str = "$sparkplug/certificates/spBv1.0/g/DBIRTH/e/d";

fn aware() -> Bench {
    Bench::with(BrokerConfig { births: Births::Keep, ..BrokerConfig::default() })
}

/// tck-id-conformance-mqtt-aware-store, -nbirth-mqtt-topic, -nbirth-mqtt-retain, -dbirth-mqtt-topic, -dbirth-mqtt-retain
#[test]
fn births_are_kept_where_hosts_look_for_them() {
    for version in [V4, V5] {
        let mut bench = aware();
        let node = bench.client(version, "node");
        let early = bench.client(version, "early");
        bench.subscribe(early, "$sparkplug/#", Q1);
        for (topic, payload) in
            [("spBv1.0/g/NBIRTH/e", "1"), ("spBv1.0/g/NBIRTH/e", "2"), ("spBv1.0/g/DBIRTH/e/d", "3")]
        {
            bench.publish(node, topic, payload, Q0);
        }
        for other in ["spBv1.0/g/NDATA/e", "spBv1.0/g/NDEATH/e", "spBv1.0/STATE/h", "spBv1.0/g/NBIRTH", "a/g/NBIRTH/e"]
        {
            bench.publish(node, other, "x", Q0);
        }
        let seen = |got: Vec<sedge_mqtt::Publish>| -> Vec<(String, String, bool)> {
            let row = |publish: sedge_mqtt::Publish| {
                let topic = publish.topic.expect("a topic").as_str().to_owned();
                (topic, String::from_utf8_lossy(&publish.payload).into_owned(), publish.retain)
            };
            got.into_iter().map(row).collect()
        };
        let row = |topic: &str, payload: &str, retain| (topic.to_owned(), payload.to_owned(), retain);
        assert_eq!(
            seen(bench.publishes(early)),
            [row(NODE, "1", false), row(NODE, "2", false), row(DEVICE, "3", false)]
        );
        let late = bench.client(version, "late");
        bench.subscribe(late, "$sparkplug/certificates/#", Q1);
        let mut kept = seen(bench.publishes(late));
        kept.sort();
        assert_eq!(kept, [row(DEVICE, "3", true), row(NODE, "2", true)]);
    }
}

/// A birth that says nothing does not clear what is kept.
#[test]
fn an_empty_birth_clears_nothing() {
    let mut bench = aware();
    let node = bench.client(V5, "node");
    bench.publish(node, "spBv1.0/g/NBIRTH/e", "1", Q0);
    bench.publish(node, "spBv1.0/g/NBIRTH/e", "", Q0);
    let late = bench.client(V5, "late");
    bench.subscribe(late, NODE, Q0);
    assert_eq!(bench.payloads(late), ["1"]);
}

#[test]
fn only_the_broker_publishes_certificates_where_it_keeps_them() {
    for births in [Births::Keep, Births::Pass] {
        let keeps = births == Births::Keep;
        let mut bench = Bench::with(BrokerConfig { births, ..BrokerConfig::default() });
        let client = bench.client(V5, "c");
        bench.send(client, &publish(NODE, "forged", Q1, 1));
        let Some(Packet::PubAck(ack)) = bench.recv(client) else { panic!() };
        assert_eq!(ack.reason == ReasonCode::NotAuthorized, keeps);
        bench.publish(client, "spBv1.0/g/NBIRTH/e", "1", Q0);
        let late = bench.client(V5, "late");
        bench.subscribe(late, "$sparkplug/#", Q0);
        assert_eq!(bench.payloads(late).len(), usize::from(keeps));
    }
}
