//! Authentication and authorization (MQTT 5.0 sections 3.1.4, 4.13 and 5.4.2).

use std::sync::Arc;

use bytes::Bytes;
use sedge_access::Rules;
use sedge_broker::{Admission, BrokerConfig, Event, Identity, Input, Policy, Refusal};
use sedge_mqtt::{Connect, Disconnect, Packet, QoS, ReasonCode, Version};

use crate::harness::*;

const TEXT: &str = "\
topic read public/#
topic write inbox/%c
user anna
topic readwrite home/#
topic deny home/cellar/#
pattern readwrite devices/%c/#
";

fn policy(text: &str) -> Policy {
    Policy { rules: Some(Arc::new(Rules::parse(text).expect("valid"))), ..Policy::default() }
}

fn bench() -> Bench {
    let mut bench = Bench::new();
    bench.certificates = false;
    bench.input(Input::Policy(Policy { authenticate: true, ..policy(TEXT) }));
    bench
}

fn named(version: Version, client: &str, user: &str) -> Connect {
    let password = Some(Bytes::from_static(b"secret"));
    Connect { username: Some(utf8(user)), password, ..persistent(version, client) }
}

/// Sends a PUBLISH and returns the reason of its answer.
fn publish_reason(bench: &mut Bench, conn: sedge_base::ConnId, topic: &str, qos: QoS) -> ReasonCode {
    bench.send(conn, &publish(topic, "x", qos, 9));
    match bench.recv(conn) {
        Some(Packet::PubAck(ack) | Packet::PubRec(ack)) => ack.reason,
        other => panic!("no answer but {other:?}"),
    }
}

/// MQ-19
#[test]
fn the_owner_says_who_a_client_is() {
    for version in [V4, V5] {
        let mut bench = bench();
        bench.slow = true;
        let conn = bench.dial(named(version, "c", "anna"));
        assert!(bench.is_held(conn), "nothing is read before the answer");
        assert_eq!(bench.drain(conn), []);
        let asked = bench.asked.pop().expect("a question");
        assert_eq!((asked.user.as_deref(), asked.password.as_deref()), (Some("anna"), Some(&b"secret"[..])));
        assert!(!format!("{asked:?}").contains("secret"));
        bench.input(Input::Authenticated { conn, answer: Ok(Identity { user: Some("anna".into()) }.into()) });
        bench.answer_all();
        let Some(Packet::ConnAck(connack)) = bench.recv(conn) else { panic!() };
        assert_eq!(connack.reason, ReasonCode::Success);
        assert_eq!(bench.broker.sessions().next().and_then(|session| session.user).as_deref(), Some("anna"));
    }
}

/// SEC: a user has so many sessions that outlive their connections; a client that has one comes again, and a session that ends makes room.
#[test]
fn a_user_has_so_many_sessions() {
    let mut bench = Bench::with(BrokerConfig { max_sessions_per_user: 2, ..BrokerConfig::default() });
    bench.certificates = false;
    bench.input(Input::Policy(Policy { authenticate: true, ..Policy::default() }));
    bench.connect(named(V5, "a", "anna"));
    bench.connect(named(V5, "b", "anna"));
    for (version, told) in [(V5, ReasonCode::QuotaExceeded), (V4, ReasonCode::ServerUnavailable)] {
        let (_, connack) = bench.connack(named(version, "c", "anna"));
        assert_eq!(connack.reason, told);
    }
    assert_eq!((bench.broker.counters().sessions, bench.broker.counters().refused_sessions), (2, 2));
    assert_eq!(bench.ended.len(), 2, "the directory knows of no session");
    let again = bench.connect(named(V5, "a", "anna"));
    bench.connect(Connect { clean_start: true, ..named(V5, "b", "anna") });
    bench.connect(named(V5, "c", "ben"));
    let guest = named(V5, "guest", "anna");
    bench.connect(Connect { properties: connect(V5, "guest").properties, ..guest });
    bench.send(
        again,
        &Packet::Disconnect(Disconnect { session_expiry: Some(0), ..Disconnect::new(ReasonCode::Success) }),
    );
    bench.connect(named(V5, "d", "anna"));
    let (_, connack) = bench.connack(named(V5, "e", "anna"));
    assert_eq!(connack.reason, ReasonCode::QuotaExceeded);
}

