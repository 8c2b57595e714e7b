//! CONNECT, CONNACK, DISCONNECT, client ids, keep alive, takeover.

use bytes::Bytes;
use sedge_base::ClientId;
use sedge_broker::{BrokerConfig, Event, Input};
use sedge_mqtt::{ConnAckProperties, ConnectProperties, Packet, ReasonCode, Version};

use crate::harness::*;

/// MQ-01
#[test]
fn a_client_connects_and_disconnects() {
    for version in [V4, V5] {
        let mut bench = Bench::new();
        let (conn, connack) = bench.connack(connect(version, "a"));
        assert_eq!((connack.reason, connack.session_present), (ReasonCode::Success, false));
        assert!(!bench.is_held(conn));
        assert_eq!(bench.broker.connections(), 1);
        bench.leave(conn, ReasonCode::Success);
        assert_eq!(bench.broker.connections(), 0);
        assert_eq!(bench.broker.sessions().count(), 0);
        assert_eq!(bench.ended, [(ClientId::new("a"), 1)]);
        assert!(matches!(&bench.events[..], [Event::Connected { .. }, Event::Disconnected { .. }]));
    }
}

/// MQ-01
#[test]
fn an_unknown_protocol_level_is_refused_with_code_1() {
    for (level, answered_in) in [(0, V4), (3, V4), (6, V5), (0x80, V4), (0x83, V4), (0x86, V4)] {
        let mut bench = Bench::new();
        let conn = bench.open(answered_in);
        let bytes = [0x10, 13, 0, 4, b'M', b'Q', b'T', b'T', level, 2, 0, 0, 0, 1, b'a'];
        bench.send_bytes(conn, Bytes::copy_from_slice(&bytes));
        let Some(Packet::ConnAck(connack)) = bench.recv(conn) else { panic!("level {level}") };
        assert_eq!(connack.reason, ReasonCode::UnsupportedProtocolVersion);
        assert_eq!(connack.properties, ConnAckProperties::default(), "nothing that the client may not know");
        assert!(bench.is_closed(conn));
    }
}

/// MQ-01
#[test]
fn the_first_packet_is_connect_and_there_is_only_one() {
    let mut bench = Bench::new();
    let conn = bench.open(V5);
    bench.send(conn, &Packet::PingReq);
    assert!(bench.is_closed(conn));
    assert_eq!(bench.drain(conn), []);
    let conn = bench.client(V5, "a");
    bench.send(conn, &Packet::Connect(Box::new(connect(V5, "a"))));
    let Some(Packet::Disconnect(disconnect)) = bench.recv(conn) else { panic!() };
    assert_eq!(disconnect.reason, ReasonCode::ProtocolError);
    assert!(bench.is_closed(conn));
    let conn = bench.client(V4, "a");
    bench.send(conn, &Packet::Connect(Box::new(connect(V4, "a"))));
    assert_eq!(bench.drain(conn), []);
    assert!(bench.is_closed(conn));
}

/// MQ-01
#[test]
fn a_connection_without_connect_is_closed() {
    let mut bench = Bench::new();
    let conn = bench.open(V5);
    bench.pass(secs(9));
    assert!(!bench.is_closed(conn));
    bench.pass(secs(1));
    assert!(bench.is_closed(conn));
    assert_eq!(bench.broker.connections(), 0);
}

/// MQ-01
#[test]
fn an_unanswered_claim_ends_with_server_unavailable() {
    let mut bench = Bench::new();
    bench.slow = true;
    let conn = bench.dial(connect(V5, "a"));
    assert!(bench.is_held(conn));
    bench.pass(secs(10));
    let Some(Packet::ConnAck(connack)) = bench.recv(conn) else { panic!() };
    assert_eq!(connack.reason, ReasonCode::ServerUnavailable);
    assert!(bench.is_closed(conn));
    bench.answer_all();
    assert_eq!(bench.broker.sessions().count(), 0);
    assert_eq!(bench.ended, [(ClientId::new("a"), 1)]);
}

