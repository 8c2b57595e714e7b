//! The baseline: Scribe on a distributed hash table, as the source compares with.
//!
//! The table is routed by numeric id over the rings of a Skip Graph (SkipNet): on level c all nodes that share c digits form a ring,
//! and a message goes round it until it meets one that shares one digit more with its target. A topic's root is the node whose id is
//! nearest to its hash. Subscribers join towards the root; each hop remembers the one before it as its child. Publishers know
//! the root and send to it directly.

use std::collections::BTreeMap;

use sedge_base::{Rng, mix};

use crate::stats::real;

/// The hash table.
pub(crate) struct Dht {
    ids: Vec<u64>,
    /// By level: the next node on the ring; a node alone on its ring follows itself.
    next: Vec<Vec<u32>>,
    /// Node numbers in the order of their ids.
    sorted: Vec<u32>,
}

/// The tree of one topic.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    pub(crate) root: usize,
    /// Parent of each node in the tree but the root.
    parents: BTreeMap<usize, usize>,
}

fn index(node: u32) -> usize {
    node as usize
}

fn small(node: usize) -> u32 {
    u32::try_from(node).unwrap_or(u32::MAX)
}

impl Dht {
    pub(crate) fn new(count: usize, rng: &mut Rng) -> Self {
        let ids: Vec<u64> = (0..count).map(|_| rng.next_u64()).collect();
        let mut sorted: Vec<u32> = (0..small(count)).collect();
        sorted.sort_unstable_by_key(|node| ids[index(*node)]);
        let mut next = Vec::new();
        for level in 0..u64::BITS {
            let mut ring = vec![0; count];
            let mut longest = 1;
            // Those that share digits are side by side in the order of ids; the order on the ring is that of the numbers.
            let shares = |a: &u32, b: &u32| (ids[index(*a)] ^ ids[index(*b)]).leading_zeros() >= level;
            for members in sorted.chunk_by(shares) {
                let mut members = members.to_vec();
                members.sort_unstable();
                longest = longest.max(members.len());
                for (at, node) in members.iter().enumerate() {
                    ring[index(*node)] = members[(at + 1) % members.len()];
                }
            }
            if longest == 1 {
                break;
            }
            next.push(ring);
        }
        Self { ids, next, sorted }
    }

    /// The node whose id is nearest to the topic's hash.
    pub(crate) fn root(&self, topic: usize) -> usize {
        let hash = mix(topic as u64 + 1);
        let at = self.sorted.partition_point(|node| self.ids[index(*node)] < hash);
        let around = [at.checked_sub(1), Some(at)];
        let near = around.into_iter().flatten().filter_map(|at| self.sorted.get(at).copied());
        near.map(index).min_by_key(|node| self.ids[*node] ^ hash).unwrap_or(0)
    }

    /// The next hop from `node` to `target`.
    fn step(&self, node: usize, target: usize) -> usize {
        let level = (self.ids[node] ^ self.ids[target]).leading_zeros() as usize;
        self.next.get(level).map_or(target, |ring| index(ring[node]))
    }

    /// Table entries of a node: two neighbours on each level with others, all counted, and each other node once. Only the right
    /// neighbours of rings are held here; a node has as many left ones.
    pub(crate) fn table_size(&self, node: usize) -> usize {
        2 * self.next.iter().filter(|ring| index(ring[node]) != node).count()
    }

    pub(crate) fn mean_table_size(&self) -> f64 {
        real((0..self.ids.len()).map(|node| self.table_size(node)).sum()) / real(self.ids.len())
    }

    /// The tree of a topic with these subscribers.
    pub(crate) fn tree(&self, topic: usize, subscribers: impl IntoIterator<Item = usize>) -> Tree {
        let mut tree = Tree { root: self.root(topic), parents: BTreeMap::new() };
        for subscriber in subscribers {
            let mut at = subscriber;
            while at != tree.root && !tree.parents.contains_key(&at) {
                let parent = self.step(at, tree.root);
                tree.parents.insert(at, parent);
                at = parent;
            }
        }
        tree
    }
}

impl Tree {
    /// Hops from the root to a subscriber.
    pub(crate) fn depth(&self, subscriber: usize) -> usize {
        let (mut at, mut hops) = (subscriber, 0);
        while let Some(parent) = self.parents.get(&at) {
            at = *parent;
            hops += 1;
        }
        hops
    }

    /// Copies for one publication: to the root, and down every edge.
    pub(crate) fn messages(&self, publisher: usize) -> usize {
        usize::from(publisher != self.root) + self.parents.len()
    }

    /// Each node that has children, with how many.
    pub(crate) fn children(&self) -> BTreeMap<usize, usize> {
        let mut children = BTreeMap::new();
        for parent in self.parents.values() {
            *children.entry(*parent).or_insert(0) += 1;
        }
        children
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subscriber_hangs_below_the_root_at_logarithmic_depth() {
        let count = 4_096;
        let dht = Dht::new(count, &mut Rng::new(1));
        let mut total = 0;
        for topic in 0..20 {
            let tree = dht.tree(topic, (0..count).step_by(41));
            assert_eq!(tree.depth(tree.root), 0);
            for subscriber in (0..count).step_by(41) {
                total += tree.depth(subscriber);
            }
            assert_eq!(tree.children().values().sum::<usize>(), tree.parents.len());
        }
        let mean = real(total) / real(20 * (0..count).step_by(41).count());
        assert!((9.0..15.0).contains(&mean), "{mean} hops for 12 levels");
    }
}
