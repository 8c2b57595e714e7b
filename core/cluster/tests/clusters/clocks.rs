//! Clocks that are apart, and set, while everything that has a deadline is on its way.

use sedge_base::{Duration, NodeId};
use sedge_mqtt::QoS;

use crate::common::{Options, World};

const HOUR: i64 = 3_600_000;

fn staying(expiry: u32) -> Options {
    Options { expiry, ..Options::default() }
}

/// Messages that a client has got, with the seconds that each message still lives.
fn got(world: &World, client: usize) -> Vec<(String, Option<u32>)> {
    world.clients[client].got.iter().map(|got| (got.payload.clone(), got.expiry)).collect()
}

/// A cluster of three whose clocks are off by so many milliseconds. All that clients see of expiry, sessions and wills.
fn outcome(seed: u64, clocks: [i64; 3]) -> String {
    let mut world = World::new(seed, 2);
    for (node, ahead) in (1..).zip(clocks) {
        world.clocks.insert(node, ahead);
        world.start(node);
    }
    world.settle_members(3);
    let away = world.connect_with(2, "away", staying(3_600));
    world.subscribe(away, "t/#", QoS::AtLeastOnce);
    world.hang_up(away);
    let sleepers = [1, 2, 3].map(|node| world.connect_with(node, &format!("sleeper-{node}"), staying(60)));
    let watcher = world.connect(1, "watcher");
    world.subscribe(watcher, "will/#", QoS::AtLeastOnce);
    let mortals = [2, 3].map(|node| {
        let will = Some((format!("will/{node}"), format!("of {node}")));
        world.connect_with(node, &format!("mortal-{node}"), Options { will, will_delay: 300, ..staying(3_600) })
    });
    let publishers = [1, 2, 3].map(|node| world.connect(node, &format!("publisher-{node}")));
    for (at, publisher) in publishers.into_iter().enumerate() {
        world.publish_for(30, publisher, "t/short", &format!("short {at}"), false);
        world.publish_for(8, publisher, "t/over", &format!("over {at}"), false);
        world.publish_for(1_000, publisher, &format!("t/kept/{at}"), &format!("kept {at}"), true);
    }
    world.run(10_000);
    for client in sleepers.into_iter().chain(mortals) {
        world.hang_up(client);
    }
    world.run(10_000);
    world.kill(3);
    world.run(5_000);
    let again: Vec<bool> = [1, 2, 3]
        .map(|node| {
            let client = world.connect_with(1, &format!("sleeper-{node}"), staying(60));
            world.run(100);
            world.clients[client].connack.as_ref().expect("it is connected").session_present
        })
        .to_vec();
    let back = world.connect_with(1, "away", staying(3_600));
    let late = world.connect(2, "late");
    world.subscribe(late, "t/kept/#", QoS::AtLeastOnce);
    world.run(500);
    let early_wills = got(&world, watcher);
    world.run(300_000);
    let gone = world.connect_with(2, "sleeper-2", staying(60));
    // Two clients' wills have no order between them.
    let mut wills = got(&world, watcher);
    wills.sort();
    let is_there = world.clients[gone].connack.as_ref().expect("it is connected").session_present;
    let mut kept = got(&world, late);
    kept.sort();
    format!("{again:?} {:?} {kept:?} {early_wills:?} {wills:?} {is_there}", got(&world, back))
}

/// MQ-11, FT-20: messages, sessions and wills expire alike, whatever the clocks of the nodes say.
#[test]
fn whatever_clocks_say_what_clients_see_is_the_same() {
    let right = outcome(900, [0; 3]);
    assert!(right.contains("short 0") && !right.contains("over 0") && right.contains("of 3"), "{right}");
    for clocks in
        [[0, HOUR, 0], [HOUR, 0, -HOUR], [-24 * HOUR, 24 * HOUR, 3_000], [700, -700, 0], [0, 0, -400 * 24 * HOUR]]
    {
        assert_eq!(outcome(900, clocks), right, "{clocks:?}");
    }
}