/// MQ-19: code 4 for 3.1.1, and the older connection of the client stays.
#[test]
fn who_is_refused_takes_over_nothing() {
    for (version, reason, told) in [
        (V5, ReasonCode::BadUserNameOrPassword, ReasonCode::BadUserNameOrPassword),
        (V4, ReasonCode::BadUserNameOrPassword, ReasonCode::BadUserNameOrPassword),
        (V5, ReasonCode::NotAuthorized, ReasonCode::NotAuthorized),
        (V5, ReasonCode::ServerBusy, ReasonCode::ServerBusy),
        (V4, ReasonCode::ServerBusy, ReasonCode::ServerUnavailable),
        (V4, ReasonCode::ServerUnavailable, ReasonCode::ServerUnavailable),
    ] {
        let mut bench = bench();
        let older = bench.connect(named(version, "c", "anna"));
        bench.refuse_with = Some(reason);
        let (conn, connack) = bench.connack(named(version, "c", "anna"));
        assert_eq!(connack.reason, told);
        assert!(bench.is_closed(conn) && !bench.is_closed(older));
        assert_eq!(bench.broker.counters().authentications_refused, 1);
    }
}

fn refusals(bench: &Bench) -> Vec<&Refusal> {
    let mut found = Vec::new();
    for event in &bench.events {
        if let Event::Refused(refusal) | Event::Denied(refusal) = event {
            found.push(refusal.as_ref());
        }
    }
    found
}

/// MQ-19: the log can say who was refused what, and which key of the configuration decides.
#[test]
fn refusals_name_client_user_cause_and_key() {
    let mut bench = bench();
    bench.refuse_with = Some(ReasonCode::BadUserNameOrPassword);
    bench.connack(named(V4, "c", "anna"));
    bench.refuse_with = None;
    bench.dial(Connect { will: Some(will("home/cellar/x", "w", Q0)), ..named(V5, "c", "anna") });
    let anna = bench.connect(named(V5, "c", "anna"));
    publish_reason(&mut bench, anna, "home/cellar/x", Q1);
    publish_reason(&mut bench, anna, "$SYS/x", Q1);
    assert_eq!(bench.subscribe(anna, "other/#", Q0), ReasonCode::NotAuthorized);
    let told = refusals(&bench);
    assert!(told.iter().all(|one| one.client.as_ref().is_some_and(|client| client.as_str() == "c")));
    assert!(told.iter().all(|one| one.user.as_deref() == Some("anna")));
    let keys: Vec<_> = told.iter().map(|one| (one.key, one.topic.as_deref())).collect();
    let topics = ["home/cellar/x", "$SYS/x", "other/#"].map(Some);
    assert_eq!(keys[..2], [("auth.password_file", None), ("acl.file", None)]);
    assert_eq!(keys[2..], [("acl.file", topics[0]), ("", topics[1]), ("acl.file", topics[2])]);
}

#[test]
fn another_protocol_on_the_port_is_called_by_its_name() {
    for (bytes, name) in [(&b"\x16\x03\x01\x02\x00\x01"[..], "TLS"), (b"GET / HTTP/1.1\r\n\r\n", "HTTP")] {
        let mut bench = bench();
        let conn = bench.open(V5);
        bench.send_bytes(conn, Bytes::copy_from_slice(bytes));
        assert!(bench.is_closed(conn) && bench.drain(conn).is_empty());
        let told = refusals(&bench);
        assert!(told[0].detail.contains(&format!("this looks like {name}")), "{told:?}");
        assert_eq!((told[0].key, told[0].reason), ("listener.NAME.protocol", ReasonCode::ProtocolError));
    }
}

/// MQ-19
#[test]
fn an_owner_that_does_not_answer_is_waited_for_only_so_long() {
    let mut bench = bench();
    bench.slow = true;
    let conn = bench.dial(named(V5, "c", "anna"));
    bench.pass(secs(61));
    let Some(Packet::ConnAck(connack)) = bench.recv(conn) else { panic!() };
    assert_eq!(connack.reason, ReasonCode::ServerUnavailable);
    bench.input(Input::Authenticated { conn, answer: Ok(Admission::default()) });
    assert_eq!(bench.broker.sessions().count(), 0, "the answer comes too late");
}

