//! Enhanced authentication (MQTT 5.0 section 4.12), and clients that are let in only for a time.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use sedge_base::ConnId;
use sedge_broker::{Input, Policy};
use sedge_mqtt::{Auth, ConnAck, Connect, ConnectProperties, Disconnect, Packet, ReasonCode};
use sha2::{Digest, Sha256};

use crate::harness::*;

const METHOD: &str = "SCRAM-SHA-256";
const FIRST: &str = "n=anna,r=client";

fn bench() -> Bench {
    let mut bench = Bench::new();
    bench.certificates = false;
    bench.input(Input::Policy(Policy { authenticate: true, ..Policy::default() }));
    bench
}

fn hello(method: &str) -> Connect {
    let properties = ConnectProperties {
        authentication_method: Some(utf8(method)),
        authentication_data: Some(Bytes::from(format!("n,,{FIRST}"))),
        ..ConnectProperties::default()
    };
    Connect { properties, ..connect(V5, "c") }
}

fn auth(reason: ReasonCode, method: &str, data: &str) -> Packet {
    let data = Some(Bytes::copy_from_slice(data.as_bytes()));
    Packet::Auth(Auth { reason, method: Some(utf8(method)), data, reason_string: None, user: Vec::new() })
}

fn hmac(key: &[u8], text: &str) -> Vec<u8> {
    let mac = Hmac::<Sha256>::new_from_slice(key).expect("any length");
    mac.chain_update(text.as_bytes()).finalize().into_bytes().to_vec()
}

/// The client's last message, for an exchange that began with [`FIRST`].
fn last(server_first: &str, password: &[u8]) -> String {
    let nonce = server_first.split(',').next().expect("a nonce");
    let without_proof = format!("c=biws,{nonce}");
    let key = hmac(password, "Client Key");
    let signature = hmac(&Sha256::digest(&key), &format!("{FIRST},{server_first},{without_proof}"));
    let proof: Vec<u8> = key.iter().zip(signature).map(|(a, b)| a ^ b).collect();
    format!("{without_proof},p={}", STANDARD.encode(proof))
}

/// Takes the broker's challenge.
fn challenge(bench: &mut Bench, conn: ConnId) -> String {
    let Some(Packet::Auth(auth)) = bench.recv(conn) else { panic!("no AUTH") };
    assert_eq!((auth.reason, auth.method), (ReasonCode::ContinueAuthentication, Some(utf8(METHOD))));
    String::from_utf8(auth.data.expect("data").to_vec()).expect("text")
}

fn answer(bench: &mut Bench, conn: ConnId, password: &[u8]) {
    let asked = challenge(bench, conn);
    bench.send(conn, &auth(ReasonCode::ContinueAuthentication, METHOD, &last(&asked, password)));
}

fn connected(bench: &mut Bench) -> ConnId {
    let conn = bench.dial(hello(METHOD));
    answer(bench, conn, PASSWORD);
    let Some(Packet::ConnAck(connack)) = bench.recv(conn) else { panic!("no CONNACK") };
    assert_eq!(connack.reason, ReasonCode::Success);
    conn
}

fn refused(bench: &mut Bench, conn: ConnId) -> ReasonCode {
    assert!(bench.is_closed(conn));
    match bench.recv(conn) {
        Some(Packet::ConnAck(connack)) => connack.reason,
        Some(Packet::Disconnect(disconnect)) => disconnect.reason,
        other => panic!("no reason but {other:?}"),
    }
}

/// MQ-19: MQTT-4.12.0-2, MQTT-4.12.0-5
#[test]
fn a_client_proves_who_it_is_and_is_shown_that_the_server_knows_it() {
    let mut bench = bench();
    let conn = bench.dial(hello(METHOD));
    assert!(!bench.is_held(conn), "it is the client's turn");
    answer(&mut bench, conn, PASSWORD);
    let Some(Packet::ConnAck(connack)) = bench.recv(conn) else { panic!("no CONNACK") };
    let ConnAck { reason, properties, .. } = *connack;
    assert_eq!((reason, properties.authentication_method), (ReasonCode::Success, Some(utf8(METHOD))));
    assert!(properties.authentication_data.expect("the server's signature").starts_with(b"v="));
    assert_eq!(bench.broker.sessions().next().and_then(|session| session.user).as_deref(), Some("anna"));
    bench.publish(conn, "t", "x", Q1);
}

