//! The subscriptions of one node's clients.

use std::collections::BTreeMap;

use sedge_base::{ClientId, StableHash};
use sedge_mqtt::TopicFilter;

use crate::{Advert, AdvertOp};

/// One row of a table: the client and its filter.
pub(super) type Key = (ClientId, TopicFilter);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) online: bool,
    /// The snapshot in which, or since which, the entry was last confirmed.
    snapshot: u64,
}

/// Effect of a change on an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Nothing,
    Added { online: bool },
    Removed { online: bool },
    Turned { online: bool },
}

/// The subscriptions of the clients of one node.
#[derive(Debug, Default)]
pub(super) struct Table {
    entries: BTreeMap<Key, Entry>,
    snapshot: u64,
}

impl Table {
    pub(super) fn apply(&mut self, change: &Advert) -> Effect {
        let key = (change.client.clone(), change.filter.clone());
        match change.op {
            AdvertOp::Add { online } => match self.entries.insert(key, Entry { online, snapshot: self.snapshot }) {
                None => Effect::Added { online },
                Some(before) if before.online == online => Effect::Nothing,
                Some(_) => Effect::Turned { online },
            },
            AdvertOp::Remove => match self.entries.remove(&key) {
                None => Effect::Nothing,
                Some(before) => Effect::Removed { online: before.online },
            },
        }
    }

    /// From now on entries count as confirmed when they are applied again.
    pub(super) fn begin_snapshot(&mut self) {
        self.snapshot += 1;
    }

    /// Takes out the entries that were not confirmed since [`Table::begin_snapshot`].
    pub(super) fn end_snapshot(&mut self) -> Vec<(Key, Entry)> {
        let snapshot = self.snapshot;
        self.entries.extract_if(.., |_, entry| entry.snapshot != snapshot).collect()
    }

    /// Takes out everything.
    pub(super) fn clear(&mut self) -> Vec<(Key, Entry)> {
        core::mem::take(&mut self.entries).into_iter().collect()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Key, &Entry)> {
        self.entries.iter()
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Number of entries and a hash over them in order (FNV-1a, 64 bit): the same on both sides of a link if the tables are.
    pub(super) fn digest(&self) -> (u64, u64) {
        let mut hash = StableHash::new();
        for ((client, filter), entry) in &self.entries {
            // 0xFF is in no UTF-8 text: it keeps neighbouring texts apart.
            hash.add(client.as_str().as_bytes());
            hash.add(&[0xFF]);
            hash.add(filter.as_str().as_bytes());
            hash.add(&[0xFF, u8::from(entry.online)]);
        }
        (self.entries.len() as u64, hash.get())
    }
}
