//! The first publications of a topic, which nobody knows yet.

use sedge_cluster::NodeInput;
use sedge_mqtt::{QoS, ReasonCode};

use crate::common::{Options, World};

/// Frames with publications that all nodes have sent to each other.
fn sent(world: &World) -> u64 {
    world.hosts.keys().map(|node| world.counter(*node, "links_publications_sent")).sum()
}

/// Whether the algorithm asks who wants a topic when it is published first.
fn asks(world: &World) -> bool {
    ["tree", "topic-tree", "skip-graph"].contains(&world.overlay.as_str())
}

/// TR-17, TR-21: the first publication goes nowhere where it is not wanted, and is not lost where it is.
#[test]
fn the_first_publication_goes_only_where_it_is_wanted() {
    let all = [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce];
    for (seed, qos) in (0..30).zip(all.into_iter().cycle()) {
        let mut world = World::cluster(800 + seed, 5, 2);
        let subscriber = world.connect(4, "sub");
        world.subscribe(subscriber, "wanted/+", qos);
        let publishers = [world.connect(2, "pub2"), world.connect(5, "pub5")];
        world.run(500);
        let before = sent(&world);
        for publisher in publishers {
            for number in 0..5 {
                world.send_publish(publisher, "strange/a", &number.to_string(), qos, false);
            }
        }
        world.run(500);
        if asks(&world) {
            assert_eq!(sent(&world) - before, 0, "seed {seed}");
            let told = match qos {
                QoS::AtMostOnce => vec![],
                QoS::AtLeastOnce => vec![ReasonCode::NoMatchingSubscribers; 5],
                // That of PUBCOMP.
                QoS::ExactlyOnce => vec![ReasonCode::Success; 5],
            };
            assert!(publishers.iter().all(|publisher| world.clients[*publisher].acked == told), "seed {seed}");
        }
        for (at, publisher) in publishers.iter().enumerate() {
            for number in 0..5 {
                let topic = format!("wanted/{at}");
                world.send_publish(*publisher, &topic, &format!("{at} {number}"), qos, false);
            }
        }
        world.run(500);
        let told = |publisher: &usize| world.clients[*publisher].acked.iter().skip(5).copied().collect::<Vec<_>>();
        let all = if qos == QoS::AtMostOnce { vec![] } else { vec![ReasonCode::Success; 5] };
        assert!(world.overlay == "detour" || publishers.iter().all(|publisher| told(publisher) == all), "seed {seed}");
        let got = world.got(subscriber);
        for at in 0..2 {
            let prefix = format!("{at} ");
            let numbers: Vec<&str> = got.iter().filter_map(|got| got.strip_prefix(&prefix)).collect();
            assert_eq!(numbers, ["0", "1", "2", "3", "4"], "seed {seed}");
        }
        let frames = sent(&world) - before;
        match world.overlay.as_str() {
            // Over as many nodes as lie between.
            "tree" => assert!(frames <= 30, "seed {seed}: {frames}"),
            "topic-tree" | "skip-graph" => assert_eq!(frames, 10, "seed {seed}"),
            _ => {}
        }
    }
}

/// MQ-13: a node that does not answer holds up the others for no longer than a second, and gets everything itself when it is back.
#[test]
fn a_node_that_does_not_answer_holds_nobody_up_for_long() {
    for seed in 0..5 {
        let mut world = World::cluster(820 + seed, 4, 2);
        if world.overlay == "detour" {
            return;
        }
        let subscribers = [world.connect(3, "sub3"), world.connect(4, "sub4")];
        for subscriber in subscribers {
            world.subscribe(subscriber, "t", QoS::AtMostOnce);
        }
        let publisher = world.connect(2, "pub");
        world.run(500);
        world.delays.network = 1;
        world.cut(2, 3);
        for number in 0..10 {
            world.send_publish(publisher, "t", &number.to_string(), QoS::AtMostOnce, false);
        }
        world.run(1_100);
        let all: Vec<String> = (0..10).map(|number| number.to_string()).collect();
        assert_eq!(world.got(subscribers[1]), all, "seed {seed}");
        assert!(world.got(subscribers[0]).is_empty() || world.got(subscribers[0]) == all, "seed {seed}");
    }
}

/// TR-21: one whose answer takes longer than others wait for gets nothing that it does not want.
#[test]
fn a_late_answer_is_waited_for_where_it_came_from() {
    for seed in 0..5 {
        let mut world = World::cluster(890 + seed, 4, 2);
        if !asks(&world) {
            return;
        }
        let subscriber = world.connect(4, "sub");
        world.subscribe(subscriber, "t", QoS::AtLeastOnce);
        let publisher = world.connect(2, "pub");
        world.run(500);
        world.delays.network = 1;
        world.cut(2, 3);
        world.send_publish(publisher, "t", "1", QoS::AtLeastOnce, false);
        world.run(1_100);
        // In a tree node 3 may be on the way.
        assert!(world.overlay == "tree" || world.got(subscriber) == ["1"], "seed {seed}");
        world.run(1_000);
        world.heal();
        world.run(3_000);
        assert_eq!(world.got(subscriber), ["1"], "seed {seed}");
        assert_eq!(world.clients[publisher].acked, [ReasonCode::Success], "seed {seed}");
        assert_eq!((world.counter(2, "relay_unanswered"), world.counter(2, "relay_spared")), (0, 2), "seed {seed}");
    }
}

