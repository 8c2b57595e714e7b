//! Members, roots and ways.

use std::collections::BTreeMap;

use crate::net::{Net, add, remove};
use sedge_base::{Duration, NodeId};
use sedge_overlay::{Input, Overlay, RootPolicy, TopicTreeConfig};

const BALANCE: TopicTreeConfig = with(RootPolicy::BALANCE);
const CAPACITY: TopicTreeConfig = with(RootPolicy::Capacity);

const fn with(roots: RootPolicy) -> TopicTreeConfig {
    TopicTreeConfig {
        roots,
        idle: Duration::from_hours(10),
        max_topics: 1_000,
        max_heard_topics: 1_000,
        max_trees: 100,
        max_links: 128,
        collect: Duration::from_millis(250),
        settle_timeout: Duration::from_secs(2),
        signal_bytes: 65_536,
        refresh: Duration::from_secs(10),
        lease: Duration::from_secs(30),
    }
}

const SOON: Duration = Duration::from_secs(1);

fn load(net: &mut Net, node: u64, capacity: u32, clients: u32) {
    net.feed(node, Input::Load { capacity, clients });
}

fn numbered(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|at| format!("{prefix}/{at}")).collect()
}

fn roots(net: &Net, nodes: &[u64], topics: &[String]) -> BTreeMap<u64, usize> {
    let mut roots = BTreeMap::new();
    for name in topics {
        *roots.entry(net.root(nodes, name).expect("a root")).or_insert(0) += 1;
    }
    roots
}

/// TR-08, TR-20
#[test]
fn the_strongest_member_becomes_root_of_each_topic() {
    let mut net = Net::new(5, CAPACITY);
    for (node, capacity) in [(1, 10), (2, 30), (3, 20), (4, 30), (5, 99)] {
        load(&mut net, node, capacity, 0);
    }
    net.link_all();
    net.settle();
    for (node, filter) in [(2, "all"), (3, "all"), (4, "all"), (5, "all"), (3, "odd"), (1, "equal"), (4, "equal")] {
        net.local(node, &[add("c", filter)], None);
    }
    net.publish_all(&[1], &["all".into(), "odd".into()]);
    net.publish_all(&[2], &["equal".into()]);
    net.pass(SOON);
    assert_eq!(net.root(&[1, 2, 3, 4, 5], "all"), Some(5));
    assert_eq!(net.root(&[1, 3], "odd"), Some(3));
    assert_eq!(net.root(&[1, 2, 4], "equal"), Some(2), "the lower address");
}

/// Roots do not follow every change of load.
#[test]
fn a_root_stays_until_the_members_change() {
    let mut net = Net::linked(4, CAPACITY);
    (2..=4).for_each(|node| net.local(node, &[add("c", "t")], None));
    (1..=4).for_each(|node| load(&mut net, node, 100 - u32::try_from(node).unwrap(), 0));
    net.publish_all(&[1], &["t".into()]);
    net.pass(SOON);
    assert_eq!(net.root(&[1, 2, 3, 4], "t"), Some(1));
    load(&mut net, 2, 1_000, 0);
    net.pass(Duration::from_mins(1));
    assert_eq!(net.root(&[1, 2, 3, 4], "t"), Some(1));
    net.kill(1);
    net.publish_all(&[3], &["t".into()]);
    net.pass(SOON);
    assert_eq!(net.root(&[2, 3, 4], "t"), Some(2));
    net.local(2, &[remove("c", "t")], None);
    net.pass(SOON);
    assert_eq!(net.root(&[3, 4], "t"), Some(3));
    net.start(1);
    net.local(1, &[add("c", "+")], None);
    load(&mut net, 1, 5_000, 0);
    net.link_all();
    net.pass(SOON);
    assert_eq!(net.root(&[1, 3, 4], "t"), Some(1));
}

/// TR-21
#[test]
fn balance_spreads_the_roots_of_thirty_topics_over_five_equal_nodes() {
    for one_by_one in [false, true] {
        let mut net = Net::linked(5, BALANCE);
        (1..=5).for_each(|node| net.local(node, &[add("c", "t/#")], None));
        let topics = numbered("t", 30);
        for (at, name) in topics.iter().enumerate() {
            net.publish_all(&[at as u64 % 5 + 1], core::slice::from_ref(name));
            if one_by_one {
                net.pass(SOON);
            }
        }
        net.pass(SOON);
        let roots = roots(&net, &[1, 2, 3, 4, 5], &topics);
        assert_eq!(roots, (1..=5).map(|node| (node, 6)).collect());
        // A tree per root, not per topic.
        assert_eq!(net.node(3).machine.tree_count(), 5);
    }
}