/// MQ-19
#[test]
fn publications_are_refused_where_the_rules_say_so() {
    let mut bench = bench();
    let listener = bench.connect(named(V5, "l", "anna"));
    bench.subscribe(listener, "home/#", Q2);
    let anna = bench.connect(named(V5, "c", "anna"));
    for qos in [Q1, Q2] {
        assert_eq!(publish_reason(&mut bench, anna, "home/cellar/x", qos), ReasonCode::NotAuthorized);
        assert_eq!(publish_reason(&mut bench, anna, "devices/other/x", qos), ReasonCode::NotAuthorized);
    }
    bench.publish(anna, "home/cellar/x", "x", Q0);
    assert_eq!(bench.payloads(listener), Vec::<String>::new());
    assert_eq!(bench.broker.counters().refused_publications, 5);
    // The identifier of the refused QoS 2 message stands for a new one (MQTT-4.3.3-9).
    bench.send(anna, &publish("home/a", "new", Q2, 9));
    assert!(matches!(bench.recv(anna), Some(Packet::PubRec(ack)) if !ack.reason.is_error()));
    assert_eq!(bench.payloads(listener), ["new"]);
    assert!(!bench.is_closed(anna));
}

/// MQ-19: there is no way to say no in 3.1.1 but to close the connection.
#[test]
fn version_3_sees_an_acknowledgement_and_nobody_the_message() {
    let mut bench = bench();
    let old = bench.connect(named(V4, "c", "anna"));
    bench.publish(old, "else/where", "x", Q1);
    bench.publish(old, "else/where", "x", Q2);
    assert!(bench.routed.is_empty());
    bench.input(Input::Policy(Policy { disconnect_refused: true, ..policy(TEXT) }));
    bench.send(old, &publish("else/where", "x", Q0, 1));
    assert!(bench.is_closed(old));
    let new = bench.connect(connect(V5, "d"));
    bench.send(new, &publish("else/where", "x", Q0, 1));
    let Some(Packet::Disconnect(disconnect)) = bench.recv(new) else { panic!() };
    assert_eq!(disconnect.reason, ReasonCode::NotAuthorized);
}

/// MQ-19: a wide subscription brings what may be received of it; `$share/g/f` is judged as `f`.
#[test]
fn subscriptions_bring_what_the_rules_allow() {
    for version in [V4, V5] {
        let mut bench = bench();
        let writer = bench.connect(named(version, "w", "anna"));
        bench.input(Input::Policy(policy("pattern write #\ntopic read public/#\n")));
        bench.retain(writer, "public/kept", "kept", Q1);
        bench.retain(writer, "home/kept", "hidden", Q1);
        let reader = bench.connect(connect(version, "r"));
        assert!(bench.subscribe(reader, "home/x", Q1).is_error());
        assert!(bench.subscribe(reader, "$share/g/home/#", Q1).is_error());
        assert!(!bench.subscribe(reader, "#", Q1).is_error());
        assert_eq!(bench.payloads(reader), ["kept"]);
        bench.publish(writer, "home/1", "1", Q0);
        bench.publish(writer, "public/2", "2", Q0);
        assert_eq!(bench.payloads(reader), ["2"]);
        assert_eq!(bench.broker.counters().refused_subscriptions, 2);
        assert_eq!(bench.broker.counters().dropped.not_authorized, 2);
    }
}

/// MQ-19
#[test]
fn a_share_goes_to_a_member_that_may_receive_it() {
    let mut bench = Bench::new();
    bench.certificates = false;
    let text = "pattern write #\ntopic read public/#\nclient b\ntopic read #\n";
    bench.input(Input::Policy(policy(text)));
    let a = bench.client(V5, "a");
    let b = bench.client(V5, "b");
    for conn in [a, b] {
        assert!(!bench.subscribe(conn, "$share/g/#", Q0).is_error());
    }
    let writer = bench.client(V5, "w");
    for _ in 0..4 {
        bench.publish(writer, "private/x", "x", Q0);
    }
    assert_eq!(bench.payloads(a), Vec::<String>::new());
    assert_eq!(bench.payloads(b).len(), 4);
}

/// MQ-19: a remembered verdict on a topic counts for one policy and one client.
#[test]
fn a_verdict_is_remembered_no_longer_than_it_holds() {
    let mut bench = bench();
    let anna = bench.connect(named(V5, "a", "anna"));
    let bert = bench.connect(named(V5, "b", "bert"));
    for _ in 0..3 {
        assert_eq!(publish_reason(&mut bench, anna, "home/1", Q1), ReasonCode::Success);
        assert_eq!(publish_reason(&mut bench, bert, "home/1", Q1), ReasonCode::NotAuthorized);
    }
    assert_eq!(bench.broker.counters().refused_publications, 3);
    bench.input(Input::Policy(policy("user bert\ntopic home/#\n")));
    for _ in 0..3 {
        assert_eq!(publish_reason(&mut bench, anna, "home/1", Q1), ReasonCode::NotAuthorized);
        assert_eq!(publish_reason(&mut bench, bert, "home/1", Q1), ReasonCode::Success);
    }
    bench.input(Input::Policy(Policy::default()));
    assert_eq!(publish_reason(&mut bench, anna, "home/1", Q1), ReasonCode::Success);
}

