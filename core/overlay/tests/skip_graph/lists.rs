//! Joining, leaving, searching.

use proptest::collection::vec;
use proptest::prelude::*;
use sedge_base::{NodeId, Rng};
use sedge_overlay::skip_graph::{Base, Config, Input, Key, Range, Role, Side, Vector};

use crate::net::Net;
use crate::oracle::assert_right;

/// One change of the network.
fn change(net: &mut Net, rng: &mut Rng, topics: u32) {
    let running: Vec<u64> = net.nodes.keys().copied().collect();
    let topic = u32::try_from(rng.index(topics as usize)).expect("a topic");
    let node = *rng.pick(&running).expect("a node");
    match rng.index(6) {
        0 => {
            let id = (1_000..9_000).map(|number| number * 7_919 % 1_000_003).find(|id| !net.nodes.contains_key(id));
            net.start(id.expect("a free id"));
        }
        1 if running.len() > 2 => net.feed(node, Input::Stop),
        2 => net.feed(node, Input::Subscribe(topic)),
        3 => net.feed(node, Input::Unsubscribe(topic)),
        4 => net.feed(node, Input::Advertise(topic)),
        _ => net.feed(node, Input::Withdraw(topic)),
    }
}

/// Nodes that have left with everything are switched off, and membership tells the others.
fn bury(net: &mut Net) {
    let gone: Vec<u64> =
        net.nodes.values().filter(|node| node.keys().next().is_none()).map(|node| node.id().get()).collect();
    for node in gone {
        net.kill(node);
        net.tell_gone(node);
    }
}

/// SG-01
#[test]
fn a_thousand_joins_and_leaves_one_after_the_other_leave_all_lists_right() {
    for base in [Base::Two, Base::Four] {
        let mut net = Net::with(1, Config { base, tick: None, ..Config::default() });
        for node in 0..40 {
            net.start(node);
            net.run();
        }
        let mut rng = Rng::new(2);
        for number in 0..1_000 {
            change(&mut net, &mut rng, 12);
            net.run();
            bury(&mut net);
            if number % 20 == 0 {
                assert_right(&net);
            }
        }
        assert_right(&net);
        assert!(net.nodes.len() > 20 && net.nodes.values().map(|node| node.keys().count()).max() > Some(3));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// SG-01, SG-17, SG-18: whatever happens at the same time, everything is right soon after.
    #[test]
    fn joins_and_leaves_at_the_same_time_converge(seed in any::<u64>(), bursts in vec((1_usize..25, 0_usize..400), 1..5)) {
        let mut net = Net::with(seed, Config::default());
        for node in 0..8 {
            net.start(node);
        }
        net.wait(5);
        let mut rng = Rng::new(seed ^ 1);
        for (changes, steps) in bursts {
            for _ in 0..changes {
                change(&mut net, &mut rng, 5);
                for _ in 0..rng.index(steps + 1) {
                    net.step();
                }
            }
        }
        net.wait(20);
        bury(&mut net);
        net.wait(80);
        assert_right(&net);
    }

    /// SG-01: on level 0 nodes that join at the same time are in the right order as soon as messages have arrived, without repair.
    #[test]
    fn the_lowest_list_needs_no_repair_after_joins(seed in any::<u64>(), joins in 1_usize..60, steps in 0_usize..60) {
        let mut net = Net::of(seed, 6);
        let mut rng = Rng::new(seed ^ 1);
        for number in 0..joins as u64 {
            net.start(10 + (number * 37) % 61);
            for _ in 0..rng.index(steps + 1) {
                net.step();
            }
        }
        net.run();
        let mut keys: Vec<Key<u32>> = net.nodes.values().flat_map(|node| node.keys().copied()).collect();
        keys.sort_unstable();
        for two in keys.windows(2).filter(|two| two[0].node != two[1].node) {
            let side = |key: &Key<u32>, side| net.nodes[&key.node.get()].neighbours(key, side).first().map(|peer| peer.key);
            prop_assert_eq!(side(&two[0], Side::Right), Some(two[1]), "right of {:?} among {:?}", two[0], keys);
            prop_assert_eq!(side(&two[1], Side::Left), Some(two[0]), "left of {:?} among {:?}", two[1], keys);
        }
    }
}

/// All nodes begin at the same moment and know only one of them.
#[test]
fn a_cluster_that_starts_at_once_becomes_one_graph() {
    for seed in 0..10 {
        let mut net = Net::with(seed, Config::default());
        for node in 0..60 {
            net.start(node);
        }
        net.wait(80);
        assert_right(&net);
    }
}

/// Two nodes that only know each other both wait for the other; the smaller id begins.
#[test]
fn nodes_that_introduce_each_other_do_not_wait_for_ever() {
    let mut net = Net::with(1, Config::default());
    net.start(1);
    net.start(2);
    for (node, other) in [(1, 2), (2, 1)] {
        let vector = Vector::random(&mut net.rng);
        net.add(node, vector);
        net.feed(node, Input::Introducer(NodeId::new(other)));
    }
    net.feed(1, Input::Start);
    net.feed(2, Input::Start);
    net.wait(20);
    assert_right(&net);
}

/// SG-02
#[test]
fn paths_grow_with_the_logarithm() {
    let mut hops = Vec::new();
    for nodes in [64_u64, 512, 2_048] {
        let mut net = Net::of(5, nodes);
        let (mut total, mut count) = (0_usize, 0_usize);
        for _ in 0..400 {
            let target = Key::placeholder(NodeId::new(net.rng.below(nodes)));
            let from = net.rng.below(nodes);
            if from != target.node.get() {
                let outcome = net.query(from, Range::closed(target, target));
                assert_eq!(outcome.receivers(), [target.node.get()]);
                total += outcome.messages;
                count += 1;
            }
        }
        hops.push(total * 100 / count);
    }
    // 3 and 2 doublings: the second step is two thirds of the first, within what chance does.
    assert!(hops[2] < 1_300 && hops[1] - hops[0] < 450 && hops[2] - hops[1] < 350, "{hops:?}");
}

/// SG-04: one vector for all virtual nodes of a node, so that no virtual node has another of its own node on a level.
#[test]
fn a_node_with_many_topics_is_in_the_list_with_each() {
    let mut net = Net::of(3, 30);
    for topic in 0..10 {
        for node in [3, 4, 5] {
            net.feed(node, Input::Subscribe(topic));
            net.run();
        }
    }
    assert_right(&net);
    let keys: Vec<Key<u32>> = net.nodes[&3].keys().copied().collect();
    assert_eq!(keys.len(), 10, "the placeholder is gone");
    assert!(keys.iter().all(|key| key.role == Role::Subscriber));
}