/// MQ-01
#[test]
fn empty_client_ids_are_assigned_for_this_shard() {
    let mut bench = Bench::new();
    let (_, connack) = bench.connack(connect(V5, ""));
    let assigned = connack.properties.assigned_client_id.unwrap();
    assert_eq!(ClientId::new(&assigned).stable_hash() % 3, 1);
    let (_, connack) = bench.connack(connect(V4, ""));
    assert_eq!(connack.reason, ReasonCode::Success);
    let (conn, connack) = bench.connack(persistent(V4, ""));
    assert_eq!(connack.reason, ReasonCode::ClientIdentifierNotValid);
    assert!(bench.is_closed(conn));
    assert_eq!(bench.broker.sessions().count(), 2);
}

/// MQ-14
#[test]
fn connack_tells_the_limits() {
    let config = BrokerConfig { max_session_expiry: 100, max_keep_alive: 60, ..BrokerConfig::default() };
    let mut bench = Bench::with(config);
    let properties = ConnectProperties { session_expiry: Some(1_000), ..ConnectProperties::default() };
    let asked = sedge_mqtt::Connect { properties, keep_alive: 90, ..connect(V5, "a") };
    let (_, connack) = bench.connack(asked);
    let told = connack.properties;
    assert_eq!(told.session_expiry, Some(100));
    assert_eq!(told.server_keep_alive, Some(60));
    assert_eq!(told.receive_maximum, Some(1024));
    assert_eq!(told.maximum_packet_size, Some(1024 * 1024));
    assert_eq!(told.topic_alias_maximum, Some(64));
    let (_, connack) = bench.connack(sedge_mqtt::Connect { keep_alive: 30, ..connect(V5, "b") });
    assert_eq!((connack.properties.session_expiry, connack.properties.server_keep_alive), (None, None));
    let (_, connack) = bench.connack(connect(V4, "c"));
    assert_eq!(connack.properties, ConnAckProperties::default());
}

/// MQ-14
#[test]
fn authentication_methods_are_refused() {
    let mut bench = Bench::new();
    let properties = ConnectProperties { authentication_method: Some(utf8("SCRAM")), ..ConnectProperties::default() };
    let (conn, connack) = bench.connack(sedge_mqtt::Connect { properties, ..connect(V5, "a") });
    assert_eq!(connack.reason, ReasonCode::BadAuthenticationMethod);
    assert!(bench.is_closed(conn));
    let conn = bench.client(V5, "a");
    bench.send_bytes(conn, Bytes::from_static(&[0xf0, 0]));
    let Some(Packet::Disconnect(disconnect)) = bench.recv(conn) else { panic!() };
    assert_eq!(disconnect.reason, ReasonCode::ProtocolError);
}

/// MQ-14
#[test]
fn reason_strings_come_only_to_those_who_want_them() {
    for wanted in [true, false] {
        let mut bench = Bench::new();
        let properties =
            ConnectProperties { request_problem_information: Some(wanted), ..ConnectProperties::default() };
        let conn = bench.connect(sedge_mqtt::Connect { properties, ..connect(V5, "a") });
        bench.send(conn, &Packet::Connect(Box::new(connect(V5, "a"))));
        let Some(Packet::Disconnect(disconnect)) = bench.recv(conn) else { panic!() };
        assert_eq!(disconnect.reason_string.is_some(), wanted);
    }
}

