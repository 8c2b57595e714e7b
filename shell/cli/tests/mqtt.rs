//! `sedge pub` and `sedge sub` against a node.

mod common;

use common::{Node, Running, assert_fails, assert_ok, eventually, run, run_with, send, stdout};
use rustix::process::Signal;
use serde_json::Value;

#[test]
fn every_version_and_quality_of_service_goes_through() {
    let node = Node::start();
    for version in ["311", "5"] {
        for qos in ["0", "1", "2"] {
            let mut subscriber = node.subscribe(&["-V", version, "-q", qos, "-t", "a/+", "-C", "2", "-v"]);
            assert_ok(&node.publish(&["-V", version, "-q", qos, "-t", "a/b", "-m", "-5 °C"]));
            assert_ok(&node.publish(&["-V", version, "-q", qos, "-t", "a/c", "-n"]));
            let (code, out, _) = subscriber.end();
            assert_eq!((code, out.as_str()), (Some(0), "a/b -5 °C\na/c (null)\n"), "version {version}, QoS {qos}");
        }
    }
}

#[test]
fn lines_files_and_repetitions_become_messages() {
    let node = Node::start();
    let mut subscriber = node.subscribe(&["-t", "in", "-q", "2", "-C", "7"]);
    let lines = run_with(&node.client("pub", &["-t", "in", "-q", "2", "-l", "--json"]), b"one\ntwo\nthree");
    assert_ok(&lines);
    let told: Value = serde_json::from_str(&stdout(&lines)).unwrap();
    assert_eq!((told["sent"].as_u64(), told["acknowledged"].as_u64()), (Some(3), Some(3)));
    assert_ok(&run_with(&node.client("pub", &["-t", "in", "-s"]), b"all of\nit"));
    assert_ok(&node.publish(&["-t", "in", "-m", "again", "--repeat", "3", "--repeat-delay", "0.01"]));
    let (code, out, _) = subscriber.end();
    assert_eq!((code, out.as_str()), (Some(0), "one\ntwo\nthree\nall of\nit\nagain\nagain\nagain\n"));
}

#[test]
fn retained_messages_come_go_and_can_be_hidden() {
    let node = Node::start();
    assert_ok(&node.publish(&["-t", "r/1", "-m", "kept", "-r", "-q", "1"]));
    let shown = run(&node.client("sub", &["-t", "r/#", "-C", "1", "-F", "%t %p %r"]));
    assert_eq!(stdout(&shown), "r/1 kept 1\n");
    let mut fresh = node.subscribe(&["-t", "r/#", "-R", "-C", "1"]);
    assert_ok(&node.publish(&["-t", "r/2", "-m", "new"]));
    assert_eq!(fresh.end().1, "new\n");
    assert_ok(&node.publish(&["-t", "r/1", "-n", "-r", "-q", "1"]));
    let gone = run(&node.client("sub", &["-t", "r/#", "-W", "1"]));
    assert_eq!((gone.status.code(), stdout(&gone).as_str()), (Some(27), ""));
}

#[test]
fn properties_of_mqtt_5_are_sent_and_shown() {
    let node = Node::start();
    let mut subscriber =
        node.subscribe(&["-V", "5", "-t", "p", "-C", "1", "--json", "-D", "subscribe", "subscription-identifier", "7"]);
    let properties = ["-D", "publish", "content-type", "x/y", "-D", "PUBLISH", "user-property", "k", "v"];
    assert_ok(&node.publish(&[&["-t", "p", "-m", "{}"][..], &properties].concat()));
    let message: Value = serde_json::from_str(&subscriber.end().1).unwrap();
    assert_eq!((message["topic"].as_str(), message["payload"].as_str()), (Some("p"), Some("{}")));
    let shown = &message["properties"];
    assert_eq!((shown["content-type"].as_str(), shown["user-properties"][0]["k"].as_str()), (Some("x/y"), Some("v")));
    assert_eq!(shown["subscription-identifiers"][0], 7);
}

