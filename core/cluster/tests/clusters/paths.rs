//! Paths between two nodes break, and both live.

use sedge_base::{Duration, NodeId};
use sedge_mqtt::{QoS, ReasonCode};

use crate::common::{Options, World};

fn kept() -> Options {
    Options { expiry: 3_600, ..Options::default() }
}

/// The node that carries the link from one node to another.
fn via(world: &World, from: u64, to: u64) -> Option<NodeId> {
    let members = world.hosts[&from].node.status().members;
    members.into_iter().find(|member| member.node == NodeId::new(to))?.link?.via
}

/// FT-20, FT-21, FT-29, MQ-11: a third node carries the link. Messages, subscriptions, copies and sessions go their ways, and a crash
/// loses nothing.
#[test]
fn a_broken_path_is_hardly_noticed() {
    for seed in 0..10 {
        let mut world = World::cluster(700 + seed, 4, 2);
        let subscribers: Vec<_> = (1..=4).map(|node| world.connect_with(node, &format!("s{node}"), kept())).collect();
        for subscriber in &subscribers {
            world.subscribe(*subscriber, "t/#", QoS::ExactlyOnce);
        }
        let publishers = [1, 2].map(|node| world.connect_with(node, &format!("p{node}"), kept()));
        world.cut(1, 2);
        for (publisher, payload) in publishers.into_iter().zip(["from 1", "from 2"]) {
            world.send_publish(publisher, "t/x", payload, QoS::AtLeastOnce, false);
        }
        world.run(2_500);
        assert!(via(&world, 1, 2).is_some() && via(&world, 2, 1).is_some(), "seed {seed}\n{}", world.log.join("\n"));
        for subscriber in &subscribers {
            let mut got = world.got(*subscriber);
            got.sort_unstable();
            assert_eq!(got, ["from 1", "from 2"], "seed {seed}");
        }
        // Subscribing needs all nodes, and a session may have its home, its node and its copy on both sides.
        world.subscribe(subscribers[0], "u", QoS::AtLeastOnce);
        for (at, other) in [(0, 2), (1, 1)] {
            world.hang_up(subscribers[at]);
            let moved = world.connect_with(other, &format!("s{}", at + 1), kept());
            assert!(world.clients[moved].connack.as_ref().unwrap().session_present, "seed {seed}");
        }
        world.publish(publishers[1], "t/x", "last", QoS::AtLeastOnce);
        world.run(50);
        world.kill(2);
        world.heal();
        let again = world.connect_with(1, "s1", kept());
        world.run(2_000);
        assert!(world.clients[again].connack.as_ref().unwrap().session_present, "seed {seed}");
        assert_eq!(world.counter(1, "node_claims_timed_out"), 0);
        world.run(5_000);
        assert!([3, 4].into_iter().all(|from| via(&world, from, 1).is_none()));
    }
}

/// FT-28: a node that does not reach one of the others from the start is whole all the same.
#[test]
fn who_joins_over_a_broken_path_is_whole() {
    let mut world = World::cluster(720, 3, 2);
    let subscriber = world.connect(2, "sub");
    world.subscribe(subscriber, "t", QoS::AtLeastOnce);
    world.cut(2, 4);
    world.start(4);
    world.run_until("the joiner is ready", |world| world.hosts[&4].node.is_ready());
    assert!(via(&world, 4, 2).is_some());
    let publisher = world.connect(4, "pub");
    world.publish(publisher, "t", "x", QoS::AtLeastOnce);
    world.run(50);
    assert_eq!(world.got(subscriber), ["x"]);
}

/// FT-20, FT-31: a node that shows others that it lives, and that nobody can link, does not keep the copies that it has of their
/// sessions.
#[test]
fn copies_that_nobody_reaches_go_elsewhere() {
    let mut unreached = 0;
    for (other, third) in [(2, 3), (3, 2)] {
        let mut world = World::cluster(730, 3, 2);
        let subscriber = world.connect_with(1, "sub", kept());
        world.subscribe(subscriber, "t", QoS::AtLeastOnce);
        let publisher = world.connect(1, "pub");
        // The subscribers of the topic are known: with some overlays, the first message asks all.
        world.publish(publisher, "t", "known", QoS::AtLeastOnce);
        world.run(100);
        world.block(1, other);
        world.block(third, other);
        world.send_publish(publisher, "t", "x", QoS::AtLeastOnce, false);
        // With `flood`, publications wait for all nodes.
        if world.overlay != "flood" {
            world.run_until("it is acknowledged", |world| world.clients[publisher].acked.len() == 2);
            world.run_until("it is delivered", |world| world.got(subscriber) == ["known", "x"]);
        }
        world.run(9_000);
        assert_eq!(world.hosts[&1].node.status().copies, 2);
        assert_eq!(world.hosts[&1].node.status().members.len(), 3);
        unreached += world.counter(1, "backups_unreached");
        world.kill(1);
        world.run(2_000);
        let again = world.connect_with(third, "sub", kept());
        assert!(world.clients[again].connack.as_ref().unwrap().session_present);
    }
    assert_eq!(unreached, 1, "one of the two has the copies");
}