/// MQ-10
#[test]
fn silence_ends_a_connection_and_pings_keep_it() {
    for version in [V4, V5] {
        let mut bench = Bench::new();
        let conn = bench.connect(sedge_mqtt::Connect { keep_alive: 10, ..connect(version, "a") });
        for _ in 0..5 {
            bench.pass(secs(14));
            bench.send(conn, &Packet::PingReq);
            assert_eq!(bench.drain(conn), [Packet::PingResp]);
        }
        bench.pass(secs(14));
        assert!(!bench.is_closed(conn));
        bench.pass(secs(1));
        assert!(bench.is_closed(conn));
        let told = bench.drain(conn);
        match version {
            Version::V311 => assert_eq!(told, []),
            Version::V5 => {
                assert!(matches!(&told[..], [Packet::Disconnect(why)] if why.reason == ReasonCode::KeepAliveTimeout));
            }
        }
        assert_eq!(bench.broker.counters().keep_alive_timeouts, 1);
    }
}

/// MQ-10
#[test]
fn without_keep_alive_silence_is_fine() {
    let mut bench = Bench::new();
    let conn = bench.client(V4, "a");
    bench.pass(secs(1_000_000));
    assert!(!bench.is_closed(conn));
    assert_eq!(bench.broker.poll_timeout(), None);
}

/// MQ-11
#[test]
fn a_second_connect_closes_the_first_at_once() {
    let mut bench = Bench::new();
    let first = bench.client(V5, "a");
    bench.slow = true;
    let second = bench.dial(connect(V5, "a"));
    let Some(Packet::Disconnect(disconnect)) = bench.recv(first) else { panic!() };
    assert_eq!(disconnect.reason, ReasonCode::SessionTakenOver);
    assert!(bench.is_closed(first));
    let third = bench.dial(connect(V4, "a"));
    assert!(bench.is_closed(second), "a claim counts as a connection");
    bench.answer_all();
    assert!(matches!(bench.recv(third), Some(Packet::ConnAck(connack)) if connack.reason == ReasonCode::Success));
    assert_eq!(bench.broker.connections(), 1);
    assert_eq!(bench.broker.sessions().count(), 1);
    assert_eq!(bench.broker.counters().takeovers, 2);
}

/// MQ-01
#[test]
fn packets_behind_connect_wait_for_connack() {
    let mut bench = Bench::new();
    bench.slow = true;
    let conn = bench.dial(connect(V5, "a"));
    bench.send(conn, &Packet::PingReq);
    bench.send(conn, &Packet::PingReq);
    assert_eq!(bench.drain(conn), []);
    bench.answer_all();
    let got = bench.drain(conn);
    assert!(matches!(&got[..], [Packet::ConnAck(_), Packet::PingResp, Packet::PingResp]), "{got:?}");
}

/// MQ-14: Use another server, with somewhere to go first that differs from client to client (5.0 sections 3.14.2.1 and 4.11).
#[test]
fn a_broker_that_stops_says_where_else_to_go() {
    let mut bench = Bench::new();
    let clients = [bench.client(V5, "a"), bench.client(V5, "b")];
    let old = bench.client(V4, "c");
    let mut small = connect(V5, "d");
    small.properties.maximum_packet_size = Some(40);
    let small = bench.connect(small);
    bench.input(Input::Shutdown { elsewhere: [utf8("one.of.the.others.example:1883"), utf8("two:1883")].into() });
    let mut references = clients.map(|client| {
        let Some(Packet::Disconnect(disconnect)) = bench.recv(client) else { panic!() };
        assert_eq!(disconnect.reason, ReasonCode::UseAnotherServer);
        disconnect.server_reference.unwrap().as_str().to_owned()
    });
    references.sort_unstable();
    assert_eq!(references, ["one.of.the.others.example:1883 two:1883", "two:1883 one.of.the.others.example:1883"]);
    assert_eq!(bench.recv(old), None);
    let Some(Packet::Disconnect(disconnect)) = bench.recv(small) else { panic!() };
    assert_eq!((disconnect.reason, disconnect.server_reference), (ReasonCode::ServerShuttingDown, None));
    assert!(bench.is_closed(old) && bench.is_closed(small));
}

