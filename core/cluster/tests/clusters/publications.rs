//! Publications find their subscribers.

use sedge_cluster::NodeInput;
use sedge_mqtt::{QoS, ReasonCode, TopicFilter};

use crate::common::{Options, World};

const ALL_QOS: [QoS; 3] = [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce];

/// FT-01, FT-18, MQ-02, MQ-04
#[test]
fn a_publication_at_any_node_reaches_a_subscriber_at_any_other_once() {
    let mut world = World::cluster(1, 4, 2);
    let subscribers: Vec<_> = (1..=4).map(|node| world.connect(node, &format!("sub{node}"))).collect();
    for subscriber in &subscribers {
        world.subscribe(*subscriber, "a/+", QoS::ExactlyOnce);
    }
    for node in 1..=4 {
        let publisher = world.connect(node, &format!("pub{node}"));
        for qos in ALL_QOS {
            world.publish(publisher, "a/b", &format!("{node}-{qos:?}"), qos);
        }
    }
    world.run(100);
    for subscriber in subscribers {
        let mut got = world.got(subscriber);
        got.sort_unstable();
        assert_eq!(got.len(), 12, "{got:?}");
        got.dedup();
        assert_eq!(got.len(), 12, "{got:?}");
    }
}

/// MQ-13
#[test]
fn order_holds_per_publisher_and_topic() {
    let mut world = World::cluster(2, 3, 3);
    world.delays.mailbox = 500;
    let subscribers: Vec<_> = (0..6)
        .map(|i| {
            let subscriber = world.connect(1 + i % 3, &format!("sub{i}"));
            world.subscribe(subscriber, "#", QoS::ExactlyOnce);
            subscriber
        })
        .collect();
    for qos in ALL_QOS {
        let publisher = world.connect(1, &format!("pub{qos:?}"));
        for number in 0..300 {
            world.send_publish(publisher, "t", &format!("{qos:?} {number:04}"), qos, false);
        }
    }
    world.run(3_000);
    for subscriber in subscribers {
        for qos in ALL_QOS {
            let prefix = format!("{qos:?} ");
            let got: Vec<_> = world.got(subscriber).into_iter().filter_map(|got| got.strip_prefix(&prefix)).collect();
            assert_eq!(got.len(), 300);
            assert!(got.is_sorted(), "{qos:?}");
        }
    }
}

/// DESIGN section 1, "SUBACK means the cluster knows"; FT-12
#[test]
fn after_suback_nothing_is_missed() {
    let mut world = World::cluster(3, 3, 2);
    world.delays.mailbox = 300;
    let subscriber = world.connect(1, "sub");
    let publishers: Vec<_> = (2..=3).map(|node| world.connect(node, &format!("pub{node}"))).collect();
    for number in 0..1_000 {
        let topic = format!("new/{number}");
        world.subscribe(subscriber, &topic, QoS::AtMostOnce);
        world.send_publish(publishers[number % 2], &topic, &number.to_string(), QoS::AtMostOnce, false);
    }
    world.run(1_000);
    assert_eq!(world.got(subscriber).len(), 1_000);
}

/// MQ-14
#[test]
fn the_publisher_learns_whether_anyone_wants_it() {
    let mut world = World::cluster(4, 2, 2);
    let publisher = world.connect(1, "pub");
    world.publish(publisher, "t", "1", QoS::AtLeastOnce);
    let subscriber = world.connect(2, "sub");
    world.subscribe(subscriber, "t", QoS::AtLeastOnce);
    world.publish(publisher, "t", "2", QoS::AtLeastOnce);
    assert_eq!(world.clients[publisher].acked[1], ReasonCode::Success);
    if world.has_tables_everywhere() {
        assert_eq!(world.clients[publisher].acked[0], ReasonCode::NoMatchingSubscribers);
    }
}

