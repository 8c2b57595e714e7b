//! Three nodes, from outside.

use std::time::{Duration, Instant};

use crate::common::{Client, cluster, config, eventually, get};
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
        // Each SUBACK means that every node knows: what is published from now on arrives.
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
