//! Will messages.

use sedge_base::{ClientId, ConnId};
use sedge_broker::Input;
use sedge_mqtt::{Connect, Packet, QoS, ReasonCode, WillProperties};

use crate::harness::*;

fn with_will(mut connect: Connect, delay: Option<u32>) -> Connect {
    let mut last = will("w", "gone", QoS::AtLeastOnce);
    last.properties.delay = delay;
    connect.will = Some(last);
    connect
}

fn watched(bench: &mut Bench) -> ConnId {
    let watcher = bench.client(V5, "watcher");
    bench.subscribe(watcher, "w", Q0);
    watcher
}

const NOTHING: [&str; 0] = [];

/// MQ-08
#[test]
fn a_lost_connection_publishes_the_will() {
    for version in [V4, V5] {
        let mut bench = Bench::new();
        let watcher = watched(&mut bench);
        let conn = bench.connect(with_will(connect(version, "a"), None));
        bench.cut(conn);
        assert_eq!(bench.payloads(watcher), ["gone"]);
        let (message, matched) = bench.routed.last().unwrap();
        assert!(*matched);
        assert_eq!((message.qos, &message.publisher), (Q1, &Some(ClientId::new("a"))));
        assert_eq!(bench.broker.counters().wills, 1);
    }
}

/// MQ-08
#[test]
fn a_normal_disconnect_forgets_the_will() {
    for version in [V4, V5] {
        let mut bench = Bench::new();
        let watcher = watched(&mut bench);
        let conn = bench.connect(with_will(connect(version, "a"), None));
        bench.leave(conn, ReasonCode::Success);
        assert_eq!(bench.payloads(watcher), NOTHING);
        assert!(bench.routed.is_empty());
    }
}

/// MQ-08
#[test]
fn disconnect_with_will_and_errors_publish_it() {
    let mut bench = Bench::new();
    let watcher = watched(&mut bench);
    let conn = bench.connect(with_will(connect(V5, "a"), None));
    bench.leave(conn, ReasonCode::DisconnectWithWill);
    assert_eq!(bench.payloads(watcher), ["gone"]);
    let conn = bench.connect(with_will(connect(V5, "a"), None));
    bench.send_bytes(conn, bytes::Bytes::from_static(&[0x00, 0x00]));
    assert_eq!(bench.payloads(watcher), ["gone"], "protocol error");
    let conn = bench.connect(Connect { keep_alive: 10, ..with_will(connect(V5, "a"), None) });
    bench.pass(secs(15));
    assert!(bench.is_closed(conn));
    assert_eq!(bench.payloads(watcher), ["gone"], "keep alive");
    bench.connect(with_will(connect(V4, "a"), None));
    bench.input(Input::Kick {
        client: ClientId::new("a"),
        reason: ReasonCode::AdministrativeAction,
        end_session: false,
    });
    assert_eq!(bench.payloads(watcher), ["gone"], "kicked");
}

/// MQ-08
#[test]
fn a_will_delay_waits_for_the_client() {
    let mut bench = Bench::new();
    let watcher = watched(&mut bench);
    let conn = bench.connect(with_will(persistent(V5, "a"), Some(30)));
    bench.cut(conn);
    bench.pass(secs(29));
    assert_eq!(bench.payloads(watcher), NOTHING);
    let conn = bench.connect(with_will(persistent(V5, "a"), Some(30)));
    bench.pass(secs(100));
    assert_eq!(bench.payloads(watcher), NOTHING, "back in time");
    bench.cut(conn);
    bench.pass(secs(30));
    assert_eq!(bench.payloads(watcher), ["gone"]);
    assert_eq!(bench.broker.sessions().count(), 2, "the session outlives its will");
}