/// FT-16, FT-29: two members that live and have no third one to carry their link. Messages of the interest that the other told last are
/// kept for it, publishers do not wait for longer than half a lease, and nobody is told that there is no subscriber.
#[test]
fn interest_that_cannot_be_refreshed_is_not_absence_of_interest() {
    for shards in [1, 2] {
        let mut world = World::cluster(740, 2, shards);
        let subscriber = world.connect_with(2, "sub", kept());
        world.subscribe(subscriber, "t/+", QoS::ExactlyOnce);
        let publisher = world.connect(1, "pub");
        world.publish(publisher, "t/x", "0", QoS::AtLeastOnce);
        world.block(1, 2);
        world.send_publish(publisher, "t/x", "1", QoS::AtLeastOnce, false);
        world.run(14_000);
        assert_eq!(world.clients[publisher].acked, [ReasonCode::Success], "the other may come back at once");
        world.run(2_000);
        assert_eq!(world.clients[publisher].acked, [ReasonCode::Success; 2]);
        let mut sent = 2;
        for wait in [0, 1_000, 20_000, 60_000] {
            world.run(wait);
            world.publish(
                publisher,
                "t/x",
                &sent.to_string(),
                if sent % 2 == 0 { QoS::ExactlyOnce } else { QoS::AtLeastOnce },
            );
            sent += 1;
        }
        assert!(world.hosts[&1].node.status().routes == 0 || world.overlay != "mesh", "the lease has ended");
        assert_eq!(world.hosts[&1].node.status().members.len(), 2);
        assert_eq!(world.clients[publisher].acked, vec![ReasonCode::Success; sent]);
        assert_eq!(world.got(subscriber), ["0"]);
        world.heal();
        world.run(20_000);
        world.publish(publisher, "t/x", &sent.to_string(), QoS::AtLeastOnce);
        world.run(1_000);
        let all: Vec<String> = (0..=sent).map(|number| number.to_string()).collect();
        assert_eq!(world.got(subscriber), all);
        assert_eq!(world.counter(1, "members_out_of_reach"), 1);
        assert_eq!(world.hosts[&1].node.status().strays, 0);
    }
}

/// FT-16, FT-27: of a member that never was linked nothing is known, and everything is kept for it.
#[test]
fn for_a_member_that_never_was_linked_everything_is_kept() {
    let mut world = World::cluster(741, 1, 1);
    world.block(1, 2);
    world.start_with(2, |config| config.recovery_timeout = Duration::from_secs(4));
    world.run_until("it serves", |world| world.hosts[&2].node.is_ready());
    let subscriber = world.connect(2, "sub");
    world.subscribe(subscriber, "t", QoS::AtLeastOnce);
    world.run(20_000);
    let publisher = world.connect(1, "pub");
    world.publish(publisher, "t", "x", QoS::AtLeastOnce);
    assert_eq!(world.clients[publisher].acked, [ReasonCode::Success]);
    world.heal();
    world.run(20_000);
    assert_eq!(world.got(subscriber), ["x"]);
    world.publish(publisher, "nobody", "x", QoS::AtLeastOnce);
    // With `flood`, everybody gets everything.
    let last = if world.overlay == "flood" { ReasonCode::Success } else { ReasonCode::NoMatchingSubscribers };
    assert_eq!(world.clients[publisher].acked, [ReasonCode::Success, last]);
}

/// TR-31: nodes behind a round trip of up to 1.2 s, which lose 5 % of the datagrams, join, stay members, and every message arrives.
#[test]
fn nodes_behind_a_long_way_stay_members_when_they_are_told_of_it() {
    let mut world = World::new(750, 1);
    (world.delays.network, world.loss) = (600_000, 5);
    for node in 1..=3 {
        world.start_with(node, |config| *config = config.clone().with_round_trip(Duration::from_millis(1_500)));
    }
    world.run(60_000);
    let members = |world: &World, node: u64| world.hosts[&node].node.status().members.len();
    assert!((1..=3).all(|node| world.hosts[&node].node.is_ready() && members(&world, node) == 3));
    let subscriber = world.connect(3, "sub");
    world.subscribe(subscriber, "t", QoS::ExactlyOnce);
    let publisher = world.connect(1, "pub");
    for number in 0..100 {
        world.publish(publisher, "t", &number.to_string(), QoS::ExactlyOnce);
        assert!((1..=3).all(|node| members(&world, node) == 3), "{}", world.log.join("\n"));
    }
    for _ in 0..600 {
        world.run(1_000);
        assert!((1..=3).all(|node| members(&world, node) == 3), "{}", world.log.join("\n"));
    }
    assert_eq!(world.got(subscriber), (0..100).map(|number| number.to_string()).collect::<Vec<_>>());
    assert!(!world.log.iter().any(|line| line.contains("does not answer")), "{}", world.log.join("\n"));
    let killed = world.now.instant;
    world.kill(2);
    world.run_until("it is known", |world| members(world, 1) == 2 && members(world, 3) == 2);
    assert!(world.now.instant.since(killed) < Duration::from_secs(4));
}
