//! Nodes and links fail.

use sedge_cluster::NodeState;
use std::collections::{BTreeMap, BTreeSet};

use sedge_mqtt::QoS;

use crate::common::{Options, World};

/// FT-25, FT-17
#[test]
fn a_crash_holds_nobody_up_for_long() {
    let mut world = World::cluster(1, 4, 2);
    let lost = world.connect(4, "lost");
    world.subscribe(lost, "t", QoS::AtLeastOnce);
    let subscriber = world.connect(2, "sub");
    world.subscribe(subscriber, "t", QoS::AtLeastOnce);
    let publisher = world.connect(1, "pub");
    world.kill(4);
    for number in 0..20 {
        world.send_publish(publisher, "t", &number.to_string(), QoS::AtLeastOnce, false);
    }
    world.subscribe(subscriber, "other", QoS::AtLeastOnce);
    world.run(2_000);
    assert_eq!(world.got(subscriber).len(), 20);
    assert_eq!(world.clients[publisher].acked.len(), 20);
    assert_eq!(world.hosts[&1].node.status().unacknowledged, 0);
    assert_eq!(world.hosts[&1].node.status().members.len(), 3);
    assert!(world.hosts[&1].node.routes(0, 100).iter().all(|route| route.node.get() != 4));
    let before = world.counter(1, "links_publications_sent");
    world.publish(publisher, "t", "20", QoS::AtLeastOnce);
    if world.overlay != "flood" {
        assert_eq!(world.counter(1, "links_publications_sent"), before + 1);
    }
}

/// FT-29
#[test]
fn a_node_that_starts_again_is_whole_again() {
    let mut world = World::cluster(2, 3, 2);
    let subscriber = world.connect(2, "sub");
    world.subscribe(subscriber, "t", QoS::AtLeastOnce);
    world.kill(3);
    world.run(20);
    world.start(3);
    world.run(200);
    world.settle_members(3);
    let publisher = world.connect(3, "pub");
    world.publish(publisher, "t", "x", QoS::AtLeastOnce);
    world.run(50);
    assert_eq!(world.got(subscriber), ["x"]);
}

/// FT-18, FT-21
#[test]
fn links_that_break_lose_and_repeat_nothing() {
    for seed in 0..20 {
        let mut world = World::cluster(10 + seed, 2, 2);
        let subscribers = [world.connect(2, "sub"), world.connect(1, "sub1")];
        for subscriber in subscribers {
            world.subscribe(subscriber, "t", QoS::ExactlyOnce);
        }
        let publishers = [world.connect(1, "pub"), world.connect(2, "pub2")];
        for round in 0..10 {
            for number in 0..20 {
                for (at, publisher) in publishers.iter().enumerate() {
                    world.send_publish(*publisher, "t", &format!("{at} {round} {number:02}"), QoS::AtLeastOnce, false);
                }
            }
            let wait = world.rng.below(3);
            world.run(wait);
            world.break_links(1, 2);
            world.run(200);
        }
        world.run(5_000);
        for publisher in publishers {
            assert_eq!(world.clients[publisher].acked.len(), 200, "seed {seed}");
        }
        for subscriber in subscribers {
            let mut got = world.got(subscriber);
            assert_eq!(got.len(), 400, "seed {seed}");
            got.sort_unstable();
            got.dedup();
            assert_eq!(got.len(), 400, "seed {seed}");
        }
    }
}

/// FT-28
#[test]
fn a_node_alone_is_ready_and_one_with_silent_seeds_soon() {
    let mut world = World::new(1, 2);
    world.start_with(1, |config| config.seeds.clear());
    assert!(world.hosts[&1].node.is_ready());
    let mut world = World::new(1, 2);
    world.start(5);
    assert_eq!(world.hosts[&5].node.status().state, NodeState::Discovery);
    world.run(1_100);
    assert_eq!(world.hosts[&5].node.status().state, NodeState::Normal);
    world.connect(5, "c");
}

/// TR-02, FT-26
#[test]
fn a_joiner_finds_the_others_then_learns_from_them_then_serves() {
    let mut world = World::cluster(5, 3, 2);
    world.start(4);
    let mut states = vec![];
    world.run_until("the joiner is ready", |world| {
        states.push(world.hosts[&4].node.status().state);
        world.hosts[&4].node.is_ready()
    });
    states.dedup();
    assert_eq!(states, [NodeState::Discovery, NodeState::Recovery, NodeState::Normal]);
}

