//! Three nodes, from outside.

use std::time::{Duration, Instant};

use crate::common::{Client, cluster, config, eventually, get, request};
use sedge_daemon::Daemon;
use sedge_daemon::config::Secret;
use sedge_mqtt::{Packet, QoS, ReasonCode};

fn status(node: &Daemon, key: &str) -> serde_json::Value {
    let status: serde_json::Value = serde_json::from_str(&get(node, "/api/v1/status").1).unwrap();
    status[key].clone()
}

#[test]
fn three_nodes_are_one_broker() {
    let nodes = cluster(3);
    for (number, at) in nodes.iter().enumerate() {
        let topic = format!("t/{number}");
        let mut subscribers: Vec<Client> = nodes
            .iter()
            .enumerate()
            .map(|(place, node)| Client::connect(node, &format!("sub-{number}-{place}")).0)
            .collect();
        for subscriber in &mut subscribers {
            subscriber.subscribe(&topic, QoS::AtMostOnce);
        }
        // Each SUBACK means that every node knows the subscription: publications from this moment on arrive.
        let (mut publisher, _) = Client::connect(at, &format!("pub-{number}"));
        for n in 0..20_u8 {
            publisher.publish(&topic, &[n], false);
        }
        for subscriber in &mut subscribers {
            let got: Vec<u8> = (0..20).map(|_| subscriber.message().payload[0]).collect();
            assert_eq!(got, (0..20).collect::<Vec<u8>>());
        }
    }
    let routes: serde_json::Value = serde_json::from_str(&get(&nodes[0], "/api/v1/routes?limit=4").1).unwrap();
    assert_eq!((routes["total"].as_u64(), routes["routes"].as_array().map(Vec::len)), (Some(9), Some(4)), "{routes}");
    let local: serde_json::Value = serde_json::from_str(&get(&nodes[0], "/api/v1/routes?local=true").1).unwrap();
    assert_eq!((&local["total"], &local["routes"][0]["client"]), (&3.into(), &"sub-0-0".into()), "{local}");
    let (_, metrics) = get(&nodes[0], "/metrics");
    let links = metrics.lines().filter(|line| line.starts_with("sedge_link_publications_sent_total{peer="));
    assert_eq!(links.count(), 2, "{metrics}");
}

#[test]
fn retained_messages_and_sessions_follow_the_client() {
    let nodes = cluster(3);
    let (mut publisher, _) = Client::connect(&nodes[0], "pub");
    publisher.publish("kept", b"value", true);
    for (place, node) in nodes.iter().enumerate() {
        let (mut client, _) = Client::connect(node, &format!("reader-{place}"));
        client.subscribe("kept", QoS::AtMostOnce);
        let message = client.message();
        assert_eq!((&message.payload[..], message.retain), (&b"value"[..], true));
    }
    let (mut here, present) = Client::connect(&nodes[0], "wanderer");
    assert!(!present);
    here.subscribe("w", QoS::AtLeastOnce);
    let (mut there, present) = Client::connect(&nodes[1], "wanderer");
    assert!(present, "the session is known on another node");
    let Some(Packet::Disconnect(disconnect)) = here.receive() else { panic!("no DISCONNECT") };
    assert_eq!(disconnect.reason, ReasonCode::SessionTakenOver);
    publisher.publish("w", b"found", false);
    assert_eq!(&there.message().payload[..], b"found");
}

#[test]
fn a_node_that_stops_is_known_at_once() {
    let mut nodes = cluster(3);
    let start = Instant::now();
    nodes.pop().unwrap().stop();
    for node in &nodes {
        eventually("the node is gone", || status(node, "members") == 2 && status(node, "links") == 1);
    }
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
}

#[test]
fn nodes_with_another_key_or_name_stay_apart() {
    let key = |text: &str| Some(Secret::new(text));
    let mut first = config(&[]);
    first.cluster.key = key("0123456789abcdef");
    let first = Daemon::start(&first).unwrap();
    let seeds = [first.addresses().cluster];
    let mut same = config(&seeds);
    same.cluster.key = key("0123456789abcdef");
    let mut other = config(&seeds);
    other.cluster.key = key("0123456789abcdeg");
    let (same, other) = (Daemon::start(&same).unwrap(), Daemon::start(&other).unwrap());
    for node in [&first, &same] {
        eventually("the two know each other", || status(node, "links") == 1);
    }
    assert_eq!((status(&other, "members"), status(&first, "members")), (1.into(), 2.into()));
    eventually("a node alone is ready", || status(&other, "ready") == true);
    let (_, metrics) = get(&first, "/metrics");
    assert!(!metrics.contains("sedge_datagrams_refused_total 0\n"), "{metrics}");
}