/// MQ-11: the clocks of two nodes are a little apart, less than they notice. No subscriber is told of a longer life than the publisher gave.
#[test]
fn a_message_lives_no_longer_at_a_node_whose_clock_is_behind() {
    for (seed, ahead) in [(905, 200), (906, -200)] {
        let mut world = World::new(seed, 1);
        world.clocks.insert(2, ahead);
        (1..=2).for_each(|node| world.start(node));
        world.settle_members(2);
        let subscribers = [1, 2].map(|node| world.connect(node, &format!("subscriber-{node}")));
        for subscriber in subscribers {
            world.subscribe(subscriber, "t", QoS::AtLeastOnce);
        }
        let publishers = [1, 2].map(|node| world.connect(node, &format!("publisher-{node}")));
        world.run(500);
        for publisher in publishers {
            world.publish_for(1_000, publisher, "t", "x", false);
        }
        world.run(300);
        assert!(
            world.now_at(2).wall.as_millis().abs_diff(world.now_at(1).wall.as_millis()) > 150,
            "one follows the other"
        );
        for subscriber in subscribers {
            let lives: Vec<Option<u32>> = got(&world, subscriber).into_iter().map(|(_, life)| life).collect();
            assert_eq!(lives, [Some(1_000), Some(1_000)]);
        }
    }
}

/// MQ-11: nodes that let clients in before they find each other do not go by different times for seconds.
#[test]
fn nodes_that_serve_agree_on_the_time_as_soon_as_they_meet() {
    let mut world = World::new(920, 1);
    world.clocks.insert(2, HOUR);
    world.cut(1, 2);
    (1..=2).for_each(|node| world.start(node));
    let clients = [1, 2].map(|node| world.dial_client(node, &format!("early-{node}"), staying(60)));
    let are_served = |world: &World| clients.iter().all(|client| world.clients[*client].connack.is_some());
    world.run_until("both nodes let clients in", are_served);
    world.heal();
    world.settle_members(2);
    world.run(1_000);
    let times = [1, 2].map(|node| world.now_at(node).wall.as_millis());
    assert!(times[1].abs_diff(times[0]) < 1_000, "{times:?}");
}

/// A node that is off joins those that serve; and operators hear of it.
#[test]
fn who_joins_takes_over_the_time_of_those_that_serve() {
    let mut world = World::cluster(910, 2, 1);
    world.clocks.insert(3, HOUR);
    world.start(3);
    world.settle_members(3);
    world.run(1_000);
    assert!(world.now_at(3).wall.since(world.now_at(1).wall) < Duration::from_millis(250));
    assert_eq!(world.counter(3, "clock_adoptions"), 1);
    assert_eq!(world.counter(1, "clock_adoptions"), 0);
}

/// Two clusters that meet agree on one time, and whose system clock is off is said at all members.
#[test]
fn a_system_clock_that_is_off_is_told() {
    let mut world = World::cluster(911, 3, 1);
    world.node_input(2, sedge_cluster::NodeInput::SystemClock { ahead: 5_000 });
    world.run(25_000);
    let seen = |world: &World, at: u64, of: u64| {
        let members = world.hosts[&at].node.status().members;
        members.into_iter().find(|member| member.node == NodeId::new(of)).and_then(|member| member.clock_ahead).unwrap()
    };
    assert!((seen(&world, 1, 2) - 5_000).abs() < 250 && (seen(&world, 2, 3) + 5_000).abs() < 250);
    let told = |world: &World| world.log.iter().filter(|line| line.contains("The system clock of node")).count();
    assert_eq!(told(&world), 4, "{}", world.log.join("\n"));
    world.node_input(2, sedge_cluster::NodeInput::SystemClock { ahead: 0 });
    world.run(25_000);
    assert_eq!(told(&world), 8);
}
