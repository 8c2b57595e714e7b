//! The forward table: which nodes want which filters, with reference counts (fault-tolerance section 4).

use std::collections::BTreeMap;

use sedge_base::{LookupMap, NodeId, Rng, Seed};
use sedge_mqtt::{SubscriptionTrie, TopicFilter, TopicName};

use super::table::Effect;
use crate::Advertised;

/// Members of a shared subscription at one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    online: u32,
    offline: u32,
}

impl Counts {
    fn of(&mut self, online: bool) -> &mut u32 {
        if online { &mut self.online } else { &mut self.offline }
    }
}

#[derive(Debug)]
pub(super) struct Forward {
    /// Clients per plain filter and node.
    wants: SubscriptionTrie<NodeId, u32>,
    /// Nodes per plain filter.
    nodes: LookupMap<TopicFilter, u32>,
    groups: BTreeMap<(NodeId, TopicFilter), Counts>,
    /// Plain filters that changed since the owner was told, and whether it believes that they are wanted.
    told_filters: BTreeMap<TopicFilter, bool>,
    /// Shared subscriptions that changed since the owner was told, and the counts that the owner believes.
    told_groups: BTreeMap<(NodeId, TopicFilter), Counts>,
}

impl Forward {
    pub(super) fn new(rng: &mut Rng) -> Self {
        Self {
            wants: SubscriptionTrie::with_seed(Seed::from_rng(rng)),
            nodes: LookupMap::new(Seed::from_rng(rng)),
            groups: BTreeMap::new(),
            told_filters: BTreeMap::new(),
            told_groups: BTreeMap::new(),
        }
    }

    /// A change in the table of `node` had this effect.
    pub(super) fn apply(&mut self, node: NodeId, filter: &TopicFilter, effect: Effect) {
        if filter.share_group().is_some() {
            return self.apply_group(node, filter, effect);
        }
        match effect {
            Effect::Added { .. } => self.add(node, filter),
            Effect::Removed { .. } => self.remove(node, filter),
            Effect::Turned { .. } | Effect::Nothing => {}
        }
    }

    fn add(&mut self, node: NodeId, filter: &TopicFilter) {
        if let Some(clients) = self.wants.get_mut(filter, &node) {
            *clients += 1;
            return;
        }
        self.wants.insert(filter, node, 1);
        self.count_nodes(filter, |nodes| nodes + 1);
    }

    fn remove(&mut self, node: NodeId, filter: &TopicFilter) {
        let Some(clients) = self.wants.get_mut(filter, &node) else { return };
        *clients -= 1;
        if *clients == 0 {
            self.wants.remove(filter, &node);
            self.count_nodes(filter, |nodes| nodes - 1);
        }
    }

    fn count_nodes(&mut self, filter: &TopicFilter, change: impl Fn(u32) -> u32) {
        let before = self.nodes.get(filter).copied().unwrap_or(0);
        let after = change(before);
        if after == 0 {
            self.nodes.remove(filter);
        } else {
            self.nodes.insert(filter.clone(), after);
        }
        if (before == 0) != (after == 0) {
            self.told_filters.entry(filter.clone()).or_insert(before != 0);
        }
    }

    fn apply_group(&mut self, node: NodeId, group: &TopicFilter, effect: Effect) {
        let key = (node, group.clone());
        let counts = self.groups.entry(key.clone()).or_default();
        self.told_groups.entry(key.clone()).or_insert(*counts);
        match effect {
            Effect::Nothing => {}
            Effect::Added { online } => *counts.of(online) += 1,
            Effect::Removed { online } => *counts.of(online) -= 1,
            Effect::Turned { online } => {
                *counts.of(online) += 1;
                *counts.of(!online) -= 1;
            }
        }
        if *counts == Counts::default() {
            self.groups.remove(&key);
        }
    }

    /// Takes the changes that the owner has to make in the tables of the shards; changes that cancelled each other are left out.
    pub(super) fn take_changes(&mut self) -> Vec<Advertised> {
        let mut changes = Vec::new();
        for (filter, told) in core::mem::take(&mut self.told_filters) {
            let wanted = self.nodes.contains_key(&filter);
            if wanted != told {
                changes.push(Advertised::Remote { filter, wanted });
            }
        }
        for (key, told) in core::mem::take(&mut self.told_groups) {
            let counts = self.groups.get(&key).copied().unwrap_or_default();
            if counts != told {
                let (node, group) = key;
                changes.push(Advertised::Group { node, group, online: counts.online, offline: counts.offline });
            }
        }
        changes
    }

    /// Visits the nodes that want `topic`; some of them more than once.
    pub(super) fn matches(&self, topic: &TopicName, mut visit: impl FnMut(NodeId)) {
        self.wants.matches(topic, |node, _| visit(*node));
    }
}
