//! Which subscriptions match a topic.

use std::collections::BTreeMap;

use sedge_base::Seed;

use crate::{TopicFilter, TopicName};

/// Values by (topic filter, key), found by topic. Only the part of a filter that matches counts: `$share/group/` is left to
/// the key.
#[derive(Clone, Debug)]
pub struct SubscriptionTrie<K, V> {
    all: BTreeMap<String, BTreeMap<K, V>>,
    len: usize,
}

impl<K: Ord + Clone, V> SubscriptionTrie<K, V> {
    /// An empty trie with a fixed hash seed: for filters that no stranger chooses.
    pub fn new() -> Self {
        Self { all: BTreeMap::new(), len: 0 }
    }

    /// An empty trie with a secret hash seed: strangers cannot choose filters that collide.
    pub fn with_seed(_seed: Seed) -> Self {
        Self::new()
    }

    /// Sets the value of (`filter`, `key`) and returns the one before.
    pub fn insert(&mut self, filter: &TopicFilter, key: K, value: V) -> Option<V> {
        let before = self.all.entry(filter.filter().to_owned()).or_default().insert(key, value);
        self.len += usize::from(before.is_none());
        before
    }

    /// Removes (`filter`, `key`) and returns its value.
    pub fn remove(&mut self, filter: &TopicFilter, key: &K) -> Option<V> {
        let gone = self.all.get_mut(filter.filter())?.remove(key)?;
        self.len -= 1;
        Some(gone)
    }

    /// The value of (`filter`, `key`).
    pub fn get(&self, filter: &TopicFilter, key: &K) -> Option<&V> {
        self.all.get(filter.filter())?.get(key)
    }

    /// The value of (`filter`, `key`), to be changed.
    pub fn get_mut(&mut self, filter: &TopicFilter, key: &K) -> Option<&mut V> {
        self.all.get_mut(filter.filter())?.get_mut(key)
    }

    /// How many pairs have a value.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether no pair has a value.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Visits every (filter, key) whose filter matches `topic`, each once, in an order that depends only on what the trie
    /// holds. `topic` is a topic name as [`TopicName`] or as text.
    pub fn matches(&self, topic: &(impl AsRef<str> + ?Sized), mut visit: impl FnMut(&K, &V)) {
        let Ok(topic) = TopicName::new(topic.as_ref()) else { return };
        for (filter, entries) in &self.all {
            if TopicFilter::new(filter).is_ok_and(|filter| filter.matches(&topic)) {
                entries.iter().for_each(|(key, value)| visit(key, value));
            }
        }
    }
}

impl<K: Ord + Clone, V> Default for SubscriptionTrie<K, V> {
    fn default() -> Self {
        Self::new()
    }
}
