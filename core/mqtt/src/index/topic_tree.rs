//! Which topics match a filter.

use core::borrow::Borrow;
use core::ops::Bound;
use std::collections::BTreeMap;

use crate::{TopicFilter, TopicName};

/// Values by topic name, found by topic filter; in the order of the names' bytes.
///
/// A sorted map. A filter leaps over the names that cannot match, so that it costs about one search for each name that
/// matches and each branch of a `+`.
///
/// ```
/// use sedge_mqtt::{TopicFilter, TopicName, TopicTree};
///
/// let mut tree = TopicTree::new();
/// for (topic, value) in [("a/x/t", 1), ("a/y/t", 2), ("b/x/t", 3)] {
///     tree.insert(&TopicName::new(topic).unwrap(), value);
/// }
/// let mut found = Vec::new();
/// tree.matching(&TopicFilter::new("a/+/t").unwrap(), |_, value| found.push(*value));
/// assert_eq!(found, [1, 2]);
/// ```
#[derive(Clone, Debug)]
pub struct TopicTree<V> {
    topics: BTreeMap<Key, V>,
}

/// A name that is looked up by its bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key(TopicName);

impl Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl<V> TopicTree<V> {
    /// An empty tree.
    pub const fn new() -> Self {
        Self { topics: BTreeMap::new() }
    }

    /// Sets the value of `topic` and returns the one before. Keeps its own copy of a new name.
    pub fn insert(&mut self, topic: &TopicName, value: V) -> Option<V> {
        if let Some(place) = self.get_mut(topic) {
            return Some(std::mem::replace(place, value));
        }
        self.topics.insert(Key(topic.detached()), value)
    }

    /// Removes `topic` and returns its value.
    pub fn remove(&mut self, topic: &TopicName) -> Option<V> {
        self.topics.remove(topic.as_bytes())
    }

    /// The value of `topic`.
    pub fn get(&self, topic: &TopicName) -> Option<&V> {
        self.topics.get(topic.as_bytes())
    }

    /// The value of `topic`, to be changed.
    pub fn get_mut(&mut self, topic: &TopicName) -> Option<&mut V> {
        self.topics.get_mut(topic.as_bytes())
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
        self.topics.iter().map(|(key, value)| (&key.0, value))
    }

    /// All topics from a name's bytes on, in order.
    pub fn range(&self, from: Bound<&[u8]>) -> impl Iterator<Item = (&TopicName, &V)> {
        self.topics.range::<[u8], _>((from, Bound::Unbounded)).map(|(key, value)| (&key.0, value))
    }

    /// Visits every topic that `filter` matches, in order (MQTT 5.0 section 4.7).
    pub fn matching(&self, filter: &TopicFilter, mut visit: impl FnMut(&TopicName, &V)) {
        let mut seek = Vec::new();
        let mut candidates = self.topics.range::<[u8], _>(..);
        while let Some((key, value)) = candidates.next() {
            match judge(filter.filter_bytes(), key.borrow(), &mut seek) {
                Verdict::Match => visit(&key.0, value),
                Verdict::Next => {}
                Verdict::Seek => {
                    let from = (Bound::Included(&seek[..]), Bound::Unbounded);
                    candidates = self.topics.range::<[u8], _>(from);
                }
                Verdict::End => return,
            }
        }
    }
}

/// Verdict on one topic, and on the topics behind it.
enum Verdict {
    Match,
    /// The next topic may match.
    Next,
    /// No topic below the one in the seek buffer matches.
    Seek,
    /// No topic behind matches.
    End,
}

/// Compares `topic` with `filter`. A topic that does not match tells which later ones cannot either: all below the wanted
/// literal, or all that share the prefix of the last `+`. `seek` is then set to a text behind `topic`.
fn judge(filter: &[u8], topic: &[u8], seek: &mut Vec<u8>) -> Verdict {
    if topic.starts_with(b"$") && matches!(filter.first(), Some(b'+' | b'#')) {
        return seek_to(seek, &[b"%"]);
    }
    let mut wanted_levels = filter.split(|&byte| byte == b'/').peekable();
    let mut start = 0;
    // End of the last level that `+` took, where a `/` follows.
    let mut plus_end = None;
    while let Some(wanted) = wanted_levels.next() {
        let Some(rest) = topic.get(start..) else { return Verdict::Next };
        let level = rest.split(|&byte| byte == b'/').next().unwrap_or(rest);
        let end = start + level.len();
        let (filter_ends, topic_ends) = (wanted_levels.peek().is_none(), end == topic.len());
        if wanted == b"#" {
            return Verdict::Match;
        }
        if wanted != b"+" && wanted != level {
            return pass_literal(topic, start, plus_end, wanted, filter_ends, seek);
        }
        if wanted == b"+" && !topic_ends {
            plus_end = Some(end);
        }
        match (filter_ends, topic_ends) {
            (true, true) => return Verdict::Match,
            (true, false) => return leave(topic, plus_end, seek),
            (false, true) if wanted_levels.peek() == Some(&&b"#"[..]) => return Verdict::Match,
            (false, true) => return Verdict::Next,
            (false, false) => start = end + 1,
        }
    }
    Verdict::Next
}

/// The level of `topic` at `start` is not the literal `wanted`.
fn pass_literal(
    topic: &[u8],
    start: usize,
    plus_end: Option<usize>,
    wanted: &[u8],
    filter_ends: bool,
    seek: &mut Vec<u8>,
) -> Verdict {
    let (before, rest) = topic.split_at(start);
    if rest < wanted {
        return seek_to(seek, &[before, wanted]);
    }
    // Names like "a!" lie between "a" and "a/b".
    let between = rest.strip_prefix(wanted).and_then(<[u8]>::first).is_some_and(|&next| next < b'/');
    if between && !filter_ends {
        return seek_to(seek, &[before, wanted, b"/"]);
    }
    leave(topic, plus_end, seek)
}

/// Nothing more with the level that the last `+` took.
fn leave(topic: &[u8], plus_end: Option<usize>, seek: &mut Vec<u8>) -> Verdict {
    match plus_end.and_then(|end| topic.get(..end)) {
        // '0' follows '/'.
        Some(prefix) => seek_to(seek, &[prefix, b"0"]),
        None => Verdict::End,
    }
}

fn seek_to(seek: &mut Vec<u8>, parts: &[&[u8]]) -> Verdict {
    seek.clear();
    for part in parts {
        seek.extend_from_slice(part);
    }
    Verdict::Seek
}

impl<V> Default for TopicTree<V> {
    fn default() -> Self {
        Self::new()
    }
}