/// MQ-08
#[test]
fn the_end_of_the_session_ends_the_delay() {
    let mut bench = Bench::new();
    let watcher = watched(&mut bench);
    let mut asked = with_will(persistent(V5, "a"), Some(1_000));
    asked.properties.session_expiry = Some(10);
    let conn = bench.connect(asked.clone());
    bench.cut(conn);
    bench.pass(secs(9));
    assert_eq!(bench.payloads(watcher), NOTHING);
    bench.pass(secs(1));
    assert_eq!(bench.payloads(watcher), ["gone"]);
    let conn = bench.connect(with_will(connect(V5, "a"), Some(1_000)));
    bench.cut(conn);
    assert_eq!(bench.payloads(watcher), ["gone"], "session expiry 0");
    let conn = bench.connect(asked);
    bench.cut(conn);
    bench.connect(connect(V5, "a"));
    assert_eq!(bench.payloads(watcher), ["gone"], "clean start");
}

/// MQ-11
#[test]
fn a_takeover_publishes_the_will_unless_its_delay_is_overtaken() {
    let mut bench = Bench::new();
    let watcher = watched(&mut bench);
    bench.connect(with_will(persistent(V5, "a"), None));
    bench.connect(with_will(persistent(V5, "a"), Some(30)));
    assert_eq!(bench.payloads(watcher), ["gone"]);
    bench.connect(with_will(persistent(V5, "a"), Some(30)));
    bench.pass(secs(100));
    assert_eq!(bench.payloads(watcher), NOTHING);
    bench.connect(connect(V5, "a"));
    assert_eq!(bench.payloads(watcher), ["gone"], "a clean start ends the session of the will");
}

/// MQ-08
#[test]
fn shutdown_publishes_wills() {
    let mut bench = Bench::new();
    bench.connect(with_will(connect(V4, "a"), None));
    bench.connect(with_will(persistent(V5, "b"), Some(10)));
    bench.input(Input::Shutdown { elsewhere: [].into() });
    assert_eq!(bench.routed.len(), 1, "the delay of b goes on");
    bench.pass(secs(10));
    assert_eq!(bench.routed.len(), 2);
}

/// MQ-08
#[test]
fn a_will_keeps_its_properties_and_is_retained() {
    let mut bench = Bench::new();
    let mut last = will("w", "gone", Q1);
    last.retain = true;
    last.properties = WillProperties {
        message_expiry: Some(60),
        content_type: Some(utf8("text/plain")),
        user: vec![(utf8("k"), utf8("v"))],
        ..WillProperties::default()
    };
    let conn = bench.connect(Connect { will: Some(last), ..connect(V5, "a") });
    bench.pass(secs(1_000));
    bench.cut(conn);
    bench.pass(secs(20));
    let watcher = bench.client(V5, "watcher");
    bench.subscribe(watcher, "w", Q1);
    let got = bench.publishes(watcher);
    let properties = got[0].properties.as_ref().unwrap();
    assert_eq!((got[0].retain, got[0].qos, properties.message_expiry), (true, Q1, Some(40)));
    assert_eq!(properties.content_type.as_deref(), Some("text/plain"));
    assert_eq!(properties.user.len(), 1);
}

/// MQ-08
#[test]
fn a_will_for_a_topic_of_the_broker_is_refused() {
    let mut bench = Bench::new();
    for (version, reason) in [(V5, ReasonCode::TopicNameInvalid), (V4, ReasonCode::NotAuthorized)] {
        let conn = bench.dial(Connect { will: Some(will("$SYS/x", "", Q0)), ..connect(version, "a") });
        let Some(Packet::ConnAck(connack)) = bench.recv(conn) else { panic!() };
        assert_eq!(connack.reason, reason);
    }
}

/// MQ-08
#[test]
fn a_connection_lost_before_connack_has_no_will() {
    let mut bench = Bench::new();
    bench.slow = true;
    let conn = bench.dial(with_will(connect(V5, "a"), None));
    bench.cut(conn);
    bench.answer_all();
    assert!(bench.routed.is_empty());
}