/// TR-21 when no node knows all topics: electors go by the numbers that the nodes tell.
#[test]
fn balance_counts_the_roots_of_topics_that_the_elector_does_not_know() {
    let mut net = Net::linked(5, BALANCE);
    let mut spread: BTreeMap<u64, usize> = BTreeMap::new();
    for at in 0..30_u64 {
        let name = format!("t/{at}");
        let mut members: Vec<u64> = (1..=5).filter(|node| node % 5 != at % 5 && node % 5 != (at / 5) % 5).collect();
        for node in &members {
            net.local(*node, &[add("c", &name)], None);
        }
        net.publish_all(&members[..1], core::slice::from_ref(&name));
        net.pass(SOON);
        members.sort_unstable();
        *spread.entry(net.root(&members, &name).unwrap()).or_insert(0) += 1;
    }
    assert!(spread.len() == 5 && spread.values().all(|count| (5..=7).contains(count)), "{spread:?}");
}

/// TR-21
#[test]
fn balance_spares_nodes_with_many_clients_and_weights_change_that() {
    for (delta, expected) in [(1, vec![(1, 3), (2, 7)]), (0, vec![(1, 5), (2, 5)])] {
        let mut net = Net::new(2, with(RootPolicy::Balance { gamma: 10, delta }));
        load(&mut net, 1, 1, 40);
        load(&mut net, 2, 1, 0);
        net.link_all();
        net.settle();
        net.local(2, &[add("c", "#")], None);
        let topics = numbered("t", 10);
        net.publish_all(&[1], &topics);
        net.pass(SOON);
        assert_eq!(roots(&net, &[1, 2], &topics), expected.into_iter().collect());
    }
}

/// TR-22
#[test]
fn topics_of_a_root_that_dies_are_spread_over_the_others() {
    let mut net = Net::linked(4, BALANCE);
    (1..=4).for_each(|node| net.local(node, &[add("c", "t/#")], None));
    let topics = numbered("t", 12);
    net.publish_all(&[2], &topics);
    net.pass(SOON);
    let before: Vec<_> = topics.iter().map(|name| net.root(&[1, 2, 3, 4], name).unwrap()).collect();
    net.kill(4);
    net.pass(SOON);
    assert_eq!(roots(&net, &[1, 2, 3], &topics), (1..=3).map(|node| (node, 4)).collect());
    let kept = topics.iter().zip(&before).filter(|(name, root)| net.root(&[1, 2, 3], name) == Some(**root)).count();
    assert_eq!(kept, 9, "the others stay where they are");
    net.kill(1);
    net.pass(SOON);
    assert_eq!(roots(&net, &[2, 3], &topics), (2..=3).map(|node| (node, 6)).collect());
}

/// FW-05, TR-29
#[test]
fn topics_with_the_same_members_cost_the_signalling_of_one() {
    let quiet = |topics_per_set: usize| {
        let mut net = Net::linked(5, CAPACITY);
        for (set, nodes) in [(1, vec![1, 2]), (2, vec![2, 3, 4]), (3, vec![1, 3, 5])] {
            for node in &nodes {
                net.local(*node, &[add("c", &format!("set{set}/+"))], None);
            }
            net.publish_all(&nodes[..1], &numbered(&format!("set{set}"), topics_per_set));
        }
        net.measure(|_, _| 10_000);
        let at_start = net.signal_bytes();
        let trees: usize = (1..=5).map(|node| net.node(node).machine.tree_count()).sum();
        // Each node is in the trees of its sets.
        assert_eq!(trees, 2 + 3 + 3);
        for round in 0..60 {
            for (from, to) in net.links.keys().copied().collect::<Vec<_>>() {
                net.feed(from, Input::RoundTrip { node: NodeId::new(to), micros: 10_000 + 100 * (round % 3) });
            }
            net.pass(Duration::from_secs(10));
        }
        // A tree changes: one round trip becomes longer.
        let before = net.signal_bytes();
        for _ in 0..60 {
            net.feed(3, Input::RoundTrip { node: NodeId::new(4), micros: 80_000 });
        }
        net.pass(Duration::from_secs(25));
        (at_start, before - at_start, net.signal_bytes() - before)
    };
    let (few, many) = (quiet(1), quiet(20));
    assert_eq!((few.1, few.2), (many.1, many.2));
    // Announcing a topic to all, confirming it and answering it: linear in the topics.
    assert!(many.0 < few.0 + 57 * 4 * 60, "{few:?} {many:?}");
}

