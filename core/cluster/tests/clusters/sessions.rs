//! Sessions belong to one node and move to where their client connects.

use std::collections::BTreeSet;

use sedge_mqtt::{QoS, ReasonCode};

use crate::common::{Options, World};

const KEPT: u32 = 3_600;

fn kept() -> Options {
    Options { expiry: KEPT, ..Options::default() }
}

fn session_present(world: &World, client: usize) -> bool {
    world.clients[client].connack.as_ref().is_some_and(|connack| connack.session_present)
}

/// MQ-11
#[test]
fn the_same_client_id_at_another_node_closes_the_first_connection() {
    for nodes in 1..=4 {
        let mut world = World::cluster(nodes, nodes, 2);
        let first = world.connect_with(1, "c", kept());
        world.subscribe(first, "t", QoS::AtLeastOnce);
        let second = world.connect_with(nodes, "c", kept());
        assert!(session_present(&world, second), "{nodes} nodes");
        world.run(50);
        assert_eq!(world.clients[first].disconnect, Some(ReasonCode::SessionTakenOver));
        assert!(!world.clients[first].open);
        let publisher = world.connect(1, "pub");
        world.publish(publisher, "t", "x", QoS::AtLeastOnce);
        world.run(50);
        assert_eq!(world.got(second), ["x"]);
        assert!(world.got(first).is_empty());
        let sessions: usize = world.hosts.values().map(|host| host.node.status().sessions).sum();
        assert_eq!(sessions, 2);
    }
}

/// MQ-09, EL-25
#[test]
fn a_session_with_its_queue_is_found_at_another_node() {
    let mut world = World::cluster(7, 3, 2);
    let first = world.connect_with(1, "c", kept());
    world.subscribe(first, "t/#", QoS::ExactlyOnce);
    world.hang_up(first);
    world.run(50);
    let publisher = world.connect(2, "pub");
    for number in 0..200 {
        world.publish(publisher, "t/x", &format!("{number:03}"), QoS::ExactlyOnce);
    }
    let second = world.connect_with(3, "c", kept());
    assert!(session_present(&world, second));
    world.publish(publisher, "t/x", "200", QoS::ExactlyOnce);
    world.run(100);
    let expected: Vec<_> = (0..=200).map(|number| format!("{number:03}")).collect();
    assert_eq!(world.got(second), expected);
    world.hang_up(second);
    let third = world.connect_with(1, "c", Options { clean: true, ..Options::default() });
    assert!(!session_present(&world, third));
}

/// MQ-09: a session larger than a piece.
#[test]
fn a_large_session_moves_in_pieces() {
    let mut world = World::cluster(8, 2, 1);
    let first = world.connect_with(1, "c", kept());
    world.subscribe(first, "t", QoS::AtLeastOnce);
    world.hang_up(first);
    world.run(50);
    let publisher = world.connect(1, "pub");
    let large = "x".repeat(100_000);
    for _ in 0..50 {
        world.publish(publisher, "t", &large, QoS::AtLeastOnce);
    }
    let second = world.connect_with(2, "c", kept());
    world.run(500);
    assert_eq!(world.got(second).len(), 50);
    assert!(world.got(second).iter().all(|got| *got == large));
}

/// MQ-11
#[test]
fn of_many_connections_at_once_one_stays() {
    for seed in 0..40 {
        let mut world = World::cluster(200 + seed, 4, 2);
        world.delays.network = 2_000;
        world.delays.mailbox = 500;
        let first = world.connect_with(1, "c", kept());
        world.subscribe(first, "t", QoS::AtLeastOnce);
        let mut rivals = Vec::new();
        for _ in 0..8 {
            let node = 1 + world.rng.below(4);
            rivals.push(world.dial_client(node, "c", kept()));
            let wait = world.rng.below(4);
            world.run(wait);
        }
        world.run(3_000);
        let open: Vec<_> = rivals.iter().copied().filter(|rival| world.clients[*rival].open).collect();
        assert_eq!(open.len(), 1, "seed {seed}\n{}", world.log.join("\n"));
        assert!(session_present(&world, open[0]), "seed {seed}");
        let publisher = world.connect(2, "pub");
        world.publish(publisher, "t", "x", QoS::AtLeastOnce);
        world.run(100);
        assert_eq!(world.got(open[0]), ["x"], "seed {seed}");
    }
}

/// MQ-09, MQ-11: no message is lost or doubled while a session moves.
#[test]
fn a_moving_session_misses_nothing() {
    for seed in 0..40 {
        let mut world = World::cluster(300 + seed, 3, 2);
        world.delays.network = 1_000;
        world.delays.mailbox = 500;
        let mut ids = vec![world.connect_with(1, "c", kept())];
        world.subscribe(ids[0], "t/#", QoS::ExactlyOnce);
        let publishers: Vec<_> = (1..=3).map(|node| world.connect(node, &format!("pub{node}"))).collect();
        let mut sent = 0_u32;
        for round in 0..6 {
            for _ in 0..20 {
                for publisher in &publishers {
                    world.send_publish(*publisher, "t/x", &format!("{sent:04}"), QoS::ExactlyOnce, false);
                    sent += 1;
                }
                world.run(1);
            }
            let node = 1 + round % 3;
            ids.push(world.dial_client(node, "c", kept()));
        }
        world.run(5_000);
        // Messages sent and not answered when the session moved come again with DUP; they may never have left its former owner.
        let all = ids.iter().flat_map(|id| &world.clients[*id].got);
        let mut seen = BTreeSet::new();
        let mut first: Vec<_> =
            all.filter(|got| seen.insert(&got.payload) || !got.dup).map(|got| got.payload.as_str()).collect();
        for publisher in 0..3 {
            let of_publisher =
                first.iter().filter(|got| got.parse::<u32>().is_ok_and(|number| number % 3 == publisher));
            assert!(of_publisher.is_sorted(), "seed {seed}");
        }
        first.sort_unstable();
        let expected: Vec<_> = (0..sent).map(|number| format!("{number:04}")).collect();
        assert_eq!(first, expected, "seed {seed}");
        assert!(ids.windows(2).all(|pair| !world.clients[pair[0]].open), "seed {seed}");
    }
}
