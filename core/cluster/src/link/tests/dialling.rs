//! The node that dials, the times of its dials, and facts about a link that is up.

use sedge_base::Duration;

use super::world::{World, config};
use crate::link::Output;

#[test]
fn the_higher_id_dials_when_the_lower_does_not() {
    let mut world = World::new(1, vec![config(), config()]);
    world.want(1, 0);
    world.run(2_900);
    assert!(world.ups(1).is_empty());
    world.run(200);
    assert!(world.is_linked(0, 1));
    // The lower has not asked for it, and can use it all the same.
    world.send(0, 1, 1);
    world.run(100);
    assert_eq!(world.got(1, 0), [1]);
}

/// FT-18
#[test]
fn nodes_that_dial_each_other_at_once_keep_one_link() {
    for seed in 0..50 {
        let mut hasty = config();
        hasty.dial_patience = Duration::ZERO;
        let mut world = World::new(seed, vec![hasty.clone(), hasty]);
        world.latency = Duration::from_millis(seed % 7);
        world.want(0, 1);
        world.want(1, 0);
        for number in 1..=20 {
            world.send(0, 1, number);
            world.send(1, 0, number);
            world.run(seed % 3);
        }
        world.run(5_000);
        assert!(world.is_linked(0, 1));
        assert_eq!(world.open_wires(), 1);
        for (at, from) in [(0, 1), (1, 0)] {
            assert_eq!(world.got(at, from), (1..=20).collect::<Vec<_>>());
            let (ups, downs) = (world.ups(at), world.downs(at));
            assert_eq!(ups.len(), downs.len() + 1, "{ups:?} {downs:?}");
            assert!(ups.iter().skip(1).all(|(_, resumed, _)| *resumed), "{ups:?}");
        }
        assert!(world.warnings(0).is_empty() && world.warnings(1).is_empty());
    }
}

#[test]
fn a_node_that_is_not_there_is_dialled_again_and_again() {
    let mut world = World::pair(1);
    world.kill(1);
    world.run(60_000);
    let dials = world.nodes[0].links.counters().dials;
    assert!((30..70).contains(&dials), "{dials}");
    assert_eq!(world.warnings(0).len(), 1);
    assert!(world.warnings(0)[0].contains("cannot be linked"), "{:?}", world.warnings(0));
    let node = world.nodes[1].hello.node;
    world.nodes[0].links.forget(world.now, node);
    world.run(60_000);
    assert_eq!(world.nodes[0].links.counters().dials, dials);
    assert_eq!(world.nodes[0].links.poll_timeout(), None);
}

#[test]
fn whoever_loses_a_link_finds_out_at_once_that_nobody_listens_any_more() {
    for killed in [0, 1] {
        let mut world = World::pair(1);
        world.run(1_000);
        world.kill(killed);
        world.run(3);
        let other = 1 - killed;
        let node = world.nodes[killed].hello.node;
        assert!(world.nodes[other].said.contains(&Output::Refused { node }), "{:?}", world.nodes[other].said);
    }
}

#[test]
fn both_sides_know_the_round_trip() {
    let mut world = World::pair(1);
    world.latency = Duration::from_millis(10);
    world.run(3_000);
    for (at, of) in [(0, 1), (1, 0)] {
        let node = world.nodes[of].hello.node;
        let status = world.nodes[at].links.status(node).unwrap();
        assert!((20_000..20_500).contains(&status.rtt_micros), "{status:?}");
        let told = world.nodes[at].said.iter().filter(|output| matches!(output, Output::RoundTrip { .. })).count();
        assert!((4..8).contains(&told), "{told}");
    }
    assert!(world.downs(0).is_empty() && world.downs(1).is_empty());
}

/// FT-18
#[test]
fn silence_ends_a_link_and_nothing_is_lost() {
    let mut world = World::pair(1);
    world.run(1_000);
    world.is_dark = true;
    for number in 1..=10 {
        world.send(0, 1, number);
        world.send(1, 0, number);
    }
    world.run(900);
    assert!(world.is_linked(0, 1));
    world.run(1_200);
    assert!(!world.is_linked(0, 1));
    for at in [0, 1] {
        assert_eq!(world.downs(at), ["nothing was heard for too long"]);
        assert_eq!(world.nodes[at].links.counters().silences, 1);
    }
    world.is_dark = false;
    world.run(10_000);
    assert!(world.is_linked(0, 1));
    assert_eq!(world.got(1, 0), (1..=10).collect::<Vec<_>>());
    assert_eq!(world.got(0, 1), (1..=10).collect::<Vec<_>>());
}

#[test]
fn a_late_owner_does_not_take_its_own_absence_for_silence() {
    let mut world = World::pair(1);
    world.run(1_000);
    world.now = world.now + Duration::from_secs(20);
    world.run(1_000);
    assert!(world.is_linked(0, 1));
    assert!(world.downs(0).is_empty() && world.downs(1).is_empty());
}

#[test]
fn a_neighbour_nobody_wants_is_forgotten_after_a_while() {
    let mut world = World::new(1, vec![config(), config()]);
    world.want(0, 1);
    world.run(100);
    world.kill(0);
    let node = world.nodes[0].hello.node;
    world.run(9_000);
    assert!(world.nodes[1].links.send(world.now, node, super::world::frame(1)).is_ok());
    world.run(2_000);
    assert!(world.nodes[1].links.send(world.now, node, super::world::frame(2)).is_err());
    assert_eq!(world.nodes[1].links.poll_timeout(), None);
}

#[test]
fn a_node_that_stops_says_so() {
    let mut world = World::pair(1);
    world.run(100);
    world.send(0, 1, 1);
    world.nodes[0].links.shutdown(world.now);
    world.run(10);
    assert_eq!(world.got(1, 0), [1]);
    assert_eq!(world.downs(0), ["this node stops"]);
    assert!(world.downs(1)[0].contains("the node stops"), "{:?}", world.downs(1));
    assert_eq!(world.open_wires(), 0);
    world.run(10_000);
    assert_eq!(world.ups(1).len(), 1);
}
