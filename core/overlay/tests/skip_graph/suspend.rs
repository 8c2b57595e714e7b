//! Rendezvous points: nothing is sent where nobody subscribes.

use proptest::prelude::*;
use sedge_base::Rng;
use sedge_overlay::skip_graph::{Config, Input, Message, Publication, Role};

use crate::net::Net;
use crate::oracle::assert_right;

fn active(net: &Net, node: u64) -> Option<bool> {
    net.nodes[&node].status(&1).map(|status| status.active)
}

/// Publishers 10 to 14 and nodes 0 to 9 without topics. Publishers are left of subscribers in key order, and 14 is the right-most.
fn publishers(config: Config) -> Net {
    let mut net = Net::with(9, config);
    for node in 0..15 {
        net.start(node);
        net.run();
    }
    for node in 10..15 {
        net.feed(node, Input::Advertise(1));
        net.run();
    }
    net
}

fn resting() -> Config {
    Config { tick: None, ..Config::default() }
}

/// SG-10, SG-11, SG-13
#[test]
fn publishers_rest_while_nobody_subscribes() {
    let mut net = publishers(resting());
    assert!((10..15).all(|node| active(&net, node) == Some(false)), "the first decides alone, the others are told");
    for subscriber in [3, 4] {
        net.feed(subscriber, Input::Subscribe(1));
        net.run();
    }
    for node in 10..15 {
        assert_eq!(net.deliver(node, 1).receivers(), [3, 4]);
    }
    net.feed(3, Input::Unsubscribe(1));
    net.run();
    assert!((10..15).all(|node| net.deliver(node, 1).receivers() == [4]));
    net.feed(4, Input::Unsubscribe(1));
    net.run();
    let before = net.sent;
    for node in 10..15 {
        assert_eq!(net.publish(node, 1), Publication::Suspended);
    }
    assert_eq!(net.sent, before, "no signals either");
    assert_right(&net);
}

/// SG-12, SG-13
#[test]
fn a_publisher_that_joins_knows_the_status() {
    for subscribed in [false, true] {
        let mut net = publishers(resting());
        if subscribed {
            net.feed(2, Input::Subscribe(1));
            net.run();
        }
        // Left of the others, and right of them: beside the subscribers, as the rendezvous point.
        net.start(20);
        net.run();
        for joiner in [0, 20] {
            assert_eq!(net.publish(joiner, 1), Publication::Undecided);
            assert_eq!(active(&net, joiner), Some(subscribed), "{joiner}");
            assert_eq!(net.deliver(joiner, 1).messages > 0, subscribed);
        }
    }
}

/// SG-14
#[test]
fn rendezvous_points_hand_over() {
    let mut net = publishers(resting());
    net.start(30);
    net.run();
    net.feed(30, Input::Advertise(1));
    net.run();
    let check = |net: &mut Net, publishers: &[u64]| {
        net.feed(5, Input::Subscribe(1));
        net.run();
        assert!(publishers.iter().all(|node| active(net, *node) == Some(true)));
        assert!(publishers.iter().all(|node| net.deliver(*node, 1).receivers() == [5]));
        net.feed(5, Input::Unsubscribe(1));
        net.run();
        assert!(publishers.iter().all(|node| active(net, *node) == Some(false)));
    };
    check(&mut net, &[10, 11, 12, 13, 14, 30]);
    net.feed(30, Input::Withdraw(1));
    net.run();
    assert_eq!(active(&net, 30), None);
    check(&mut net, &[10, 11, 12, 13, 14]);
    net.feed(14, Input::Stop);
    net.run();
    net.kill(14);
    check(&mut net, &[10, 11, 12, 13]);
    assert_right(&net);
}

fn is_cast(message: &Message<u32>) -> bool {
    matches!(message, Message::Cast { .. })
}

/// SG-15
#[test]
fn who_missed_being_suspended_is_told_at_its_next_publication() {
    let mut net = publishers(resting());
    net.feed(3, Input::Subscribe(1));
    net.run();
    net.lose = is_cast;
    net.feed(3, Input::Unsubscribe(1));
    net.run();
    assert_eq!((active(&net, 10), active(&net, 14)), (Some(true), Some(false)), "only the rendezvous point knows");
    assert!(net.deliver(10, 1).messages > 0);
    assert_eq!(active(&net, 10), Some(false));
    assert_eq!(active(&net, 11), Some(true), "nobody else is told");
    assert_eq!(net.deliver(10, 1).messages, 0);
}

