//! Nodes that begin: they meet the members that they remember before they let clients in, and repeat nothing that others have done meanwhile.

use sedge_base::Duration;
use sedge_cluster::NodeState;
use sedge_mqtt::QoS;

use crate::common::{ClientIx, Options, World};

fn kept() -> Options {
    Options { expiry: 3_600, ..Options::default() }
}

fn with_will() -> Options {
    Options { will: Some(("will".to_owned(), "gone".to_owned())), ..Options::default() }
}

/// A cluster of nodes with journals.
fn site(seed: u64, nodes: u64) -> World {
    let mut world = World::new(seed, 2);
    world.keep_journals(nodes);
    for node in 1..=nodes {
        world.start(node);
    }
    world.settle_members(nodes);
    world
}

fn cut_power(world: &mut World, nodes: u64) {
    for node in 1..=nodes {
        world.silence(node);
    }
}

fn names(nodes: u64) -> Vec<String> {
    (1..=nodes).map(|node| format!("subscriber {node}")).collect()
}

/// A session at each node with an acknowledged message for it; then the power goes.
fn site_without_power(seed: u64, nodes: u64) -> World {
    let mut world = site(seed, nodes);
    for (node, name) in (1..=nodes).zip(names(nodes)) {
        let subscriber = world.connect_with(node, &name, kept());
        world.subscribe(subscriber, "t", QoS::ExactlyOnce);
        world.hang_up(subscriber);
    }
    world.run(20);
    let publisher = world.connect(1, "publisher");
    world.publish(publisher, "t", "before", QoS::ExactlyOnce);
    cut_power(&mut world, nodes);
    world.run(10);
    world
}

/// Whether the client has found its session with all that waits for it, once.
fn is_complete(world: &World, client: ClientIx) -> bool {
    let connack = world.clients[client].connack.as_ref();
    connack.is_some_and(|connack| connack.session_present) && world.got(client) == ["before"]
}

/// FT-26, FT-28, MQ-11: after the power of a whole site was gone, a client finds its session wherever it connects first, however far apart
/// the nodes start.
#[test]
fn a_site_comes_back_with_every_session() {
    for (seed, late_by) in (0..).zip([[0, 0, 0, 0], [300, 1_200, 2_900, 40], [0, 30_000, 0, 0], [700, 0, 0, 3_000]]) {
        let mut world = site_without_power(seed, 5);
        let mut clients = Vec::new();
        for (node, late) in (1..).zip([0].into_iter().chain(late_by)) {
            world.run(late);
            world.start(node);
            // Each client goes to the next node that is up.
            let name = format!("subscriber {}", node % 5 + 1);
            clients.push(world.dial_client(node, &name, kept()));
        }
        world.run_until("all have what was for them", |world| clients.iter().all(|client| is_complete(world, *client)));
        world.run(3_000);
        for client in clients {
            assert_eq!(world.got(client), ["before"], "seed {seed}");
        }
    }
}

/// FT-28: a member that never comes back is given up.
#[test]
fn a_member_that_does_not_come_back_is_given_up() {
    let mut world = site_without_power(7, 3);
    world.start_with(1, |config| config.recovery_timeout = Duration::from_secs(4));
    world.start_with(2, |config| config.recovery_timeout = Duration::from_secs(4));
    let client = world.dial_client(1, "subscriber 1", kept());
    world.run(3_500);
    assert_eq!(world.clients[client].connack, None);
    let status = world.hosts[&2].node.status();
    assert_eq!(status.state, NodeState::Recovery);
    assert_eq!(status.awaited.iter().map(|(node, _)| node.get()).collect::<Vec<_>>(), [3]);
    world.run_until("it is given up", |world| is_complete(world, client));
    assert!(world.hosts[&2].node.is_ready() && world.hosts[&2].node.status().awaited.is_empty());
    assert_eq!(world.counter(1, "members_given_up"), 1);
}

/// FT-28: whose end the others have seen, and all of whose sessions they have, is not waited for.
#[test]
fn the_node_that_ended_last_waits_for_nobody() {
    let mut world = site(8, 3);
    let subscriber = world.connect_with(1, "subscriber", kept());
    world.subscribe(subscriber, "t", QoS::AtLeastOnce);
    world.hang_up(subscriber);
    for node in [1, 2] {
        world.run(500);
        world.kill(node);
    }
    world.run(500);
    world.silence(3);
    world.start_with(3, |config| config.seeds.clear());
    assert!(world.hosts[&3].node.status().awaited.is_empty());
    let client = world.connect_with(3, "subscriber", kept());
    assert!(world.clients[client].connack.as_ref().unwrap().session_present);
    // And who ended earlier waits for the one that ended later, and for nobody else.
    world.start(1);
    world.run_until("node 1 serves", |world| world.hosts[&1].node.is_ready());
    assert_eq!(world.hosts[&1].node.status().members.len(), 2);
    assert_eq!(world.counter(1, "members_given_up"), 0);
}

/// FT-20: the will of a client whose node dies is published once, whether the node comes back before or after another one has taken its
/// sessions over.
#[test]
fn a_will_is_published_once_when_its_node_comes_back() {
    for (seed, after) in (0..).zip([0, 1, 5, 20, 60, 400, 1_500, 4_000]) {
        let mut world = site(seed, 3);
        let witness = world.connect_with(2, "witness", kept());
        world.subscribe(witness, "will", QoS::AtLeastOnce);
        world.connect_with(1, "short", with_will());
        world.connect_with(1, "long", Options { expiry: 3_600, ..with_will() });
        world.run(50);
        world.kill(1);
        world.run(after);
        world.start(1);
        world.run(6_000);
        assert_eq!(world.got(witness), ["gone", "gone"], "back after {after} ms");
    }
}

/// FT-20: that holds, too, when the whole site starts again after another node has published the will.
#[test]
fn a_will_is_published_once_over_a_restart_of_the_site() {
    for (seed, last) in [(1, 10), (2, 1_000)] {
        let mut world = site(seed, 3);
        let witness = world.connect_with(2, "witness", kept());
        world.subscribe(witness, "will", QoS::AtLeastOnce);
        world.connect_with(1, "client", with_will());
        world.run(50);
        world.kill(1);
        world.run_until("the will is published", |world| world.got(witness) == ["gone"]);
        world.run(last);
        cut_power(&mut world, 3);
        for node in [3, 1, 2] {
            world.start(node);
        }
        let witness = world.connect_with(3, "witness", kept());
        world.run(3_000);
        assert_eq!(world.got(witness), [""; 0], "the power went {last} ms later");
    }
}
