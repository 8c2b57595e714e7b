//! Publications over other nodes, where links are full or slow.

use sedge_mqtt::QoS;

use crate::common::{Options, World};

/// Four nodes whose links keep three publications of [`large`], a subscriber to `#` at each, and a publisher at node 2. Ways are settled.
fn narrow(seed: u64) -> (World, Vec<usize>, usize) {
    let mut world = World::new(seed, 2);
    for node in 1..=4 {
        world.start_with(node, |config| config.links.send_log_bytes = 100_000);
    }
    world.settle_members(4);
    let subscribers: Vec<usize> = (1..=4)
        .map(|node| {
            let subscriber = world.connect(node, &format!("sub{node}"));
            world.subscribe(subscriber, "#", QoS::AtLeastOnce);
            subscriber
        })
        .collect();
    let publisher = world.connect(2, "pub");
    world.publish(publisher, "t", "0", QoS::AtMostOnce);
    world.run(2_000);
    world.delays.network = 20_000;
    (world, subscribers, publisher)
}

/// Ways that change all the time keep nothing in order.
fn has_ways(world: &World) -> bool {
    world.overlay != "detour"
}

fn large(number: usize) -> String {
    format!("{number:030000}")
}

/// MQ-13, FT-34: QoS 0 that a full link refuses is lost, and nothing else with it.
#[test]
fn what_a_full_link_refuses_makes_nothing_late() {
    for seed in 0..5 {
        let (mut world, subscribers, publisher) = narrow(700 + seed);
        if !has_ways(&world) {
            return;
        }
        for number in 1..=6 {
            world.send_publish(publisher, "t", &large(number), QoS::AtMostOnce, false);
        }
        world.run(2_000);
        world.publish(publisher, "t", "7", QoS::AtMostOnce);
        world.run(1_000);
        for (node, subscriber) in (1..).zip(subscribers) {
            let got: Vec<usize> = world.got(subscriber).iter().map(|got| got.parse().unwrap()).collect();
            let expected: &[usize] = if node == 2 { &[0, 1, 2, 3, 4, 5, 6, 7] } else { &[0, 1, 2, 3, 7] };
            assert_eq!(got, expected, "seed {seed}, node {node}");
            assert_eq!(world.counter(node, "relay_late"), 0, "seed {seed}, node {node}");
        }
    }
}

/// MQ-13: QoS 1 that goes straight because its way is full overtakes QoS 0, which comes all the same: order is promised for each of them.
#[test]
fn what_goes_straight_makes_nothing_late() {
    for seed in 0..5 {
        let (mut world, subscribers, publisher) = narrow(710 + seed);
        if !has_ways(&world) {
            return;
        }
        for number in 1..=3 {
            world.send_publish(publisher, "t", &large(number), QoS::AtMostOnce, false);
        }
        world.send_publish(publisher, "t", &large(4), QoS::AtLeastOnce, false);
        world.run(3_000);
        world.publish(publisher, "t", "5", QoS::AtMostOnce);
        world.run(1_000);
        for (node, subscriber) in (1..).zip(subscribers) {
            let mut got: Vec<usize> = world.got(subscriber).iter().map(|got| got.parse().unwrap()).collect();
            got.retain(|number| *number != 4);
            assert_eq!(got, [0, 1, 2, 3, 5], "seed {seed}, node {node}");
            assert_eq!(world.counter(node, "relay_late"), 0, "seed {seed}, node {node}");
        }
    }
}

/// FT-12: mail that has to stay behind QoS 0 waits for it while it comes.
#[test]
fn mail_does_not_overtake_what_comes_slowly() {
    for seed in 0..5 {
        let mut world = World::cluster(720 + seed, 4, 2);
        if !has_ways(&world) {
            return;
        }
        let subscribers: Vec<usize> = (1..=4).map(|node| world.connect(node, &format!("sub{node}"))).collect();
        for subscriber in &subscribers {
            world.subscribe(*subscriber, "t", QoS::AtMostOnce);
        }
        let publisher = world.connect(2, "pub");
        world.publish(publisher, "t", "0000", QoS::AtMostOnce);
        // The rest of the test is over before ways are looked at again, which other delays would change.
        world.run(4_000);
        world.delays.network = 90_000;
        for number in 1..=150 {
            world.send_publish(publisher, "t", &format!("{number:04}"), QoS::AtMostOnce, false);
            if number % 15 == 0 {
                world.dial_client(2, &format!("c{number}"), Options::default());
            }
            world.run(20);
        }
        world.run(2_000);
        for (node, subscriber) in (1..).zip(subscribers) {
            let got = world.got(subscriber);
            assert!(got.len() == 151 && got.is_sorted(), "seed {seed}, node {node}: {}", got.len());
            assert_eq!(world.counter(node, "relay_late"), 0, "seed {seed}, node {node}");
        }
    }
}
