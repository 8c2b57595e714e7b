//! Routing tables of virtual nodes.

use super::{Base, Key, Range, Topic, Vector};

/// A virtual node of another physical node, or of this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer<T> {
    /// Its key.
    pub key: Key<T>,
    /// The membership vector of its physical node.
    pub vector: Vector,
    /// Number of the key's life: it grows each time the key is inserted anew, so that a late farewell says nothing about the next life.
    pub life: u64,
}

/// A direction in the order of the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Towards smaller keys.
    Left,
    /// Towards larger keys.
    Right,
}

impl Side {
    pub(super) const fn other(self) -> Self {
        match self {
            Self::Left => Self::Right,
            Self::Right => Self::Left,
        }
    }

    /// Whether `near` comes before `far` when one goes this way.
    pub(super) fn is_nearer<T: Topic>(self, near: &Key<T>, far: &Key<T>) -> bool {
        match self {
            Self::Left => near > far,
            Self::Right => near < far,
        }
    }
}

/// The neighbours of a virtual node on one side, on all levels.
///
/// The neighbour on level i is the nearest node that shares i digits of the vector. A neighbour that is nearest with so many shared digits
/// is so on all levels up to its number of shared digits; so a row holds each neighbour once, nearest first, and each shares more digits
/// than the one before. Neighbours of the same physical node are not held: where the row ends, the next own virtual node follows.
#[derive(Clone, Debug)]
pub(super) struct Row<T> {
    peers: Vec<Peer<T>>,
}

impl<T> Default for Row<T> {
    fn default() -> Self {
        Self { peers: Vec::new() }
    }
}

/// The vector that digits are compared with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) vector: Vector,
    pub(super) base: Base,
}

impl Place {
    pub(super) const fn common<T>(self, peer: &Peer<T>) -> u32 {
        self.base.common(self.vector, peer.vector)
    }
}

impl<T: Topic> Row<T> {
    pub(super) fn peers(&self) -> &[Peer<T>] {
        &self.peers
    }

    pub(super) fn nearest(&self) -> Option<&Peer<T>> {
        self.peers.first()
    }

    /// The neighbour on this level.
    pub(super) fn at_level(&self, place: Place, level: u32) -> Option<&Peer<T>> {
        self.peers.iter().find(|peer| place.common(peer) >= level)
    }

    /// Takes in a peer on this side if it is a neighbour on any level; says whether it was none before.
    pub(super) fn learn(&mut self, side: Side, place: Place, peer: &Peer<T>) -> bool {
        let at = self.peers.partition_point(|known| side.is_nearer(&known.key, &peer.key));
        let shared = place.common(peer);
        if let Some(known) = self.peers.get_mut(at).filter(|known| known.key == peer.key) {
            let newer = known.life < peer.life;
            known.life = known.life.max(peer.life);
            return newer;
        }
        if at > 0 && self.peers.get(at - 1).is_some_and(|nearer| place.common(nearer) >= shared) {
            return false;
        }
        let behind = self.peers.iter().skip(at).take_while(|farther| place.common(farther) <= shared).count();
        self.peers.splice(at..at + behind, [peer.clone()]);
        true
    }

    /// Forgets a key in this life and those before; says whether it was there.
    pub(super) fn remove(&mut self, key: &Key<T>, life: u64) -> bool {
        let before = self.peers.len();
        self.peers.retain(|peer| peer.key != *key || peer.life > life);
        before != self.peers.len()
    }

    /// Forgets all for which `keep` is false; says whether there were any.
    pub(super) fn retain(&mut self, keep: impl FnMut(&Peer<T>) -> bool) -> bool {
        let before = self.peers.len();
        self.peers.retain(keep);
        before != self.peers.len()
    }

    /// Takes out the peers that lie beyond `key`.
    pub(super) fn split_off(&mut self, side: Side, key: &Key<T>) -> Self {
        let at = self.peers.partition_point(|known| side.is_nearer(&known.key, key));
        Self { peers: self.peers.split_off(at) }
    }

    /// Takes in all of another row.
    pub(super) fn merge(&mut self, side: Side, place: Place, other: &Self) {
        for peer in &other.peers {
            self.learn(side, place, peer);
        }
    }

    /// Neighbours in `range` towards `side`, nearest first.
    pub(super) fn within(&self, side: Side, range: &Range<T>) -> &[Peer<T>] {
        let before = |peer: &Peer<T>| match side {
            Side::Left => range.ends_before(&peer.key),
            Side::Right => range.starts_after(&peer.key),
        };
        let from = self.peers.partition_point(before);
        let to = self.peers.partition_point(|peer| before(peer) || range.contains(&peer.key));
        self.peers.get(from..to).unwrap_or_default()
    }