/// TR-09, TR-19: node 3 would be a shortcut, but it has nothing to do with the topic.
#[test]
fn ways_follow_the_round_trips_and_pass_members_only() {
    let mut net = Net::linked(5, CAPACITY);
    for node in [2, 4, 5] {
        net.local(node, &[add("c", "t")], None);
    }
    load(&mut net, 1, 100, 0);
    net.publish_all(&[1], &["t".into()]);
    assert_eq!(net.way("t", 1, 4), [4], "there is no tree yet");
    let line = |a: u64, b: u64| {
        let via_3 = a == 3 || b == 3;
        let steps = [0, 0, 1, 9, 2, 3][usize::try_from(a.max(b)).unwrap()]
            - [0, 0, 1, 9, 2, 3][usize::try_from(a.min(b)).unwrap()];
        if via_3 { 1_000 } else { [0, 10_000, 25_000, 60_000][usize::try_from(steps).unwrap()] }
    };
    net.measure(line);
    assert_eq!(net.root(&[1, 2, 4, 5], "t"), Some(1));
    assert_eq!(net.way("t", 1, 5), [2, 4, 5]);
    assert_eq!(net.way("t", 4, 1), [2, 1]);
    assert_eq!(net.way("t", 1, 3), [3], "no member");
    assert_eq!(net.way("other", 1, 5), [5]);
    // The shortcut joins.
    net.local(3, &[add("c", "#")], None);
    net.pass(SOON);
    assert_eq!(net.way("t", 1, 5), [3, 5]);
    // A link between two live nodes breaks.
    net.cut(1, 3, false);
    assert_eq!(net.way("t", 1, 5), [5], "the neighbour is not there");
    net.pass(SOON);
    assert_eq!(net.root(&[1, 2, 3, 4, 5], "t"), Some(1));
    assert_eq!(net.way("t", 1, 5), [2, 3, 5]);
    // A relay dies: the node before it goes straight to the destination.
    net.kill(3);
    assert_eq!(net.way("t", 1, 5), [2, 5]);
    net.pass(SOON);
    assert_eq!(net.way("t", 1, 5), [2, 4, 5]);
}

/// TR-06, TR-31: the facts told to the others follow the round trips, but not their noise.
#[test]
fn trees_follow_lasting_changes_and_ignore_noise() {
    let mut net = Net::linked(3, CAPACITY);
    for node in [2, 3] {
        net.local(node, &[add("c", "t")], None);
    }
    load(&mut net, 1, 100, 0);
    net.publish_all(&[1], &["t".into()]);
    net.measure(|a, b| if (a, b) == (1, 3) || (a, b) == (3, 1) { 600_000 } else { 20_000 });
    assert_eq!(net.way("t", 1, 3), [2, 3]);
    let told = net.signal_bytes();
    for noise in 0..50 {
        net.measure(|a, b| (if a + b == 4 { 600_000 } else { 20_000 }) + noise % 5 * 200);
    }
    let refreshes = 6 * 6 * 26;
    assert!(net.signal_bytes() - told <= refreshes, "{}", net.signal_bytes() - told);
    for _ in 0..50 {
        net.measure(|_, _| 20_000);
    }
    assert_eq!(net.way("t", 1, 3), [3]);
}

/// TR-29: bytes of signals are counted apart, and a topic costs its announcement once.
#[test]
fn signalling_is_counted_and_a_quiet_cluster_only_refreshes() {
    let mut net = Net::linked(5, CAPACITY);
    (1..=5).for_each(|node| net.local(node, &[add("c", "t/#")], None));
    net.publish_all(&[1], &numbered("t", 60));
    net.pass(SOON);
    let sent = net.sent.len();
    let before = net.signal_bytes();
    net.pass(Duration::from_mins(10));
    assert_eq!(net.sent.len() - sent, 60 * 20, "a digest each 10 s for each of 20 directions");
    assert_eq!(net.signal_bytes() - before, 60 * 20 * 26);
    let counted: u64 = net.nodes.values().map(|node| node.machine.counters().signals).sum();
    assert_eq!(counted, net.sent.len() as u64);
}

