//! Nodes are emptied: their sessions and the copies that they keep go to others.

use sedge_base::{Duration, NodeId};
use sedge_cluster::{DrainEnd, DrainState, DrainStatus, NodeInput};
use sedge_mqtt::{QoS, ReasonCode, Utf8};

use crate::common::{Options, World};

const DRAIN: NodeInput = NodeInput::Drain { limit: Duration::from_mins(1) };

fn kept() -> Options {
    Options { expiry: 3_600, ..Options::default() }
}

fn drain(world: &World, node: u64) -> DrainStatus {
    world.hosts[&node].node.status().drain
}

fn are_copied(world: &World, nodes: &[u64]) -> bool {
    nodes.iter().all(|node| {
        let status = world.hosts[node].node.status();
        status.copies == status.copies_wanted && status.moving == 0
    })
}

fn addressed(seed: u64, nodes: u64) -> World {
    let mut world = World::new(seed, 2);
    for node in 1..=nodes {
        let address = Utf8::new(&format!("host-{node}:1883")).unwrap_or_default();
        world.start_with(node, |config| config.client_address = Some(address));
    }
    world.settle_members(nodes);
    world.run_until("copies are made", |world| are_copied(world, &(1..=nodes).collect::<Vec<_>>()));
    world
}

/// MQ-05, MQ-06, MQ-11, MQ-14: sessions leave with what waits for them, those of connected clients, too; copies go to others.
#[test]
fn sessions_and_copies_leave_a_node_that_is_emptied() {
    for seed in 0..10 {
        let mut world = addressed(700 + seed, 4);
        let publisher = world.connect(2, "pub");
        let mut names = Vec::new();
        for number in 0..30 {
            let name = format!("c{number}");
            let client = world.connect_with(1, &name, kept());
            world.subscribe(client, &format!("t/{number}"), QoS::ExactlyOnce);
            if number % 3 > 0 {
                world.hang_up(client);
            }
            names.push((name, client));
        }
        let passing = world.connect(1, "passing");
        world.run(50);
        for number in 0..30 {
            world.publish(publisher, &format!("t/{number}"), "before", QoS::ExactlyOnce);
        }
        world.node_input(1, DRAIN);
        for number in 0..30 {
            world.send_publish(publisher, &format!("t/{number}"), "while", QoS::ExactlyOnce, false);
            let wait = world.rng.below(3);
            world.run(wait);
        }
        world.run_until("the node is empty", |world| world.drained == [1]);
        let DrainStatus { state, sessions, sessions_left, replicas_left, gave_up } = drain(&world, 1);
        assert_eq!((state, sessions, sessions_left, replicas_left, gave_up), (DrainState::Drained, 31, 0, 0, None));
        assert_eq!(world.clients[passing].disconnect, Some(ReasonCode::UseAnotherServer));
        assert!(world.hosts[&1].shards.iter().all(|shard| shard.broker().sessions().count() == 0));
        assert!(are_copied(&world, &[2, 3, 4]), "others keep the copies");
        let late = world.dial_client(1, "late", kept());
        world.run(50);
        assert_eq!(world.clients[late].connack.as_ref().unwrap().reason, ReasonCode::UseAnotherServer);
        let held: Vec<usize> = (2..=4).map(|node| world.hosts[&node].node.status().sessions).collect();
        assert!(held.iter().all(|sessions| *sessions >= 3), "seed {seed}: {held:?}");
        world.node_input(1, NodeInput::Shutdown);
        world.kill(1);
        for (number, (name, first)) in names.into_iter().enumerate() {
            let node = 2 + world.rng.below(3);
            let again = world.connect_with(node, &name, kept());
            assert!(world.clients[again].connack.as_ref().unwrap().session_present, "seed {seed} {name}");
            world.publish(publisher, &format!("t/{number}"), "after", QoS::ExactlyOnce);
            world.run(20);
            let got = [world.got(first), world.got(again)].concat();
            assert_eq!(got, ["before", "while", "after"], "seed {seed} {name}\n{}", world.log.join("\n"));
        }
    }
}

/// EL-23: connected clients are served until the sessions of those that are away are gone, and then leave few at a time.
#[test]
fn connected_clients_leave_after_those_that_are_away() {
    const AWAY: usize = 300;
    const CONNECTED: usize = 80;
    let mut world = addressed(740, 3);
    let clients: Vec<usize> =
        (0..CONNECTED).map(|number| world.connect_with(1, &format!("c{number}"), kept())).collect();
    for number in 0..AWAY {
        let away = world.connect_with(1, &format!("away{number}"), kept());
        world.hang_up(away);
    }
    world.run(50);
    world.node_input(1, DRAIN);
    let sent_away =
        |world: &World| clients.iter().filter(|client| world.clients[**client].disconnect.is_some()).count();
    let mut before_the_last = false;
    while world.drained.is_empty() {
        world.run(1);
        let (gone, left) = (sent_away(&world), drain(&world, 1).sessions_left);
        assert!(gone == 0 || gone + left <= CONNECTED + 32, "{gone} clients were sent away, {left} sessions are left");
        before_the_last |= (1..CONNECTED).contains(&gone);
    }
    assert!(before_the_last && sent_away(&world) == CONNECTED);
}

