//! The tables as they have to be, computed from all keys and vectors at once.

use std::collections::BTreeMap;

use sedge_overlay::skip_graph::{Key, Node, Role, Side};

use crate::net::Net;

/// The neighbours of each level, of a virtual node at `at` in the list of all: nearest first, each once, up to the next own one.
fn row<'a>(net: &Net, list: &[(Key<u32>, &'a Node<u32>)], at: usize, side: Side) -> Vec<&'a Node<u32>> {
    let (_, mine) = &list[at];
    let mut found = Vec::new();
    let mut level = 0;
    let others: Box<dyn Iterator<Item = &(Key<u32>, &'a Node<u32>)>> = match side {
        Side::Left => Box::new(list[..at].iter().rev()),
        Side::Right => Box::new(list[at + 1..].iter()),
    };
    for (_, other) in others.take_while(|(_, other)| other.id() != mine.id()) {
        let shared = net.config.base.common(mine.vector(), other.vector());
        if shared >= level {
            found.push(*other);
            level = shared + 1;
        }
    }
    found
}

fn list(net: &Net) -> Vec<(Key<u32>, &Node<u32>)> {
    let mut list: Vec<(Key<u32>, &Node<u32>)> =
        net.nodes.values().flat_map(|node| node.keys().map(move |key| (*key, node))).collect();
    list.sort_by_key(|(key, _)| *key);
    list
}

/// Differences between the tables and the right ones, as sentences.
pub(crate) fn wrong_links(net: &Net) -> Vec<String> {
    let list = list(net);
    let mut wrong = Vec::new();
    for (at, (key, node)) in list.iter().enumerate() {
        for side in [Side::Left, Side::Right] {
            let expected: Vec<u64> = row(net, &list, at, side).iter().map(|node| node.id().get()).collect();
            let held: Vec<u64> = node.neighbours(key, side).iter().map(|peer| peer.key.node.get()).collect();
            if expected != held {
                wrong.push(format!("{key:?} {side:?}: {held:?}, should be {expected:?}"));
            }
        }
    }
    wrong
}

/// SG-01, SG-06: every node is in the list as it wants to be, and all tables are right.
pub(crate) fn assert_right(net: &Net) {
    for node in net.nodes.values() {
        assert!(node.is_settled() && node.keys().count() > 0, "{} is not settled: {node:?}", node.id());
    }
    let wrong = wrong_links(net);
    assert!(wrong.is_empty(), "{} wrong: {:#?}", wrong.len(), &wrong[..wrong.len().min(5)]);
    assert_relay_free(net);
}

/// SG-09, SG-17, SG-18: on level 0 publishers and subscribers of each topic hang together, and one publisher is beside the subscribers.
fn assert_relay_free(net: &Net) {
    let list = list(net);
    let mut seen: BTreeMap<u32, Vec<(usize, Role)>> = BTreeMap::new();
    for (at, (key, _)) in list.iter().enumerate() {
        if let Some(topic) = key.topic {
            seen.entry(topic).or_default().push((at, key.role));
        }
    }
    for (topic, members) in seen {
        assert!(members.windows(2).all(|two| two[0].0 + 1 == two[1].0), "topic {topic} is torn");
        assert!(members.is_sorted_by_key(|(_, role)| *role), "topic {topic} is mixed");
        let publishers = members.iter().filter(|(_, role)| *role == Role::Publisher).count();
        let rendezvous = members.iter().filter(|(at, role)| {
            let next = list.get(at + 1).map(|(key, _)| key);
            *role == Role::Publisher && next.is_none_or(|next| !next.is_of_group(&list[*at].0))
        });
        assert_eq!(rendezvous.count(), publishers.min(1), "rendezvous points of {topic}");
    }
}
