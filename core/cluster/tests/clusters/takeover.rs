//! Nodes die, and their sessions go on at others.

use std::collections::BTreeMap;

use sedge_mqtt::QoS;

use crate::common::{Options, World};

fn kept() -> Options {
    Options { expiry: 3_600, ..Options::default() }
}

/// Messages that a client got over several connections: each payload with how often it came first, without DUP.
fn got<'a>(world: &'a World, connections: &[usize]) -> BTreeMap<&'a str, usize> {
    let mut found = BTreeMap::new();
    for got in connections.iter().flat_map(|client| &world.clients[*client].got) {
        let count = found.entry(got.payload.as_str()).or_default();
        *count += usize::from(!got.dup);
    }
    found
}

/// FT-20, FT-21, FT-22, MQ-11: publications acknowledged before, during and after the crash of the subscriber's node come, once.
#[test]
fn a_session_goes_on_when_its_node_dies() {
    for seed in 0..40 {
        let mut world = World::cluster(400 + seed, 3, 2);
        world.delays.network = 1 + world.rng.below(3_000);
        world.delays.mailbox = 1 + world.rng.below(500);
        let mut subscribers: Vec<Vec<usize>> = Vec::new();
        for number in 0..4 {
            let client = world.connect_with(1 + number % 2, &format!("sub{number}"), kept());
            world.subscribe(client, "t/#", QoS::ExactlyOnce);
            subscribers.push(vec![client]);
        }
        let publishers = [world.connect(2, "pub2"), world.connect(3, "pub3")];
        let mut sent = 0_u32;
        let send = |world: &mut World, sent: &mut u32| {
            for publisher in publishers {
                world.send_publish(publisher, "t/x", &format!("{sent:04}"), QoS::ExactlyOnce, false);
                *sent += 1;
            }
        };
        for _ in 0..20 {
            send(&mut world, &mut sent);
            let wait = world.rng.below(2);
            world.run(wait);
        }
        world.kill(1);
        for round in 0..20 {
            send(&mut world, &mut sent);
            if round == 5 {
                for number in [0_usize, 2] {
                    let node = 2 + world.rng.below(2);
                    let again = world.dial_client(node, &format!("sub{number}"), kept());
                    subscribers[number].push(again);
                }
            }
            let wait = world.rng.below(3);
            world.run(wait);
        }
        world.run(10_000);
        for publisher in publishers {
            assert_eq!(world.clients[publisher].acked.len(), 40, "seed {seed}\n{}", world.log.join("\n"));
        }
        for (number, connections) in subscribers.iter().enumerate() {
            let got = got(&world, connections);
            let lost: Vec<_> = (0..sent)
                .map(|number| format!("{number:04}"))
                .filter(|sent| !got.contains_key(sent.as_str()))
                .collect();
            let twice: Vec<_> = got.iter().filter(|(_, count)| **count > 1).collect();
            let log = world.log.join("\n");
            assert!(
                lost.is_empty() && twice.is_empty(),
                "seed {seed} sub{number}: lost {lost:?} twice {twice:?}\n{log}"
            );
        }
    }
}

/// Kills nodes, the clients of which come back at once at the others; says whose sessions are not found.
fn come_back(mut world: World, doomed: &[u64], others: &[u64]) -> Vec<String> {
    world.delays.network = 1 + world.rng.below(20_000);
    world.delays.mailbox = 1 + world.rng.below(500);
    let at = |number: u64, nodes: &[u64]| nodes[usize::try_from(number).expect("a small number") % nodes.len()];
    for number in 0..24 {
        let client = world.connect_with(at(number, doomed), &format!("c{number}"), kept());
        world.subscribe(client, "t/#", QoS::ExactlyOnce);
    }
    world.run(3_000);
    for node in doomed {
        world.kill(*node);
    }
    let mut again = Vec::new();
    for number in 0..24 {
        let chance = world.rng.below(4);
        again.push(world.dial_client(at(chance, others), &format!("c{number}"), kept()));
    }
    world.run(5_000);
    let clients = again.iter().map(|client| &world.clients[*client]);
    let lost = clients.filter(|client| !client.connack.as_ref().is_some_and(|connack| connack.session_present));
    lost.map(|client| format!("{} at node {}: {:?}", client.id, client.node, client.connack)).collect()
}

/// FT-20, MQ-11: also when the node that is to say where the session is learns of the death later than the one that asks.
#[test]
fn who_comes_back_at_once_finds_the_session() {
    for seed in 0..30 {
        let lost = come_back(World::cluster(900 + seed, 4, 2), &[1], &[2, 3, 4]);
        assert!(lost.is_empty(), "seed {seed}: {lost:?}");
    }
}

/// FT-30, MQ-11
#[test]
fn who_comes_back_at_once_finds_the_session_when_two_of_four_are_dead() {
    for seed in 0..30 {
        let mut world = World::new(950 + seed, 2);
        (1..=4).for_each(|node| world.start_with(node, |config| config.copies = 3));
        world.settle_members(4);
        let lost = come_back(world, &[1, 2], &[3, 4]);
        assert!(lost.is_empty(), "seed {seed}: {lost:?}");
    }
}

/// FT-21, MQ-05: a publication whose publisher has no PUBREC when its node dies goes out once more, and does not come again to a session
/// that has had it and has moved since, to the node's successor or another one.
#[test]
fn what_a_session_had_before_it_moved_does_not_come_again_when_the_publishers_node_dies() {
    let mut had = 0;
    for seed in 0..20 {
        let mut world = World::cluster(900 + seed, 5, 1 + u16::try_from(seed % 2).expect("0 or 1"));
        let slow = world.connect_with(3, "slow", kept());
        world.subscribe(slow, "t/#", QoS::ExactlyOnce);
        let before = ["a", "b"].map(|id| world.connect_with(2, id, kept()));
        for client in before {
            world.subscribe(client, "t/#", QoS::AtMostOnce);
        }
        let publisher = world.connect_with(1, "pub", kept());
        world.publish(publisher, "t/0", "first", QoS::ExactlyOnce);
        world.run(100);
        world.cut(1, 3);
        world.send_publish(publisher, "t/x", "once", QoS::ExactlyOnce, false);
        world.run(20);
        if before.iter().any(|client| !world.got(*client).contains(&"once")) {
            // Node 3 has the copies of node 1, or is on the way.
            continue;
        }
        had += 1;
        for client in before {
            world.hang_up(client);
        }
        let after = [("a", 4), ("b", 5)].map(|(id, node)| world.connect_with(node, id, kept()));
        assert_eq!(world.clients[publisher].acked.len(), 1, "seed {seed}: nobody was slow");
        world.kill(1);
        world.heal();
        world.run(10_000);
        for (before, after) in before.into_iter().zip(after) {
            let got = got(&world, &[before, after]);
            assert_eq!(got.get("once"), Some(&1), "seed {seed}\n{}", world.log.join("\n"));
        }
        assert_eq!(world.got(slow), ["first", "once"], "seed {seed}\n{}", world.log.join("\n"));
    }
    assert!(had >= 5, "{had} of 20");
}
