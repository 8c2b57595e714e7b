//! The filters that neighbours have to tell each other, computed from scratch from links and subscriptions (section 6 of the interworking
//! specification): `wanted(n)` = the filters of local clients and all that the other neighbours want.

use std::collections::{BTreeMap, BTreeSet};

use sedge_mqtt::TopicFilter;

pub(crate) type Filters = BTreeSet<TopicFilter>;
/// The words that the first node has told the second.
pub(crate) type Told = BTreeMap<(u64, u64), Filters>;
/// The neighbours of each node.
pub(crate) type Edges = BTreeMap<u64, BTreeSet<u64>>;

/// Without the filters that others cover. Members of shared subscriptions are counted one by one: nothing covers them.
pub(crate) fn cover(filters: &Filters) -> Filters {
    let is_plain = |filter: &TopicFilter| filter.share_group().is_none();
    let covers = |other: &TopicFilter, filter: &TopicFilter| other != filter && is_plain(other) && other.covers(filter);
    let is_covered = |filter: &TopicFilter| is_plain(filter) && filters.iter().any(|other| covers(other, filter));
    filters.iter().filter(|filter| !is_covered(filter)).cloned().collect()
}

/// The tables at rest of nodes whose links make no cycle.
pub(crate) fn told(edges: &Edges, local: &BTreeMap<u64, Filters>) -> Told {
    let mut told = Told::new();
    loop {
        let before = told.clone();
        for (node, neighbours) in edges {
            for to in neighbours {
                let others = neighbours.iter().filter(|other| *other != to);
                let heard = others.filter_map(|other| told.get(&(*other, *node))).flatten();
                let wanted: Filters = local[node].iter().chain(heard).cloned().collect();
                told.insert((*node, *to), cover(&wanted));
            }
        }
        if told == before {
            return told;
        }
    }
}

/// How many links are between a node and each that they lead to, itself included.
pub(crate) fn distances(edges: &Edges, from: u64) -> BTreeMap<u64, usize> {
    let mut distances = BTreeMap::from([(from, 0)]);
    let mut ring = BTreeSet::from([from]);
    for distance in 1.. {
        let next = ring.iter().filter_map(|node| edges.get(node)).flatten();
        ring = next.filter(|node| !distances.contains_key(node)).copied().collect();
        if ring.is_empty() {
            break;
        }
        distances.extend(ring.iter().map(|node| (*node, distance)));
    }
    distances
}

/// Whether the links make no cycle: there is one link less than nodes in each part.
pub(crate) fn is_forest(edges: &Edges) -> bool {
    edges.keys().all(|node| {
        let part = distances(edges, *node);
        part.keys().filter_map(|node| edges.get(node)).map(BTreeSet::len).sum::<usize>() == 2 * (part.len() - 1)
    })
}
