//! Nodes that die.

use proptest::prelude::*;
use sedge_base::{NodeId, Rng};
use sedge_overlay::skip_graph::{Config, Input, Key, Message, Role, Vector};

use crate::net::Net;
use crate::oracle::{assert_right, wrong_links};

fn network(seed: u64, nodes: u64) -> Net {
    let mut net = Net::with(seed, Config::default());
    let mut rng = Rng::new(seed ^ 3);
    for node in 0..nodes {
        net.start(node);
        net.run();
        for topic in 0..5 {
            match rng.index(5) {
                0 => net.feed(node, Input::Subscribe(topic)),
                1 => net.feed(node, Input::Advertise(topic)),
                _ => {}
            }
        }
        net.run();
    }
    net
}

/// SG-32: a fifth of the nodes dies at once; ten seconds later every publication reaches every subscriber that is left.
#[test]
fn after_many_deaths_delivery_is_complete_within_ten_seconds() {
    for seed in 0..6 {
        let mut net = network(seed, 200);
        net.wait(3);
        let dead: Vec<u64> = (0..200).filter(|_| net.rng.chance(1, 5)).collect();
        for node in dead {
            net.kill(node);
        }
        net.wait(10);
        for topic in 0..5 {
            let members = |role| {
                let all = net.nodes.values().flat_map(sedge_overlay::skip_graph::Node::keys);
                all.filter(|key| key.topic == Some(topic) && key.role == role)
                    .map(|key| key.node.get())
                    .collect::<Vec<u64>>()
            };
            let subscribers = members(Role::Subscriber);
            for publisher in members(Role::Publisher) {
                assert_eq!(net.deliver(publisher, topic).receivers(), subscribers, "seed {seed}");
            }
        }
        assert_eq!(wrong_links(&net), Vec::<String>::new(), "seed {seed}");
        assert_right(&net);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    /// SG-32: deaths amid joins and leaves.
    #[test]
    fn deaths_amid_changes_are_repaired(seed in any::<u64>(), deaths in 1_usize..12, steps in 0_usize..120) {
        let mut net = network(seed, 40);
        let mut rng = Rng::new(seed ^ 5);
        for number in 0..deaths {
            let running: Vec<u64> = net.nodes.keys().copied().collect();
            let node = *rng.pick(&running).expect("a node");
            let other = *rng.pick(&running).expect("a node");
            net.start(100 + number as u64);
            net.feed(other, Input::Subscribe(1));
            net.feed(node, Input::Unsubscribe(1));
            for _ in 0..rng.index(steps + 1) {
                net.step();
            }
            net.kill(node);
        }
        net.wait(100);
        assert_right(&net);
    }

    /// A death that membership announces is believed at once.
    #[test]
    fn a_death_that_is_announced_is_not_waited_for(seed in any::<u64>()) {
        let mut net = network(seed, 30);
        net.wait(2);
        let dead = net.rng.below(30);
        net.kill(dead);
        for node in net.nodes.keys().copied().collect::<Vec<_>>() {
            net.feed(node, Input::NodeDown(NodeId::new(dead)));
        }
        net.wait(3);
        assert_right(&net);
    }
}

/// A node that was taken for dead is known again as soon as it can be heard; one that has restarted takes its place again.
#[test]
fn who_comes_back_is_taken_in_again() {
    let mut net = network(3, 30);
    net.wait(2);
    for node in net.nodes.keys().copied().filter(|node| *node != 7).collect::<Vec<_>>() {
        net.feed(node, Input::NodeDown(NodeId::new(7)));
    }
    net.wait(70);
    assert_right(&net);
    net.kill(7);
    net.start(7);
    net.wait(70);
    assert_eq!(net.nodes[&7].keys().copied().collect::<Vec<_>>(), [Key::placeholder(NodeId::new(7))]);
    assert_right(&net);
}

/// A wish to join is given up when it is not wanted any more and its answer was lost, so that a node that believes it fulfilled hears
/// otherwise.
#[test]
fn a_wish_that_nobody_answers_is_given_up() {
    let mut net = network(5, 6);
    net.wait(5);
    net.lose = |message| matches!(message, Message::Joined { .. });
    net.feed(2, Input::Subscribe(9));
    net.run();
    net.feed(2, Input::Unsubscribe(9));
    net.wait(2);
    net.lose = |_| false;
    assert!(!net.nodes[&2].is_settled());
    net.wait(20);
    assert_right(&net);
}

/// A virtual node that leaves and is never let go, goes in the end.
#[test]
fn who_is_not_let_go_goes_anyway() {
    let mut net = network(6, 6);
    net.feed(3, Input::Subscribe(9));
    net.wait(5);
    net.lose = |message| matches!(message, Message::Left { .. });
    net.feed(3, Input::Unsubscribe(9));
    net.wait(3);
    assert!(!net.nodes[&3].is_settled());
    net.wait(60);
    assert_right(&net);
}

/// Many that start together, and know of many others that have not begun either, get into one list.
#[test]
fn who_starts_together_finds_one_list() {
    let mut net = Net::with(1, Config::default());
    for node in 0..40 {
        net.add(node, Vector::new(node.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    }
    for node in 0..40 {
        for other in (0..40).filter(|other| *other != node) {
            net.feed(node, Input::Reached(NodeId::new(other)));
        }
        net.feed(node, Input::Start);
    }
    net.wait(2);
    assert!(net.nodes.values().all(|node| node.keys().next().is_none()), "all wait for each other");
    net.feed(0, Input::Begin);
    net.feed(0, Input::Begin);
    for node in 1..40 {
        net.feed(node, Input::JoinBy(NodeId::new(0)));
    }
    net.run();
    assert!(net.nodes.values().all(sedge_overlay::skip_graph::Node::is_settled));
    net.wait(10);
    assert_right(&net);
}

/// Nodes that could not reach each other for long are in one list again soon after they can.
#[test]
fn who_can_be_reached_again_is_linked_again_soon() {
    let mut net = network(7, 12);
    net.wait(130);
    net.lose = |_| true;
    net.wait(10);
    net.lose = |_| false;
    for node in 0..12 {
        for other in (0..12).filter(|other| *other != node) {
            net.feed(node, Input::Reached(NodeId::new(other)));
        }
    }
    net.wait(10);
    assert_right(&net);
}
