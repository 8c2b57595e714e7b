//! Names that clients choose (ids, topics, payloads), as the log and the terminal of an operator show them.
#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use std::fs::{self, File};
use std::process::Stdio;

use common::{Running, assert_ok, eventually, read_to, run, sedge, stderr, stdout};
use serde_json::Value;

/// Ends the line, forges another, rings, sets the title and turns the direction of writing.
const NAME: &str = "x\r\n2026-01-01T00:00:00Z ERROR forged\u{1b}]0;title\u{7}\u{9b}31m\u{202e}";
const SHOWN: &str = "x\\r\\n2026-01-01T00:00:00Z ERROR forged\\x1b]0;title\\x07\\u{9b}31m\\u{202e}";

#[track_caller]
fn assert_harmless(text: &str) {
    let harmful = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
    assert!(!text.contains(harmful), "{text:?}");
    assert!(!text.lines().any(|line| line.starts_with("2026-01-01")), "{text:?}");
}

/// A node whose log is in a file; the client with the name subscribes to a filter of the same name and is kicked.
fn log_of_a_node(format: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let mut command = sedge();
    command.args(["serve", "--json", "--bind", "127.0.0.1", "--port", "0", "--http-port", "0", "--cluster-port", "0"]);
    command.env("SEDGE_CLUSTER__BIND", "127.0.0.1").env("SEDGE_LOG__LEVEL", "debug").env("SEDGE_LOG__FORMAT", format);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(&path).unwrap()).spawn();
    let mut ready = String::new();
    let mut out = std::io::BufReader::new(child.as_mut().unwrap().stdout.take().unwrap());
    std::io::BufRead::read_line(&mut out, &mut ready).unwrap();
    let ready: Value = serde_json::from_str(&ready).unwrap();
    let port = ready["mqtt"][0].as_str().unwrap().rsplit_once(':').unwrap().1.to_owned();
    let api = format!("http://{}", ready["http"].as_str().unwrap());
    eventually("the node is ready", || run(&["health", "--api", &api]).status.success());

    let mut client = Running::start(&["sub", "-d", "-p", &port, "-i", NAME, "-t", NAME, "-V", "5"]);
    read_to(&mut client.err, "received SubAck");
    assert_ok(&run(&["pub", "-p", &port, "-t", NAME, "-m", NAME, "-r", "-q", "1"]));
    for command in [&["sessions"][..], &["sessions", "--client", NAME], &["routes"], &["retained"], &["topology"]] {
        let done = run(&[command, &["--api", &api]].concat());
        assert_ok(&done);
        assert_harmless(&stdout(&done));
        assert!(command == ["topology"] || stdout(&done).contains(SHOWN), "{command:?}: {}", stdout(&done));
        let json = run(&[command, &["--api", &api, "--json"]].concat());
        assert_harmless(&stdout(&json));
        let value: Value = serde_json::from_str(&stdout(&json)).unwrap();
        assert!(command == ["topology"] || value.to_string().contains("forged"), "{value}");
    }
    let value = run(&["sessions", "--client", NAME, "--api", &api, "--json"]);
    let value: Value = serde_json::from_str(&stdout(&value)).unwrap();
    assert_eq!(value["sessions"][0]["client"], NAME, "JSON means what it meant");
    let refused = run(&["kick", "nobody\u{1b}[2J", "--api", &api]);
    assert_harmless(&stderr(&refused));
    let kicked = run(&["kick", NAME, "--api", &api]);
    assert_ok(&kicked);
    assert_harmless(&stdout(&kicked));
    assert!(stdout(&kicked).contains(SHOWN), "{}", stdout(&kicked));
    eventually("the log tells of the end", || fs::read_to_string(&path).unwrap().contains("client disconnected"));
    let mut child = child.unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    fs::read_to_string(&path).unwrap()
}

#[test]
fn a_name_forges_no_line_of_the_text_log_and_no_escape_of_a_terminal() {
    let log = log_of_a_node("text");
    assert_harmless(&log);
    assert!(log.contains(SHOWN), "{log}");
}

#[test]
fn a_log_of_json_keeps_the_name_as_it_is_and_its_lines_whole() {
    let log = log_of_a_node("json");
    assert_harmless(&log);
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.iter().any(|line| line["client"] == NAME), "{log}");
}
