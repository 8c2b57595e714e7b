//! Nodes find each other.

use sedge_cluster::NodeInput;

use crate::common::World;

fn warnings(world: &World, address: &str) -> usize {
    let line = format!("Seed {address} does not answer");
    world.log.iter().filter(|logged| logged.contains(&line)).count()
}

/// FT-28
#[test]
fn a_seed_that_does_not_answer_is_named_now_and_then() {
    let mut world = World::new(1, 1);
    world.start(1);
    world.run(500);
    assert_eq!(warnings(&world, "10.0.0.2:7883"), 0);
    world.run(60_000);
    assert_eq!(warnings(&world, "10.0.0.2:7883"), 1);
    assert_eq!(warnings(&world, "10.0.0.1:7883"), 0, "a node is no seed of itself");
    world.run(600_000);
    assert_eq!(warnings(&world, "10.0.0.2:7883"), 2);
    world.start(2);
    world.settle_members(2);
    world.run(1_300_000);
    assert_eq!(warnings(&world, "10.0.0.2:7883"), 2);
}

/// FT-28, EL-02
#[test]
fn an_address_that_becomes_known_later_is_contacted() {
    let mut world = World::new(2, 1);
    for node in [1, 2] {
        world.start_with(node, |config| config.seeds.clear());
    }
    world.run(5_000);
    assert_eq!(world.hosts[&2].node.status().members.len(), 1);
    world.node_input(2, NodeInput::Seeds(vec!["10.0.0.1:7883".parse().unwrap()]));
    world.settle_members(2);
}
