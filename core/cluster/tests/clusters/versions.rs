//! Nodes of neighbouring versions in one cluster, as while it is upgraded node by node.

use sedge_base::Duration;
use sedge_cluster::link::Protocol;
use sedge_cluster::{DrainEnd, DrainState, NodeInput};
use sedge_mqtt::QoS;

use crate::common::{Options, World};

const OLDER: Protocol = Protocol { version: Protocol::CURRENT.version - 1, since: Protocol::CURRENT.version - 1 };
const TOO_NEW: Protocol = Protocol { version: Protocol::CURRENT.version + 2, since: Protocol::CURRENT.version + 1 };

fn kept() -> Options {
    Options { expiry: 3_600, ..Options::default() }
}

fn mixed(seed: u64, protocols: &[Protocol]) -> World {
    let mut world = World::new(seed, 2);
    for (node, protocol) in (1..).zip(protocols) {
        world.start_with(node, |config| config.links.protocol = *protocol);
    }
    world
}

fn drain_of(world: &World, node: u64) -> (DrainState, Option<DrainEnd>) {
    let drain = world.hosts[&node].node.status().drain;
    (drain.state, drain.gave_up)
}

/// Everything that nodes do for clients works across versions; features that only the newer know are left out, and said.
#[test]
fn a_cluster_of_two_versions_serves() {
    let mut world = mixed(1, &[Protocol::CURRENT, OLDER, Protocol::CURRENT]);
    world.settle_members(3);
    let subscriber = world.connect_with(2, "sub", kept());
    world.subscribe(subscriber, "t/#", QoS::ExactlyOnce);
    let publisher = world.connect_with(1, "pub", kept());
    world.publish(publisher, "t/1", "one", QoS::ExactlyOnce);
    world.hang_up(subscriber);
    world.run(20);
    world.publish(publisher, "t/2", "two", QoS::ExactlyOnce);
    // From the older node to a newer one, and back.
    let again = world.connect_with(3, "sub", kept());
    world.run(50);
    assert_eq!(world.got(again), ["two"]);
    world.hang_up(again);
    world.publish(publisher, "t/3", "three", QoS::AtLeastOnce);
    let last = world.connect_with(2, "sub", kept());
    world.run(50);
    assert_eq!(world.got(last), ["three"]);
    world.run_until("copies are held", |world| {
        world.hosts.values().all(|host| {
            let status = host.node.status();
            status.copies == 2
        })
    });
    for node in [1, 3] {
        world.node_input(node, NodeInput::Drain { limit: Duration::from_mins(1) });
        assert_eq!(drain_of(&world, node), (DrainState::Off, Some(DrainEnd::OlderNode)));
    }
    // The older one dies, and is upgraded.
    world.kill(2);
    let back = world.connect_with(1, "sub", kept());
    assert!(world.clients[back].connack.as_ref().unwrap().session_present);
    world.start(2);
    world.settle_members(3);
    for node in 1..=3 {
        assert_eq!(world.counter(node, "node_links_reset"), 0);
    }
    world.node_input(1, NodeInput::Drain { limit: Duration::from_mins(1) });
    world.run_until("the node is empty", |world| world.drained == [1]);
}

/// Mail that a node does not know is passed over if it is of a newer version, and an older one is not bothered for long.
#[test]
fn what_an_older_node_does_not_know_it_passes_over() {
    let mut world = mixed(2, &[Protocol::CURRENT, Protocol::CURRENT]);
    world.settle_members(2);
    world.node_input(1, NodeInput::Drain { limit: Duration::from_mins(1) });
    world.run_until("the node is empty", |world| world.drained == [1]);
    world.start_with(3, |config| config.links.protocol = OLDER);
    world.run_until("it serves on", |world| drain_of(world, 1) == (DrainState::Off, Some(DrainEnd::OlderNode)));
    world.settle_members(3);
    assert!(world.counter(3, "node_mail_passed_over") > 0, "it was told that a node is being emptied");
    assert_eq!(world.counter(3, "node_links_reset"), 0);
}

/// A node of a version too far away is named in the status of the others, which serve on.
#[test]
fn a_version_too_far_away_is_told() {
    let mut world = mixed(3, &[Protocol::CURRENT, Protocol::CURRENT, TOO_NEW]);
    world.run_until("it was refused", |world| (1..=2).all(|node| !world.hosts[&node].node.status().refused.is_empty()));
    let refused = world.hosts[&1].node.status().refused;
    assert!(
        refused.len() == 1 && refused[0].node == Some(sedge_base::NodeId::new(3)) && refused[0].why.contains("link"),
        "{refused:?}"
    );
    let subscriber = world.connect(1, "sub");
    world.subscribe(subscriber, "t", QoS::AtLeastOnce);
    let publisher = world.connect(2, "pub");
    world.publish(publisher, "t", "x", QoS::AtLeastOnce);
    world.run(50);
    assert_eq!(world.got(subscriber), ["x"]);
}
