//! A foreign broker behind the node delivers publications to sessions of this node.

use sedge_base::{ClientId, ConnId};
use sedge_broker::BrokerConfig;
use sedge_mqtt::{Packet, Publish};

use crate::harness::*;

fn bench() -> Bench {
    Bench::with(BrokerConfig { delivers_elsewhere: true, ..BrokerConfig::default() })
}

/// The broker behind delivers something that this node has not given to it. Says what the client gets.
fn foreign(bench: &mut Bench, conn: ConnId, topic: &str) -> Vec<Publish> {
    let Packet::Publish(publication) = publish(topic, "x", Q0, 0) else { unreachable!("it is a publication") };
    bench.broker.deliver_foreign(bench.now, &ClientId::new("c"), publication, V4);
    bench.run();
    bench.publishes(conn)
}

/// IL-20, MQTT-3.1.2-6: the broker behind takes its time to end the subscriptions of the former session.
#[test]
fn after_a_clean_start_nothing_comes_that_the_former_session_had_subscribed_to() {
    let mut bench = bench();
    let first = bench.connect(persistent(V5, "c"));
    bench.subscribe(first, "a/#", Q1);
    assert_eq!(foreign(&mut bench, first, "a/b").len(), 1);
    let second = bench.client(V5, "c");
    assert_eq!(foreign(&mut bench, second, "a/b"), []);
    bench.subscribe(second, "a/b", Q1);
    assert_eq!(foreign(&mut bench, second, "a/b").len(), 1);
}

/// Some brokers take other topics for matching than the standard does.
#[test]
fn what_no_subscription_matches_is_not_delivered_however_many_there_are() {
    let mut bench = bench();
    let conn = bench.connect(persistent(V5, "c"));
    for count in [1, 100] {
        for number in 0..count {
            bench.subscribe(conn, &format!("a/{number}/+"), Q1);
        }
        assert_eq!(foreign(&mut bench, conn, "a/0/b").len(), 1);
        assert_eq!(foreign(&mut bench, conn, "a/0/b/c"), []);
        bench.subscribe(conn, "$share/g/s", Q1);
        assert_eq!(foreign(&mut bench, conn, "s"), [], "the broker behind knows nothing of shared subscriptions");
    }
}
