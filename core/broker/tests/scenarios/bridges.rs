//! Clients that are bridges of other brokers, as Mosquitto's connect with their default settings.

use sedge_mqtt::{Connect, Packet, ReasonCode, SubscriptionOptions};

use crate::harness::*;

const STATE: &str = "$SYS/broker/connection/host.cloud/state";

fn bridge(client: &str) -> Connect {
    let mut will = will(STATE, "0", Q1);
    will.retain = true;
    Connect { bridge: true, will: Some(will), ..connect(V4, client) }
}

/// MQ-08: `notifications true`.
#[test]
fn a_bridge_says_in_sys_whether_it_is_connected() {
    let mut bench = Bench::new();
    for version in [V4, V5] {
        let conn = bench.connect(Connect { version, ..bridge("b") });
        bench.retain(conn, STATE, "1", Q1);
        let watcher = bench.client(V5, "watcher");
        bench.subscribe(watcher, "$SYS/#", Q1);
        assert_eq!(bench.payloads(watcher), ["1"]);
        bench.cut(conn);
        assert_eq!(bench.payloads(watcher), ["0"]);
    }
}

/// MQ-08
#[test]
fn only_the_state_of_a_bridge_is_not_the_brokers() {
    let mut bench = Bench::new();
    for topic in [
        "$SYS/broker/connection/state",
        "$SYS/broker/connection//state",
        "$SYS/broker/connection/a/statex",
        "$SYS/broker/uptime",
    ] {
        let conn = bench.dial(Connect { will: Some(will(topic, "", Q0)), ..bridge("b") });
        let Some(Packet::ConnAck(connack)) = bench.recv(conn) else { panic!() };
        assert_eq!(connack.reason, ReasonCode::NotAuthorized, "{topic}");
    }
}

/// MQ-04: otherwise a topic that is bridged both ways would go round for ever.
#[test]
fn a_bridge_gets_nothing_back_and_retain_flags_as_they_were() {
    let mut bench = Bench::new();
    let conn = bench.connect(bridge("b"));
    let options = SubscriptionOptions { qos: Q0, ..SubscriptionOptions::default() };
    assert_eq!(bench.subscribe_with(conn, "both/#", options, None), ReasonCode::Success);
    let other = bench.client(V4, "other");
    bench.subscribe(other, "both/#", Q0);
    bench.publish(conn, "both/x", "its own", Q0);
    assert_eq!(bench.payloads(other), ["its own"]);
    let Packet::Publish(mut packet) = publish("both/x", "of another", Q0, 1) else { unreachable!() };
    packet.retain = true;
    bench.send(other, &Packet::Publish(packet));
    let flags = |got: Vec<sedge_mqtt::Publish>| got.iter().map(|publish| publish.retain).collect::<Vec<_>>();
    assert_eq!(flags(bench.publishes(conn)), [true], "what it sent itself does not come back");
    assert_eq!(flags(bench.publishes(other)), [false], "a client that is no bridge gets all, without the flag");
}
