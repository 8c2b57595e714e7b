//! The keys and values of one filter.

use std::collections::BTreeMap;

use smallvec::SmallVec;

/// Up to so many entries lie in one sorted list; more go into a tree, so that a filter with very many keys stays quick to change.
const FEW: usize = 32;

/// Values by key, in key order. Most filters have one.
#[derive(Clone, Debug)]
pub(super) enum Entries<K, V> {
    Few(SmallVec<[(K, V); 1]>),
    Many(BTreeMap<K, V>),
}

impl<K: Ord, V> Entries<K, V> {
    pub(super) fn new() -> Self {
        Self::Few(SmallVec::new())
    }

    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Few(list) => list.is_empty(),
            Self::Many(tree) => tree.is_empty(),
        }
    }

    pub(super) fn get(&self, key: &K) -> Option<&V> {
        match self {
            Self::Few(list) => list.binary_search_by(|(other, _)| other.cmp(key)).ok().map(|at| &list[at].1),
            Self::Many(tree) => tree.get(key),
        }
    }

    pub(super) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        match self {
            Self::Few(list) => list.binary_search_by(|(other, _)| other.cmp(key)).ok().map(|at| &mut list[at].1),
            Self::Many(tree) => tree.get_mut(key),
        }
    }

    pub(super) fn insert(&mut self, key: K, value: V) -> Option<V> {
        let list = match self {
            Self::Many(tree) => return tree.insert(key, value),
            Self::Few(list) => list,
        };
        match list.binary_search_by(|(other, _)| other.cmp(&key)) {
            Ok(at) => return Some(std::mem::replace(&mut list[at].1, value)),
            Err(at) if list.len() < FEW => list.insert(at, (key, value)),
            Err(_) => {
                let mut tree: BTreeMap<K, V> = list.drain(..).collect();
                tree.insert(key, value);
                *self = Self::Many(tree);
            }
        }
        None
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        match self {
            Self::Few(list) => {
                let at = list.binary_search_by(|(other, _)| other.cmp(key)).ok()?;
                Some(list.remove(at).1)
            }
            Self::Many(tree) => tree.remove(key),
        }
    }

    pub(super) fn visit(&self, visit: &mut impl FnMut(&K, &V)) {
        match self {
            Self::Few(list) => list.iter().for_each(|(key, value)| visit(key, value)),
            Self::Many(tree) => tree.iter().for_each(|(key, value)| visit(key, value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_and_many_behave_alike() {
        let mut entries = Entries::new();
        for key in (0..100_u32).rev() {
            assert_eq!(entries.insert(key, key), None);
            assert_eq!(entries.insert(key, key * 2), Some(key));
        }
        assert!(matches!(entries, Entries::Many(_)));
        *entries.get_mut(&7).unwrap() = 1;
        assert_eq!(entries.get(&7), Some(&1));
        let mut seen = Vec::new();
        entries.visit(&mut |key: &u32, _: &u32| seen.push(*key));
        assert!(seen.iter().copied().eq(0..100));
        assert!((0..100).all(|key| entries.remove(&key).is_some()));
        assert!(entries.is_empty());
    }
}
