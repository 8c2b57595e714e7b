//! Which subscriptions match a topic.

use sedge_base::{LookupMap, Rng, Seed};
use smallvec::SmallVec;

use super::edges::Edges;
use super::entries::Entries;
use crate::TopicFilter;

const ROOT: u32 = 0;
/// No child: nothing points to the root.
const NONE: u32 = 0;

/// Values by (topic filter, key), found by topic. Only the part of a filter that matches counts: `$share/group/` is left to
/// the key.
///
/// Filters without wildcards are looked up by the whole topic, in one step however many levels it has. Those with wildcards are in a
/// tree with one node for each level of a filter. A match follows at most two branches a level, the level itself and `+`, and
/// allocates nothing for topics of up to 31 levels, nor for deeper ones that match few wildcards. A node takes some 100 bytes, so a
/// filter with wildcards costs at most some 100 bytes for each of its levels, and one without as much in all and its text: a broker that
/// takes filters from strangers limits the levels.
///
/// ```
/// use sedge_mqtt::{SubscriptionTrie, TopicFilter};
///
/// let mut trie = SubscriptionTrie::new();
/// trie.insert(&TopicFilter::new("room/+/light").unwrap(), 7, "on");
/// let mut found = Vec::new();
/// trie.matches("room/3/light", |key, value| found.push((*key, *value)));
/// assert_eq!(found, [(7, "on")]);
/// ```
#[derive(Clone, Debug)]
pub struct SubscriptionTrie<K, V> {
    /// Of filters without wildcards.
    exact: LookupMap<Box<[u8]>, Entries<K, V>>,
    /// The tree of the others.
    nodes: Vec<Node<K, V>>,
    /// Unused places in `nodes`.
    free: Vec<u32>,
    edges: Edges,
    seed: Seed,
    len: usize,
}

/// A node of the trie: all filters with wildcards that begin alike.
#[derive(Clone, Debug)]
struct Node<K, V> {
    /// The child for the level `+`.
    plus: u32,
    /// The child for the level `#`.
    hash: u32,
    /// How many children the edges have for this node.
    literals: u32,
    /// Entries of the filter that ends here.
    entries: Entries<K, V>,
}

impl<K: Ord, V> Node<K, V> {
    fn new() -> Self {
        Self { plus: NONE, hash: NONE, literals: 0, entries: Entries::new() }
    }

    fn is_empty(&self) -> bool {
        self.plus == NONE && self.hash == NONE && self.literals == 0 && self.entries.is_empty()
    }
}

impl<K: Ord + Clone, V> SubscriptionTrie<K, V> {
    /// An empty trie with a fixed hash seed: for filters that no stranger chooses.
    pub fn new() -> Self {
        Self::with_seed(Seed::from_rng(&mut Rng::new(0)))
    }

    /// An empty trie with a secret hash seed: strangers cannot choose filters that collide.
    pub fn with_seed(seed: Seed) -> Self {
        let (exact, edges) = (LookupMap::new(seed), Edges::new(seed));
        Self { exact, nodes: Vec::new(), free: Vec::new(), edges, seed, len: 0 }
    }

    /// Sets the value of (`filter`, `key`) and returns the one before.
    pub fn insert(&mut self, filter: &TopicFilter, key: K, value: V) -> Option<V> {
        let before = self.entries_or_new(filter).insert(key, value);
        self.len += usize::from(before.is_none());
        before
    }

    fn entries_or_new(&mut self, filter: &TopicFilter) -> &mut Entries<K, V> {
        let text = filter.filter_bytes();
        if !filter.has_wildcard() {
            return self.exact.get_or_insert_with(text.into(), Entries::new);
        }
        if self.nodes.is_empty() {
            self.nodes.push(Node::new());
        }
        let mut at = ROOT;
        for level in levels(text) {
            at = match self.child(at, level) {
                Some(child) => child,
                None => self.add_child(at, level),
            };
        }
        &mut self.node_mut(at).entries
    }

    /// Removes (`filter`, `key`) and returns its value.
    pub fn remove(&mut self, filter: &TopicFilter, key: &K) -> Option<V> {
        let entries = self.entries_mut(filter)?;
        let value = entries.remove(key)?;
        let was_last = entries.is_empty();
        self.len -= 1;
        if self.len == 0 {
            *self = Self::with_seed(self.seed);
        } else if was_last && filter.has_wildcard() {
            self.prune(filter);
        } else if was_last {
            self.exact.remove(filter.filter_bytes());
        }
        Some(value)
    }

    /// The value of (`filter`, `key`).
    pub fn get(&self, filter: &TopicFilter, key: &K) -> Option<&V> {
        let entries = if filter.has_wildcard() {
            &self.node(self.find(filter)?).entries
        } else {
            self.exact.get(filter.filter_bytes())?
        };
        entries.get(key)
    }

    /// The value of (`filter`, `key`), to be changed.
    pub fn get_mut(&mut self, filter: &TopicFilter, key: &K) -> Option<&mut V> {
        self.entries_mut(filter)?.get_mut(key)
    }

    fn entries_mut(&mut self, filter: &TopicFilter) -> Option<&mut Entries<K, V>> {
        if !filter.has_wildcard() {
            return self.exact.get_mut(filter.filter_bytes());
        }
        let at = self.find(filter)?;
        Some(&mut self.node_mut(at).entries)
    }

