//! Several connections with a neighbour.

use proptest::prelude::*;
use sedge_base::Duration;

use super::world::{World, config};
use crate::LinkStatus;
use crate::link::{CONNECTIONS_MAX, LinkConfig, LinkOrder, Protocol};

fn with(connections: u8, order: LinkOrder) -> LinkConfig {
    LinkConfig { connections, order, ..config() }
}

fn pair(configs: [LinkConfig; 2]) -> World {
    let mut world = World::new(1, configs.into());
    world.want(0, 1);
    world.want(1, 0);
    world.run(100);
    world
}

fn status(world: &World, at: usize, of: usize) -> LinkStatus {
    world.nodes[at].links.status(world.nodes[of].hello.node).unwrap()
}

/// IL-20: publications take several connections, and arrive in order all the same.
#[test]
fn publications_are_spread_and_stay_in_order() {
    for order in [LinkOrder::Publisher, LinkOrder::RoundRobin] {
        let mut world = pair([with(4, order), with(4, order)]);
        assert_eq!(world.open_wires(), 4);
        assert_eq!((status(&world, 0, 1).connections, status(&world, 1, 0).connections), (4, 4));
        for number in 1..=300 {
            world.send(0, 1, number);
            world.send(1, 0, number);
        }
        world.run(500);
        for (at, from) in [(0, 1), (1, 0)] {
            assert_eq!(world.got(at, from), (1..=300).collect::<Vec<_>>());
            let used = world.bytes_by_wire(at);
            assert_eq!(used.iter().filter(|bytes| **bytes > 2_000).count(), 4, "{used:?}");
            let counters = world.nodes[at].links.counters();
            assert!(counters.frames_early > 0 && counters.frames_resent == 0, "{counters:?}");
            assert_eq!((status(&world, at, from).publications_sent, status(&world, at, from).unacknowledged), (200, 0));
            assert_eq!((world.downs(at), world.warnings(at)), (vec![], vec![]));
        }
    }
}

/// Publications of one publisher take one connection.
#[test]
fn a_publisher_keeps_its_connection() {
    let mut world = pair([with(4, LinkOrder::Publisher), with(4, LinkOrder::Publisher)]);
    world.run(1_000);
    let before = world.bytes_by_wire(0);
    // Of publisher 1, and no control frames: 1, 70, 139 ... are one above a multiple of three.
    for number in (0..300).map(|turn| 1 + 69 * turn) {
        world.send(0, 1, number);
    }
    world.run(100);
    let after = world.bytes_by_wire(0);
    let used: Vec<usize> = before.iter().zip(after).map(|(before, after)| after - before).collect();
    assert_eq!(used.iter().filter(|bytes| **bytes > 1_000).count(), 1, "{used:?}");
}

/// The node that dials decides; one that does not say that it takes more gets one.
#[test]
fn the_dialler_decides_how_many_connections_there_are() {
    let older = LinkConfig { protocol: Protocol { version: 1, since: 1 }, ..config() };
    for (here, there, expected) in [
        (with(3, LinkOrder::Publisher), config(), 3),
        (config(), with(3, LinkOrder::Publisher), 1),
        (with(200, LinkOrder::Publisher), config(), usize::from(CONNECTIONS_MAX)),
        (with(3, LinkOrder::Publisher), older, 1),
    ] {
        let world = pair([here, there]);
        assert_eq!(world.open_wires(), expected);
        assert_eq!(status(&world, 1, 0).connections, expected);
    }
}

/// The number changes while publications pass.
#[test]
fn connections_come_and_go_while_the_node_runs() {
    let mut world = pair([config(), config()]);
    let mut number = 0;
    for connections in [1, 5, 2, 16, 1, 3] {
        world.nodes[0].links.set_connections(world.now, connections, LinkOrder::RoundRobin);
        for _ in 0..100 {
            number += 1;
            world.send(0, 1, number);
            world.send(1, 0, number);
            world.run(number % 3);
        }
        world.run(100);
        assert_eq!(world.open_wires(), usize::from(connections));
    }
    for (at, from) in [(0, 1), (1, 0)] {
        assert_eq!(world.got(at, from), (1..=number).collect::<Vec<_>>());
        assert_eq!((world.downs(at), world.warnings(at)), (vec![], vec![]));
    }
}

/// A connection that is gone costs neither the link nor a frame, and comes back.
#[test]
fn a_lost_connection_is_made_anew() {
    let mut world = pair([with(4, LinkOrder::RoundRobin), with(4, LinkOrder::RoundRobin)]);
    world.run(1_000);
    for number in 1..=400 {
        world.send(0, 1, number);
        world.send(1, 0, number);
        if number % 150 == 50 {
            world.cut_lane();
        }
        if number % 10 == 0 {
            world.run(1);
        }
    }
    world.run(5_000);
    for (at, from) in [(0, 1), (1, 0)] {
        assert_eq!(world.got(at, from), (1..=400).collect::<Vec<_>>());
        assert_eq!(world.downs(at), Vec::<String>::new());
        assert!(world.nodes[at].links.counters().frames_resent > 0);
    }
    assert_eq!(world.open_wires(), 4);
}