/// MQ-19: MQTT-4.12.0-1, MQTT-4.12.0-4
#[test]
fn whoever_fails_is_refused_and_takes_nothing_over() {
    let mut bench = bench();
    let older = bench.connect(connect(V5, "c"));
    let conn = bench.dial(hello("GS2-KRB5"));
    assert_eq!(refused(&mut bench, conn), ReasonCode::BadAuthenticationMethod);
    let conn = bench.dial(hello(METHOD));
    answer(&mut bench, conn, b"wrong");
    assert_eq!(refused(&mut bench, conn), ReasonCode::NotAuthorized);
    for (packet, told) in [
        (auth(ReasonCode::ContinueAuthentication, "OTHER", "x"), ReasonCode::BadAuthenticationMethod),
        (auth(ReasonCode::ReAuthenticate, METHOD, "x"), ReasonCode::ProtocolError),
        (auth(ReasonCode::ContinueAuthentication, METHOD, "junk"), ReasonCode::NotAuthorized),
        (Packet::PingReq, ReasonCode::ProtocolError),
        (publish("t", "x", Q0, 1), ReasonCode::ProtocolError),
    ] {
        let conn = bench.dial(hello(METHOD));
        challenge(&mut bench, conn);
        bench.send(conn, &packet);
        assert_eq!(refused(&mut bench, conn), told, "{packet:?}");
    }
    let conn = bench.dial(hello(METHOD));
    challenge(&mut bench, conn);
    bench.send(conn, &Packet::Disconnect(Disconnect::new(ReasonCode::Success)));
    assert!(bench.is_closed(conn) && bench.drain(conn).is_empty());
    assert!(!bench.is_closed(older));
}

/// MQ-19: without accounts there is no method.
#[test]
fn no_method_is_offered_where_nobody_is_asked() {
    let mut bench = Bench::new();
    let conn = bench.dial(hello(METHOD));
    assert_eq!(refused(&mut bench, conn), ReasonCode::BadAuthenticationMethod);
}

/// MQ-19: CONNECT and AUTH have one time limit, however many steps there are.
#[test]
fn the_exchange_has_the_time_of_a_connect() {
    let mut bench = bench();
    let conn = bench.open(V5);
    bench.pass(secs(6));
    bench.send(conn, &Packet::Connect(Box::new(hello(METHOD))));
    challenge(&mut bench, conn);
    bench.pass(secs(5));
    assert_eq!(refused(&mut bench, conn), ReasonCode::NotAuthorized);
    bench.pass(secs(60));
    assert_eq!(bench.broker.poll_timeout(), None);
}

/// MQ-19: MQTT-4.12.1-1; other packets go on meanwhile.
#[test]
fn a_client_may_prove_again_who_it_is() {
    let mut bench = bench();
    let conn = connected(&mut bench);
    for _ in 0..2 {
        bench.send(conn, &auth(ReasonCode::ReAuthenticate, METHOD, &format!("n,,{FIRST}")));
        let asked = challenge(&mut bench, conn);
        bench.publish(conn, "t", "x", Q1);
        bench.send(conn, &auth(ReasonCode::ContinueAuthentication, METHOD, &last(&asked, PASSWORD)));
        let Some(Packet::Auth(done)) = bench.recv(conn) else { panic!("no AUTH") };
        assert_eq!((done.reason, done.method), (ReasonCode::Success, Some(utf8(METHOD))));
        assert!(done.data.expect("the server's signature").starts_with(b"v="));
    }
    bench.pass(secs(60));
    assert!(!bench.is_closed(conn));
}