/// SG-15, for owners that know the subscribers themselves and send nothing that nobody wants.
#[test]
fn who_missed_a_change_of_status_is_told_when_it_reports() {
    let mut net = publishers(resting());
    for (change, wanted) in [(Input::Subscribe(1), true), (Input::Unsubscribe(1), false)] {
        net.lose = is_cast;
        net.feed(3, change);
        net.run();
        assert_eq!(
            (active(&net, 10), active(&net, 14)),
            (Some(!wanted), Some(wanted)),
            "only the rendezvous point knows"
        );
        net.lose = |_| false;
        net.feed(10, Input::Report(1));
        net.run();
        assert!((10..15).all(|node| active(&net, node) == Some(wanted)));
    }
}

/// SG-16
#[test]
fn who_missed_being_resumed_finds_out_from_its_neighbour() {
    let mut net = publishers(Config::default());
    net.wait(3);
    net.lose = is_cast;
    net.feed(3, Input::Subscribe(1));
    net.run();
    net.lose = |_| false;
    assert_eq!((active(&net, 10), active(&net, 14)), (Some(false), Some(true)));
    net.wait(11);
    assert!((10..15).all(|node| active(&net, node) == Some(true)));
    assert!((10..15).all(|node| net.deliver(node, 1).receivers() == [3]));
}

/// SG-32: when subscribers die, publishers are suspended only once the list is mended and none is left.
#[test]
fn the_death_of_subscribers_suspends_nobody_while_there_are_others() {
    let mut net = publishers(Config::default());
    for subscriber in [3, 4, 5] {
        net.feed(subscriber, Input::Subscribe(1));
        net.run();
    }
    net.wait(2);
    for (dead, left) in [(3, 2), (4, 1), (5, 0)] {
        net.kill(dead);
        for second in 0..14 {
            net.wait(1);
            let resting = (10..15).any(|node| active(&net, node) == Some(false));
            assert!(!resting || left == 0, "after {second} s");
        }
    }
    assert!((10..15).all(|node| active(&net, node) == Some(false)));
}

/// The last publisher of long ago is no publisher any more.
#[test]
fn publishers_without_publications_leave() {
    let mut net = publishers(Config::default());
    net.wait(599);
    assert_eq!(net.publish(12, 1), Publication::Suspended);
    net.wait(2);
    assert_eq!((active(&net, 11), active(&net, 12)), (None, Some(false)));
    assert_right(&net);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// SG-09 to SG-14 under churn: whatever came at the same time, every publisher knows in the end.
    #[test]
    fn all_publishers_agree_with_the_subscribers(seed in any::<u64>(), changes in 1_usize..60, steps in 0_usize..60) {
        let mut net = Net::with(seed, Config::default());
        for node in 0..12 {
            net.start(node);
            net.run();
        }
        let mut rng = Rng::new(seed ^ 1);
        for _ in 0..changes {
            let node = rng.below(12);
            let input = match rng.index(5) {
                0 => Input::Subscribe(1),
                1 | 2 => Input::Unsubscribe(1),
                3 => Input::Advertise(1),
                _ => Input::Withdraw(1),
            };
            net.feed(node, input);
            for _ in 0..rng.index(steps + 1) {
                net.step();
            }
        }
        net.run();
        // Some ticks until the lists are right, and then one more period of the publishers' questions.
        net.wait(40);
        assert_right(&net);
        let has = |net: &Net, node: u64, wanted| net.nodes[&node].keys().any(|key| key.topic.is_some() && key.role == wanted);
        let subscribed = (0..12).any(|node| has(&net, node, Role::Subscriber));
        for node in 0..12 {
            if has(&net, node, Role::Publisher) {
                if !subscribed && active(&net, node) == Some(true) {
                    // The publisher missed being suspended, which it is told when it publishes (SG-15).
                    net.deliver(node, 1);
                }
                prop_assert_eq!(active(&net, node), Some(subscribed));
            }
        }
    }
}
