//! One node, from outside.

use std::time::{Duration, Instant};

use crate::common::{Client, config, connect, eventually, get, publish, request};
use sedge_daemon::{Daemon, StartError};
use sedge_mqtt::{Packet, QoS, ReasonCode};

fn node() -> Daemon {
    Daemon::start(&config(&[])).unwrap()
}

fn json(node: &Daemon, path: &str) -> serde_json::Value {
    let (status, body) = get(node, path);
    assert_eq!(status, 200, "{path}: {body}");
    serde_json::from_str(&body).unwrap()
}

#[test]
fn messages_reach_clients_of_all_shards_in_order() {
    let node = node();
    let mut subscribers: Vec<Client> = (0..8).map(|n| Client::connect(&node, &format!("sub-{n}")).0).collect();
    for subscriber in &mut subscribers {
        subscriber.subscribe("a/+", QoS::AtMostOnce);
    }
    let (mut publisher, _) = Client::connect(&node, "pub");
    for n in 0..50_u8 {
        publisher.publish("a/b", &[n], false);
    }
    for subscriber in &mut subscribers {
        let got: Vec<u8> = (0..50).map(|_| subscriber.message().payload[0]).collect();
        assert_eq!(got, (0..50).collect::<Vec<u8>>());
    }
    let shards = |session: &serde_json::Value| session["shard"].as_u64();
    let sessions = json(&node, "/api/v1/sessions");
    let mut used: Vec<_> = sessions["sessions"].as_array().unwrap().iter().map(shards).collect();
    used.sort_unstable();
    used.dedup();
    assert_eq!(used.len(), 2, "the clients of this test are to be on both shards");
}

#[test]
fn a_first_packet_may_come_in_any_pieces_with_anything_behind_it() {
    let node = node();
    for id in ["one", "two", "three", "four"] {
        let mut bytes = bytes::BytesMut::new();
        let version = sedge_mqtt::Version::V5;
        sedge_mqtt::encode(&connect(id), version, &mut bytes);
        let mut slow = Client::raw(&node);
        for byte in &bytes {
            slow.send_bytes(&[*byte]);
        }
        assert!(matches!(slow.receive(), Some(Packet::ConnAck(_))));
        sedge_mqtt::encode(&publish("x", b"y", Some(3), false), version, &mut bytes);
        sedge_mqtt::encode(&Packet::PingReq, version, &mut bytes);
        let mut eager = Client::raw(&node);
        eager.send_bytes(&bytes);
        assert!(matches!(eager.receive(), Some(Packet::ConnAck(_))));
        assert!(matches!(eager.receive(), Some(Packet::PubAck(_) | Packet::PingResp)));
        assert!(matches!(eager.receive(), Some(Packet::PubAck(_) | Packet::PingResp)));
        assert!(matches!(slow.receive(), Some(Packet::Disconnect(_))), "taken over");
        assert_eq!(slow.receive(), None);
    }
}

#[test]
fn who_says_nothing_or_nonsense_is_shown_out() {
    let mut config = config(&[]);
    config.limits.broker.connect_timeout = Duration::from_millis(200);
    let node = Daemon::start(&config).unwrap();
    let (mut silent, mut rude) = (Client::raw(&node), Client::raw(&node));
    rude.send_bytes(b"GET / HTTP/1.1\r\n\r\n");
    assert_eq!(rude.receive(), None);
    let start = Instant::now();
    assert_eq!(silent.receive(), None);
    assert!(start.elapsed() < Duration::from_secs(2));
    let (mut client, _) = Client::connect(&node, "polite");
    client.send(&Packet::PingReq);
    assert_eq!(client.receive(), Some(Packet::PingResp));
}

#[test]
fn one_connection_too_many_is_closed_and_a_free_place_is_taken_again() {
    let mut config = config(&[]);
    config.limits.max_connections = 2;
    let node = Daemon::start(&config).unwrap();
    let (_first, _) = Client::connect(&node, "first");
    let (second, _) = Client::connect(&node, "second");
    assert_eq!(Client::raw(&node).receive(), None);
    drop(second);
    eventually("the place is free", || json(&node, "/api/v1/status")["connections"] == 1);
    let _third = Client::connect(&node, "third");
    assert!(get(&node, "/metrics").1.contains("sedge_accept_over_limit_total 1\n"));
}

