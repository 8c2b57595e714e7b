//! Ways to subscribers that are known one by one, against the parts of range queries.

use std::collections::{BTreeSet, VecDeque};

use proptest::prelude::*;
use sedge_base::{NodeId, Rng};
use sedge_overlay::skip_graph::{Input, Key, Method, Publication, Role};

use crate::net::Net;

const NODES: u64 = 30;
const TOPICS: u32 = 3;

/// From which node to which copies go: from this one, of this topic, to these subscribers.
type Divide = fn(&Net, u64, u32, &[u64]) -> BTreeSet<(u64, u64)>;

fn random_net(seed: u64) -> Net {
    let mut net = Net::of(seed, NODES);
    let mut rng = Rng::new(seed ^ 7);
    for node in 0..NODES {
        for topic in 0..TOPICS {
            match rng.index(5) {
                0 | 1 => net.feed(node, Input::Subscribe(topic)),
                2 => net.feed(node, Input::Advertise(topic)),
                _ => {}
            }
            net.run();
        }
    }
    net
}

/// From which node to which copies of a publication go, by the notes.
fn copies(net: &mut Net, from: u64, topic: u32) -> BTreeSet<(u64, u64)> {
    let Publication::Cast(hops) = net.publish(from, topic) else { return BTreeSet::new() };
    let mut edges = BTreeSet::new();
    let mut queue: VecDeque<_> = hops.into_iter().map(|hop| (from, hop)).collect();
    while let Some((sender, hop)) = queue.pop_front() {
        let receiver = hop.node.get();
        assert!(edges.insert((sender, receiver)), "two copies from {sender} to {receiver}");
        let forward = net.nodes.get_mut(&receiver).expect("a node").forward(&hop.note);
        queue.extend(forward.hops.into_iter().map(|hop| (receiver, hop)));
    }
    edges
}

/// The same, by the way to each subscriber.
fn ways(net: &Net, from: u64, topic: u32, subscribers: &[u64]) -> BTreeSet<(u64, u64)> {
    let mut edges = BTreeSet::new();
    for subscriber in subscribers {
        let mut at = from;
        while at != *subscriber {
            let next = net.nodes[&at].way(&topic, NodeId::new(*subscriber)).expect("a way").get();
            edges.insert((at, next));
            assert!(edges.len() < 1_000, "a way without end");
            at = next;
        }
    }
    edges
}

/// The same with multi-range forwarding: each subscriber divides the destinations that it was given.
fn halves(net: &Net, from: u64, topic: u32, subscribers: &[u64]) -> BTreeSet<(u64, u64)> {
    let mut edges = BTreeSet::new();
    let mut queue = VecDeque::from([(from, subscribers.to_vec())]);
    while let Some((at, mut nodes)) = queue.pop_front() {
        nodes.retain(|node| *node != at);
        let (Some(first), Some(last)) = (nodes.first(), nodes.last()) else { continue };
        let node = &net.nodes[&at];
        let (left, right): (Vec<u64>, Vec<u64>) = nodes.iter().partition(|node| **node < at);
        let parts = match node.halves(&topic, (NodeId::new(*first), NodeId::new(*last)), |_| true) {
            Some(halves) => [(halves.left, left), (halves.right, right)],
            None => [(node.way(&topic, NodeId::new(*last)), nodes), (None, Vec::new())],
        };
        for (next, part) in parts.into_iter().filter(|(_, part)| !part.is_empty()) {
            let next = next.expect("a way").get();
            assert!(edges.insert((at, next)), "two copies from {at} to {next}");
            queue.push_back((next, part));
        }
    }
    edges
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// SG-24, SG-25: the ways to all subscribers are the copies that a range query over them sends.
    #[test]
    fn ways_are_those_of_range_queries(seed in any::<u64>()) {
        let mut net = random_net(seed);
        for topic in 0..TOPICS {
            let has = |net: &Net, node: u64, role| net.nodes[&node].keys().any(|key| *key == Key::new(topic, role, NodeId::new(node)));
            for from in 0..NODES {
                let publishes = has(&net, from, Role::Publisher);
                if !publishes && !has(&net, from, Role::Subscriber) {
                    prop_assert_eq!(net.nodes[&from].way(&topic, NodeId::new(99)), None, "no part in it");
                    continue;
                }
                let subscribers: Vec<u64> =
                    (0..NODES).filter(|node| *node != from && has(&net, *node, Role::Subscriber)).collect();
                for (method, ways) in [(Method::Sfb, ways as Divide), (Method::Mrf, halves)] {
                    net.set_method(method);
                    let expected = copies(&mut net, from, topic);
                    prop_assert_eq!(ways(&net, from, topic, &subscribers), expected, "{:?} of {} from {}", method, topic, from);
                }
            }
        }
    }
}
