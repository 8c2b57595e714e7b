//! Values that nodes tell about themselves below `$SYS`.

use sedge_base::Duration;
use sedge_mqtt::QoS;

use crate::common::World;

const EXPIRY: Option<Duration> = Some(Duration::from_secs(30));

fn publications_sent(world: &World, node: u64) -> u64 {
    let status = world.hosts[&node].node.status();
    status.members.iter().filter_map(|member| member.link.as_ref()).map(|link| link.publications_sent).sum()
}

/// OP-07: every shard's clients get the values of their node, at once and when they change; nobody else does.
#[test]
fn a_node_tells_its_own_clients() {
    let mut world = World::cluster(1, 2, 3);
    world.report(1, "$SYS/broker/uptime", "1", None);
    let here: Vec<_> = (0..6).map(|at| world.connect(1, &format!("here{at}"))).collect();
    let (there, all) = (world.connect(2, "there"), world.connect(1, "all"));
    for client in here.iter().chain([&there]) {
        world.subscribe(*client, "$SYS/#", QoS::AtLeastOnce);
    }
    world.subscribe(all, "#", QoS::AtLeastOnce);
    world.subscribe(all, "+/broker/#", QoS::AtLeastOnce);
    world.run(50);
    let sent = publications_sent(&world, 1);
    world.report(1, "$SYS/broker/uptime", "2", None);
    world.run(50);
    for client in here {
        let got = &world.clients[client].got;
        assert_eq!(world.clients[client].payloads(), ["1", "2"]);
        assert!(got[0].retain && !got[1].retain && got.iter().all(|got| got.qos == QoS::AtMostOnce));
    }
    assert!(world.got(there).is_empty() && world.got(all).is_empty());
    assert_eq!(publications_sent(&world, 1), sent);
    assert!(world.hosts.values().all(|host| host.node.status().retained == 0));
}

/// OP-07, FT-14: values that a node tells all clients cross links only where a client asked.
#[test]
fn a_node_tells_those_at_other_nodes_who_ask() {
    let mut world = World::cluster(2, 3, 2);
    let topic = "$SYS/brokers/n1/uptime";
    world.report(1, topic, "1", EXPIRY);
    world.run(50);
    assert_eq!(publications_sent(&world, 1), 0);
    let subscribers = [world.connect(2, "a"), world.connect(2, "b"), world.connect(2, "late")];
    world.subscribe(subscribers[0], "$SYS/brokers/+/uptime", QoS::AtMostOnce);
    world.subscribe(subscribers[1], "$share/g/$SYS/brokers/#", QoS::AtMostOnce);
    world.report(1, topic, "2", EXPIRY);
    world.run(50);
    if world.overlay == "mesh" {
        assert_eq!(publications_sent(&world, 1), 1);
    }
    for subscriber in &subscribers[..2] {
        assert_eq!(world.clients[*subscriber].payloads(), ["2"]);
    }
    world.subscribe(subscribers[2], topic, QoS::AtMostOnce);
    world.run(50);
    assert_eq!(world.clients[subscribers[2]].payloads(), ["2"], "another client of the node gets it at once");
    world.run(31_000);
    let too_late = world.connect(2, "too late");
    world.subscribe(too_late, topic, QoS::AtMostOnce);
    world.run(50);
    assert!(world.got(too_late).is_empty(), "nobody has told it again");
}

/// A value that was told while a client subscribes comes once.
#[test]
fn a_value_that_races_with_a_subscription_comes_once() {
    for seed in 0..30 {
        let mut world = World::cluster(100 + seed, 1, 3);
        world.delays.mailbox = 2_000;
        let client = world.connect(1, &format!("client{seed}"));
        world.send_subscribe(client, "$SYS/broker/+", QoS::AtMostOnce);
        let wait = world.rng.below(6);
        world.run(wait);
        world.report(1, "$SYS/broker/uptime", "1", None);
        world.run(100);
        assert_eq!(world.clients[client].payloads(), ["1"], "seed {seed}");
    }
}