#[test]
fn large_messages_pass_in_pieces() {
    let node = node();
    let (mut subscriber, _) = Client::connect(&node, "sub");
    subscriber.subscribe("large", QoS::AtMostOnce);
    let (mut publisher, _) = Client::connect(&node, "pub");
    let payload: Vec<u8> = (0..700_000_u32).map(|n| n.to_le_bytes()[0] ^ n.to_le_bytes()[1]).collect();
    for _ in 0..5 {
        publisher.publish("large", &payload, false);
    }
    for _ in 0..5 {
        assert!(subscriber.message().payload == payload);
    }
}

#[test]
fn a_client_that_does_not_read_stops_nobody() {
    let node = node();
    let (mut lazy, _) = Client::connect(&node, "lazy");
    lazy.subscribe("flood", QoS::AtMostOnce);
    let (mut publisher, _) = Client::connect(&node, "pub");
    let payload = vec![7; 100_000];
    for _ in 0..400 {
        publisher.send(&publish("flood", &payload, None, false));
    }
    publisher.send(&Packet::PingReq);
    assert_eq!(publisher.receive(), Some(Packet::PingResp));
    let session = &json(&node, "/api/v1/sessions?client=lazy")["sessions"][0];
    assert!(session["queued_messages"].as_u64().unwrap() > 0, "{session}");
    assert_eq!(lazy.message().payload.len(), payload.len());
}

#[test]
fn stopping_says_so_and_frees_the_port() {
    let first = node();
    let address = first.addresses().mqtt[0];
    let (mut client, _) = Client::connect(&first, "client");
    let mut silent = Client::raw(&first);
    let start = Instant::now();
    let stopper = std::thread::spawn(move || first.stop());
    let Some(Packet::Disconnect(disconnect)) = client.receive() else { panic!("no DISCONNECT") };
    assert_eq!(disconnect.reason, ReasonCode::ServerShuttingDown);
    assert_eq!(client.receive(), None);
    drop(client);
    assert_eq!(silent.receive(), None);
    stopper.join().unwrap();
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    let mut config = config(&[]);
    config.mqtt.port = address.port();
    let second = Daemon::start(&config).unwrap();
    let _client = Client::connect(&second, "client");
}

#[test]
fn a_port_in_use_is_named_with_key_and_flag() {
    let first = node();
    for (key, flag, port) in [
        ("mqtt.port", "--port", first.addresses().mqtt[0].port()),
        ("cluster.port", "--cluster-port", first.addresses().cluster.port()),
        ("http.port", "--http-port", first.addresses().http.unwrap().port()),
    ] {
        let mut config = config(&[]);
        match key {
            "mqtt.port" => config.mqtt.port = port,
            "cluster.port" => config.cluster.port = port,
            _ => config.http.port = port,
        }
        let error = Daemon::start(&config).unwrap_err();
        assert!(matches!(error, StartError::PortInUse { .. }), "{error}");
        let text = error.to_string();
        assert!(text.starts_with(key) && text.contains(flag) && text.contains(&port.to_string()), "{text}");
    }
}

