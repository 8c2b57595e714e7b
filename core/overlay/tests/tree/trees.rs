//! The tree over all nodes.

use crate::net::{Net, flood, id};
use proptest::prelude::*;
use sedge_base::{Duration, Rng};
use sedge_overlay::Input;

/// TR-07, TR-08
#[test]
fn the_strongest_node_is_root_and_between_equals_the_lowest_address() {
    let mut net = Net::linked(flood, 4);
    assert_eq!(net.topology(3).trees[0].root, id(1));
    net = Net::new(flood, 4);
    for (node, capacity) in [(2, 5), (3, 9), (4, 9)] {
        net.capacities.insert(node, capacity);
        net.start(node);
    }
    net.link_all();
    net.check_tree();
    let view = &net.topology(1).trees[0];
    assert_eq!(view.root, id(3));
    let costs: Vec<_> =
        view.nodes.iter().map(|line| (line.capability, line.cost.is_some_and(|cost| cost > 0))).collect();
    assert_eq!(costs, [(1, true), (5, true), (9, false), (9, true)]);
}

/// TR-03, TR-26: the old tree serves until the new one stands.
#[test]
fn a_node_that_joins_does_not_interrupt_the_tree() {
    let mut net = Net::linked(flood, 3);
    let before = net.parents(1);
    net.capacities.insert(4, 100);
    net.start(4);
    for other in 1..=3 {
        net.link(4, other);
        assert_eq!(net.walk(2, 3, "a"), [(2, 1), (1, 3)]);
    }
    assert_eq!(net.parents(1), before);
    assert_eq!(net.publish(1, "a"), [2, 3, 4]);
    assert_eq!(net.walk(1, 4, "a"), [(1, 4)]);
    net.settle();
    net.check_tree();
    assert_eq!(net.topology(1).trees[0].root, id(4));
}

/// TR-22: ways over the dead node end at once.
#[test]
fn a_dead_relay_is_not_used_any_more_and_a_new_tree_stands_without_it() {
    let mut net = Net::linked(flood, 5);
    assert_eq!(net.walk(2, 5, "a"), [(2, 1), (1, 5)]);
    net.kill(1);
    assert_eq!(net.walk(2, 5, "a"), [(2, 5)], "straight to the destination");
    assert_eq!(net.publish(2, "a"), [3, 4, 5]);
    net.settle();
    net.check_tree();
    assert_eq!(net.walk(3, 5, "a"), [(3, 2), (2, 5)]);
}

/// Overlay-trees section 9, "link cut between two live brokers": claims are passed on by those that have links to both.
#[test]
fn two_nodes_without_a_link_hear_each_other_through_the_others() {
    let mut net = Net::linked(flood, 4);
    net.cut(1, 3, false);
    assert_eq!(net.walk(3, 1, "a"), [(3, 1)]);
    net.settle();
    net.check_tree();
    assert_eq!(net.walk(3, 1, "a").len(), 2);
    assert_eq!(net.publish(1, "a"), [2, 3, 4]);
    // A whole new tree, with a link missing from the start.
    net.kill(1);
    net.settle();
    net.start(1);
    for other in [2, 4] {
        net.link(1, other);
    }
    let (one, three) = (net.neighbour(1), net.neighbour(3));
    net.feed(1, Input::MemberUp(three));
    net.feed(3, Input::MemberUp(one));
    net.settle();
    net.check_tree();
    net.link(1, 3);
    net.settle();
    net.pass(Duration::from_secs(30));
    net.check_tree();
}

#[test]
fn a_node_that_comes_back_before_it_was_missed_is_a_new_one() {
    let mut net = Net::linked(flood, 3);
    let epoch = net.topology(2).trees[0].epoch;
    net.nodes.remove(&1);
    net.start(1);
    net.link(1, 2);
    net.link(1, 3);
    net.settle();
    net.check_tree();
    assert!(net.topology(2).trees[0].epoch > epoch);
}

/// Round trips are frozen within an epoch, and a lasting change begins the next, at most every 20 seconds.
#[test]
fn a_lasting_change_of_round_trips_changes_the_tree_and_a_short_one_does_not() {
    let mut net = Net::linked(flood, 3);
    let measure = |net: &mut Net, seconds: u64| {
        for _ in 0..seconds {
            for (a, b) in net.links.keys().copied().collect::<Vec<_>>() {
                let micros = net.delay(a, b);
                net.feed(a, Input::RoundTrip { node: id(b), micros });
            }
            net.settle();
            net.pass(Duration::from_secs(1));
        }
    };
    measure(&mut net, 30);
    assert_eq!(net.walk(3, 1, "a"), [(3, 1)]);
    net.delays.insert((1, 3), 100_000);
    measure(&mut net, 5);
    net.delays.insert((1, 3), 10_000);
    measure(&mut net, 60);
    assert_eq!(net.walk(3, 1, "a"), [(3, 1)]);
    assert_eq!(net.counter(3, "renewals"), 0);
    net.delays.insert((1, 3), 100_000);
    measure(&mut net, 60);
    net.check_tree();
    assert_eq!(net.walk(3, 1, "a"), [(3, 2), (2, 1)]);
    assert_eq!(net.counter(3, "renewals"), 1);
    measure(&mut net, 120);
    assert_eq!(net.counter(3, "renewals"), 1);
}

#[test]
fn a_node_that_becomes_much_stronger_becomes_root_in_time() {
    let mut net = Net::linked(flood, 3);
    net.capacities.insert(3, 10);
    net.feed(3, Input::Load { capacity: 10, clients: 0 });
    net.settle();
    assert_eq!(net.topology(1).trees[0].root, id(1));
    net.pass(Duration::from_secs(40));
    net.check_tree();
    assert_eq!(net.topology(1).trees[0].root, id(3));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// TR-09, TR-10, TR-22, TR-24
    #[test]
    fn whatever_happens_one_tree_stands_once_all_is_quiet(seed: u64, count in 2..7_u64, steps in 0..150_u32) {
        let mut rng = Rng::new(seed);
        let mut net = Net::new(flood, count);
        for (a, b) in (1..=count).flat_map(|a| (1..a).map(move |b| (b, a))) {
            net.delays.insert((b, a), u32::try_from(rng.below(100_000)).expect("small") + 1);
        }
        for _ in 0..steps {
            let (a, b) = (rng.below(count) + 1, rng.below(count) + 1);
            let both = a != b && net.nodes.contains_key(&a) && net.nodes.contains_key(&b);
            match rng.below(30) {
                0 if net.nodes.len() > 1 => net.kill(a),
                1 | 2 if !net.nodes.contains_key(&a) => net.start(a),
                3..7 if both => net.link(a, b),
                7 if both => net.cut(a, b, rng.chance(1, 2)),
                8 if both => net.feed(a, Input::RoundTrip { node: id(b), micros: 1 + u32::try_from(rng.below(90_000)).expect("small") }),
                9..18 => net.poll(a),
                18 => { net.reach(a); }
                19 => net.pass(Duration::from_millis(rng.below(9_000))),
                _ => { net.deliver(a, b); }
            }
            for (from, to) in (1..=count).flat_map(|a| (1..=count).map(move |b| (a, b))) {
                if from != to && net.nodes.contains_key(&from) {
                    let way = net.nodes[&from].overlay.way(&crate::net::topic("a"), id(to)).get();
                    prop_assert!(way == to || net.links.contains_key(&(from, way)), "over a link that is down");
                }
            }
        }
        net.link_all();
        net.check_tree();
        net.check_groups();
    }
}