    /// The lowest level on which `key` is a neighbour.
    pub(super) fn lowest_level(&self, place: Place, key: &Key<T>) -> u32 {
        let nearer = self.peers.iter().take_while(|peer| peer.key != *key).last();
        nearer.map_or(0, |nearer| place.common(nearer) + 1)
    }

    /// The neighbours on the levels from `low` to `high`, each once.
    pub(super) fn on_levels(&self, place: Place, low: u32, high: u32) -> impl Iterator<Item = &Peer<T>> {
        let mut covered = false;
        self.peers.iter().filter(move |peer| place.common(peer) >= low).take_while(move |peer| {
            let wanted = !covered;
            covered = place.common(peer) >= high;
            wanted
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use sedge_base::NodeId;

    use super::*;
    use crate::skip_graph::Role;

    const PLACE: Place = Place { vector: Vector::new(0), base: Base::Two };

    fn peer(node: u64, shared: u32) -> Peer<u32> {
        let key = Key::new(1, Role::Subscriber, NodeId::new(node));
        Peer { key, vector: Vector::new(1 << (63 - shared)), life: 1 }
    }

    fn nearest_on_level(peers: &[Peer<u32>], level: u32) -> Option<&Peer<u32>> {
        peers.iter().filter(|peer| PLACE.common(peer) >= level).min_by_key(|peer| peer.key)
    }

    proptest! {
        /// SG-01: whatever the order in which peers are learnt, each level has its nearest node, and each node is held once.
        #[test]
        fn a_row_holds_the_nearest_of_every_level(shared in vec(0_u32..6, 0..40), order in any::<u64>(), gone in 0_usize..40) {
            let mut peers: Vec<Peer<u32>> = (0..).zip(&shared).map(|(node, shared)| peer(node, *shared)).collect();
            sedge_base::Rng::new(order).shuffle(&mut peers);
            let mut row = Row::default();
            for peer in &peers {
                row.learn(Side::Right, PLACE, peer);
                prop_assert!(!row.learn(Side::Right, PLACE, peer));
            }
            for level in 0..8 {
                prop_assert_eq!(row.at_level(PLACE, level), nearest_on_level(&peers, level));
            }
            prop_assert!(row.peers().is_sorted_by(|a, b| a.key < b.key && PLACE.common(a) < PLACE.common(b)));
            // A forgotten peer leaves no hole: the next peer that shares enough takes its place.
            if let Some(gone) = peers.get(gone) {
                prop_assert!(!row.remove(&gone.key, 0), "a former life");
                row.remove(&gone.key, 1);
                for level in 0..8 {
                    let held = row.at_level(PLACE, level);
                    prop_assert!(held.is_none_or(|held| held.key != gone.key && PLACE.common(held) >= level));
                }
            }
        }
    }

    #[test]
    fn levels_and_ranges_are_cut_out_exactly() {
        let mut row = Row::default();
        for (node, shared) in [(3, 0), (5, 2), (9, 3), (20, 6)] {
            row.learn(Side::Right, PLACE, &peer(node, shared));
        }
        let nodes = |peers: &[Peer<u32>]| peers.iter().map(|peer| peer.key.node.get()).collect::<Vec<u64>>();
        let key = |node| Key::new(1, Role::Subscriber, NodeId::new(node));
        assert_eq!(nodes(row.within(Side::Right, &Range::closed(key(4), key(9)))), [5, 9]);
        assert_eq!(nodes(row.within(Side::Right, &Range::closed(key(10), key(19)))), [0_u64; 0]);
        let levels = |low, high| row.on_levels(PLACE, low, high).map(|peer| peer.key.node.get()).collect::<Vec<u64>>();
        assert_eq!(levels(0, 0), [3]);
        assert_eq!(levels(1, 3), [5, 9]);
        assert_eq!(levels(1, 9), [5, 9, 20]);
        assert_eq!(levels(7, 9), [0_u64; 0]);
        assert_eq!([3, 5, 9, 20].map(|node| row.lowest_level(PLACE, &key(node))), [0, 1, 3, 4]);
        assert_eq!(nodes(row.split_off(Side::Right, &key(6)).peers()), [9, 20]);
        assert_eq!(nodes(row.peers()), [3, 5]);
    }
}
