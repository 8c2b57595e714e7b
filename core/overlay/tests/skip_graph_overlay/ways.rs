//! The ways of publications among many nodes.

use sedge_base::Rng;
use sedge_overlay::SkipGraphConfig;
use sedge_overlay::skip_graph::{Base, Method, Role};

use crate::net::{Carried, Net, patient};

const METHODS: [Method; 2] = [Method::Sfb, Method::Mrf];

/// The first eight of these nodes only publish, the next 48 subscribe.
fn busy(base: Base, method: Method) -> Net {
    let mut net = Net::with(60, SkipGraphConfig { base, method, ..patient() });
    for subscriber in 9..=56 {
        net.subscribe(subscriber, "a");
    }
    for publisher in (1..=8).chain([9, 30, 56]) {
        net.publish(publisher, "a");
    }
    net.pass(20);
    net.assert_graph();
    net
}

/// A publication of each publisher, of nodes that subscribe as well and of others.
fn carry_all(net: &mut Net) -> Vec<Carried> {
    let carry = |publisher: u64| {
        let found = net.publish(publisher, "a");
        let expected: Vec<u64> = (9..=56).filter(|node| *node != publisher).collect();
        assert_eq!(found, expected);
        let carried = net.carry(publisher, "a", &found);
        assert_eq!(carried.hops.keys().copied().collect::<Vec<_>>(), expected, "each once");
        carried
    };
    (1..=8).chain([9, 30, 56]).map(carry).collect()
}

#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn mean_hops(all: &[Carried]) -> f64 {
    let hops = || all.iter().flat_map(|carried| carried.hops.values());
    hops().sum::<usize>() as f64 / hops().count() as f64
}

/// SG-22, SG-24, SG-25: on the same graph, multi-range forwarding makes no node send more than two copies of a publication, and takes more
/// hops than split-forward broadcasting; both cost one message a subscriber and reach each once.
#[test]
fn multi_range_forwarding_sends_two_copies_at_most_and_takes_more_hops() {
    let [sfb, mrf] = METHODS.map(|method| carry_all(&mut busy(Base::Two, method)));
    assert!(mrf.iter().all(|carried| carried.most <= 2), "{mrf:?}");
    assert!(sfb.iter().any(|carried| carried.most > 2), "{sfb:?}");
    for (one, other) in sfb.iter().zip(&mrf) {
        assert_eq!(one.messages, other.messages);
        assert!([one, other].iter().all(|carried| carried.relays.iter().all(|relay| (1..=56).contains(relay))));
    }
    assert!(mean_hops(&mrf) > mean_hops(&sfb), "{} {}", mean_hops(&mrf), mean_hops(&sfb));
}

/// Each node goes by its own method.
#[test]
fn nodes_with_different_methods_reach_everyone_once() {
    let mut net = Net::new(patient());
    for node in 1..=60 {
        net.config.method = METHODS[usize::from(node % 3 == 0)];
        net.join(node);
    }
    net.pass(20);
    for subscriber in 9..=56 {
        net.subscribe(subscriber, "a");
    }
    for publisher in 1..=8 {
        net.publish(publisher, "a");
    }
    net.pass(20);
    carry_all(&mut net);
}

/// SG-21: the larger the base, the smaller the tables and the longer the paths.
#[test]
fn a_larger_base_makes_tables_smaller_and_paths_longer() {
    let of = |base| {
        let mut net = busy(base, Method::Sfb);
        let own = (9..=56).filter_map(|node| net.virtual_node(node, "a", Role::Subscriber));
        let neighbours: usize = own.map(|own| own.left.len() + own.right.len()).sum();
        (neighbours, mean_hops(&carry_all(&mut net)))
    };
    let [two, four, sixteen] = [Base::Two, Base::Four, Base::Sixteen].map(of);
    assert!(two.0 > four.0 && four.0 > sixteen.0, "{two:?} {four:?} {sixteen:?}");
    assert!(two.1 < four.1 && four.1 < sixteen.1, "{two:?} {four:?} {sixteen:?}");
}

/// SG-31: a node that wants all topics and is in no list gets its copy straight, whatever the range is.
#[test]
fn wildcards_are_no_part_of_a_range() {
    let mut net = busy(Base::Two, Method::Mrf);
    for node in [2, 58, 60] {
        net.subscribe(node, "#");
    }
    let found = net.publish(1, "a");
    let carried = net.carry(1, "a", &found);
    assert_eq!(carried.hops.keys().copied().collect::<Vec<_>>(), found);
    assert!([2, 58, 60].iter().all(|node| carried.hops[node] == 1 && !carried.relays.contains(node)), "{carried:?}");
}

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
    for method in METHODS {
        avoid_links_that_are_down(method);
    }
}

fn avoid_links_that_are_down(method: Method) {
    let mut net = Net::with(12, SkipGraphConfig { method, ..patient() });
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

/// SG-18: a node that neither publishes nor subscribes has no part in a topic, whatever else it does.
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
