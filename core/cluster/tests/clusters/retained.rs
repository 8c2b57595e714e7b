//! Retained messages are on every node.

use sedge_base::Duration;
use sedge_mqtt::QoS;

use crate::common::World;

/// MQ-07
#[test]
fn a_retained_message_is_found_everywhere_and_cleared_everywhere() {
    let mut world = World::cluster(1, 3, 2);
    let publisher = world.connect(1, "pub");
    world.send_publish(publisher, "r/1", "value", QoS::AtLeastOnce, true);
    world.run(50);
    for node in 1..=3 {
        let subscriber = world.connect(node, &format!("sub{node}"));
        world.subscribe(subscriber, "r/#", QoS::AtLeastOnce);
        world.run(50);
        let got = &world.clients[subscriber].got;
        assert_eq!(got.len(), 1);
        assert!(got[0].retain && got[0].payload == "value");
    }
    world.send_publish(publisher, "r/1", "", QoS::AtLeastOnce, true);
    world.run(50);
    assert!(world.hosts.values().all(|host| host.node.status().retained == 0));
}

/// MQ-07, FT-26
#[test]
fn a_late_joiner_has_all_retained_messages_before_it_is_ready() {
    let mut world = World::cluster(2, 2, 2);
    let publisher = world.connect(1, "pub");
    for number in 0..500 {
        let payload = format!("{number} {}", "x".repeat(1_000));
        world.send_publish(publisher, &format!("r/{number}"), &payload, QoS::AtMostOnce, true);
    }
    world.run(500);
    world.start(3);
    world.run_until("the joiner is ready", |world| world.hosts[&3].node.is_ready());
    assert_eq!(world.hosts[&3].node.status().retained, 500);
    let subscriber = world.connect(3, "sub");
    world.subscribe(subscriber, "r/+", QoS::AtMostOnce);
    world.run(500);
    assert_eq!(world.got(subscriber).len(), 500);
}

/// FT-31
#[test]
fn after_a_partition_the_last_writer_wins_everywhere() {
    let mut world = World::cluster(3, 2, 2);
    let publishers = [world.connect(1, "a"), world.connect(2, "b")];
    world.cut(1, 2);
    world.run(3_000);
    world.send_publish(publishers[0], "both", "earlier", QoS::AtMostOnce, true);
    world.send_publish(publishers[0], "one", "1", QoS::AtMostOnce, true);
    world.run(10);
    world.send_publish(publishers[1], "both", "later", QoS::AtMostOnce, true);
    world.send_publish(publishers[1], "two", "2", QoS::AtMostOnce, true);
    world.run(10);
    world.heal();
    world.settle_members(2);
    world.run(2_000);
    for node in 1..=2 {
        let subscriber = world.connect(node, &format!("sub{node}"));
        world.subscribe(subscriber, "#", QoS::AtMostOnce);
        world.run(50);
        let mut got = world.got(subscriber);
        got.sort_unstable();
        assert_eq!(got, ["1", "2", "later"]);
    }
}

/// MQ-07: neither missed nor doubled, whatever overtakes what.
#[test]
fn a_subscriber_gets_a_value_once_however_it_races_with_it() {
    for seed in 0..60 {
        let mut world = World::cluster(100 + seed, 2, 3);
        world.delays.mailbox = 2_000;
        let publishers: Vec<_> = (0..4).map(|i| world.connect(1 + i % 2, &format!("pub{i}"))).collect();
        let subscribers: Vec<_> = (0..4).map(|i| world.connect(1 + i % 2, &format!("sub{i}"))).collect();
        for (at, publisher) in publishers.iter().enumerate() {
            world.send_publish(*publisher, &format!("r/{at}"), "value", QoS::AtLeastOnce, true);
        }
        let wait = world.rng.below(6);
        world.run(wait);
        for subscriber in &subscribers {
            world.send_subscribe(*subscriber, "r/#", QoS::AtLeastOnce);
        }
        world.run(500);
        for subscriber in subscribers {
            let mut topics: Vec<_> = world.clients[subscriber].got.iter().map(|got| got.topic.as_str()).collect();
            topics.sort_unstable();
            assert_eq!(topics, ["r/0", "r/1", "r/2", "r/3"], "seed {seed}");
        }
    }
}

/// Nodes with journals that forget cleared topics after a minute of agreement.
fn forgetful(world: &mut World, node: u64) {
    world.start_with(node, |config| {
        config.retained.agreed_tombstones = Duration::from_mins(1);
        config.retained_sync_period = Duration::from_secs(5);
    });
}

fn forgetful_cluster(seed: u64, nodes: u64) -> World {
    let mut world = World::new(seed, 2);
    world.keep_journals(nodes);
    (1..=nodes).for_each(|node| forgetful(&mut world, node));
    world.settle_members(nodes);
    world
}

fn tombstones(world: &World) -> Vec<usize> {
    world.hosts.values().map(|host| host.node.status().tombstones).collect()
}

/// MQ-07: a cleared topic is remembered until all members have agreed for a while, and no longer.
#[test]
fn a_cleared_topic_is_forgotten_when_all_members_agree() {
    let mut world = forgetful_cluster(4, 3);
    let publisher = world.connect(1, "pub");
    world.send_publish(publisher, "r/1", "value", QoS::AtLeastOnce, true);
    world.run(50);
    world.send_publish(publisher, "r/1", "", QoS::AtLeastOnce, true);
    world.run(50_000);
    assert_eq!(tombstones(&world), [1, 1, 1]);
    world.run(130_000);
    assert_eq!(tombstones(&world), [0, 0, 0]);
    assert_eq!(world.counter(1, "retained_tombstones_agreed"), 1);
}

/// MQ-07: a node that is away may come back with the value: the others remember that it was cleared, also after their restart.
#[test]
fn a_cleared_topic_is_remembered_for_a_member_that_is_away() {
    let mut world = forgetful_cluster(5, 3);
    let publisher = world.connect(1, "pub");
    world.send_publish(publisher, "r/1", "value", QoS::AtLeastOnce, true);
    world.run(1_000);
    world.kill(3);
    world.run(10_000);
    world.send_publish(publisher, "r/1", "", QoS::AtLeastOnce, true);
    world.run(1_000);
    world.kill(2);
    world.run(10_000);
    forgetful(&mut world, 2);
    world.run(300_000);
    assert_eq!(tombstones(&world), [1, 1]);
    forgetful(&mut world, 3);
    world.settle_members(3);
    world.run(5_000);
    assert!(world.hosts.values().all(|host| host.node.status().retained == 0));
    world.run(200_000);
    assert_eq!(tombstones(&world), [0, 0, 0]);
}