/// MQ-08, IL-14
#[test]
fn a_will_reaches_other_nodes() {
    let mut world = World::cluster(5, 2, 2);
    let subscriber = world.connect(2, "sub");
    world.subscribe(subscriber, "wills/#", QoS::AtLeastOnce);
    let will = Some(("wills/a".to_owned(), "gone".to_owned()));
    let dying = world.connect_with(1, "dying", Options { clean: true, will, ..Options::default() });
    world.hang_up(dying);
    world.run(100);
    assert_eq!(world.got(subscriber), ["gone"]);
}

/// FT-34: a node without room gets no more than it can keep: publications with QoS 1 and 2 that concern it are refused where they are
/// published, those for others go on, and so does QoS 0; also at a node that links up later. With room all of it goes on.
#[test]
fn what_another_node_cannot_keep_is_refused_at_the_publisher() {
    let mut world = World::cluster(6, 2, 2);
    let subscriber = world.connect(2, "sub");
    world.subscribe(subscriber, "far/#", QoS::ExactlyOnce);
    let near = world.connect(1, "near");
    world.subscribe(near, "near", QoS::ExactlyOnce);
    world.node_input(2, NodeInput::Full(true));
    world.run(100);
    world.start(3);
    world.settle_members(3);
    let publishers = [world.connect(1, "pub1"), world.connect(3, "pub3")];
    for publisher in publishers {
        // A topic that is new may be wanted anywhere.
        world.publish(publisher, "near", "first", QoS::AtMostOnce);
        world.run(100);
    }
    // Everything goes everywhere with it.
    let near_reason = if world.overlay == "flood" { ReasonCode::QuotaExceeded } else { ReasonCode::Success };
    for (at, publisher) in publishers.into_iter().enumerate() {
        for qos in ALL_QOS {
            world.publish(publisher, "far/a", &format!("{at} {qos:?}"), qos);
        }
        world.publish(publisher, "near", &at.to_string(), QoS::AtLeastOnce);
        assert_eq!(world.clients[publisher].acked, [ReasonCode::QuotaExceeded, ReasonCode::QuotaExceeded, near_reason]);
    }
    world.run(100);
    assert_eq!(world.got(subscriber), ["0 AtMostOnce", "1 AtMostOnce"]);
    let got =
        if near_reason == ReasonCode::Success { &["first", "first", "0", "1"][..] } else { &["first", "first", "0"] };
    assert_eq!(world.got(near), got);
    world.node_input(2, NodeInput::Full(false));
    world.run(100);
    for publisher in publishers {
        world.publish(publisher, "far/b", "kept", QoS::AtLeastOnce);
        assert_eq!(world.clients[publisher].acked.last(), Some(&ReasonCode::Success));
    }
}

/// DP-03: a member that has no room for a topic has it refused at every node, also at one that comes later; with room, and when the
/// member is gone, the topic is open again.
#[test]
fn topics_that_a_member_has_no_room_for_are_refused_everywhere() {
    let mut world = World::cluster(7, 2, 2);
    let closed = || vec![TopicFilter::new("up/#").unwrap()];
    world.node_input(2, NodeInput::ClosedTopics(closed()));
    world.run(100);
    world.start(3);
    world.settle_members(3);
    let publishers = [1, 2, 3].map(|node| world.connect(node, &format!("pub{node}")));
    let tell = |world: &mut World| {
        publishers.map(|publisher| {
            world.publish(publisher, "up/a", "x", QoS::AtLeastOnce);
            world.run(100);
            world.clients[publisher].acked.last().copied().unwrap() == ReasonCode::QuotaExceeded
        })
    };
    assert_eq!(tell(&mut world), [true; 3]);
    world.node_input(2, NodeInput::ClosedTopics(Vec::new()));
    world.run(100);
    assert_eq!(tell(&mut world), [false; 3]);
    world.node_input(2, NodeInput::ClosedTopics(closed()));
    world.run(100);
    world.kill(2);
    world.settle_members(2);
    world.run(1_000);
    for publisher in [publishers[0], publishers[2]] {
        world.publish(publisher, "up/a", "x", QoS::AtLeastOnce);
        world.run(100);
        assert_ne!(world.clients[publisher].acked.last(), Some(&ReasonCode::QuotaExceeded));
    }
}