/// MQ-11: through any node's API.
#[test]
fn a_connection_at_another_node_is_ended_with_the_reason_that_is_asked_for() {
    let nodes = cluster(2);
    let (mut client, _) = Client::connect(&nodes[1], "c");
    let (status, body) = request(&nodes[0], "DELETE", "/api/v1/sessions/c/connection?reason=0x97");
    assert_eq!(status, 200, "{body}");
    assert!(body.contains("\"session_ended\":false"), "{body}");
    let Some(Packet::Disconnect(disconnect)) = client.receive() else { panic!("no DISCONNECT") };
    assert_eq!(disconnect.reason, ReasonCode::QuotaExceeded);
    let (mut client, present) = Client::connect(&nodes[1], "c");
    assert!(present, "the session stays");
    assert_eq!(request(&nodes[0], "DELETE", "/api/v1/sessions/c").0, 200);
    let Some(Packet::Disconnect(disconnect)) = client.receive() else { panic!("no DISCONNECT") };
    assert_eq!(disconnect.reason, ReasonCode::AdministrativeAction);
    assert!(!Client::connect(&nodes[0], "c").1, "the session has ended");
    assert_eq!(request(&nodes[0], "DELETE", "/api/v1/sessions/nobody/connection").0, 404);
    for wrong in ["0x00", "0x04", "0x86", "300", "x"] {
        let (status, body) = request(&nodes[0], "DELETE", &format!("/api/v1/sessions/c?reason={wrong}"));
        assert!(status == 400 && body.contains("no reason code of DISCONNECT"), "{wrong}: {status} {body}");
    }
}

/// MQ-14
#[test]
fn clients_of_a_node_that_stops_are_told_where_else_to_go() {
    let seed = Daemon::start(&config(&[])).unwrap();
    let mut there = config(&[seed.addresses().cluster]);
    there.mqtt.advertise = "broker-2.site:1884".to_owned();
    let second = Daemon::start(&there).unwrap();
    eventually("the nodes know each other", || get(&second, "/health/ready").0 == 200);
    eventually("a link is up", || get(&seed, "/api/v1/status").1.contains("\"links\":1"));
    let (mut client, _) = Client::connect(&seed, "c");
    let (mut other, _) = Client::connect(&second, "d");
    // Whatever the nodes said when the link came up has been read when a message has crossed it both ways.
    client.subscribe("t", QoS::AtMostOnce);
    other.publish("t", b"x", false);
    assert_eq!(client.message().payload, "x");
    let stopping = std::thread::spawn(move || seed.stop());
    let Some(Packet::Disconnect(disconnect)) = client.receive() else { panic!("no DISCONNECT") };
    assert_eq!(disconnect.reason, ReasonCode::UseAnotherServer);
    assert_eq!(disconnect.server_reference.unwrap().as_str(), "broker-2.site:1884");
    stopping.join().unwrap();
    let stopping = std::thread::spawn(move || second.stop());
    let Some(Packet::Disconnect(disconnect)) = other.receive() else { panic!("no DISCONNECT") };
    assert_eq!((disconnect.reason, disconnect.server_reference), (ReasonCode::ServerShuttingDown, None));
    stopping.join().unwrap();
}

/// MQ-07
#[test]
fn retained_messages_are_listed_in_pages_and_cleared_everywhere() {
    let nodes = cluster(2);
    let (mut client, _) = Client::connect(&nodes[0], "pub");
    for number in 0..25 {
        client.publish(&format!("r/{number}"), format!("value {number}").as_bytes(), true);
    }
    client.publish("other", &[0xff], true);
    let list = |node: &Daemon, query: &str| -> serde_json::Value {
        let (status, body) = get(node, &format!("/api/v1/retained?{query}"));
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    };
    let mut topics = Vec::new();
    let mut cursor = 0;
    loop {
        let page = list(&nodes[1], &format!("filter=r/%2B&limit=10&cursor={cursor}"));
        let messages = page["messages"].as_array().unwrap();
        assert!(messages.len() <= 10 && page["total"] == 26, "{page}");
        topics.extend(messages.iter().map(|message| message["topic"].as_str().unwrap().to_owned()));
        let Some(next) = page["next"].as_u64() else { break };
        cursor = next;
    }
    topics.sort_unstable();
    topics.dedup();
    assert_eq!(topics.len(), 25);
    let one = &list(&nodes[1], "filter=r/7")["messages"][0];
    assert_eq!((&one["payload"], &one["publisher"], &one["bytes"]), (&"value 7".into(), &"pub".into(), &7.into()));
    assert!(list(&nodes[1], "filter=other")["messages"][0]["payload"].is_null(), "no text");

    assert_eq!(request(&nodes[1], "DELETE", "/api/v1/retained/r%2F7").0, 200);
    for node in &nodes {
        eventually("it is cleared", || list(node, "filter=r/7")["messages"].as_array().unwrap().is_empty());
    }
    assert_eq!(request(&nodes[1], "DELETE", "/api/v1/retained/r%2F7").0, 404);
    for wrong in ["r%2F%23", "%24SYS%2Fbroker%2Fversion"] {
        assert_eq!(request(&nodes[1], "DELETE", &format!("/api/v1/retained/{wrong}")).0, 400, "{wrong}");
    }
    assert_eq!(get(&nodes[0], "/api/v1/retained?filter=a%23").0, 400);
}