/// MQ-01
#[test]
fn a_session_can_be_ended_with_and_without_its_connection() {
    let mut bench = Bench::new();
    let kick = |id| Input::Kick { client: ClientId::new(id), reason: ReasonCode::NotAuthorized, end_session: true };
    let here = bench.connect(persistent(V5, "here"));
    let away = bench.connect(persistent(V5, "away"));
    bench.cut(away);
    assert_eq!(bench.broker.sessions().count(), 2);
    bench.input(kick("away"));
    bench.input(kick("nobody"));
    assert_eq!(bench.broker.sessions().count(), 1);
    bench.input(kick("here"));
    let Some(Packet::Disconnect(disconnect)) = bench.recv(here) else { panic!() };
    assert_eq!(disconnect.reason, ReasonCode::NotAuthorized);
    assert_eq!((bench.broker.sessions().count(), bench.broker.counters().subscriptions), (0, 0));
}

/// MQ-01
#[test]
fn kick_and_shutdown_say_why() {
    let mut bench = Bench::new();
    let a = bench.client(V5, "a");
    let b = bench.client(V5, "b");
    let c = bench.client(V4, "c");
    bench.input(Input::Kick {
        client: ClientId::new("a"),
        reason: ReasonCode::AdministrativeAction,
        end_session: false,
    });
    let Some(Packet::Disconnect(disconnect)) = bench.recv(a) else { panic!() };
    assert_eq!(disconnect.reason, ReasonCode::AdministrativeAction);
    assert!(!bench.is_closed(b));
    bench.input(Input::Shutdown { elsewhere: [].into() });
    let Some(Packet::Disconnect(disconnect)) = bench.recv(b) else { panic!() };
    assert_eq!(disconnect.reason, ReasonCode::ServerShuttingDown);
    assert!(bench.is_closed(b) && bench.is_closed(c));
    assert_eq!(bench.broker.connections(), 0);
}

/// MQ-14: a broker that is emptied refuses whoever comes, and lets those go that are there, one after the other.
#[test]
fn a_broker_that_is_emptied_sends_clients_elsewhere() {
    let mut bench = Bench::new();
    let (stays, ends) = (bench.connect(persistent(V5, "stays")), bench.client(V5, "ends"));
    let old = bench.connect(persistent(V4, "old"));
    let away = bench.connect(persistent(V4, "away"));
    bench.input(Input::Closed { conn: away });
    bench.input(Input::Drain(Some([utf8("one:1883"), utf8("two:1883")].into())));
    let (_, refused) = bench.connack(connect(V5, "late"));
    assert_eq!(refused.reason, ReasonCode::UseAnotherServer);
    assert!(refused.properties.server_reference.is_some());
    let (_, refused) = bench.connack(connect(V4, "late"));
    assert_eq!(refused.reason, ReasonCode::ServerUnavailable);
    assert_eq!(bench.recv(stays), None);
    let leave = |id, if_away| Input::Leave { client: ClientId::new(id), if_away, to: Some(utf8("two:1883")) };
    for id in ["stays", "away", "nobody"] {
        bench.input(leave(id, true));
    }
    assert_eq!((&bench.stays[..], &bench.leaves[..]), (&[ClientId::new("stays")][..], &[ClientId::new("away")][..]));
    assert_eq!(bench.recv(stays), None);
    bench.leaves.clear();
    for id in ["stays", "ends", "old", "nobody"] {
        bench.input(leave(id, false));
    }
    for client in [stays, ends] {
        let Some(Packet::Disconnect(disconnect)) = bench.recv(client) else { panic!() };
        assert_eq!(
            (disconnect.reason, disconnect.server_reference),
            (ReasonCode::UseAnotherServer, Some(utf8("two:1883")))
        );
    }
    assert!(bench.is_closed(stays) && bench.is_closed(ends) && bench.is_closed(old));
    assert_eq!(bench.leaves, [ClientId::new("stays"), ClientId::new("old")]);
    assert_eq!(bench.ended.len(), 1);
    bench.input(Input::Drain(None));
    bench.client(V5, "late");
}
