//! Keys of virtual nodes, and ranges of them.

use core::fmt::Debug;

use sedge_base::NodeId;

/// Name of a topic: a topic name for brokers, a number for experiments with very many nodes. Its order is the order of the graph.
pub trait Topic: Clone + Ord + Debug {}

impl<T: Clone + Ord + Debug> Topic for T {}

/// Role in which a virtual node stands for its node. Publishers sort before subscribers, so that the right-most publisher of a topic is its
/// rendezvous point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// The node has clients that publish to the topic and none that subscribe to it.
    Publisher,
    /// The node has clients that subscribe to the topic.
    Subscriber,
}

/// The key of a virtual node, compared field by field (SG-05).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key<T> {
    /// The topic; none for the placeholder of a node without topics (SG-06), which sorts before all topics.
    pub topic: Option<T>,
    /// Publisher or subscriber. Placeholders are publishers of nothing.
    pub role: Role,
    /// The physical node, which makes the key unique and is its address.
    pub node: NodeId,
}

impl<T: Topic> Key<T> {
    /// The key of `node` for this topic and role.
    pub const fn new(topic: T, role: Role, node: NodeId) -> Self {
        Self { topic: Some(topic), role, node }
    }

    /// The key of `node` without topics.
    pub const fn placeholder(node: NodeId) -> Self {
        Self { topic: None, role: Role::Publisher, node }
    }

    /// Whether this is a virtual node of the same topic and role as `other`.
    pub fn is_of_group(&self, other: &Self) -> bool {
        self.topic == other.topic && self.role == other.role
    }
}

/// One end of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End<T> {
    /// The key there.
    pub key: Key<T>,
    /// Whether the key itself belongs to the range.
    pub included: bool,
}

impl<T> End<T> {
    /// The end at `key`, which belongs to the range.
    pub const fn at(key: Key<T>) -> Self {
        Self { key, included: true }
    }

    /// The end beside `key`, which does not belong to the range.
    pub const fn beside(key: Key<T>) -> Self {
        Self { key, included: false }
    }
}

/// An interval of keys with exact ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range<T> {
    /// Lower end.
    pub low: End<T>,
    /// Upper end.
    pub high: End<T>,
}

impl<T: Topic> Range<T> {
    /// All keys from `low` to `high`, both included.
    pub const fn closed(low: Key<T>, high: Key<T>) -> Self {
        Self { low: End::at(low), high: End::at(high) }
    }

    /// All virtual nodes of one topic and role: the sets `G_t^S` and `G_t^P`.
    pub fn group(topic: &T, role: Role) -> Self {
        let end = |node| Key::new(topic.clone(), role, NodeId::new(node));
        Self::closed(end(0), end(u64::MAX))
    }

    /// Whether `key` lies left of the range.
    pub fn starts_after(&self, key: &Key<T>) -> bool {
        *key < self.low.key || (*key == self.low.key && !self.low.included)
    }

    /// Whether `key` lies right of the range.
    pub fn ends_before(&self, key: &Key<T>) -> bool {
        *key > self.high.key || (*key == self.high.key && !self.high.included)
    }

    /// Whether `key` lies in the range.
    pub fn contains(&self, key: &Key<T>) -> bool {
        !self.starts_after(key) && !self.ends_before(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: NodeId = NodeId::new(1);

    /// SG-05: joined texts would put `a/b` between the two keys of `a`.
    #[test]
    fn topics_that_are_prefixes_of_each_other_stay_contiguous() {
        let mut keys: Vec<Key<&str>> = ["a", "a/b", "a b", "a\u{1}", "b"]
            .iter()
            .flat_map(|topic| [Role::Subscriber, Role::Publisher].map(|role| Key::new(*topic, role, ONE)))
            .collect();
        keys.push(Key::placeholder(NodeId::new(u64::MAX)));
        keys.sort_unstable();
        assert_eq!(keys[0].topic, None, "SG-06");
        for pair in keys[1..].chunks(2) {
            assert_eq!(pair[0].topic, pair[1].topic);
            assert_eq!((pair[0].role, pair[1].role), (Role::Publisher, Role::Subscriber));
        }
    }

    #[test]
    fn ends_are_exact() {
        let key = |node| Key::new("t", Role::Subscriber, NodeId::new(node));
        let range = Range { low: End::beside(key(3)), high: End::at(key(7)) };
        assert!(range.starts_after(&key(3)) && !range.starts_after(&key(4)));
        assert!(range.ends_before(&key(8)) && !range.ends_before(&key(7)));
        let inside: Vec<u64> = (0..10).filter(|node| range.contains(&key(*node))).collect();
        assert_eq!(inside, [4, 5, 6, 7]);
        let group = Range::group(&"t", Role::Subscriber);
        assert!(group.contains(&key(0)) && group.contains(&key(u64::MAX)));
        assert!(group.starts_after(&Key::new("t", Role::Publisher, ONE)));
    }
}
