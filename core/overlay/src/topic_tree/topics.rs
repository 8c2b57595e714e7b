//! The topics that concern this node, and the nodes that take part in each.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sedge_base::{NodeId, Rng, Seed, StableHash, mix};
use sedge_mqtt::{SubscriptionTrie, TopicFilter, TopicName, TopicTree as ByTopic};

use super::interest::Interest;
use super::trees::TreeId;
use crate::Advertised;

/// The members of a topic, in the order of their ids.
pub(super) type Members = Arc<[NodeId]>;

/// A topic that this node or another publishes.
#[derive(Debug)]
pub(super) struct Topic {
    pub(super) publishers: BTreeSet<NodeId>,
    /// This node, and all others that have an interest in it.
    pub(super) members: Members,
    pub(super) tree: Option<TreeId>,
}

/// Change of the interest of another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Begins,
    Ends,
}

#[derive(Debug)]
pub(super) struct Topics {
    me: NodeId,
    /// Subscriptions of the other nodes.
    wants: SubscriptionTrie<NodeId, ()>,
    /// Nodes per filter that starts with `$`.
    reserved: BTreeMap<TopicFilter, u32>,
    by_name: ByTopic<Topic>,
    /// Topics whose members may have changed.
    dirty: BTreeSet<TopicName>,
    /// Changes of [`Topics::reserved`] for the shards.
    changes: Vec<Advertised>,
}

impl Topics {
    pub(super) fn new(me: NodeId, rng: &mut Rng) -> Self {
        Self {
            me,
            wants: SubscriptionTrie::with_seed(Seed::from_rng(rng)),
            reserved: BTreeMap::new(),
            by_name: ByTopic::new(),
            dirty: BTreeSet::new(),
            changes: Vec::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.by_name.len()
    }

    pub(super) fn get(&self, topic: &TopicName) -> Option<&Topic> {
        self.by_name.get(topic)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&TopicName, &Topic)> {
        self.by_name.iter()
    }

    /// Sets the tree of a topic; returns the one before.
    pub(super) fn set_tree(&mut self, topic: &TopicName, tree: Option<TreeId>) -> Option<TreeId> {
        let topic = self.by_name.get_mut(topic)?;
        core::mem::replace(&mut topic.tree, tree)
    }

    /// An interest of a node that concerns this one changes. Returns the tree of a topic that is gone.
    pub(super) fn apply(&mut self, node: NodeId, interest: &Interest, turn: Turn) -> Option<TreeId> {
        if let Some(topic) = interest.topic() {
            return self.turn_publisher(node, &topic, turn);
        }
        let filter = &interest.filter;
        match turn {
            Turn::Begins => drop(self.wants.insert(filter, node, ())),
            Turn::Ends => drop(self.wants.remove(filter, &node)),
        }
        let dirty = &mut self.dirty;
        self.by_name.matching(filter, |topic, _| {
            dirty.insert(topic.clone());
        });
        if interest.is_reserved() {
            self.count_reserved(filter, turn);
        }
        None
    }

    /// A node begins or ends to publish a topic. Returns the tree of a topic that is gone.
    pub(super) fn turn_publisher(&mut self, node: NodeId, topic: &TopicName, turn: Turn) -> Option<TreeId> {
        match (self.by_name.get_mut(topic), turn) {
            (Some(known), Turn::Begins) => {
                known.publishers.insert(node);
            }
            (Some(known), Turn::Ends) => {
                known.publishers.remove(&node);
                if known.publishers.is_empty() {
                    self.dirty.remove(topic);
                    return self.by_name.remove(topic).and_then(|gone| gone.tree);
                }
            }
            (None, Turn::Begins) => {
                let publishers = BTreeSet::from([node]);
                self.by_name.insert(topic, Topic { publishers, members: Arc::new([]), tree: None });
            }
            (None, Turn::Ends) => return None,
        }
        self.dirty.insert(topic.detached());
        None
    }

    fn count_reserved(&mut self, filter: &TopicFilter, turn: Turn) {
        let nodes = self.reserved.entry(filter.clone()).or_insert(0);
        let wanted = match turn {
            Turn::Begins => {
                *nodes += 1;
                (*nodes == 1).then_some(true)
            }
            Turn::Ends => {
                *nodes -= 1;
                (*nodes == 0).then_some(false)
            }
        };
        if wanted == Some(false) {
            self.reserved.remove(filter);
        }
        self.changes.extend(wanted.map(|wanted| Advertised::Remote { filter: filter.clone(), wanted }));
    }

    /// Takes the changes that the shards have to be told.
    pub(super) fn take_changes(&mut self) -> Vec<Advertised> {
        core::mem::take(&mut self.changes)
    }

    /// Visits the nodes that subscribe to `topic`; some of them more than once.
    pub(super) fn subscribers(&self, topic: &TopicName, mut visit: impl FnMut(NodeId)) {
        self.wants.matches(topic, |node, ()| visit(*node));
    }

    /// Looks again who the members of the topics are; returns those whose members have changed.
    pub(super) fn take_changed(&mut self) -> Vec<TopicName> {
        let mut changed = Vec::new();
        if self.dirty.is_empty() {
            return changed;
        }
        // Most topics have the members of the one before.
        let mut last: Members = Arc::new([]);
        for name in core::mem::take(&mut self.dirty) {
            let Some(topic) = self.by_name.get_mut(&name) else { continue };
            let mut members = topic.publishers.clone();
            members.insert(self.me);
            self.wants.matches(&name, |node, ()| {
                members.insert(*node);
            });
            if members.iter().eq(topic.members.iter()) {
                continue;
            }
            if !members.iter().eq(last.iter()) {
                last = members.into_iter().collect();
            }
            topic.members = last.clone();
            changed.push(name);
        }
        changed
    }
}

/// Key of a topic where roots are told.
pub(super) fn topic_key(topic: &TopicName) -> u64 {
    mix(StableHash::of(topic.as_bytes()))
}

/// Key of a set of members where roots are told.
pub(super) fn members_key(members: &[NodeId]) -> u64 {
    let mut hash = StableHash::new();
    for member in members {
        hash.add(&member.get().to_be_bytes());
    }
    mix(hash.get())
}
