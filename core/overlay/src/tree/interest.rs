//! What clients of this node subscribe to, and which nodes publish something that matches.

use std::collections::{BTreeMap, BTreeSet};

use sedge_base::{ClientId, NodeId, Rng, Seed};
use sedge_mqtt::{SubscriptionTrie, TopicFilter, TopicName};

use crate::{Advert, AdvertOp};

/// A filter that somebody wants.
#[derive(Debug, Default)]
struct Wanted {
    clients: BTreeSet<ClientId>,
    /// Nodes that have advertised a topic that matches.
    origins: BTreeSet<NodeId>,
}

/// What a change did to a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Nothing,
    First,
    Last,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Interest {
    filters: BTreeMap<TopicFilter, Wanted>,
    by_topic: SubscriptionTrie<(), TopicFilter>,
}

impl Interest {
    pub(super) fn new(rng: &mut Rng) -> Self {
        Self { filters: BTreeMap::new(), by_topic: SubscriptionTrie::with_seed(Seed::from_rng(rng)) }
    }

    pub(super) fn apply(&mut self, change: &Advert) -> Change {
        let filter = &change.filter;
        match change.op {
            AdvertOp::Add { .. } => {
                let is_first = !self.filters.contains_key(filter);
                self.filters.entry(filter.clone()).or_default().clients.insert(change.client.clone());
                if is_first {
                    self.by_topic.insert(filter, (), filter.clone());
                    return Change::First;
                }
            }
            AdvertOp::Remove => {
                let Some(wanted) = self.filters.get_mut(filter) else { return Change::Nothing };
                if wanted.clients.remove(&change.client) && wanted.clients.is_empty() {
                    self.filters.remove(filter);
                    self.by_topic.remove(filter, &());
                    return Change::Last;
                }
            }
        }
        Change::Nothing
    }

    /// Nodes in `origins` publish something that matches `filter`.
    pub(super) fn add_origins(&mut self, filter: &TopicFilter, origins: impl IntoIterator<Item = NodeId>) {
        if let Some(wanted) = self.filters.get_mut(filter) {
            wanted.origins.extend(origins);
        }
    }

    /// `origin` publishes to `topic`: answers with the filters that match and that it did not have to know of so far.
    pub(super) fn add_origin(&mut self, topic: &TopicName, origin: NodeId) -> Vec<TopicFilter> {
        let mut fresh = Vec::new();
        let filters = &mut self.filters;
        self.by_topic.matches(topic, |(), filter| {
            if filters.get_mut(filter).is_some_and(|wanted| wanted.origins.insert(origin)) {
                fresh.push(filter.clone());
            }
        });
        fresh
    }

    /// A node is gone with all it has advertised.
    pub(super) fn forget_origin(&mut self, origin: NodeId) {
        self.filters.values_mut().for_each(|wanted| {
            wanted.origins.remove(&origin);
        });
    }

    /// Filters that concern one of these origins.
    pub(super) fn concerning(&self, origins: &BTreeSet<NodeId>) -> BTreeSet<TopicFilter> {
        let concerned = self.filters.iter().filter(|(_, wanted)| !wanted.origins.is_disjoint(origins));
        concerned.map(|(filter, _)| filter.clone()).collect()
    }

    pub(super) fn filters(&self) -> impl Iterator<Item = &TopicFilter> {
        self.filters.keys()
    }

    pub(super) fn len(&self) -> usize {
        self.filters.len()
    }
}
