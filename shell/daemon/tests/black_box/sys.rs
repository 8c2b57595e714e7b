//! `$SYS`, from outside.

use std::collections::BTreeMap;
use std::time::Duration;

use sedge_daemon::{Config, Daemon};
use sedge_mqtt::{Packet, QoS};

use crate::common::{Client, config, eventually, get};

const OFTEN: Duration = Duration::from_millis(100);

fn named(name: &str, interval: Duration, seeds: &[std::net::SocketAddr]) -> Config {
    let mut config = config(seeds);
    name.clone_into(&mut config.node.name);
    config.sys.interval = interval;
    config
}

/// Values that a client of `node` gets at once for `filter`, with the retain flag.
fn values(node: &Daemon, client: &str, filter: &str) -> BTreeMap<String, String> {
    let (mut client, _) = Client::connect(node, client);
    client.subscribe(filter, QoS::AtMostOnce);
    client.send(&Packet::PingReq);
    let mut values = BTreeMap::new();
    loop {
        match client.receive() {
            Some(Packet::PingResp) => return values,
            Some(Packet::Publish(publish)) if publish.retain => {
                let value = String::from_utf8(publish.payload.to_vec()).unwrap();
                values.insert(publish.topic.unwrap().as_str().to_owned(), value);
            }
            Some(Packet::Publish(_)) => {}
            other => panic!("{other:?}"),
        }
    }
}

/// OP-07: the counters match a scripted load.
#[test]
fn the_topics_of_mosquitto_are_there_and_count_what_happens() {
    let node = Daemon::start(&named("one", OFTEN, &[])).unwrap();
    let (mut client, _) = Client::connect(&node, "client");
    client.subscribe("a/#", QoS::AtLeastOnce);
    client.subscribe("$share/g/b", QoS::AtLeastOnce);
    for _ in 0..5 {
        client.publish("c", b"seven b", true);
    }
    let mut readers = 0;
    eventually("the values are told", || {
        readers += 1;
        let values = values(&node, &format!("reader-{readers}"), "$SYS/broker/#");
        let is =
            |topic: &str, value: &str| values.get(&format!("$SYS/broker/{topic}")).map(String::as_str) == Some(value);
        is("publish/messages/received", "5")
            && is("publish/bytes/received", "35")
            && is("retained messages/count", "1")
            && is("shared_subscriptions/count", "1")
            && is("clients/expired", "0")
    });
    let values = values(&node, "reader", "$SYS/broker/#");
    let value = |topic: &str| values[&format!("$SYS/broker/{topic}")].as_str();
    assert_eq!(value("version"), format!("sedge version {}", env!("CARGO_PKG_VERSION")));
    assert!(value("uptime").ends_with(" seconds"), "{values:?}");
    assert!(value("load/publish/received/1min").parse::<f64>().unwrap() > 0.0, "{values:?}");
    for topic in [
        "clients/connected",
        "clients/disconnected",
        "clients/expired",
        "clients/maximum",
        "messages/received",
        "messages/sent",
        "publish/messages/dropped",
        "bytes/received",
        "bytes/sent",
        "subscriptions/count",
        "store/messages/count",
        "store/messages/bytes",
        "load/messages/sent/5min",
        "load/bytes/received/15min",
        "load/sockets/1min",
        "load/connections/15min",
    ] {
        assert!(value(topic).parse::<f64>().is_ok(), "{topic}: {values:?}");
    }
    assert!(get(&node, "/metrics").1.contains("sedge_retained_messages 1\n"), "they are no retained messages");
}

#[test]
fn they_are_brought_up_to_date_and_no_leading_wildcard_matches_them() {
    let node = Daemon::start(&named("one", OFTEN, &[])).unwrap();
    let (mut all, _) = Client::connect(&node, "all");
    all.subscribe("#", QoS::AtMostOnce);
    all.subscribe("+/broker/uptime", QoS::AtMostOnce);
    let (mut client, _) = Client::connect(&node, "client");
    client.subscribe("$SYS/broker/bytes/received", QoS::ExactlyOnce);
    let read = |client: &mut Client| {
        let message = client.message();
        String::from_utf8(message.payload.to_vec()).unwrap().parse::<u64>().unwrap()
    };
    let mut last = read(&mut client);
    for _ in 0..3 {
        all.send(&Packet::PingReq);
        assert_eq!(all.receive(), Some(Packet::PingResp));
        let next = read(&mut client);
        assert!(next > last, "{next} after {last}");
        last = next;
    }
}

#[test]
fn a_client_of_one_node_reads_the_values_of_all() {
    let first = Daemon::start(&named("one", OFTEN, &[])).unwrap();
    let second = Daemon::start(&named("two", OFTEN, &[first.addresses().cluster])).unwrap();
    eventually("the nodes know each other", || {
        [&first, &second].iter().all(|node| get(node, "/api/v1/status").1.contains("\"links\":1"))
    });
    let (mut client, _) = Client::connect(&first, "client");
    client.subscribe("$SYS/brokers/+/clients/connected", QoS::AtMostOnce);
    let mut connected = BTreeMap::new();
    eventually("both have told", || {
        let message = client.message();
        let value = String::from_utf8(message.payload.to_vec()).unwrap();
        connected.insert(message.topic.unwrap().as_str().to_owned(), value);
        let is = |name: &str, value: &str| {
            connected.get(&format!("$SYS/brokers/{name}/clients/connected")).map(String::as_str) == Some(value)
        };
        is("one", "1") && is("two", "0")
    });
    let again = values(&first, "late", "$SYS/brokers/two/uptime");
    assert_eq!(again.len(), 0, "nobody at this node had asked for it");
    let again = values(&first, "later", "$SYS/brokers/+/clients/connected");
    assert_eq!(again.len(), 2, "somebody at this node had asked for it: {again:?}");
}

#[test]
fn without_an_interval_there_are_none() {
    let node = Daemon::start(&named("one", Duration::ZERO, &[])).unwrap();
    assert_eq!(values(&node, "reader", "$SYS/#"), BTreeMap::new());
}
