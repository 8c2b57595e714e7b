//! Links that operators choose.

use std::collections::{BTreeMap, BTreeSet};

use sedge_base::NodeId;
use sedge_cluster::NeighbourError;
use sedge_mqtt::QoS;

use crate::common::{World, address};

/// The algorithms that go with links by hand.
pub(crate) const OVERLAYS: [&str; 3] = ["mesh", "flood", "tree"];

/// Nodes 1 to `nodes` that know each other and have no links by hand.
pub(crate) fn apart(seed: u64, overlay: &str, nodes: u64) -> World {
    let mut world = World::new(seed, 2);
    overlay.clone_into(&mut world.overlay);
    for node in 1..=nodes {
        world.start_with(node, |config| config.by_hand = Some(Vec::new()));
    }
    world.settle_members(nodes);
    world
}

fn order(world: &mut World, node: u64, other: u64, wanted: bool) {
    let mut done = Ok(());
    world.with_node(node, |machine, now| done = machine.neighbour(now, &[address(other)], wanted));
    assert_eq!(done, Ok(()), "{node} and {other}");
    world.run_until("all know the links", |world| {
        let agreed = |node: u64| world.hosts[&node].node.status().neighbours.is_some_and(|links| links.agreed);
        world.hosts.keys().all(|node| agreed(*node))
    });
}

pub(crate) fn link(world: &mut World, node: u64, other: u64) {
    order(world, node, other, true);
}

fn cut(world: &mut World, node: u64, other: u64) {
    order(world, node, other, false);
}

/// Publications that each node has sent to each other one.
pub(crate) fn transfers(world: &World) -> BTreeMap<(u64, u64), u64> {
    let mut all = BTreeMap::new();
    for (from, host) in &world.hosts {
        for member in host.node.status().members {
            let sent = member.link.map_or(0, |link| link.publications_sent);
            if sent > 0 {
                all.insert((*from, member.node.get()), sent);
            }
        }
    }
    all
}

/// The neighbours of a node as it tells them.
fn neighbours(world: &World, node: u64) -> Vec<u64> {
    let lines = world.hosts[&node].node.status().neighbours.map(|neighbours| neighbours.lines);
    lines.iter().flatten().filter_map(|line| line.node).map(NodeId::get).collect()
}

/// The tree 1-2, 2-3, 2-4, 3-5 of the thesis.
pub(crate) fn tree(seed: u64, overlay: &str) -> World {
    let mut world = apart(seed, overlay, 5);
    for (node, other) in [(1, 2), (2, 3), (4, 2), (5, 3)] {
        link(&mut world, node, other);
    }
    world
}

/// IL-09, IL-10, IL-11: publications go over the tree, once over each link, and over none towards nodes that do not want them.
#[test]
fn publications_go_over_chosen_links_and_no_further_than_they_are_wanted() {
    for overlay in ["mesh", "tree"] {
        let mut world = tree(1, overlay);
        let second = world.connect(2, "second");
        world.subscribe(second, "t", QoS::AtLeastOnce);
        let publisher = world.connect(5, "pub");
        world.publish(publisher, "t", "0", QoS::AtLeastOnce);
        world.run(3_000);
        let before = transfers(&world);
        for number in 1..=10 {
            world.publish(publisher, "t", &number.to_string(), QoS::AtLeastOnce);
        }
        world.run(3_000);
        assert_eq!(world.got(second).len(), 11, "{overlay}");
        let new = |pair: (u64, u64)| transfers(&world).get(&pair).unwrap_or(&0) - before.get(&pair).unwrap_or(&0);
        let pairs: Vec<((u64, u64), u64)> =
            (1..=5).flat_map(|from| (1..=5).map(move |to| (from, to))).map(|pair| (pair, new(pair))).collect();
        let used: Vec<_> = pairs.into_iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(used, [((3, 2), 10), ((5, 3), 10)], "{overlay}");
        world.unsubscribe(second, "t");
        let before = transfers(&world);
        world.publish(publisher, "t", "for nobody", QoS::AtLeastOnce);
        world.run(3_000);
        assert_eq!(transfers(&world), before, "{overlay}");
    }
}

