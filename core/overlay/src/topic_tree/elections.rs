//! The roots of the trees.
//!
//! Of the members of a topic the one with the lowest address is the *elector*. It elects when the members have changed and tells the
//! others; an election stands until the members change again, whatever becomes of loads meanwhile, so roots do not flap.

use std::collections::{BTreeMap, BTreeSet};

use sedge_base::NodeId;

use super::signal::Elected;
use super::topics::Members;

/// An election of this node that nothing has used at so many refreshes is forgotten. After the nodes that were told of it would be too
/// late.
const KEEP_MINE: u8 = 2;
/// The same for elections of others.
const KEEP_TOLD: u8 = 6;

#[derive(Clone, Debug)]
struct Mine {
    root: NodeId,
    members: Members,
    unused: u8,
}

#[derive(Clone, Copy, Debug)]
struct Told {
    root: NodeId,
    unused: u8,
}

/// Elections by this node and by others, by the key of the topic or of the set of members.
#[derive(Debug, Default)]
pub(super) struct Elections {
    mine: BTreeMap<u64, Mine>,
    told: BTreeMap<NodeId, BTreeMap<u64, Told>>,
}

impl Elections {
    /// The root that this node has elected.
    pub(super) fn mine(&self, key: u64) -> Option<NodeId> {
        self.mine.get(&key).map(|mine| mine.root)
    }

    /// The root that `elector` has told.
    pub(super) fn told(&self, elector: NodeId, key: u64) -> Option<NodeId> {
        self.told.get(&elector)?.get(&key).map(|told| told.root)
    }

    /// The root that anybody has elected.
    pub(super) fn any(&self, key: u64) -> Option<NodeId> {
        self.mine(key).or_else(|| self.told.keys().find_map(|elector| self.told(*elector, key)))
    }

    /// Whether this node, being the elector, has still to elect.
    pub(super) fn is_open(&self, key: u64, members: &Members) -> bool {
        self.mine.get(&key).is_none_or(|mine| mine.members != *members)
    }

    pub(super) fn elect(&mut self, key: u64, root: NodeId, members: Members) {
        self.mine.insert(key, Mine { root, members, unused: 0 });
    }

    /// `elector` tells of an election; says whether there is room for it.
    pub(super) fn hear(&mut self, elector: NodeId, (key, root): Elected, limit: usize) -> bool {
        let told = self.told.entry(elector).or_default();
        let has_room = told.len() < limit || told.contains_key(&key);
        if has_room {
            told.insert(key, Told { root, unused: 0 });
        }
        has_room
    }

    /// Forgets the elections that `elector` has told.
    pub(super) fn forget(&mut self, elector: NodeId) {
        self.told.remove(&elector);
    }

    /// Roots that this node has elected for sets to which `member` belongs.
    pub(super) fn concerning(&self, member: NodeId) -> impl Iterator<Item = Elected> {
        let concerned = self.mine.iter().filter(move |(_, mine)| mine.members.binary_search(&member).is_ok());
        concerned.map(|(key, mine)| (*key, mine.root))
    }

    /// Forgets elections that have not been among `used` for a while.
    pub(super) fn age(&mut self, used: &BTreeSet<u64>) {
        let keep = |key: &u64, unused: &mut u8, limit: u8| {
            *unused = if used.contains(key) { 0 } else { *unused + 1 };
            *unused <= limit
        };
        self.mine.retain(|key, mine| keep(key, &mut mine.unused, KEEP_MINE));
        for told in self.told.values_mut() {
            told.retain(|key, told| keep(key, &mut told.unused, KEEP_TOLD));
        }
        self.told.retain(|_, told| !told.is_empty());
    }
}
