//! Many timers of one kind, cancelled and moved by key: no stale timers, no tokens.

use std::collections::{BTreeMap, BTreeSet};

use crate::Instant;

/// A deadline per key. Setting a key again moves its deadline.
#[derive(Clone, Debug)]
pub struct Deadlines<K> {
    by_key: BTreeMap<K, Instant>,
    by_time: BTreeSet<(Instant, K)>,
}

impl<K: Ord + Clone> Deadlines<K> {
    /// No deadlines.
    pub const fn new() -> Self {
        Self { by_key: BTreeMap::new(), by_time: BTreeSet::new() }
    }

    /// Sets or moves the deadline of `key`.
    pub fn set(&mut self, key: K, at: Instant) {
        if let Some(before) = self.by_key.insert(key.clone(), at) {
            if before == at {
                return;
            }
            self.by_time.remove(&(before, key.clone()));
        }
        self.by_time.insert((at, key));
    }

    /// Removes the deadline of `key`; says whether there was one.
    pub fn cancel(&mut self, key: &K) -> bool {
        let Some(at) = self.by_key.remove(key) else { return false };
        self.by_time.remove(&(at, key.clone()));
        true
    }

    /// The deadline of `key`.
    pub fn get(&self, key: &K) -> Option<Instant> {
        self.by_key.get(key).copied()
    }

    /// The keys from `first` on, in their order.
    pub fn keys_from(&self, first: &K) -> impl Iterator<Item = &K> {
        self.by_key.range(first..).map(|(key, _)| key)
    }

    /// The keys in their order.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.by_key.keys()
    }

    /// The earliest deadline.
    pub fn next(&self) -> Option<Instant> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Takes one key whose deadline is at or before `now`, earliest first.
    pub fn pop_due(&mut self, now: Instant) -> Option<K> {
        if self.next()? > now {
            return None;
        }
        let (_, key) = self.by_time.pop_first()?;
        self.by_key.remove(&key);
        Some(key)
    }

    /// How many deadlines are set.
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Whether no deadline is set.
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }
}

impl<K: Ord + Clone> Default for Deadlines<K> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_keys_come_in_order_and_once() {
        let mut timers = Deadlines::new();
        timers.set("late", Instant::from_millis(30));
        timers.set("early", Instant::from_millis(10));
        timers.set("moved", Instant::from_millis(5));
        timers.set("moved", Instant::from_millis(20));
        timers.set("gone", Instant::from_millis(1));
        assert!(timers.cancel(&"gone"));
        assert!(!timers.cancel(&"gone"));
        assert_eq!(timers.next(), Some(Instant::from_millis(10)));
        let now = Instant::from_millis(20);
        assert_eq!(timers.pop_due(now), Some("early"));
        assert_eq!(timers.pop_due(now), Some("moved"));
        assert_eq!(timers.pop_due(now), None);
        assert_eq!(timers.len(), 1);
    }
}