/// IL-08: flooding gives each node each publication once, over the links of the tree.
#[test]
fn flooding_uses_each_link_of_the_tree_once() {
    let mut world = tree(2, "flood");
    let publisher = world.connect(1, "pub");
    world.run(1_000);
    let before = transfers(&world);
    assert_eq!(before, BTreeMap::new());
    for number in 0..10 {
        world.publish(publisher, "t", &number.to_string(), QoS::AtLeastOnce);
    }
    world.run(1_000);
    let used = transfers(&world);
    assert_eq!(used, [((1, 2), 10), ((2, 3), 10), ((2, 4), 10), ((3, 5), 10)].into());
}

/// IL-23: two trees that run are joined, one of them a single node; old subscriptions work both ways at once, and publications while the
/// link is chosen are not lost.
#[test]
fn trees_that_run_are_joined() {
    for overlay in OVERLAYS {
        let mut world = apart(3, overlay, 4);
        link(&mut world, 1, 2);
        link(&mut world, 2, 3);
        let readers = [1, 3, 4].map(|node| world.connect(node, &format!("r{node}")));
        for (reader, topic) in readers.into_iter().zip(["t1", "t2", "t3"]) {
            world.subscribe(reader, topic, QoS::ExactlyOnce);
        }
        let writers = [4, 1].map(|node| world.connect(node, &format!("w{node}")));
        world.publish(writers[0], "t1", "too early", QoS::AtLeastOnce);
        world.publish(writers[1], "t3", "too early", QoS::AtLeastOnce);
        world.run(3_000);
        assert!(readers.iter().all(|reader| world.got(*reader).is_empty()), "{overlay}");
        link(&mut world, 4, 2);
        for (writer, topic) in [(0, "t1"), (0, "t2"), (1, "t3")] {
            world.publish(writers[writer], topic, topic, QoS::ExactlyOnce);
        }
        world.run(3_000);
        for (reader, topic) in readers.into_iter().zip(["t1", "t2", "t3"]) {
            assert_eq!(world.got(reader), [topic], "{overlay}");
        }
    }
}

/// IL-24: a link is ended at the end that has not chosen it. Nothing crosses any more, not even for shared subscriptions, and the rest goes on.
#[test]
fn a_link_that_is_ended_carries_nothing() {
    for overlay in OVERLAYS {
        let mut world = tree(4, overlay);
        let readers: Vec<_> = (1..=5).map(|node| world.connect(node, &format!("r{node}"))).collect();
        for reader in &readers {
            world.subscribe(*reader, "t", QoS::AtLeastOnce);
        }
        let member = world.connect(5, "member");
        world.subscribe(member, "$share/g/s", QoS::AtLeastOnce);
        let writer = world.connect(1, "w");
        world.publish(writer, "t", "all", QoS::AtLeastOnce);
        world.publish(writer, "s", "far", QoS::AtLeastOnce);
        world.run(3_000);
        cut(&mut world, 3, 2);
        assert_eq!((neighbours(&world, 2), neighbours(&world, 3)), (vec![1, 4], vec![5]), "{overlay}");
        let near = world.connect(4, "near");
        world.subscribe(near, "$share/g/s", QoS::AtLeastOnce);
        let before = transfers(&world);
        for _ in 0..4 {
            world.publish(writer, "t", "here", QoS::AtLeastOnce);
            world.publish(writer, "s", "near", QoS::AtLeastOnce);
        }
        world.run(3_000);
        for (node, reader) in (1..).zip(&readers) {
            let expected = if node == 3 || node == 5 { 1 } else { 5 };
            assert_eq!(world.got(*reader).len(), expected, "{overlay} at node {node}");
        }
        assert_eq!((world.got(member).len(), world.got(near).len()), (1, 4), "{overlay}");
        let after = transfers(&world);
        for pair in [(1, 3), (1, 5), (2, 3), (2, 5), (4, 3), (4, 5)] {
            assert_eq!(after.get(&pair), before.get(&pair), "{overlay} {pair:?}");
        }
        // Chosen again, from the other side.
        link(&mut world, 2, 3);
        world.publish(writer, "t", "all", QoS::AtLeastOnce);
        world.run(3_000);
        assert_eq!(world.got(readers[4]).len(), 2, "{overlay}");
    }
}

