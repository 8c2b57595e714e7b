//! Which topics match a filter.

use std::collections::BTreeMap;

use crate::{TopicFilter, TopicName};

/// Values by topic name, found by topic filter; in the order of the names' bytes.
#[derive(Clone, Debug)]
pub struct TopicTree<V> {
    topics: BTreeMap<TopicName, V>,
}

impl<V> TopicTree<V> {
    /// An empty tree.
    pub const fn new() -> Self {
        Self { topics: BTreeMap::new() }
    }

    /// Sets the value of `topic` and returns the one before. Keeps its own copy of a new name.
    pub fn insert(&mut self, topic: &TopicName, value: V) -> Option<V> {
        self.topics.insert(topic.detached(), value)
    }

    /// Removes `topic` and returns its value.
    pub fn remove(&mut self, topic: &TopicName) -> Option<V> {
        self.topics.remove(topic)
    }

    /// The value of `topic`.
    pub fn get(&self, topic: &TopicName) -> Option<&V> {
        self.topics.get(topic)
    }

    /// The value of `topic`, to be changed.
    pub fn get_mut(&mut self, topic: &TopicName) -> Option<&mut V> {
        self.topics.get_mut(topic)
    }

    /// How many topics have a value.
    pub fn len(&self) -> usize {
        self.topics.len()
    }

    /// Whether no topic has a value.
    pub fn is_empty(&self) -> bool {
        self.topics.is_empty()
    }

    /// All topics, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&TopicName, &V)> {
        self.topics.iter()
    }

    /// Visits every topic that `filter` matches, in order (MQTT 5.0 section 4.7).
    pub fn matching(&self, filter: &TopicFilter, mut visit: impl FnMut(&TopicName, &V)) {
        self.topics.iter().filter(|(topic, _)| filter.matches(topic)).for_each(|(topic, value)| visit(topic, value));
    }
}

impl<V> Default for TopicTree<V> {
    fn default() -> Self {
        Self::new()
    }
}