#[test]
fn the_api_shows_sessions_and_ends_connections() {
    let node = node();
    let (mut client, _) = Client::connect(&node, "a/b c");
    client.subscribe("x/#", QoS::AtLeastOnce);
    let _other = Client::connect(&node, "other");
    let one = json(&node, "/api/v1/sessions?client=a%2Fb%20c");
    assert_eq!(one["total"], 1);
    let session = &one["sessions"][0];
    assert_eq!((&session["protocol"], &session["connected"]), (&"5.0".into(), &true.into()));
    assert_eq!(session["subscriptions"][0]["filter"], "x/#");
    assert_eq!(session["subscriptions"][0]["qos"], 1);
    let all = json(&node, "/api/v1/sessions");
    assert_eq!((all["total"].as_u64(), all["sessions"].as_array().unwrap().len()), (Some(2), 2));
    let pages: Vec<String> = (0..3)
        .flat_map(|offset| {
            let page = json(&node, &format!("/api/v1/sessions?offset={offset}&limit=1"));
            page["sessions"].as_array().unwrap().iter().map(|session| session["client"].to_string()).collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(pages.len(), 2);
    assert_ne!(pages[0], pages[1]);
    let mut cursor = String::new();
    let mut clients = Vec::new();
    loop {
        let page = json(&node, &format!("/api/v1/sessions?limit=1{cursor}"));
        let found = page["sessions"].as_array().unwrap();
        assert!(found.len() <= 1 && page["total"] == 2);
        clients.extend(found.iter().map(|session| session["client"].to_string()));
        let Some(next) = page["next"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    clients.sort_unstable();
    assert_eq!(clients, ["\"a/b c\"", "\"other\""]);

    let (status, _) = request(&node, "DELETE", "/api/v1/sessions/a%2Fb%20c/connection");
    assert_eq!(status, 200);
    let Some(Packet::Disconnect(disconnect)) = client.receive() else { panic!("no DISCONNECT") };
    assert_eq!(disconnect.reason, ReasonCode::AdministrativeAction);
    drop(client);
    let (status, body) = request(&node, "DELETE", "/api/v1/sessions/a%2Fb%20c/connection");
    assert_eq!(status, 404);
    assert!(body.contains("\"error\":\"not_found\""), "{body}");
    assert!(Client::connect(&node, "a/b c").1, "the session stays");
}

#[test]
fn the_api_answers_what_it_cannot_do_in_json() {
    let node = node();
    for (method, path, status, error) in [
        ("GET", "/nothing", 404, "not_found"),
        ("POST", "/api/v1/status", 405, "method_not_allowed"),
        ("GET", "/api/v1/sessions?limit=0", 400, "bad_request"),
        ("GET", "/api/v1/routes?offset=x", 400, "bad_request"),
        ("GET", "/api/v1/sessions?cursor=x", 400, "bad_request"),
        ("GET", "/api/v1/sessions?cursor=0-0&offset=1", 400, "bad_request"),
    ] {
        let (got, body) = request(&node, method, path);
        assert_eq!(got, status, "{path}: {body}");
        let body: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!(body["error"], error);
        assert!(!body["detail"].as_str().unwrap().is_empty());
    }
}

#[test]
fn health_metrics_and_description_are_there() {
    let node = node();
    eventually("the node is ready", || get(&node, "/health/ready").0 == 200);
    assert_eq!(json(&node, "/health/live")["alive"], true);
    assert_eq!(json(&node, "/api/v1/openapi.json")["info"]["title"], "Sedge");
    assert_eq!(json(&node, "/api/v1/topology")["nodes"].as_array().unwrap().len(), 1);
    assert_eq!(json(&node, "/api/v1/cluster")["members"][0]["this"], true);
    assert_eq!(json(&node, "/api/v1/routes")["total"], 0);
    let (mut client, _) = Client::connect(&node, "client");
    client.publish("retained", b"1", true);
    let (_, metrics) = get(&node, "/metrics");
    for line in [
        "sedge_connections 1",
        "sedge_sessions 1",
        "sedge_retained_messages 1",
        "sedge_members 1",
        "sedge_publishes_received_total{qos=\"1\"} 1",
        "sedge_node_state{state=\"normal\"} 1",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} is not in\n{metrics}");
    }
    let mut seen = std::collections::BTreeSet::new();
    for name in metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        assert!(name.starts_with("sedge_") || name.starts_with("process_"), "{name}");
        assert!(seen.insert(name), "{name} stands there twice");
    }
    for name in ["process_cpu_seconds_total ", "process_resident_memory_bytes "] {
        assert!(metrics.lines().any(|line| line.starts_with(name)), "{name} is not in\n{metrics}");
    }
}
