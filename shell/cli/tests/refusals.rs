//! Behaviour of `sedge pub` and `sedge sub` at a broker that says no. The broker is a script: it answers each read with the next bytes.
#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;

use common::{assert_fails, run, stderr};

const ACCEPTED_V311: &[u8] = &[0x20, 2, 0, 0];
const ACCEPTED_V5: &[u8] = &[0x20, 3, 0, 0, 0];

/// A broker for one connection; returns its port.
fn scripted(answers: &[&[u8]]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let answers: Vec<Vec<u8>> = answers.iter().map(|answer| answer.to_vec()).collect();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut buffer = [0; 4096];
        for answer in answers {
            if stream.read(&mut buffer).unwrap() == 0 {
                return;
            }
            stream.write_all(&answer).unwrap();
        }
        while stream.read(&mut buffer).is_ok_and(|count| count > 0) {}
    });
    port.to_string()
}

fn publish(port: &str, more: &[&str]) -> std::process::Output {
    run(&[&["pub", "-h", "127.0.0.1", "-p", port, "-t", "a", "-m", "x"], more].concat())
}

fn subscribe(port: &str, more: &[&str]) -> std::process::Output {
    run(&[&["sub", "-h", "127.0.0.1", "-p", port, "-t", "a"], more].concat())
}

#[test]
fn a_refused_connection_ends_with_the_code_of_the_connack() {
    let old = publish(&scripted(&[&[0x20, 2, 0, 5]]), &[]);
    assert_fails(&old, 5, &["refused the connection", "not authorized"]);
    let with_reason = [&[0x20, 9, 0, 0x86, 6, 0x1f, 0, 3][..], b"why"].concat();
    let new = publish(&scripted(&[&with_reason]), &["-V", "5"]);
    assert_fails(&new, 0x86, &["bad user name or password (0x86): why"]);
    assert_fails(&subscribe(&scripted(&[&[0x20, 2, 0, 2]]), &[]), 2, &["client identifier not valid"]);
}

#[test]
fn a_refused_message_is_a_failure_with_the_reason() {
    let refused_once = scripted(&[ACCEPTED_V5, &[0x40, 4, 0, 1, 0x97, 0]]);
    assert_fails(&publish(&refused_once, &["-V", "5", "-q", "1"]), 1, &["refused 1 of 1", "quota exceeded (0x97)"]);
    let refused_early = scripted(&[ACCEPTED_V5, &[0x50, 4, 0, 1, 0x87, 0]]);
    assert_fails(&publish(&refused_early, &["-V", "5", "-q", "2"]), 1, &["not authorized (0x87)"]);
    let unheard = scripted(&[ACCEPTED_V5, &[0x40, 4, 0, 1, 0x10, 0]]);
    assert!(publish(&unheard, &["-V", "5", "-q", "1"]).status.success(), "that nobody subscribed is no failure");
}

#[test]
fn what_the_broker_cannot_take_is_not_sent() {
    let low = scripted(&[&[0x20, 5, 0, 0, 2, 0x24, 1]]);
    assert_fails(&publish(&low, &["-V", "5", "-q", "2"]), 1, &["QoS 1 at most", "-q"]);
    let forgetful = scripted(&[&[0x20, 5, 0, 0, 2, 0x25, 0]]);
    assert_fails(&publish(&forgetful, &["-V", "5", "-r"]), 1, &["retained", "-r"]);
    let small = scripted(&[&[0x20, 8, 0, 0, 5, 0x27, 0, 0, 0, 5]]);
    assert_fails(&publish(&small, &["-V", "5"]), 1, &["at most 5"]);
}

#[test]
fn a_refused_subscription_is_a_failure_with_its_filter() {
    let old = subscribe(&scripted(&[ACCEPTED_V311, &[0x90, 3, 0, 1, 0x80]]), &[]);
    assert_fails(&old, 1, &["subscription to a", "unspecified error (0x80)"]);
    let half = subscribe(&scripted(&[ACCEPTED_V5, &[0x90, 5, 0, 1, 0, 0x87, 0]]), &["-V", "5", "-t", "b", "-E"]);
    assert!(half.status.success(), "one subscription is left");
    assert!(stderr(&half).contains("warning: the broker refused the subscription to a"), "{}", stderr(&half));
}

#[test]
fn a_client_that_was_taken_over_does_not_fight_back() {
    let taken = subscribe(&scripted(&[ACCEPTED_V5, &[0xe0, 1, 0x8e]]), &["-V", "5"]);
    assert_fails(&taken, 1, &["ended the connection", "session taken over (0x8e)"]);
}

#[test]
fn nonsense_is_not_taken_for_mqtt() {
    let web = publish(&scripted(&[b"HTTP/1.1 400 Bad Request\r\n\r\n"]), &[]);
    assert_fails(&web, 1, &["not MQTT"]);
    assert_fails(&publish(&scripted(&[&[0xd0, 0, 0x90, 3, 0, 1, 0]]), &[]), 1, &["SubAck"]);
}
