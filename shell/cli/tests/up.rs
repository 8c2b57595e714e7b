//! `sedge up` and `sedge down`.
#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use std::path::Path;

use common::{Running, assert_fails, assert_ok, eventually, free_ports, read_to, run, runs, send, stdout};
use rustix::process::Signal;
use serde_json::Value;

/// Flags for three nodes on free ports; the first port comes with them.
fn flags(dir: &Path) -> (u16, Vec<String>) {
    let first = free_ports(9);
    let pairs = [
        ("--port", first.to_string()),
        ("--http-port", (first + 3).to_string()),
        ("--cluster-port", (first + 6).to_string()),
        ("--data-dir", dir.to_str().unwrap().to_owned()),
    ];
    (first, pairs.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]).collect())
}

fn with<'a>(command: &'a str, flags: &'a [String], more: &[&'a str]) -> Vec<&'a str> {
    let mut arguments = vec![command];
    arguments.extend(flags.iter().map(String::as_str));
    arguments.extend(more);
    arguments
}

fn pids(ready: &Value) -> Vec<u32> {
    let nodes = ready["nodes"].as_array().unwrap();
    nodes.iter().map(|node| u32::try_from(node["pid"].as_u64().unwrap()).unwrap()).collect()
}

/// A cluster in the foreground, ready.
fn start(dir: &Path) -> (Running, Vec<u32>) {
    let (_, flags) = flags(dir);
    let mut up = Running::start(&with("up", &flags, &["--json"]));
    let line = up.line();
    assert!(!line.is_empty(), "{:?}", up.end());
    let ready: Value = serde_json::from_str(&line).unwrap();
    assert!(ready["message_ms"].as_f64().unwrap() > 0.0, "{ready}");
    let pids = pids(&ready);
    assert!(pids.len() == 3 && pids.iter().all(|pid| runs(*pid)), "{ready}");
    (up, pids)
}

#[track_caller]
fn assert_all_end(pids: &[u32]) {
    eventually("all nodes end", || !pids.iter().any(|pid| runs(*pid)));
}

#[test]
fn a_newcomer_is_told_what_there_is_and_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let (first, flags) = flags(dir.path());
    let mut up = Running::start(&with("up", &flags, &[]));
    let told = read_to(&mut up.out, "Ctrl-C").join("\n");
    for words in ["node-1", "node-2", "node-3", "a message went from node-1 to node-3 in ", "sedge status --api"] {
        assert!(told.contains(words), "{words} is not in {told}");
    }
    assert!(told.contains(&format!("mqtt://127.0.0.1:{}", first + 2)), "{told}");
    assert!(told.contains(&format!("mosquitto_sub -p {} ", first + 2)), "{told}");
    assert!(told.contains(&format!("mosquitto_pub -p {first} ")), "{told}");
    assert!(dir.path().join("node-3/log").exists());
    let token = std::fs::read_to_string(dir.path().join("api-token")).unwrap();
    assert!(told.contains(&format!("http://127.0.0.1:{}/#token={token} ", first + 3)), "{told}");
    send(up.pid(), Signal::INT);
    assert_eq!(up.end().0, Some(0));
    assert!(!dir.path().join("api-token").exists());
}

#[test]
fn the_nodes_end_with_the_program_when_it_is_told_to() {
    let dir = tempfile::tempdir().unwrap();
    let (mut up, pids) = start(dir.path());
    send(up.pid(), Signal::TERM);
    let (code, _, err) = up.end();
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert!(!pids.iter().any(|pid| runs(*pid)));
}

#[test]
fn the_nodes_end_with_the_program_when_it_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let (up, pids) = start(dir.path());
    send(up.pid(), Signal::KILL);
    assert_all_end(&pids);
}

#[test]
fn a_node_that_dies_is_reported_and_the_others_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let (mut up, pids) = start(dir.path());
    send(pids[1], Signal::KILL);
    let told = read_to(&mut up.err, "node-2 has ended").join("\n");
    assert!(told.contains("signal: 9") && told.contains("node-2/log"), "{told}");
    assert!(runs(pids[0]) && runs(pids[2]));
    send(up.pid(), Signal::TERM);
    assert_eq!(up.end().0, Some(0));
    assert_all_end(&pids);
}

#[test]
fn a_node_that_does_not_listen_to_reason_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let (mut up, pids) = start(dir.path());
    send(pids[1], Signal::STOP);
    send(up.pid(), Signal::TERM);
    let (code, _, err) = up.end();
    assert_eq!(code, Some(0));
    assert!(err.contains("were killed: node-2"), "{err}");
    assert_all_end(&pids);
}

#[test]
fn a_detached_cluster_goes_on_until_down() {
    let dir = tempfile::tempdir().unwrap();
    let (first, flags) = flags(dir.path());
    let output = run(&with("up", &flags, &["--detach", "--json"]));
    assert_ok(&output);
    let pids = pids(&serde_json::from_str(&stdout(&output)).unwrap());
    assert!(pids.iter().all(|pid| runs(*pid)));

    let path = dir.path().to_str().unwrap();
    assert_fails(&run(&with("up", &flags, &[])), 3, &["running already", "sedge down", path]);
    let api = format!("http://127.0.0.1:{}", first + 3);
    let status: Value = serde_json::from_str(&stdout(&run(&["status", "--json", "--api", &api]))).unwrap();
    assert_eq!((status["name"].as_str(), status["members"].as_u64()), (Some("node-1"), Some(3)));

    send(pids[2], Signal::KILL);
    eventually("node-3 is gone", || !runs(pids[2]));
    let down = run(&["down", "--data-dir", path]);
    assert_ok(&down);
    let told = stdout(&down);
    assert!(told.contains(&format!("node-1 (pid {}): stopped", pids[0])), "{told}");
    assert!(told.contains(&format!("node-3 (pid {}): was not running", pids[2])), "{told}");
    assert_all_end(&pids);
    assert!(!dir.path().join("api-token").exists());
    assert_fails(&run(&["down", "--data-dir", path]), 1, &[path]);
}

#[test]
fn down_leaves_other_processes_alone() {
    let dir = tempfile::tempdir().unwrap();
    let mut other = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let node = serde_json::json!({
        "name": "node-1", "pid": other.id(), "started": "at another time",
        "mqtt_port": 1, "http_port": 2, "cluster_port": 3,
    });
    std::fs::write(dir.path().join("up.json"), serde_json::json!({ "nodes": [node] }).to_string()).unwrap();
    let down = run(&["down", "--data-dir", dir.path().to_str().unwrap()]);
    assert_ok(&down);
    assert!(stdout(&down).contains("was not running"));
    assert!(runs(other.id()));
    other.kill().unwrap();
    other.wait().unwrap();
}
