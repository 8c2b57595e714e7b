//! Requests of operators to one node that concern another.

use sedge_base::{ClientId, NodeId};
use sedge_cluster::{Kick, NodeInput};
use sedge_mqtt::{ReasonCode, Utf8};

use crate::common::{Options, World};

fn kick(request: u64, client: &str, end_session: bool) -> NodeInput {
    let (client, reason) = (ClientId::new(client), ReasonCode::NotAuthorized);
    NodeInput::Kick(Kick { request, client, reason, end_session })
}

/// MQ-11
#[test]
fn a_connection_is_ended_at_whichever_node_it_is() {
    let mut world = World::cluster(1, 3, 2);
    let client = world.connect_with(3, "c", Options { expiry: 100, ..Options::default() });
    world.node_input(1, kick(1, "c", false));
    world.run(50);
    assert_eq!(world.kicked, [(1, Some(NodeId::new(3)))]);
    assert_eq!(world.clients[client].disconnect, Some(ReasonCode::NotAuthorized));
    assert!(!world.clients[client].open);
    assert_eq!(world.hosts[&3].node.status().sessions, 1, "the session stays");
    world.node_input(2, kick(2, "c", true));
    world.node_input(2, kick(3, "nobody", false));
    world.run(50);
    assert_eq!(world.kicked[1..], [(2, Some(NodeId::new(3))), (3, None)]);
    assert_eq!(world.hosts[&3].node.status().sessions, 0, "the session has ended");
}

#[test]
fn every_request_is_answered_whatever_becomes_of_the_others() {
    let mut world = World::cluster(2, 3, 1);
    world.cut(1, 2);
    world.cut(1, 3);
    for request in 0..100 {
        world.node_input(1, kick(request, "c", false));
    }
    world.run(50);
    let early: Vec<u64> = world.kicked.iter().map(|(request, _)| *request).collect();
    assert_eq!(early, (0..36).collect::<Vec<_>>(), "no more than 64 are open");
    world.run_until("the others are taken for dead", |world| world.kicked.len() == 100);
    assert!(world.kicked.iter().all(|(_, by)| by.is_none()));
    world.node_input(1, kick(100, "c", false));
    world.run(1);
    assert_eq!(world.kicked.last(), Some(&(100, None)), "a node that is alone knows at once");
}

/// OP-07: every node knows what the others are called, also for one that has died; a node without a name has none.
#[test]
fn nodes_know_each_others_names() {
    let mut world = World::new(4, 1);
    for node in 1..=3 {
        let name = (node != 2).then(|| Utf8::new(&format!("room-{node}")).unwrap());
        world.start_with(node, |config| config.name = name);
    }
    world.settle_members(3);
    world.run(50);
    let known = |world: &World, node: u64| {
        let status = world.hosts[&node].node.status();
        status.members.into_iter().map(|member| member.name).collect::<Vec<_>>()
    };
    let names = |all: [Option<&str>; 3]| all.map(|name| name.map(str::to_owned)).to_vec();
    for node in 1..=3 {
        assert_eq!(known(&world, node), names([Some("room-1"), None, Some("room-3")]), "at node {node}");
    }
    world.kill(3);
    world.run_until("the node is gone", |world| world.hosts[&1].node.status().members.len() == 2);
    let dead = world.hosts[&1].node.status().dead;
    assert_eq!(dead.iter().map(|dead| dead.name.as_deref()).collect::<Vec<_>>(), [Some("room-3")]);
}

#[test]
fn a_node_knows_where_clients_reach_the_others() {
    let mut world = World::new(3, 1);
    for node in 1..=3 {
        let address = (node != 2).then(|| Utf8::new(&format!("host-{node}:1883")).unwrap());
        world.start_with(node, |config| config.client_address = address);
    }
    world.settle_members(3);
    world.run(50);
    let known = |world: &World, node: u64| {
        let addresses = world.hosts[&node].node.client_addresses();
        addresses.iter().map(|address| address.as_str().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(known(&world, 1), ["host-3:1883"]);
    assert_eq!(known(&world, 2), ["host-1:1883", "host-3:1883"]);
    world.break_links(1, 3);
    world.run_until("the link is back", |world| !known(world, 1).is_empty());
    world.kill(3);
    world.run_until("the node is gone", |world| world.hosts[&1].node.status().members.len() == 2);
    assert!(known(&world, 1).is_empty());
}