/// FT-28
#[test]
fn a_joiner_recovers_from_all_members_or_from_those_that_are_left() {
    let mut world = World::cluster(6, 3, 2);
    world.cut(2, 4);
    world.start(4);
    world.run_until("the joiner knows all members", |world| world.hosts[&4].node.status().members.len() == 4);
    world.run(200);
    assert_eq!(world.hosts[&4].node.status().state, NodeState::Recovery);
    world.kill(2);
    world.run_until("the joiner is ready", |world| world.hosts[&4].node.is_ready());
    assert_eq!(world.hosts[&4].node.status().members.len(), 3);
}

/// FT-30, MQ-11
#[test]
fn survivors_serve_throughout_two_crashes() {
    let mut world = World::cluster(3, 4, 2);
    let kept = || Options { expiry: 1_000, ..Options::default() };
    let clients: Vec<_> = (0..12).map(|i| world.connect_with(1 + i % 4, &format!("c{i}"), kept())).collect();
    for client in &clients {
        world.subscribe(*client, "t", QoS::AtLeastOnce);
    }
    world.kill(3);
    world.kill(4);
    // All clients connect to a living node at once.
    let again: Vec<_> = (0..12).map(|i| world.dial_client(1 + i % 2, &format!("c{i}"), kept())).collect();
    world.run_until("all are connected", |world| again.iter().all(|client| world.clients[*client].connack.is_some()));
    world.run(2_000);
    for client in &again {
        world.subscribe(*client, "t", QoS::AtLeastOnce);
    }
    let publisher = world.connect(1, "pub");
    world.publish(publisher, "t", "x", QoS::AtLeastOnce);
    world.run(50);
    assert!(again.iter().all(|client| world.got(*client) == ["x"]));
}

/// FT-31, MQ-11
#[test]
fn after_a_partition_each_client_has_one_owner() {
    let mut world = World::cluster(4, 3, 2);
    let kept = || Options { expiry: 1_000, ..Options::default() };
    for node in 1..=2 {
        world.cut(node, 3);
    }
    world.run(3_000);
    let first = world.connect_with(3, "c", kept());
    world.run(10);
    let second = world.connect_with(1, "c", kept());
    world.subscribe(second, "t", QoS::AtLeastOnce);
    world.heal();
    world.settle_members(3);
    world.run(3_000);
    assert!(!world.clients[first].open);
    assert!(world.clients[second].open);
    let publisher = world.connect(3, "pub");
    world.publish(publisher, "t", "x", QoS::AtLeastOnce);
    world.run(50);
    assert_eq!(world.got(second), ["x"]);
    assert_eq!(world.hosts.values().map(|host| host.node.status().sessions).sum::<usize>(), 2);
}

/// FT-31, MQ-09: the session of the one side gets what only that of the other side had, once.
#[test]
fn what_both_sides_of_a_partition_have_acknowledged_is_delivered() {
    for seed in 0..20 {
        let mut world = World::cluster(500 + seed, 3, 2);
        let kept = || Options { expiry: 1_000, ..Options::default() };
        let subscriber = world.connect_with(3, "sub", kept());
        world.subscribe(subscriber, "t/#", QoS::ExactlyOnce);
        let publishers = [world.connect(1, "pub1"), world.connect(3, "pub3")];
        for publisher in publishers {
            world.publish(publisher, "t/x", &format!("{publisher} before"), QoS::ExactlyOnce);
        }
        world.run(200);
        if seed % 2 == 0 {
            world.hang_up(subscriber);
        }
        for node in 1..=2 {
            world.cut(node, 3);
        }
        world.run(4_000);
        for number in 0..10 {
            for publisher in publishers {
                world.publish(publisher, "t/x", &format!("{publisher} {number}"), QoS::ExactlyOnce);
            }
        }
        world.run(200);
        assert!(publishers.iter().all(|publisher| world.clients[*publisher].acked.len() == 11));
        world.heal();
        world.settle_members(3);
        world.run(3_000);
        let again = world.connect_with(1 + seed % 3, "sub", kept());
        world.run(3_000);
        let mut got: Vec<&str> = world.got(subscriber);
        got.extend(world.got(again));
        let mut expected = Vec::new();
        for publisher in publishers {
            expected.push(format!("{publisher} before"));
            expected.extend((0..10).map(|number| format!("{publisher} {number}")));
        }
        got.sort_unstable();
        expected.sort_unstable();
        assert_eq!(got, expected, "seed {seed}\n{}", world.log.join("\n"));
    }
}