/// MQ-13, FT-12: clients that come to the publisher's node or the subscriber's meanwhile, and more publications than are kept, change
/// neither order nor number.
#[test]
fn what_is_kept_comes_once_and_in_order() {
    for seed in 0..20 {
        let mut world = World::cluster(840 + seed, 4, 2);
        if world.overlay == "detour" {
            return;
        }
        world.delays.network = 5_000;
        let subscribers = [world.connect(1, "sub1"), world.connect(3, "sub3"), world.connect(4, "sub4")];
        for subscriber in subscribers {
            world.subscribe(subscriber, "new/+", QoS::AtMostOnce);
        }
        let publisher = world.connect(2, "pub");
        // Publications that are on their way when that is changed may overtake each other: the ways of these nodes are found first.
        world.publish(publisher, "new/ways", "AtMostOnce", QoS::AtMostOnce);
        world.run(2_000);
        for round in 0..4 {
            let topic = format!("new/{round}");
            let count = if round == 3 { 1_500 } else { 40 };
            for number in 0..count {
                let qos = if number % 7 == 6 { QoS::AtLeastOnce } else { QoS::AtMostOnce };
                let retain = round == 2 && number % 10 == 3;
                world.send_publish(publisher, &topic, &format!("{qos:?} {round} {number:05}"), qos, retain);
                if count == 40 {
                    world.run(1);
                }
                if number % 10 == 5 && count == 40 {
                    let client = world.dial_client(2 + number % 3, &format!("c{round}-{number}"), Options::default());
                    world.send_subscribe(client, "other", QoS::AtMostOnce);
                }
            }
            world.run(1_500);
        }
        for (node, subscriber) in [1, 3, 4].into_iter().zip(subscribers) {
            let got = world.got(subscriber);
            let late = usize::try_from(world.counter(node, "relay_late")).unwrap();
            // A topic tree is looked at again meanwhile.
            let allowed = if world.overlay == "topic-tree" { 5 } else { 0 };
            assert!(got.len() + late == 1_621 && late <= allowed, "seed {seed}, node {node}: {late} late");
            for qos in ["AtMostOnce", "AtLeastOnce"] {
                let of: Vec<&str> = got.iter().filter(|got| got.starts_with(qos)).copied().collect();
                assert!(of.is_sorted_by(|a, b| a < b), "seed {seed}: {qos}");
            }
        }
    }
}

/// MQ-13, FT-12: one to a topic that is known stays behind an earlier one of its publisher to a new topic, and does not wait with it for a node
/// that does not answer.
#[test]
fn a_known_topic_waits_for_no_stranger() {
    for (seed, qos) in (0..10).zip([QoS::AtLeastOnce, QoS::ExactlyOnce].into_iter().cycle()) {
        let mut world = World::cluster(860 + seed, 4, 2);
        if world.overlay == "detour" {
            return;
        }
        let subscriber = world.connect(3, "sub");
        world.subscribe(subscriber, "#", qos);
        let publisher = world.connect(2, "pub");
        world.publish(publisher, "known", "0", qos);
        world.run(2_000);
        world.cut(2, 4);
        for (topic, payload) in [("new", "1"), ("known", "2"), ("newer", "3"), ("known", "4")] {
            world.send_publish(publisher, topic, payload, qos, false);
        }
        // In the tree over all nodes the fourth may be on the way.
        world.run(if world.overlay == "tree" { 2_000 } else { 500 });
        assert_eq!(world.got(subscriber), ["0", "1", "2", "3", "4"], "seed {seed}");
    }
}

/// MQ-14, MQ-13: a message that went to the member of a shared subscription was wanted, also where the same node was asked for the topic.
#[test]
fn a_new_topic_that_a_shared_subscription_took_was_wanted() {
    for seed in 0..10 {
        let mut world = World::cluster(870 + seed, 4, 2);
        let member = world.connect(3, "member");
        world.subscribe(member, "$share/group/new", QoS::AtLeastOnce);
        let publisher = world.connect(2, "pub");
        world.run(500);
        world.send_publish(publisher, "new", "1", QoS::AtLeastOnce, false);
        world.run(500);
        assert_eq!(world.got(member), ["1"], "seed {seed}");
        assert_eq!(world.clients[publisher].acked, [ReasonCode::Success], "seed {seed}");
    }
}

/// FT-34: a node that is full, and does not want a new topic, does not keep others from it; topics it wants are refused as soon as it has said so.
#[test]
fn a_full_node_refuses_only_what_it_wants_of_new_topics() {
    for seed in 0..10 {
        let mut world = World::cluster(880 + seed, 4, 2);
        if !asks(&world) {
            return;
        }
        let subscribers = [world.connect(3, "sub3"), world.connect(4, "sub4")];
        // With `skip-graph`, the subscribers of a wildcard are known beforehand.
        world.subscribe(subscribers[0], "full/a", QoS::AtLeastOnce);
        world.subscribe(subscribers[1], "+/+", QoS::AtLeastOnce);
        let publisher = world.connect(2, "pub");
        world.node_input(3, NodeInput::Full(true));
        world.run(500);
        for topic in ["other/a", "full/a"] {
            world.send_publish(publisher, topic, topic, QoS::AtLeastOnce, false);
            world.run(500);
        }
        assert!(world.got(subscribers[0]).is_empty(), "seed {seed}");
        assert_eq!(world.got(subscribers[1]), ["other/a", "full/a"], "seed {seed}");
        assert_eq!(world.clients[publisher].acked, [ReasonCode::Success, ReasonCode::QuotaExceeded], "seed {seed}");
        assert_eq!(world.counter(2, "node_publications_refused"), 1, "seed {seed}");
    }
}
