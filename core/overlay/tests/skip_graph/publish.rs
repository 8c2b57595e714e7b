//! Range queries and publications.

use proptest::prelude::*;
use sedge_base::{NodeId, Rng};
use sedge_overlay::skip_graph::{Config, End, Input, Key, Method, Publication, Range, Role, Vector};

use crate::net::Net;
use crate::oracle::assert_right;

const METHODS: [Method; 2] = [Method::Mrf, Method::Sfb];

/// Nodes with random subscriptions and publications.
fn random_net(seed: u64, nodes: u64, topics: u32) -> Net {
    let mut net = Net::of(seed, nodes);
    let mut rng = Rng::new(seed ^ 7);
    for node in 0..nodes {
        for topic in 0..topics {
            match rng.index(6) {
                0 | 1 => net.feed(node, Input::Subscribe(topic)),
                2 => net.feed(node, Input::Advertise(topic)),
                _ => {}
            }
            net.run();
        }
    }
    net
}

fn has(net: &Net, node: u64, topic: u32, role: Role) -> bool {
    net.nodes[&node].keys().any(|key| *key == Key::new(topic, role, NodeId::new(node)))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// SG-03, SG-04: over all topics and part of one, from anywhere, with both methods.
    #[test]
    fn every_node_in_a_range_gets_a_query_once_and_no_other(seed in any::<u64>(), ends in any::<[(u32, bool, u64, bool); 2]>()) {
        let mut net = random_net(seed, 20, 6);
        assert_right(&net);
        let mut ends = ends.map(|(topic, subscriber, node, included)| {
            let role = if subscriber { Role::Subscriber } else { Role::Publisher };
            End { key: Key::new(topic % 6, role, NodeId::new(node % 20)), included }
        });
        ends.sort_by_key(|end| end.key);
        let [low, high] = ends;
        let range = Range { low, high };
        for method in METHODS {
            net.set_method(method);
            for from in 0..20 {
                let inside = |node: &u64| *node != from && net.nodes[node].keys().any(|key| range.contains(key));
                let expected: Vec<u64> = (0..20).filter(inside).collect();
                let mut received = net.query(from, range).receivers();
                // Where it begins, it is known already, though parts may come back to it.
                received.retain(|node| *node != from);
                prop_assert_eq!(received, expected, "{:?} from {} over {:?}", method, from, range);
            }
        }
    }

    /// SG-07, SG-17, SG-19, SG-33: all subscribers elsewhere, once each, and only nodes that publish or subscribe to it carry it.
    #[test]
    fn publications_reach_subscribers_over_interested_nodes(seed in any::<u64>()) {
        let mut net = random_net(seed, 25, 4);
        for method in METHODS {
            net.set_method(method);
            for topic in 0..4 {
                for from in 0..25 {
                    let subscribed = has(&net, from, topic, Role::Subscriber);
                    if !subscribed && !has(&net, from, topic, Role::Publisher) {
                        continue;
                    }
                    let expected: Vec<u64> =
                        (0..25).filter(|node| *node != from && has(&net, *node, topic, Role::Subscriber)).collect();
                    let outcome = net.deliver(from, topic);
                    prop_assert_eq!(outcome.receivers(), expected);
                    let interested = |node: &u64| has(&net, *node, topic, Role::Subscriber) || has(&net, *node, topic, Role::Publisher);
                    prop_assert!(outcome.visited.iter().all(interested), "a relay: {:?}", outcome);
                }
            }
        }
        assert_right(&net);
    }
}

/// A list of subscribers, the first of which publishes, too.
fn line(nodes: u64, vector: impl Fn(u64, &mut Rng) -> Vector) -> Net {
    let mut net = Net::new(11);
    let mut rng = Rng::new(13);
    for node in 0..nodes {
        let vector = vector(node, &mut rng);
        net.start_as(node, vector);
        net.feed(node, Input::Subscribe(1));
        net.run();
    }
    net
}

fn mean_hops(net: &mut Net, method: Method) -> f64 {
    net.set_method(method);
    let outcome = net.deliver(0, 1);
    assert_eq!(outcome.receivers().len() + 1, net.nodes.len());
    assert_eq!(outcome.messages, outcome.delivered.len(), "each message reaches a subscriber");
    let total: u32 = outcome.delivered.values().map(|(_, hops)| u32::from(*hops)).sum();
    let nodes = u32::try_from(net.nodes.len()).expect("few nodes");
    f64::from(total) / f64::from(nodes)
}

/// SG-24, SG-25: the formulas for the left-most entry.
#[test]
fn ideal_vectors_give_the_hops_of_the_formulas() {
    for log in [3_u32, 6, 10] {
        let mut net = line(1 << log, |node, _| Vector::ideal(node, Config::default().base));
        let log = f64::from(log);
        let nodes = log.exp2();
        assert!((mean_hops(&mut net, Method::Sfb) - log / 2.0).abs() < 1e-9);
        assert!((mean_hops(&mut net, Method::Mrf) - (log - 1.0 + 1.0 / nodes)).abs() < 1e-9);
    }
}

/// SG-25
#[test]
fn random_vectors_leave_most_of_the_gain() {
    let mut net = line(1_024, |_, rng| Vector::random(rng));
    let (sfb, mrf) = (mean_hops(&mut net, Method::Sfb), mean_hops(&mut net, Method::Mrf));
    assert!(sfb <= 0.75 * mrf, "{sfb} of {mrf}");
}

/// SG-22: with multi-range forwarding no node sends more than two copies of a publication that it receives.
#[test]
fn nobody_forwards_more_than_twice() {
    let mut net = line(300, |_, rng| Vector::random(rng));
    net.set_method(Method::Mrf);
    for node in 0..300 {
        let whole = Range::group(&1, Role::Subscriber);
        assert!(net.nodes.get_mut(&node).expect("a node").query(whole).len() <= 2);
    }
}

/// SG-08, SG-33: delivery starts with the first local subscriber and ends with the last; a node that is alone sends nothing.
#[test]
fn delivery_follows_subscriptions() {
    let mut net = Net::of(4, 10);
    assert_eq!(net.publish(1, 7), Publication::Undecided, "the virtual node is on its way");
    assert_eq!(net.deliver(1, 7).messages, 0);
    net.feed(2, Input::Subscribe(7));
    net.run();
    assert_eq!(net.deliver(1, 7).receivers(), [2]);
    net.feed(1, Input::Subscribe(7));
    net.run();
    assert!(has(&net, 1, 7, Role::Subscriber) && !has(&net, 1, 7, Role::Publisher), "SG-19");
    assert_eq!(net.deliver(1, 7).receivers(), [2]);
    assert_eq!(net.deliver(2, 7).receivers(), [1]);
    net.feed(2, Input::Unsubscribe(7));
    net.run();
    assert_eq!(net.deliver(1, 7).messages, 0, "SG-33: its own clients only");
    // A node that has stopped subscribing and has published before is a publisher again.
    net.feed(1, Input::Unsubscribe(7));
    net.run();
    assert!(!has(&net, 1, 7, Role::Subscriber) && has(&net, 1, 7, Role::Publisher));
    assert_eq!(net.publish(1, 7), Publication::Suspended);
    assert_right(&net);
}

/// SG-01: a seed in which a node is named to another one before its own walk comes, and that one has virtual nodes on both sides of it.
#[test]
fn who_is_known_before_it_presents_itself_hears_of_all_neighbours() {
    assert_right(&random_net(12_560_926_549_832_494_824, 25, 4));
}