/// IL-29: graphs with cycles, closed by hand: each publication comes once to each reader that a way leads to, and to no other.
#[test]
fn cycles_repeat_nothing() {
    for seed in 0..graphs(60) {
        let overlay = OVERLAYS[usize::try_from(seed).unwrap() % 3];
        let mut world = apart(100 + seed, overlay, 6);
        let mut links = BTreeSet::new();
        // Six nodes with six links have a cycle.
        let fewest = if seed % 6 == 5 { 0 } else { 6 };
        let count = fewest + world.rng.below(6);
        while links.len() < usize::try_from(count).unwrap() {
            let pair = (1 + world.rng.below(6), 1 + world.rng.below(6));
            if pair.0 != pair.1 && links.insert((pair.0.min(pair.1), pair.0.max(pair.1))) {
                link(&mut world, pair.0, pair.1);
            }
        }
        let readers: Vec<_> = (1..=6).map(|node| world.connect(node, &format!("r{node}"))).collect();
        for reader in &readers {
            world.subscribe(*reader, "t/#", QoS::AtMostOnce);
        }
        let writers: Vec<_> = (1..=6).map(|node| world.connect(node, &format!("w{node}"))).collect();
        for (node, writer) in (1..).zip(&writers) {
            for number in 0..3 {
                let qos = [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce][number];
                world.send_publish(*writer, &format!("t/{node}"), &format!("{node}-{number}"), qos, number == 2);
            }
        }
        world.run(12_000);
        for (node, reader) in (1..).zip(&readers) {
            let mut got: Vec<String> = world.got(*reader).iter().map(|text| (*text).to_owned()).collect();
            got.sort_unstable();
            let reached = (1..=6).filter(|from| reaches(&links, *from, node));
            let mut expected: Vec<String> =
                reached.flat_map(|from| (0..3).map(move |number| format!("{from}-{number}"))).collect();
            expected.sort_unstable();
            assert_eq!(got, expected, "seed {seed}, {overlay}, node {node}, links {links:?}");
            // Not even where it would have been dropped.
            let late = ["relay_late", "relay_repaired"].map(|name| world.counter(node, name));
            assert_eq!(late, [0, 0], "seed {seed}, {overlay}, node {node}, links {links:?}");
        }
    }
}

/// How many graphs are drawn: `SEDGE_TEST_SEEDS`, where the environment names a number.
#[expect(clippy::disallowed_methods, reason = "a test program has no other way to be told")]
pub(crate) fn graphs(default: u64) -> u64 {
    std::env::var("SEDGE_TEST_SEEDS").map_or(default, |text| text.parse().expect("SEDGE_TEST_SEEDS is a number"))
}

pub(crate) fn reaches(links: &BTreeSet<(u64, u64)>, from: u64, to: u64) -> bool {
    let mut reached = BTreeSet::from([from]);
    loop {
        let next = links.iter().find_map(|(a, b)| match (reached.contains(a), reached.contains(b)) {
            (true, false) => Some(*b),
            (false, true) => Some(*a),
            _ => None,
        });
        match next {
            Some(node) => reached.insert(node),
            None => return reached.contains(&to),
        };
    }
}

/// IL-12, FT-20: a node in the middle dies: publications go past it, straight, and nothing acknowledged is lost. It comes back and carries
/// them again, though nobody chooses anew.
#[test]
fn a_neighbour_that_dies_separates_nobody() {
    let mut world = apart(5, "mesh", 3);
    link(&mut world, 1, 2);
    link(&mut world, 3, 2);
    let reader = world.connect(3, "r");
    world.subscribe(reader, "t", QoS::ExactlyOnce);
    let writer = world.connect(1, "w");
    world.publish(writer, "t", "0", QoS::ExactlyOnce);
    world.kill(2);
    for number in 1..=5 {
        world.send_publish(writer, "t", &number.to_string(), QoS::ExactlyOnce, false);
    }
    world.run(10_000);
    assert_eq!(world.got(reader), ["0", "1", "2", "3", "4", "5"]);
    assert_eq!(world.clients[writer].acked.len(), 6);
    world.start_with(2, |config| config.by_hand = Some(Vec::new()));
    world.settle_members(3);
    world.run(1_000);
    assert_eq!((neighbours(&world, 1), neighbours(&world, 2)), (vec![2], vec![1, 3]));
    let before = transfers(&world);
    world.publish(writer, "t", "6", QoS::AtLeastOnce);
    world.run(1_000);
    let after = transfers(&world);
    assert_eq!(after.get(&(2, 3)).unwrap_or(&0) - before.get(&(2, 3)).unwrap_or(&0), 1);
    assert_eq!(after.get(&(1, 3)), before.get(&(1, 3)));
}