#[test]
fn a_kept_session_collects_messages() {
    let node = Node::start();
    for version in ["311", "5"] {
        let topic = format!("kept/{version}");
        let session = ["-V", version, "-i", version, "-c", "-q", "1", "-t", &topic];
        assert_ok(&run(&node.client("sub", &[&session[..], &["-E"]].concat())));
        assert_ok(&node.publish(&["-q", "1", "-t", &topic, "-m", "while away"]));
        let back = run(&node.client("sub", &[&session[..], &["-C", "1", "-W", "20"]].concat()));
        assert_eq!(stdout(&back), "while away\n", "version {version}");
    }
}

#[test]
fn a_will_is_published_when_its_client_is_killed_and_not_when_it_is_interrupted() {
    let node = Node::start();
    let mut watcher = node.subscribe(&["-t", "will/#", "-C", "1", "-v"]);
    let with_will = |topic| node.subscribe(&["-t", "x", "--will-topic", topic, "--will-payload", "gone"]);
    let mut interrupted = with_will("will/interrupted");
    send(interrupted.pid(), Signal::INT);
    assert_eq!(interrupted.end().0, Some(0));
    let killed = with_will("will/killed");
    send(killed.pid(), Signal::KILL);
    assert_eq!(watcher.end().1, "will/killed gone\n");
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let node = Node::start();
    let mut subscriber = node.subscribe(&["-t", "pipe"]);
    assert_ok(&node.publish(&["-t", "pipe", "-m", "first"]));
    assert_eq!(subscriber.line(), "first");
    let (read, write) = std::io::pipe().unwrap();
    let arguments = node.client("sub", &["-t", "pipe", "-d", "-i", "to-a-pipe"]);
    let mut child =
        common::sedge().args(&arguments).stdout(write).stderr(std::process::Stdio::piped()).spawn().unwrap();
    common::read_to(&mut std::io::BufReader::new(child.stderr.take().unwrap()), "received SubAck");
    drop(read);
    // More than one message: a process that another test is starting may hold the reading end until it has begun.
    eventually("the subscriber ends", || {
        assert_ok(&node.publish(&["-t", "pipe", "-m", "more"]));
        child.try_wait().unwrap().is_some()
    });
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_subscriber_whose_connection_ends_comes_back() {
    let node = Node::start();
    let mut subscriber = node.subscribe(&["-i", "victim", "-t", "back", "-C", "1"]);
    assert_fails(&run(&["kick", "nobody", "--api", &node.api]), 1, &["nobody"]);
    let kicked = run(&["kick", "victim", "--api", &node.api]);
    assert_ok(&kicked);
    assert!(stdout(&kicked).contains("victim"));
    common::read_to(&mut subscriber.err, "trying again");
    common::read_to(&mut subscriber.err, "received SubAck");
    assert_ok(&node.publish(&["-t", "back", "-m", "here"]));
    assert_eq!(subscriber.end().1, "here\n");
}

#[test]
fn the_commands_of_the_api_show_a_node() {
    let node = Node::start();
    let _subscriber: Running = node.subscribe(&["-i", "lamp-1", "-t", "lamp/#", "-q", "1"]);
    let shown = |command: &[&str]| {
        let output = run(&[command, &["--api", &node.api]].concat());
        assert_ok(&output);
        stdout(&output)
    };
    assert!(shown(&["status"]).contains("1 connected"), "{}", shown(&["status"]));
    assert!(shown(&["topology"]).contains("NODE"));
    assert!(shown(&["sessions"]).contains("lamp-1"));
    assert!(shown(&["sessions", "--client", "lamp-1"]).contains("lamp/#"));
    assert!(shown(&["routes"]).contains("FILTER"));
    for command in ["status", "topology", "sessions", "routes"] {
        let parsed: Result<Value, _> = serde_json::from_str(&shown(&[command, "--json"]));
        assert!(parsed.unwrap().is_object(), "{command}");
    }
    let missing = run(&["sessions", "--client", "nobody", "--api", &node.api]);
    assert_fails(&missing, 1, &["nobody"]);
}