/// Clients are told where their sessions go, and find them there although they come while these are on their way.
#[test]
fn clients_that_are_sent_elsewhere_find_their_sessions() {
    let mut world = addressed(1, 3);
    let first: Vec<usize> = (0..20).map(|number| world.connect_with(1, &format!("c{number}"), kept())).collect();
    for client in &first {
        world.subscribe(*client, "t", QoS::AtLeastOnce);
    }
    world.node_input(1, DRAIN);
    world.run_until("all were told", |world| first.iter().all(|client| !world.clients[*client].open));
    let again: Vec<usize> = (0..20)
        .map(|number| {
            assert_eq!(world.clients[first[number]].disconnect, Some(ReasonCode::UseAnotherServer));
            world.dial_client(2 + number as u64 % 2, &format!("c{number}"), kept())
        })
        .collect();
    world.run_until("the node is empty", |world| world.drained == [1]);
    world.run_until("all are served", |world| again.iter().all(|client| world.clients[*client].connack.is_some()));
    let publisher = world.connect(2, "pub");
    world.publish(publisher, "t", "x", QoS::AtLeastOnce);
    world.run(50);
    for client in again {
        assert!(world.clients[client].connack.as_ref().unwrap().session_present);
        assert_eq!((world.got(client), world.clients[client].open), (vec!["x"], true));
    }
}

#[test]
fn a_node_serves_on_when_it_is_to_or_has_to() {
    let mut world = addressed(2, 3);
    let client = world.connect_with(1, "c", kept());
    world.hang_up(client);
    world.node_input(1, DRAIN);
    world.run_until("the node is empty", |world| world.drained == [1]);
    assert!(!world.hosts[&1].node.is_ready());
    world.node_input(1, DRAIN);
    assert_eq!(world.drained, [1, 1], "an empty node says so at once");
    world.node_input(1, NodeInput::CancelDrain);
    assert_eq!((drain(&world, 1).state, drain(&world, 1).gave_up), (DrainState::Off, Some(DrainEnd::Cancelled)));
    assert!(world.hosts[&1].node.is_ready());
    // The shards learn of it a moment later.
    world.run(1);
    let back = world.connect_with(1, "c", kept());
    assert!(world.clients[back].connack.as_ref().unwrap().session_present);
    world.run_until("it has a backup again", |world| are_copied(world, &[1, 2, 3]));

    world.cut(1, 2);
    world.cut(1, 3);
    world.node_input(1, DRAIN);
    world.run_until("nobody else is there", |world| drain(world, 1).gave_up == Some(DrainEnd::NobodyElse));
    assert_eq!(drain(&world, 1).state, DrainState::Off);
    world.heal();
    world.settle_members(3);

    // Somebody who does not answer takes nothing: after the limit the node serves on.
    let stays = world.connect_with(1, "stays", kept());
    world.cut(2, 3);
    world.cut(1, 2);
    world.cut(1, 3);
    world.node_input(1, NodeInput::Drain { limit: Duration::from_millis(1) });
    world.run_until("it has given up", |world| drain(world, 1).gave_up.is_some());
    world.heal();
    world.settle_members(3);
    world.run_until("it serves", |world| world.hosts[&1].node.is_ready());
    let again = if world.clients[stays].open { stays } else { world.connect_with(1, "stays", kept()) };
    assert!(world.clients[again].open);
}

/// Two nodes are emptied at the same time: their sessions go to the third.
#[test]
fn nodes_that_are_emptied_do_not_send_each_other_their_sessions() {
    let mut world = addressed(3, 3);
    for node in 1..=2 {
        for number in 0..10 {
            let client = world.connect_with(node, &format!("c{node}-{number}"), kept());
            world.subscribe(client, "t", QoS::AtLeastOnce);
        }
    }
    world.node_input(1, DRAIN);
    world.node_input(2, DRAIN);
    world.run_until("both are empty", |world| world.drained.len() == 2);
    world.run_until("all sessions are settled", |world| world.hosts[&3].node.status().sessions == 20);
    world.node_input(3, DRAIN);
    assert_eq!(drain(&world, 3).gave_up, Some(DrainEnd::NobodyElse));
    assert!(world.hosts[&3].node.status().members.iter().any(|member| member.node == NodeId::new(1)));
}
