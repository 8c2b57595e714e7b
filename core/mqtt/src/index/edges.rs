//! The literal levels of the trie: (parent, level) to child.

use core::borrow::Borrow;
use core::hash::{Hash, Hasher};

use sedge_base::{LookupMap, Seed};

/// Children by parent and level. One table for the whole trie costs less than one for each node.
#[derive(Clone, Debug)]
pub(super) struct Edges(LookupMap<Owned, u32>);

#[derive(Clone, Debug)]
struct Owned {
    parent: u32,
    level: Box<[u8]>,
}

/// A key that owns its level or not: lookups must not allocate.
trait Edge {
    fn parts(&self) -> (u32, &[u8]);
}

impl Edge for Owned {
    fn parts(&self) -> (u32, &[u8]) {
        (self.parent, &self.level)
    }
}

impl Edge for (u32, &[u8]) {
    fn parts(&self) -> (u32, &[u8]) {
        *self
    }
}

impl Hash for dyn Edge + '_ {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let (parent, level) = self.parts();
        state.write_u64(u64::from(parent));
        state.write(level);
    }
}

impl PartialEq for dyn Edge + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for dyn Edge + '_ {}

impl Hash for Owned {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self as &dyn Edge).hash(state);
    }
}

impl PartialEq for Owned {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for Owned {}

impl<'a> Borrow<dyn Edge + 'a> for Owned {
    fn borrow(&self) -> &(dyn Edge + 'a) {
        self
    }
}

impl Edges {
    pub(super) const fn new(seed: Seed) -> Self {
        Self(LookupMap::new(seed))
    }

    pub(super) fn get(&self, parent: u32, level: &[u8]) -> Option<u32> {
        self.0.get(&(parent, level) as &dyn Edge).copied()
    }

    pub(super) fn insert(&mut self, parent: u32, level: &[u8], child: u32) {
        self.0.insert(Owned { parent, level: level.into() }, child);
    }

    pub(super) fn remove(&mut self, parent: u32, level: &[u8]) {
        self.0.remove(&(parent, level) as &dyn Edge);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