/// IL-12: the QoS between nodes is that of the settings: with 0 the publisher does not wait for the other node, with 1 and 2 a publication
/// with QoS 0 survives a link that breaks.
#[test]
fn the_qos_between_nodes_is_that_of_the_settings() {
    for (manual, qos) in
        [(true, Some(QoS::AtMostOnce)), (true, Some(QoS::ExactlyOnce)), (false, Some(QoS::AtMostOnce)), (true, None)]
    {
        let mut world = World::new(6, 1);
        "mesh".clone_into(&mut world.overlay);
        for node in 1..=3 {
            world.start_with(node, |config| (config.by_hand, config.link_qos) = (manual.then(Vec::new), qos));
        }
        world.settle_members(3);
        if manual {
            link(&mut world, 1, 2);
            link(&mut world, 2, 3);
        }
        let reader = world.connect(3, "r");
        world.subscribe(reader, "t", QoS::ExactlyOnce);
        let writer = world.connect(1, "w");
        world.publish(writer, "t", "first", QoS::AtLeastOnce);
        world.run(100);
        world.freeze(3);
        world.send_publish(writer, "t", "held", QoS::AtLeastOnce, false);
        world.run(300);
        let waits = world.clients[writer].acked.len() == 1;
        assert_eq!(waits, qos != Some(QoS::AtMostOnce), "links by hand: {manual}, {qos:?}");
        world.thaw(3);
        world.run(300);
        assert_eq!(world.got(reader), ["first", "held"], "links by hand: {manual}, {qos:?}");
    }
    for qos in [None, Some(QoS::AtLeastOnce)] {
        let mut world = World::new(7, 1);
        "mesh".clone_into(&mut world.overlay);
        for node in 1..=3 {
            world.start_with(node, |config| (config.by_hand, config.link_qos) = (Some(Vec::new()), qos));
        }
        world.settle_members(3);
        link(&mut world, 1, 2);
        link(&mut world, 2, 3);
        let reader = world.connect(3, "r");
        world.subscribe(reader, "t", QoS::AtMostOnce);
        let writer = world.connect(1, "w");
        // The node in the middle never passes it on.
        world.freeze(2);
        world.send_publish(writer, "t", "on its way", QoS::AtMostOnce, false);
        world.run(100);
        world.kill(2);
        world.run(10_000);
        let expected: &[&str] = if qos.is_some() { &["on its way"] } else { &[] };
        assert_eq!(world.got(reader), expected, "{qos:?}");
    }
}

/// An impossible neighbour is refused, and one that is not there yet is waited for.
#[test]
fn neighbours_are_chosen_by_address() {
    let mut world = World::cluster(8, 2, 1);
    let refused = |world: &mut World, node: u64, other: u64, wanted: bool| {
        let mut done = Ok(());
        world.with_node(node, |machine, now| done = machine.neighbour(now, &[address(other)], wanted));
        done
    };
    assert_eq!(refused(&mut world, 1, 2, true), Err(NeighbourError::NotManual));
    let mut world = apart(9, "mesh", 2);
    assert_eq!(refused(&mut world, 1, 1, true), Err(NeighbourError::Own));
    assert_eq!(refused(&mut world, 1, 2, false), Err(NeighbourError::NoNeighbour));
    assert_eq!(refused(&mut world, 1, 3, true), Ok(()));
    let line = world.hosts[&1].node.status().neighbours.unwrap().lines.remove(0);
    assert_eq!((line.node, line.address, line.here), (None, Some(address(3)), true));
    world.start_with(3, |config| {
        config.by_hand = Some(vec![address(2)]);
        config.seeds = Vec::new();
    });
    world.settle_members(3);
    world.run(1_000);
    assert_eq!([1, 2, 3].map(|node| neighbours(&world, node)), [vec![3], vec![3], vec![1, 2]]);
}