/// FT-31, MQ-11: a subscription that a client has made at the successor is in force at its node, too, when it comes back there before the nodes have
/// found each other; and a subscription that it has made there is in force where it goes then.
#[test]
fn what_was_subscribed_to_on_the_other_side_holds() {
    for seed in 0..20 {
        let mut world = World::cluster(700 + seed, 3, 2);
        let kept = || Options { expiry: 1_000, ..Options::default() };
        let first = world.connect_with(3, "sub", kept());
        world.subscribe(first, "a", QoS::AtLeastOnce);
        world.subscribe(first, "d", QoS::AtMostOnce);
        world.run(200);
        world.cut(1, 3);
        world.cut(2, 3);
        world.hang_up(first);
        world.run(4_000);
        let there = world.connect_with(1 + seed % 2, "sub", kept());
        world.subscribe(there, "b", QoS::AtLeastOnce);
        world.subscribe(there, "d", QoS::AtLeastOnce);
        world.hang_up(there);
        let back = world.connect_with(3, "sub", kept());
        world.subscribe(back, "c", QoS::AtLeastOnce);
        world.heal();
        world.settle_members(3);
        world.run(3_000);
        let publisher = world.connect(2, "pub");
        for topic in ["a", "b", "c", "d"] {
            world.publish(publisher, topic, topic, QoS::AtLeastOnce);
        }
        let again = world.connect_with(1, "sub", kept());
        world.run(3_000);
        let mut got = world.got(back);
        got.extend(world.got(again));
        got.sort_unstable();
        assert_eq!(got, ["a", "b", "c", "d"], "seed {seed}\n{}", world.log.join("\n"));
        let of_both = world.clients[back].got.iter().chain(&world.clients[again].got);
        assert!(of_both.into_iter().all(|got| got.qos == QoS::AtLeastOnce), "the higher QoS holds");
    }
}

/// FT-31, MQ-13: messages published on the other side come before those published there after the partition.
#[test]
fn after_a_partition_messages_come_in_order() {
    for seed in (0..20).chain([36]) {
        let mut world = World::cluster(600 + seed, 5, 2);
        world.delays.network = 1 + world.rng.below(3_000);
        world.delays.mailbox = 1 + world.rng.below(200);
        let kept = || Options { expiry: 1_000, ..Options::default() };
        let subscribers: Vec<_> = (1..=5).map(|node| world.connect_with(node, &format!("sub{node}"), kept())).collect();
        for subscriber in &subscribers {
            world.subscribe(*subscriber, "t/#", QoS::ExactlyOnce);
        }
        let publishers: Vec<_> = (1..=5).map(|node| world.connect(node, &format!("pub{node}"))).collect();
        world.run(500);
        let mut sent = 0;
        let mut publish = |world: &mut World, rounds: u32| {
            for _ in 0..rounds {
                for (number, publisher) in publishers.iter().enumerate() {
                    world.send_publish(
                        *publisher,
                        &format!("t/{number}"),
                        &format!("{sent:05}"),
                        QoS::ExactlyOnce,
                        false,
                    );
                }
                sent += 1;
                world.run(20);
            }
        };
        publish(&mut world, 10);
        for left in 1..=2 {
            for right in 3..=5 {
                world.cut(left, right);
            }
        }
        publish(&mut world, 200);
        world.heal();
        publish(&mut world, 150);
        world.run(3_000);
        for subscriber in &subscribers {
            let mut last = BTreeMap::new();
            for got in world.clients[*subscriber].got.iter().filter(|got| !got.dup) {
                let before = last.insert(got.topic.clone(), got.payload.clone());
                assert!(
                    before.as_ref().is_none_or(|before| *before < got.payload),
                    "seed {seed}: {} of {} after {before:?} at {subscriber}\n{}",
                    got.payload,
                    got.topic,
                    world.log.join("\n")
                );
            }
        }
    }
}

/// FT-31, MQ-09: a cluster in three pieces, a client that was at each of them and goes on from node to node while they find each other.
/// Messages that were on their way to it when it left may come again.
#[test]
fn who_was_everywhere_gets_all_that_was_acknowledged_since() {
    for seed in 0..60 {
        let mut world = World::cluster(800 + seed, 3, 2);
        world.delays.network = 1 + world.rng.below(3_000);
        let kept = || Options { expiry: 1_000, ..Options::default() };
        let publishers = [1, 2, 3].map(|node| world.connect(node, &format!("pub{node}")));
        let mut at = world.connect_with(1, "sub", kept());
        world.subscribe(at, "t/#", QoS::ExactlyOnce);
        world.run(200);
        for (left, right) in [(1, 2), (1, 3), (2, 3)] {
            world.cut(left, right);
        }
        world.run(3_500);
        let mut before = vec![at];
        for node in [2, 3] {
            world.hang_up(at);
            at = world.connect_with(node, "sub", kept());
            world.subscribe(at, "t/#", QoS::ExactlyOnce);
            world.subscribe(at, &format!("u/{node}"), QoS::ExactlyOnce);
            world.run(20);
            before.push(at);
        }
        world.heal();
        for number in 0..40 {
            for publisher in publishers {
                world.send_publish(publisher, "t/x", &format!("{publisher} {number}"), QoS::ExactlyOnce, false);
            }
            for _ in 0..10 {
                if world.rng.chance(1, 50) {
                    let node = 1 + world.rng.below(3);
                    world.hang_up(at);
                    at = world.dial_client(node, "sub", kept());
                    before.push(at);
                }
                world.run(5);
            }
        }
        world.settle_members(3);
        world.run(4_000);
        before.push(world.connect_with(2, "sub", kept()));
        world.run(3_000);
        let got: BTreeSet<&str> = before.iter().flat_map(|at| world.got(*at)).collect();
        let of = |publisher: usize| (0..40).map(move |number| format!("{publisher} {number}"));
        let missing: Vec<_> = publishers.into_iter().flat_map(of).filter(|sent| !got.contains(sent.as_str())).collect();
        assert!(missing.is_empty(), "seed {seed}: {missing:?}\n{}", world.log.join("\n"));
    }
}

