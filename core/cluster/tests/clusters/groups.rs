//! Shared subscriptions over nodes and shards.

use sedge_mqtt::QoS;

use crate::common::{Options, World};

/// MQ-14
#[test]
fn each_message_goes_to_one_member_and_all_members_get_their_part() {
    let mut world = World::cluster(1, 3, 2);
    let members: Vec<_> = (0..6)
        .map(|i| {
            let member = world.connect(1 + i % 3, &format!("member{i}"));
            world.subscribe(member, "$share/g/work/#", QoS::AtLeastOnce);
            member
        })
        .collect();
    let publisher = world.connect(1, "pub");
    for number in 0..600 {
        world.send_publish(publisher, "work/x", &number.to_string(), QoS::AtLeastOnce, false);
    }
    world.run(2_000);
    assert_eq!(world.clients[publisher].acked.len(), 600);
    let counts: Vec<usize> = members.iter().map(|member| world.got(*member).len()).collect();
    assert_eq!(counts.iter().sum::<usize>(), 600, "{counts:?}");
    assert!(counts.iter().all(|&count| (60..=140).contains(&count)), "{counts:?}");
    let mut all: Vec<_> = members.iter().flat_map(|member| world.got(*member)).collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 600);
}

/// MQ-14
#[test]
fn connected_members_come_first() {
    let mut world = World::cluster(2, 2, 2);
    let options = Options { clean: true, expiry: 1_000, ..Options::default() };
    let away = world.connect_with(1, "away", options);
    world.subscribe(away, "$share/g/t", QoS::AtLeastOnce);
    let here = world.connect(2, "here");
    world.subscribe(here, "$share/g/t", QoS::AtLeastOnce);
    world.hang_up(away);
    world.run(50);
    let publisher = world.connect(1, "pub");
    for number in 0..20 {
        world.publish(publisher, "t", &number.to_string(), QoS::AtLeastOnce);
    }
    world.run(50);
    assert_eq!(world.got(here).len(), 20);
}

/// MQ-14
#[test]
fn a_message_for_members_that_have_just_left_goes_to_another() {
    for seed in 0..40 {
        let mut world = World::cluster(50 + seed, 3, 2);
        world.delays.network = 3_000;
        world.delays.mailbox = 1_000;
        let members: Vec<_> = (1..=3).map(|node| world.connect(node, &format!("member{node}"))).collect();
        for member in &members {
            world.subscribe(*member, "$share/g/t", QoS::ExactlyOnce);
        }
        let publisher = world.connect(1, "pub");
        let bytes = world.clients[members[1]].unsubscribe("$share/g/t");
        for number in 0..30 {
            world.send_publish(publisher, "t", &number.to_string(), QoS::AtLeastOnce, false);
            if number == 10 {
                world.client_sends(members[1], bytes.clone());
            }
        }
        world.run(1_000);
        let mut all: Vec<_> = members.iter().flat_map(|member| world.got(*member)).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 30, "seed {seed}");
        assert_eq!(members.iter().map(|member| world.got(*member).len()).sum::<usize>(), 30, "seed {seed}");
    }
}

/// MQ-14: a message that a member had not acknowledged when its session ended goes to another member, wherever that is: on the same shard, on
/// another one, on another node.
#[test]
fn what_an_ended_session_was_chosen_for_goes_to_another() {
    for seed in 0..20 {
        let mut world = World::cluster(100 + seed, 1 + seed % 2, 1 + u16::try_from(seed / 2 % 2).expect("small"));
        world.delays.network = 1 + world.rng.below(3_000);
        let silent = world.connect_with(1, "silent", Options { clean: true, silent: true, ..Options::default() });
        world.subscribe(silent, "$share/g/t", QoS::AtLeastOnce);
        let other = world.connect(1 + seed % 2, "other");
        world.subscribe(other, "$share/g/t", QoS::AtLeastOnce);
        let publisher = world.connect(1, "pub");
        for number in 0..100 {
            world.send_publish(publisher, "t", &format!("{number:03}"), QoS::AtLeastOnce, false);
        }
        world.run(1_000);
        assert!(world.got(other).len() < 100, "seed {seed}: all went to one");
        world.hang_up(silent);
        world.run(1_000);
        let mut got = world.got(other);
        got.sort_unstable();
        let all: Vec<String> = (0..100).map(|number| format!("{number:03}")).collect();
        assert_eq!(got, all, "seed {seed}\n{}", world.log.join("\n"));
    }
}

/// MQ-14, MQ-11: the only member of a shared subscription goes from node to node under load: everything comes, once.
#[test]
fn the_only_member_moves_and_loses_nothing() {
    for seed in 0..20 {
        let mut world = World::cluster(200 + seed, 3, 2);
        world.delays.network = 1 + world.rng.below(3_000);
        world.delays.mailbox = 1 + world.rng.below(500);
        let kept = || Options { expiry: 3_600, ..Options::default() };
        let member = world.connect_with(1, "member", kept());
        world.subscribe(member, "$share/g/t", QoS::ExactlyOnce);
        let publishers = [world.connect(1, "pub1"), world.connect(3, "pub3")];
        let mut connections = vec![member];
        for round in 0_u64..60 {
            for publisher in publishers {
                world.send_publish(publisher, "t", &format!("{publisher}-{round:03}"), QoS::ExactlyOnce, false);
            }
            if round % 15 == 7 {
                connections.push(world.dial_client(1 + (round / 15) % 3, "member", kept()));
            }
            let wait = world.rng.below(3);
            world.run(wait);
        }
        world.run(5_000);
        let mut got: Vec<String> = Vec::new();
        for got_here in connections.iter().flat_map(|connection| &world.clients[*connection].got) {
            got.extend((!got_here.dup).then(|| got_here.payload.clone()));
        }
        let sent = publishers.iter().flat_map(|publisher| (0..60).map(move |round| format!("{publisher}-{round:03}")));
        let lost: Vec<String> = sent.filter(|sent| !got.contains(sent)).collect();
        let count = got.len();
        got.sort_unstable();
        got.dedup();
        assert!(
            lost.is_empty() && got.len() == count,
            "seed {seed}: lost {lost:?}, {} twice\n{}",
            count - got.len(),
            world.log.join("\n")
        );
    }
}

/// MQ-14, FT-20: messages that a member's node had for it when it died go to another member, also if its session would have ended with its
/// connection.
#[test]
fn what_a_dead_nodes_member_was_chosen_for_goes_to_another() {
    for seed in 0..20 {
        let mut world = World::cluster(150 + seed, 3, 2);
        world.delays.network = 1 + world.rng.below(3_000);
        let silent = world.connect_with(2, "silent", Options { clean: true, silent: true, ..Options::default() });
        world.subscribe(silent, "$share/g/t", QoS::AtLeastOnce);
        let other = world.connect(1 + 2 * (seed % 2), "other");
        world.subscribe(other, "$share/g/t", QoS::AtLeastOnce);
        let publisher = world.connect(1, "pub");
        for number in 0..100 {
            world.send_publish(publisher, "t", &format!("{number:03}"), QoS::AtLeastOnce, false);
        }
        world.run(1_000);
        assert_eq!(world.clients[publisher].acked.len(), 100, "seed {seed}");
        assert!(world.got(other).len() < 100, "seed {seed}: all went to one");
        world.kill(2);
        world.run(5_000);
        let mut got = world.got(other);
        got.sort_unstable();
        let all: Vec<String> = (0..100).map(|number| format!("{number:03}")).collect();
        assert_eq!(got, all, "seed {seed}\n{}", world.log.join("\n"));
    }
}