/// MQ-08, MQ-19
#[test]
fn a_will_is_judged_at_connect_and_when_it_is_due() {
    for version in [V4, V5] {
        let mut bench = bench();
        let bad = Connect { will: Some(will("home/cellar/x", "w", Q0)), ..named(version, "c", "anna") };
        let (conn, connack) = bench.connack(bad);
        assert_eq!(connack.reason, ReasonCode::NotAuthorized);
        assert!(bench.is_closed(conn));
        let good = Connect { will: Some(will("home/x", "w", Q0)), ..named(version, "c", "anna") };
        let conn = bench.connect(good.clone());
        bench.cut(conn);
        assert_eq!(bench.routed.len(), 1);
        let conn = bench.connect(good);
        bench.input(Input::Policy(policy("topic nothing\n")));
        bench.cut(conn);
        assert_eq!(bench.routed.len(), 1, "the rules have changed since");
    }
}

/// MQ-19: messages that wait for a client and its subscriptions are checked against the permissions of the identity that comes.
#[test]
fn other_rules_and_other_users_count_at_once() {
    let mut bench = bench();
    let reader = bench.connect(named(V5, "r", "anna"));
    bench.subscribe(reader, "home/#", Q1);
    let writer = bench.connect(named(V5, "w", "anna"));
    bench.publish(writer, "home/1", "1", Q1);
    assert_eq!(bench.payloads(reader), ["1"]);
    bench.input(Input::Policy(policy("pattern write #\n")));
    bench.publish(writer, "home/2", "2", Q1);
    assert_eq!(bench.payloads(reader), Vec::<String>::new());
    bench.input(Input::Policy(Policy { authenticate: true, ..policy(TEXT) }));
    bench.publish(writer, "home/3", "3", Q1);
    assert_eq!(bench.payloads(reader), ["3"], "the subscription has stayed");
    bench.cut(reader);
    bench.publish(writer, "home/4", "4", Q1);
    let reader = bench.connect(persistent(V5, "r"));
    let got = bench.payloads(reader);
    assert!(!got.contains(&"4".to_owned()), "an anonymous client found the session: {got:?}");
    bench.publish(writer, "home/5", "5", Q1);
    assert_eq!(bench.payloads(reader), Vec::<String>::new());
}

/// MQ-18: the session of a bridge is its own, and needs no password and no access rule.
#[test]
fn only_parts_of_the_process_connect_as_bridges() {
    for version in [V4, V5] {
        let mut bench = bench();
        let outside = bench.dial(named(version, "$bridge/cloud", "anna"));
        let Some(Packet::ConnAck(connack)) = bench.recv(outside) else { panic!() };
        assert_eq!(connack.reason, ReasonCode::ClientIdentifierNotValid);
        bench.inside = true;
        let inside = bench.dial(persistent(version, "$bridge/cloud"));
        let Some(Packet::ConnAck(connack)) = bench.recv(inside) else { panic!() };
        assert_eq!(connack.reason, ReasonCode::Success);
        assert!(bench.asked.is_empty());
        let other = bench.dial(persistent(version, "other"));
        assert!(bench.recv(other).is_some(), "no other client id from inside");
        if version == V5 {
            assert_eq!(publish_reason(&mut bench, inside, "home/cellar/x", QoS::AtLeastOnce), ReasonCode::Success);
        }
    }
}

/// DP-01: a bridge is told which publication a message is, so that a message that comes twice at the other end can be recognised.
#[test]
fn parts_of_the_process_are_told_the_identity_of_a_message() {
    let mut bench = Bench::new();
    bench.inside = true;
    let inside = bench.dial(persistent(V5, "$bridge/cloud"));
    bench.drain(inside);
    bench.subscribe(inside, "a", QoS::AtLeastOnce);
    bench.inside = false;
    let outside = bench.dial(persistent(V5, "publisher"));
    for qos in [QoS::AtMostOnce, QoS::AtLeastOnce] {
        bench.send(outside, &publish("a", "x", qos, 9));
        let Some(Packet::Publish(publish)) = bench.recv(inside) else { panic!("no message") };
        let user = publish.properties.map(|properties| properties.user).unwrap_or_default();
        let (name, value) = user.first().expect("a property");
        assert_eq!((name.as_str(), value.as_str().split('/').count()), (sedge_broker::ID_PROPERTY, 4));
    }
}