/// TR-24: one second without measurements is enough after the last word was said.
#[test]
fn a_late_joiner_is_in_the_trees_within_a_second() {
    let mut net = Net::linked(4, CAPACITY);
    (1..=4).for_each(|node| net.local(node, &[add("c", "t/#")], None));
    net.publish_all(&[1, 2], &numbered("t", 5));
    net.pass(SOON);
    net.start(5);
    load(&mut net, 5, 77, 0);
    net.local(5, &[add("c", "t/+"), add("d", "t/3")], None);
    net.link_all();
    net.settle();
    assert_eq!(net.publish(1, "t/3"), [2, 3, 4, 5]);
    net.pass(SOON);
    for name in numbered("t", 5) {
        assert_eq!(net.root(&[1, 2, 3, 4, 5], &name), Some(5));
    }
    assert!(net.node(5).machine.is_linked(NodeId::new(1)));
}

#[test]
fn trees_and_tables_are_shown() {
    let mut net = Net::linked(3, CAPACITY);
    net.local(2, &[add("c", "t/+")], None);
    net.local(3, &[add("c", "t/1"), add("d", "other")], None);
    load(&mut net, 2, 7, 0);
    net.pass(SOON);
    net.publish_all(&[1], &["t/1".into(), "x".into()]);
    net.measure(|a, b| if a + b == 4 { 90_000 } else { 10_000 });
    let shown = net.node(1).machine.topology(10);
    assert_eq!(shown.trees.len(), 1, "nobody else is in the tree of x");
    let tree = &shown.trees[0];
    assert_eq!((tree.topic.as_ref().map(sedge_mqtt::TopicName::as_str), tree.complete), (Some("t/1"), true));
    assert_eq!(tree.root, NodeId::new(2));
    let nodes: Vec<_> =
        tree.nodes.iter().map(|node| (node.node.get(), node.parent.map(NodeId::get), node.capability)).collect();
    assert_eq!(nodes, [(1, Some(2), 1), (2, None, 7), (3, Some(2), 1)]);
    assert!(tree.nodes.iter().all(|node| node.cost.is_some_and(|cost| cost == 0 || (10_000..12_000).contains(&cost))));
    assert_eq!((shown.advertised.total, shown.interest.total, shown.adverts.total), (2, 2, 0));
    assert!(shown.counters.iter().any(|(name, count)| *name == "signal_bytes" && *count > 0));
    let shown = net.node(3).machine.topology(0);
    assert_eq!((shown.adverts.total, shown.adverts.lines.len(), shown.interest.total, shown.trees.len()), (1, 0, 3, 0));
    let line = &net.node(3).machine.topology(1).adverts.lines[0];
    assert_eq!((line.topic.as_str(), line.origin.get(), line.next.get()), ("t/1", 1, 2));
}

/// The number of other nodes' links that a node keeps is bounded by the number that each of them tells.
#[test]
fn of_many_links_those_to_fellows_and_the_shortest_are_told() {
    let mut net = Net::new(6, TopicTreeConfig { max_links: 2, ..CAPACITY });
    net.link_all();
    net.local(1, &[add("c", "t")], None);
    net.local(6, &[add("c", "t")], None);
    net.settle();
    // The lower the id the shorter the way; and 1 and 6, which are far from each other, publish and subscribe to the same topic.
    net.measure(|from, to| u32::try_from(from * to).expect("few nodes") * 1_000);
    net.publish_all(&[1, 2], &["t".into()]);
    net.pass(Duration::from_secs(12));
    assert_eq!(net.root(&[1, 2, 6], "t"), Some(1));
    assert_eq!(net.view(1, "t").parents, [(NodeId::new(2), NodeId::new(1)), (NodeId::new(6), NodeId::new(1))]);
    assert!(net.node(1).machine.counters().untold_links > 0);
    // 3, 4 and 5 are told by nobody who is far away, so that there is no tree, and publications arrive all the same.
    for node in [3, 4, 5, 6] {
        net.local(node, &[add("c", "u")], None);
    }
    net.settle();
    net.publish(5, "u");
    net.settle();
    assert_eq!(net.publish(5, "u"), [3, 4, 6]);
    for to in [3, 4, 6] {
        assert!(net.way("u", 5, to).len() <= 2);
    }
}