/// IL-17, IL-19: a connection whose path takes many seconds for what waits, or for one frame, is silent in neither direction, whichever
/// node has dialled it.
#[test]
fn connections_that_are_full_are_not_taken_for_dead() {
    for (sender, connections) in [(0, 1), (1, 1), (0, 4), (1, 4)] {
        let mut world = pair([with(connections, LinkOrder::RoundRobin), with(connections, LinkOrder::RoundRobin)]);
        // The largest frame, of 5,600 bytes, takes 2.8 s.
        world.pace = Some((sender, 2));
        for number in 1..=400 {
            world.send(sender, 1 - sender, number);
        }
        world.run(3_000);
        assert!(world.got(1 - sender, sender).len() < 200, "the paths are not full");
        world.run(120_000);
        assert_eq!(world.got(1 - sender, sender).len(), 400);
        for at in [0, 1] {
            let counters = world.nodes[at].links.counters();
            assert_eq!((counters.silences, counters.frames_resent), (0, 0), "node {at} of sender {sender}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// FT-18, FT-21: whichever connections break, and when, nothing is lost, repeated or out of order.
    #[test]
    fn cut_lanes_lose_and_repeat_nothing(
        seed in any::<u64>(),
        patience in 0_u64..100,
        cuts in 1_u64..40,
        connections in (1_u8..6, 1_u8..6),
        by_turns in any::<bool>(),
    ) {
        let order = if by_turns { LinkOrder::RoundRobin } else { LinkOrder::Publisher };
        let settings = |connections| LinkConfig {
            outbox_bytes: 2_000,
            dial_patience: Duration::from_millis(patience),
            ..with(connections, order)
        };
        let mut world = World::new(seed, vec![settings(connections.0), settings(connections.1)]);
        world.want(0, 1);
        world.want(1, 0);
        let mut sent = [0, 0];
        for _ in 0..400 {
            let from = world.rng.index(2);
            if let Some(count) = sent.get_mut(from) {
                *count += 1;
                world.send(from, 1 - from, *count);
            }
            if world.rng.chance(cuts, 100) {
                world.cut_one();
            }
            if world.rng.chance(1, 30) {
                world.cut_all();
            }
            if world.rng.chance(1, 3) {
                let millis = world.rng.below(20);
                world.run(millis);
            }
        }
        world.run(10_000);
        for (at, from, count) in [(1, 0, sent[0]), (0, 1, sent[1])] {
            prop_assert_eq!(world.got(at, from), (1..=count).collect::<Vec<_>>());
            prop_assert!(world.is_linked(from, at));
            prop_assert_eq!(world.nodes[at].links.unacknowledged(), 0);
            prop_assert_eq!(world.nodes[at].links.counters().protocol_errors, 0);
            prop_assert_eq!(world.nodes[at].links.counters().frames_lost, 0);
        }
        let found = status(&world, 0, 1).connections;
        prop_assert!(found == usize::from(connections.0) || found == usize::from(connections.1), "{}", found);
        prop_assert_eq!(world.open_wires(), found);
    }

    /// FT-21: neighbours are forgotten and start again while there are lanes.
    #[test]
    fn whatever_has_happened_lanes_carry_again(seed in any::<u64>(), patience in 0_u64..100) {
        let settings = LinkConfig { dial_patience: Duration::from_millis(patience), ..with(4, LinkOrder::RoundRobin) };
        let mut world = World::new(seed, vec![settings.clone(), settings.clone()]);
        let mut number = 0;
        for _ in 0..60 {
            let at = world.rng.index(2);
            let node = world.nodes[1 - at].hello.node;
            match world.rng.below(14) {
                0 => world.nodes[at].links.forget(world.now, node),
                1 => world.restart(at, settings.clone()),
                2 => world.cut_all(),
                3 => world.want(at, 1 - at),
                4..6 => world.cut_one(),
                6..10 => {
                    number += 1;
                    let _ = world.nodes[at].links.send(world.now, node, super::world::frame(number));
                }
                _ => {
                    let millis = world.rng.below(100);
                    world.run(millis);
                }
            }
        }
        world.want(0, 1);
        world.want(1, 0);
        world.run(10_000);
        prop_assert!(world.is_linked(0, 1));
        prop_assert_eq!(world.open_wires(), 4);
        world.exchanges(40);
    }
}
