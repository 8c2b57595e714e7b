//! Links that a third node carries.

use proptest::prelude::*;
use sedge_base::{Duration, NodeId};

use super::world::{World, config};
use crate::link::{ControlTopic, Frame, LinkConfig, Protocol};
use crate::wire::{CarryMail, CarryWord};

/// Nodes that all want each other and are linked.
fn mesh(seed: u64, settings: &[LinkConfig]) -> World {
    let mut world = World::new(seed, settings.to_vec());
    world.splits = false;
    for from in 0..settings.len() {
        for to in (0..settings.len()).filter(|to| *to != from) {
            world.want(from, to);
        }
    }
    world.run(100);
    world
}

fn via(world: &World, at: usize, to: usize) -> Option<NodeId> {
    world.nodes[at].links.status(world.nodes[to].hello.node)?.via
}

fn node(index: usize) -> NodeId {
    NodeId::new(index as u64 + 1)
}

/// Whether all carriers are linked directly with the nodes for which they carry.
fn is_straight(world: &World) -> bool {
    let carriers = |at: usize| (0..world.nodes.len()).filter_map(move |to| via(world, at, to));
    let is_direct = |at: usize, node: NodeId| world.nodes[at].links.status(node).is_some_and(|link| link.via.is_none());
    (0..world.nodes.len()).all(|at| carriers(at).all(|node| is_direct(at, node)))
}

/// FT-17, FT-21: the frames of one end arrive once and in order at the other, over the third node while the path is broken, and over a
/// connection of their own when it is mended.
#[test]
fn a_link_over_a_broken_path_is_carried() {
    let mut world = mesh(1, &[config(), config(), config()]);
    world.broken.insert((0, 1));
    for number in 1..=50 {
        world.send(0, 1, number);
        world.send(1, 0, number);
        world.run(50);
    }
    assert_eq!((via(&world, 0, 1), via(&world, 1, 0)), (Some(node(2)), Some(node(2))));
    let all: Vec<u64> = (1..=50).collect();
    assert_eq!((world.got(1, 0), world.got(0, 1)), (all.clone(), all));
    assert_eq!(world.ups(0), [(2, false, 0), (3, false, 0), (2, true, 0)]);
    assert!(world.nodes[2].links.counters().carried_bytes > 0);
    world.broken.clear();
    world.run(5_000);
    assert_eq!((via(&world, 0, 1), via(&world, 1, 0)), (None, None));
    world.send(0, 1, 51);
    world.run(10);
    assert_eq!(world.got(1, 0).last(), Some(&51));
    assert_eq!((world.downs(0).len(), world.downs(1).len()), (1, 1), "the change back is not noticed");
    for at in 0..3 {
        assert_eq!(world.nodes[at].links.counters().protocol_errors, 0);
        assert_eq!(world.nodes[at].links.counters().frames_lost, 0);
    }
}

/// A node that cannot be reached from the start is linked through another one, too.
#[test]
fn who_was_never_reached_is_carried() {
    let mut world = World::new(2, vec![config(), config(), config()]);
    world.broken.insert((0, 1));
    for (from, to) in [(0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1)] {
        world.want(from, to);
    }
    world.send(0, 1, 1);
    world.run(4_000);
    assert_eq!((via(&world, 0, 1), world.got(1, 0)), (Some(node(2)), vec![1]));
}

/// The carrier ends: another one takes its place.
#[test]
fn another_node_carries_when_one_ends() {
    let mut world = mesh(3, &[config(), config(), config(), config()]);
    world.broken.insert((0, 1));
    world.run(2_000);
    let carrier = if via(&world, 0, 1) == Some(node(2)) { 2 } else { 3 };
    world.kill(carrier);
    world.send(0, 1, 1);
    world.run(2_000);
    assert_eq!(via(&world, 0, 1), Some(node(5 - carrier)));
    assert_eq!(world.got(1, 0), [1]);
}

/// A link that is carried carries none: there would be no end to it.
#[test]
fn nothing_is_carried_in_circles() {
    let mut world = mesh(4, &[config(), config(), config(), config()]);
    world.broken.extend([(0, 1), (0, 2)]);
    world.run(2_500);
    assert_eq!((via(&world, 0, 1), via(&world, 0, 2)), (Some(node(3)), Some(node(3))));
    assert!(is_straight(&world));
    world.broken.insert((0, 3));
    let before = world.nodes[0].links.counters().bytes_sent;
    for _ in 0..100 {
        world.run(100);
        assert!(is_straight(&world));
    }
    assert_eq!(world.nodes[0].links.linked().count(), 0);
    assert!(world.nodes[0].links.counters().bytes_sent - before < 10_000, "what it was writing when the path broke");
}

/// However much is on its way, the carrier holds little of it, and all of it arrives.
#[test]
fn the_carrier_holds_little() {
    let mut world = mesh(5, &[config(), config(), config()]);
    world.broken.insert((0, 1));
    world.run(2_000);
    let payload = bytes::Bytes::from(vec![7; 1_000_000]);
    for _ in 0..20 {
        let frame = Frame::Control { topic: ControlTopic::Overlay, payload: payload.clone() };
        world.nodes[0].links.send(world.now, NodeId::new(2), frame).unwrap();
    }
    let mut most = 0;
    while world.nodes[0].links.unacknowledged_frames(NodeId::new(2)) > 0 {
        world.run(1);
        most = most.max(world.nodes[2].links.logged_bytes(NodeId::new(2)));
        assert!(world.now < sedge_base::Instant::from_millis(60_000), "all arrives");
    }
    assert!((100_000..400_000).contains(&most), "{most} bytes");
}

