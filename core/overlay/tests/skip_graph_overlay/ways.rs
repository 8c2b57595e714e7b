//! The ways of publications among many nodes.

use sedge_base::Rng;
use sedge_overlay::skip_graph::Role;

use crate::net::Net;

/// SG-20, SG-25: each subscriber costs one message, whoever publishes; nobody sends much more than the levels there are, and paths
/// are short.
#[test]
fn each_subscriber_costs_one_message_and_paths_are_short() {
    let mut net = Net::of(40);
    let mut rng = Rng::new(5);
    let mut nodes = net.ids();
    rng.shuffle(&mut nodes);
    let (publishers, subscribers) = (&nodes[..4], &nodes[4..36]);
    for subscriber in subscribers {
        net.subscribe(*subscriber, "a");
    }
    for publisher in publishers {
        net.publish(*publisher, "a");
    }
    net.pass(20);
    net.assert_graph();
    let mut sorted = subscribers.to_vec();
    sorted.sort_unstable();
    for publisher in publishers.iter().chain(&subscribers[..4]) {
        let found = net.publish(*publisher, "a");
        let expected: Vec<u64> = sorted.iter().copied().filter(|node| node != publisher).collect();
        assert_eq!(found, expected);
        let carried = net.carry(*publisher, "a", &found);
        assert_eq!(carried.hops.len(), expected.len());
        // Other publishers may be passed before the first subscriber is.
        let passed = carried.relays.iter().filter(|relay| !sorted.contains(relay)).count();
        assert_eq!(carried.messages, expected.len() + passed);
        assert!(carried.relays.iter().all(|relay| publishers.contains(relay) || sorted.contains(relay)), "{carried:?}");
        let longest = carried.hops.values().max().copied().unwrap_or_default();
        assert!((2..=12).contains(&longest), "{carried:?}");
    }
}

/// A relay that is dead, or whose link is down, is passed over.
#[test]
fn ways_avoid_links_that_are_down() {
    let mut net = Net::of(12);
    for subscriber in 2..=12 {
        net.subscribe(subscriber, "a");
    }
    let found = net.publish(1, "a");
    net.pass(10);
    let before = net.carry(1, "a", &found);
    let relay = before.relays.first().copied().expect("eleven are too many for one");
    for other in net.others(relay) {
        net.cut(relay, other, false);
    }
    let carried = net.carry(1, "a", &found);
    assert_eq!(carried.hops.keys().copied().collect::<Vec<_>>(), found, "everyone is sent to, if in vain");
    assert!(!carried.relays.contains(&relay));
    net.pass(20);
    let carried = net.carry(1, "a", &found);
    assert!(carried.hops.len() == found.len() && !carried.relays.is_empty() && !carried.relays.contains(&relay));
    net.link_all();
    net.settle();
    net.pass(20);
    net.assert_graph();
}

/// SG-18: whoever neither publishes nor subscribes has no part in it, whatever else it does.
#[test]
fn only_interested_nodes_pass_publications_on() {
    let mut net = Net::of(16);
    let mut rng = Rng::new(9);
    let topics = ["a", "a/b", "b", "c"];
    for node in net.ids() {
        for text in topics {
            match rng.index(4) {
                0 => net.subscribe(node, text),
                1 => drop(net.publish(node, text)),
                _ => {}
            }
        }
    }
    net.pass(60);
    net.assert_graph();
    for node in net.ids() {
        for text in topics {
            if net.virtual_node(node, text, Role::Publisher).is_none() {
                continue;
            }
            let found = net.destinations(node, text);
            let carried = net.carry(node, text, &found);
            assert_eq!(carried.hops.len(), found.len());
            for relay in carried.relays {
                let part = [Role::Publisher, Role::Subscriber].map(|role| net.virtual_node(relay, text, role));
                assert!(part.iter().any(Option::is_some), "{relay} passes {text} on");
            }
        }
    }
}