/// MQ-19: MQTT-4.12.1-2
#[test]
fn a_client_that_fails_again_is_disconnected() {
    let again = |data: &str| auth(ReasonCode::ReAuthenticate, METHOD, data);
    let mut bench = bench();
    let conn = connected(&mut bench);
    bench.send(conn, &again(&format!("n,,{FIRST}")));
    answer(&mut bench, conn, b"wrong");
    assert_eq!(refused(&mut bench, conn), ReasonCode::NotAuthorized);
    for (packet, told) in [
        (again("junk"), ReasonCode::NotAuthorized),
        (auth(ReasonCode::ReAuthenticate, "OTHER", ""), ReasonCode::BadAuthenticationMethod),
        (auth(ReasonCode::ContinueAuthentication, METHOD, ""), ReasonCode::ProtocolError),
    ] {
        let conn = connected(&mut bench);
        bench.send(conn, &packet);
        assert_eq!(refused(&mut bench, conn), told, "{packet:?}");
    }
    // Two at a time, and one that is never finished.
    let conn = connected(&mut bench);
    bench.send(conn, &again(&format!("n,,{FIRST}")));
    challenge(&mut bench, conn);
    bench.send(conn, &again(&format!("n,,{FIRST}")));
    assert_eq!(refused(&mut bench, conn), ReasonCode::ProtocolError);
    let conn = connected(&mut bench);
    bench.send(conn, &again(&format!("n,,{FIRST}")));
    challenge(&mut bench, conn);
    bench.pass(secs(11));
    assert_eq!(refused(&mut bench, conn), ReasonCode::NotAuthorized);
}

/// MQ-19: nobody becomes somebody else while connected.
#[test]
fn another_user_is_refused() {
    let mut bench = bench();
    let conn = connected(&mut bench);
    bench.send(conn, &auth(ReasonCode::ReAuthenticate, METHOD, "n,,n=bert,r=client"));
    let asked = challenge(&mut bench, conn);
    let proof = {
        let nonce = asked.split(',').next().expect("a nonce");
        let without_proof = format!("c=biws,{nonce}");
        let key = hmac(PASSWORD, "Client Key");
        let signature = hmac(&Sha256::digest(&key), &format!("n=bert,r=client,{asked},{without_proof}"));
        let proof: Vec<u8> = key.iter().zip(signature).map(|(a, b)| a ^ b).collect();
        format!("{without_proof},p={}", STANDARD.encode(proof))
    };
    bench.send(conn, &auth(ReasonCode::ContinueAuthentication, METHOD, &proof));
    assert_eq!(refused(&mut bench, conn), ReasonCode::NotAuthorized);
}

/// MQ-19: MQTT-3.15.2-2: a client that takes no AUTH of that size gets none.
#[test]
fn an_auth_is_never_larger_than_the_client_takes() {
    let mut bench = bench();
    let mut small = hello(METHOD);
    small.properties.maximum_packet_size = Some(40);
    let conn = bench.dial(small);
    assert_eq!(refused(&mut bench, conn), ReasonCode::PacketTooLarge);
}

/// MQ-19
#[test]
fn a_client_is_let_in_for_as_long_as_its_token_says() {
    let named = |version| Connect { username: Some(utf8("anna")), ..connect(version, "c") };
    for version in [V4, V5] {
        let mut bench = bench();
        bench.expires_in = Some(secs(100));
        let conn = bench.connect(named(version));
        bench.pass(secs(99));
        assert!(!bench.is_closed(conn));
        bench.pass(secs(2));
        assert!(bench.is_closed(conn));
        if version == V5 {
            assert_eq!(refused(&mut bench, conn), ReasonCode::MaximumConnectTime);
        }
        assert_eq!(bench.broker.counters().expired_admissions, 1);
        let conn = bench.connect(named(version));
        bench.leave(conn, ReasonCode::Success);
        bench.pass(secs(200));
        assert_eq!(bench.broker.counters().expired_admissions, 1, "nobody is left to be disconnected");
    }
}

/// MQ-19
#[test]
fn who_connected_with_an_account_leaves_with_it() {
    let revoke = |user: &str| Input::Revoke { users: Arc::new([user.into()].into()) };
    for version in [V4, V5] {
        let mut bench = bench();
        let named = |client, user| Connect { username: Some(utf8(user)), ..connect(version, client) };
        let anna = bench.connect(named("a", "anna"));
        let bert = bench.connect(named("b", "bert"));
        bench.certificates = true;
        bench.input(Input::Policy(Policy::default()));
        let proven = bench.client(version, "p");
        bench.input(revoke("anna"));
        bench.input(revoke("user-3"));
        assert!(bench.is_closed(anna) && !bench.is_closed(bert) && !bench.is_closed(proven));
        if version == V5 {
            assert_eq!(refused(&mut bench, anna), ReasonCode::NotAuthorized);
        }
    }
}