/// Encrypted links are carried over encrypted ones.
#[test]
fn encrypted_links_are_carried() {
    let settings = LinkConfig { encrypted: true, ..config() };
    let mut world = mesh(6, &[settings.clone(), settings.clone(), settings]);
    world.broken.insert((0, 1));
    world.send(0, 1, 1);
    world.run(2_000);
    assert_eq!((via(&world, 0, 1), world.got(1, 0)), (Some(node(2)), vec![1]));
}

/// MQ-19: nodes that do not take each other's certificates are not linked over one that takes both: neither from the start, nor when their path
/// breaks, and a link that was carried before they found out ends. Once they do they are linked, and carried when their path breaks.
#[test]
fn who_is_not_trusted_is_not_carried() {
    let settings = LinkConfig { encrypted: true, ..config() };
    let mut world = mesh(8, &[settings.clone(), settings.clone(), settings]);
    world.broken.insert((0, 1));
    world.run(2_000);
    assert_eq!(via(&world, 0, 1), Some(node(2)));
    world.strangers.insert((0, 1));
    world.broken.clear();
    world.run(5_000);
    for _ in 0..100 {
        world.run(100);
        assert!(world.nodes[..2].iter().all(|node| node.links.linked().count() == 1));
    }
    assert!(world.nodes[0].links.counters().auth_failures > 1, "they go on trying");
    world.broken.insert((0, 1));
    world.run(30_000);
    assert_eq!(world.nodes[0].links.linked().count(), 1);
    world.broken.clear();
    world.strangers.clear();
    world.run(10_000);
    assert_eq!((via(&world, 0, 1), world.nodes[0].links.linked().count()), (None, 2));
    world.broken.insert((0, 1));
    world.run(5_000);
    assert_eq!(via(&world, 0, 1), Some(node(2)));
}

/// A node of an older version is not asked to carry.
#[test]
fn older_nodes_carry_nothing() {
    let older = LinkConfig { protocol: Protocol { version: 1, since: 1 }, ..config() };
    let mut world = mesh(7, &[config(), config(), older]);
    world.broken.insert((0, 1));
    world.run(5_000);
    assert_eq!(world.nodes[0].links.linked().collect::<Vec<_>>(), [NodeId::new(3)]);
    assert_eq!(world.nodes[2].links.counters().protocol_errors, 0);
}

/// Nobody speaks for others, and mail that makes no sense ends the link that it came over and no other.
#[test]
fn carried_mail_is_not_believed() {
    for mail in [
        CarryMail { to: Some(NodeId::new(3)), from: NodeId::new(3), number: 1, by_opener: true, word: CarryWord::Open }
            .encode(),
        bytes::Bytes::from_static(&[9, 0]),
    ] {
        let mut world = mesh(8, &[config(), config(), config()]);
        let frame = Frame::Control { topic: ControlTopic::Carry, payload: mail };
        world.nodes[0].links.send(world.now, NodeId::new(2), frame).unwrap();
        world.run(10);
        assert_eq!(world.nodes[1].links.counters().protocol_errors, 1);
        assert_eq!(world.downs(2).len(), 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// FT-17, FT-21: paths break and are mended, connections are cut, and nothing is lost or repeated.
    #[test]
    fn whatever_paths_break_nothing_is_lost_or_repeated(seed in any::<u64>()) {
        let mut settings = config();
        settings.dial_patience = Duration::from_millis(700);
        let mut world = mesh(seed, &[settings.clone(), settings.clone(), settings.clone(), settings]);
        world.splits = true;
        let mut sent = [[0; 4]; 4];
        for _ in 0..150 {
            let (from, to) = (world.rng.index(4), world.rng.index(4));
            if from != to {
                sent[from][to] += 1;
                world.send(from, to, sent[from][to]);
            }
            let pair = (from.min(to), from.max(to));
            if from != to && world.rng.chance(1, 8) && !world.broken.remove(&pair) {
                world.broken.insert(pair);
            }
            if world.rng.chance(1, 50) {
                world.cut_all();
            }
            let millis = world.rng.below(300);
            world.run(millis);
            prop_assert!(is_straight(&world));
        }
        world.broken.clear();
        world.run(15_000);
        for (from, row) in sent.iter().enumerate() {
            for (to, last) in row.iter().enumerate().filter(|(to, _)| *to != from) {
                prop_assert_eq!(world.got(to, from), (1..=*last).collect::<Vec<_>>());
                prop_assert!(world.is_linked(from, to));
                prop_assert_eq!(via(&world, from, to), None);
            }
            prop_assert_eq!(world.nodes[from].links.unacknowledged(), 0);
            prop_assert_eq!(world.nodes[from].links.counters().protocol_errors, 0);
            prop_assert_eq!(world.nodes[from].links.counters().frames_lost, 0);
        }
        prop_assert_eq!(world.open_wires(), 6);
    }
}