/// Five nodes, of which 1 and 2 lose sight of the others. A subscriber is at the first of the two nodes named, and goes to the second.
struct Moved {
    world: World,
    was: u64,
    is: u64,
    first: usize,
    publisher: usize,
}

impl Moved {
    fn new(seed: u64, was: u64, is: u64) -> Self {
        let mut world = World::cluster(seed, 5, 2);
        let first = world.connect_with(was, "sub", Self::kept());
        world.subscribe(first, "t/#", QoS::ExactlyOnce);
        let publisher = world.connect(1, "pub");
        world.run(500);
        Self { world, was, is, first, publisher }
    }

    fn kept() -> Options {
        Options { expiry: 1_000, ..Options::default() }
    }

    fn part(&mut self, from: &[u64]) {
        for left in 1..=2 {
            for right in from {
                self.world.cut(left, *right);
            }
        }
    }

    /// The subscriber moves; its client there.
    fn go(&mut self) -> usize {
        self.world.hang_up(self.first);
        self.world.connect_with(self.is, "sub", Self::kept())
    }

    fn publish(&mut self, numbers: core::ops::Range<u32>) {
        for number in numbers {
            self.world.publish(self.publisher, "t/x", &number.to_string(), QoS::ExactlyOnce);
        }
    }

    fn has_got_all(&self, there: usize, count: u32) {
        let expected: Vec<String> = (0..count).map(|number| number.to_string()).collect();
        let Self { world, was, is, .. } = self;
        assert_eq!(world.got(there), expected, "{was} to {is}\n{}", world.log.join("\n"));
    }
}

/// FT-31, MQ-09: a message for a session that nobody can reach comes to it, wherever it has gone on the other side meanwhile, and however
/// long ago.
#[test]
fn who_moved_on_the_other_side_gets_what_was_published_on_this_one() {
    for seed in 0..12 {
        let (was, is) = [(3, 4), (4, 5), (5, 3)][usize::try_from(seed % 3).unwrap()];
        let is = if seed % 2 == 0 { is } else { 12 - was - is };
        let mut moved = Moved::new(900 + seed, was, is);
        moved.part(&[3, 4, 5]);
        moved.world.run(4_000);
        let there = moved.go();
        moved.world.run(15_000);
        moved.publish(0..10);
        assert_eq!(moved.world.clients[moved.publisher].acked.len(), 10);
        moved.world.heal();
        moved.world.run(600);
        moved.publish(10..20);
        moved.world.settle_members(5);
        moved.world.run(3_000);
        moved.has_got_all(there, 20);
    }
}

/// FT-31, MQ-09: a session has moved on the other side in the last moment, and the node to which it went comes back later than the one that it left.
#[test]
fn who_has_just_moved_to_a_node_that_comes_back_later_misses_nothing() {
    for seed in 0..12 {
        let (was, is) = [(3, 4), (4, 5), (5, 3)][usize::try_from(seed % 3).unwrap()];
        let mut moved = Moved::new(950 + seed, was, is);
        moved.part(&[3, 4, 5]);
        moved.world.run(3_500);
        let there = moved.go();
        moved.world.run(1_000);
        moved.publish(0..10);
        moved.world.heal();
        moved.part(&[is]);
        for number in 1..10 {
            moved.publish(number * 10..(number + 1) * 10);
            moved.world.run(200);
        }
        moved.world.heal();
        moved.world.settle_members(5);
        moved.world.run(3_000);
        moved.publish(100..110);
        moved.world.run(1_000);
        moved.has_got_all(there, 110);
    }
}
