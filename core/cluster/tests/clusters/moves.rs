//! Sessions that are moving, or have just become one again, when a node gets out of sight.

use sedge_mqtt::QoS;

use crate::common::{Options, World};

fn kept() -> Options {
    Options { expiry: 1_000, ..Options::default() }
}

/// MQ-11, MQ-13, FT-31: a node that has died silently holds a move up, since everybody has to know of it. Should the former owner get out of
/// sight meanwhile, the client is served with what that one had caught until shortly before.
#[test]
fn what_was_caught_comes_ahead_of_the_rest() {
    for (seed, qos) in (0..10).flat_map(|seed| [(seed, QoS::AtLeastOnce), (seed, QoS::ExactlyOnce)]) {
        let mut world = World::cluster(900 + seed, 4, 2);
        world.delays.network = 1 + world.rng.below(20_000);
        let first = world.connect_with(3, "sub", kept());
        world.subscribe(first, "t", qos);
        let publisher = world.connect(3, "pub");
        world.hang_up(first);
        world.run(200);
        world.silence(4);
        let second = world.dial_client(1, "sub", kept());
        for number in 0..30 {
            world.send_publish(publisher, "t", &format!("{number:02}"), qos, false);
            world.run(10);
        }
        world.run(250);
        for other in 1..=2 {
            world.cut(other, 3);
        }
        world.run(4_000);
        let sent: Vec<_> = (0..30).map(|number| format!("{number:02}")).collect();
        assert_eq!(world.got(second), sent, "seed {seed}\n{}", world.log.join("\n"));
        world.heal();
        world.settle_members(3);
        world.run(3_000);
        assert_eq!(world.got(second), sent, "seed {seed}: and nothing twice\n{}", world.log.join("\n"));
    }
}

/// MQ-11, FT-31: after a partition a node goes on with its own session, and its successor dies before the two are one again. The copy of the
/// successor's session does not replace that of a client that is connected; messages that only the copy has come to it.
#[test]
fn a_copy_does_not_replace_the_session_that_goes_on() {
    let mut has_come = 0;
    for seed in 0..30 {
        let mut world = World::cluster(950 + seed, 2, 2);
        let client = world.connect_with(1, "c", kept());
        world.subscribe(client, "t", QoS::ExactlyOnce);
        let publisher = world.connect(2, "pub");
        world.run(200);
        world.cut(1, 2);
        world.run(4_000);
        world.publish(publisher, "t", "there", QoS::ExactlyOnce);
        world.heal();
        world.settle_members(2);
        world.run(seed);
        world.kill(2);
        world.run(5_000);
        assert!(world.clients[client].open, "seed {seed}\n{}", world.log.join("\n"));
        let got = world.got(client).len();
        assert!(got <= 1, "seed {seed}: {:?}", world.got(client));
        has_come += got;
        let here = world.connect(1, "here");
        world.publish(here, "t", "here", QoS::ExactlyOnce);
        world.run(100);
        assert_eq!(world.got(client).last(), Some(&"here"));
    }
    assert!(has_come > 15, "{has_come}");
}

/// MQ-05, MQ-06, MQ-11, FT-20 to FT-24: one of the two owners of a session dies while it moves, at any moment, silently or not. The session
/// goes on with all that was acknowledged for it, each message once, in order.
#[test]
fn whichever_owner_dies_during_a_move_the_session_goes_on() {
    let mut taken_back = 0;
    for seed in 0..120 {
        let mut world = World::cluster(1_000 + seed, 3 + seed % 2, 2);
        world.delays.network = 1 + world.rng.below(4_000);
        let first = world.connect_with(1, "sub", kept());
        world.subscribe(first, "t/#", QoS::ExactlyOnce);
        let publisher = world.connect(3, "pub");
        world.run_until("copies are held", |world| world.hosts.values().all(|host| host.node.status().copies == 2));
        world.hang_up(first);
        world.run(5);
        let (victim, silently) = (1 + world.rng.below(2), world.rng.chance(1, 3));
        let second = world.dial_client(2, "sub", kept());
        let dies_at = world.rng.below(20);
        for number in 0..40 {
            world.send_publish(publisher, "t/x", &format!("{number:02}"), QoS::ExactlyOnce, false);
            if number == dies_at && silently {
                world.silence(victim);
            } else if number == dies_at {
                world.kill(victim);
            }
            world.run(1);
        }
        world.run(3_000);
        if victim == 1 {
            world.hang_up(second);
        }
        let third = world.connect_with(3, "sub", kept());
        world.run(3_000);
        let context = format!("seed {seed}, {victim} dies\n{}", world.log.join("\n"));
        assert!(world.clients[third].connack.as_ref().unwrap().session_present, "{context}");
        let got: Vec<_> = [second, third].iter().flat_map(|client| &world.clients[*client].got).collect();
        let mut fresh: Vec<_> = got.iter().filter(|got| !got.dup).map(|got| got.payload.clone()).collect();
        assert!(fresh.is_sorted(), "{fresh:?} {context}");
        let count = fresh.len();
        fresh.dedup();
        assert_eq!(fresh.len(), count, "nothing twice: {context}");
        fresh.extend(got.iter().map(|got| got.payload.clone()));
        fresh.sort();
        fresh.dedup();
        assert_eq!(fresh, (0..40).map(|number| format!("{number:02}")).collect::<Vec<_>>(), "{context}");
        taken_back += if victim == 2 { world.counter(1, "sessions_taken_back") } else { 0 };
    }
    assert!(taken_back > 5, "{taken_back}");
}