    /// How many (filter, key) pairs have a value.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether no pair has a value.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Visits every (filter, key) whose filter matches `topic`, each once, in an order that depends only on what the trie
    /// holds. `topic` is a topic name, as [`TopicName`](crate::TopicName) or as text.
    pub fn matches(&self, topic: &(impl AsRef<[u8]> + ?Sized), mut visit: impl FnMut(&K, &V)) {
        let topic = topic.as_ref();
        let exact = if self.exact.is_empty() { None } else { self.exact.get(topic) };
        if !self.nodes.is_empty() {
            self.match_wildcards(topic, exact, visit);
        } else if let Some(entries) = exact {
            entries.visit(&mut visit);
        }
    }

    /// The part of [`Self::matches`] that needs the tree. `exact` comes where the topic's own levels end.
    fn match_wildcards(&self, topic: &[u8], mut exact: Option<&Entries<K, V>>, mut visit: impl FnMut(&K, &V)) {
        let hidden = topic.starts_with(b"$");
        // Nodes to visit, each with the offset of the level that chooses among its children. Not recursive: a topic may
        // have more levels than a stack has room.
        let mut todo: SmallVec<[(u32, usize); 32]> = SmallVec::new();
        todo.push((ROOT, 0));
        while let Some((at, offset)) = todo.pop() {
            let node = self.node(at);
            let wildcards = at != ROOT || !hidden;
            if wildcards && node.hash != NONE {
                self.node(node.hash).entries.visit(&mut visit);
            }
            let Some(rest) = topic.get(offset..) else {
                node.entries.visit(&mut visit);
                if let Some(entries) = exact.take() {
                    entries.visit(&mut visit);
                }
                continue;
            };
            let level = rest.split(|&byte| byte == b'/').next().unwrap_or(rest);
            let behind = offset + level.len() + 1;
            if wildcards && node.plus != NONE {
                todo.push((node.plus, behind));
            }
            if node.literals > 0
                && let Some(child) = self.edges.get(at, level)
            {
                todo.push((child, behind));
            } else if let Some(entries) = exact.take() {
                entries.visit(&mut visit);
            }
        }
    }

    fn node(&self, at: u32) -> &Node<K, V> {
        &self.nodes[at as usize]
    }

    fn node_mut(&mut self, at: u32) -> &mut Node<K, V> {
        &mut self.nodes[at as usize]
    }

    /// The node where `filter` ends.
    fn find(&self, filter: &TopicFilter) -> Option<u32> {
        if self.nodes.is_empty() {
            return None;
        }
        levels(filter.filter_bytes()).try_fold(ROOT, |at, level| self.child(at, level))
    }

    fn child(&self, parent: u32, level: &[u8]) -> Option<u32> {
        let node = self.node(parent);
        match level {
            b"+" => Some(node.plus).filter(|&child| child != NONE),
            b"#" => Some(node.hash).filter(|&child| child != NONE),
            _ if node.literals == 0 => None,
            _ => self.edges.get(parent, level),
        }
    }

    fn add_child(&mut self, parent: u32, level: &[u8]) -> u32 {
        let child = self.free.pop().unwrap_or_else(|| {
            self.nodes.push(Node::new());
            u32::try_from(self.nodes.len() - 1).expect("memory ends before 2^32 nodes do")
        });
        match level {
            b"+" => self.node_mut(parent).plus = child,
            b"#" => self.node_mut(parent).hash = child,
            _ => {
                self.edges.insert(parent, level, child);
                self.node_mut(parent).literals += 1;
            }
        }
        child
    }

    fn remove_child(&mut self, parent: u32, level: &[u8], child: u32) {
        match level {
            b"+" => self.node_mut(parent).plus = NONE,
            b"#" => self.node_mut(parent).hash = NONE,
            _ => {
                self.edges.remove(parent, level);
                self.node_mut(parent).literals -= 1;
            }
        }
        *self.node_mut(child) = Node::new();
        self.free.push(child);
    }

    /// Removes the nodes that only `filter` needed; all if it was the only one with wildcards.
    fn prune(&mut self, filter: &TopicFilter) {
        let mut path: Vec<(u32, &[u8], u32)> = Vec::new();
        let mut parent = ROOT;
        for level in levels(filter.filter_bytes()) {
            let Some(child) = self.child(parent, level) else { return };
            path.push((parent, level, child));
            parent = child;
        }
        for (parent, level, child) in path.into_iter().rev() {
            if !self.node(child).is_empty() {
                return;
            }
            self.remove_child(parent, level, child);
        }
        if self.node(ROOT).is_empty() {
            (self.nodes, self.free, self.edges) = (Vec::new(), Vec::new(), Edges::new(self.seed));
        }
    }

    /// Nodes in use, the root not counted, literal levels among them, and filters without wildcards.
    #[cfg(test)]
    pub(super) fn size(&self) -> (usize, usize, usize) {
        (self.nodes.len().saturating_sub(1 + self.free.len()), self.edges.len(), self.exact.len())
    }
}

fn levels(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&byte| byte == b'/')
}

impl<K: Ord + Clone, V> Default for SubscriptionTrie<K, V> {
    fn default() -> Self {
        Self::new()
    }
}
