//! Filters that clients of this node subscribe to, and the nodes that publish topics which match them.

use std::collections::{BTreeMap, BTreeSet};

use sedge_base::{ClientId, NodeId, Rng, Seed};
use sedge_mqtt::{SubscriptionTrie, TopicFilter, TopicName};

use crate::{Advert, AdvertOp};

/// A filter that somebody wants.
#[derive(Debug, Default)]
struct Wanted {
    clients: BTreeSet<ClientId>,
    /// A filter that covers it, so that nobody has to be told of this one (IL-10).
    cover: Option<TopicFilter>,
    /// Nodes that have advertised a topic that matches.
    origins: BTreeSet<NodeId>,
}

/// Effect of a change on a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Nothing,
    First,
    /// Nobody wants the filter any more; the filters that it covered have to be told of now.
    Last(Vec<TopicFilter>),
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Interest {
    filters: BTreeMap<TopicFilter, Wanted>,
    /// Filters that no other covers.
    told: SubscriptionTrie<(), TopicFilter>,
    /// The others, by the one that covers them.
    covered: BTreeMap<TopicFilter, BTreeSet<TopicFilter>>,
}

impl Interest {
    pub(super) fn new(rng: &mut Rng) -> Self {
        let told = SubscriptionTrie::with_seed(Seed::from_rng(rng));
        Self { filters: BTreeMap::new(), told, covered: BTreeMap::new() }
    }

    /// A change of one client; tells its effect for other nodes.
    pub(super) fn apply(&mut self, change: &Advert) -> Change {
        let filter = &change.filter;
        match change.op {
            AdvertOp::Add { .. } => {
                let is_first = !self.filters.contains_key(filter);
                self.filters.entry(filter.clone()).or_default().clients.insert(change.client.clone());
                if is_first && !self.cover(filter) {
                    self.told.insert(filter, (), filter.clone());
                    return Change::First;
                }
            }
            AdvertOp::Remove => {
                let Some(wanted) = self.filters.get_mut(filter) else { return Change::Nothing };
                if wanted.clients.remove(&change.client) && wanted.clients.is_empty() {
                    let cover = self.filters.remove(filter).and_then(|wanted| wanted.cover);
                    let Some(cover) = cover else {
                        self.told.remove(filter, &());
                        return Change::Last(self.take_uncovered(filter));
                    };
                    self.uncover(&cover, filter);
                }
            }
        }
        Change::Nothing
    }

    /// Puts a filter under one that covers it, if there is any.
    fn cover(&mut self, filter: &TopicFilter) -> bool {
        let mut cover = None;
        // A filter as if it were a topic: `+` and `#` in it are matched by wildcards only.
        self.told.matches(filter.as_str(), |(), other| {
            if cover.is_none() && other.covers(filter) {
                cover = Some(other.clone());
            }
        });
        let Some(cover) = cover else { return false };
        self.covered.entry(cover.clone()).or_default().insert(filter.clone());
        self.filters.entry(filter.clone()).or_default().cover = Some(cover);
        true
    }

    fn uncover(&mut self, cover: &TopicFilter, filter: &TopicFilter) {
        if let Some(covered) = self.covered.get_mut(cover) {
            covered.remove(filter);
            if covered.is_empty() {
                self.covered.remove(cover);
            }
        }
    }

    /// The filters under a cover that is told no more, except those that another filter covers.
    fn take_uncovered(&mut self, cover: &TopicFilter) -> Vec<TopicFilter> {
        let mut bare = Vec::new();
        for filter in self.covered.remove(cover).into_iter().flatten() {
            if let Some(wanted) = self.filters.get_mut(&filter) {
                wanted.cover = None;
            }
            if !self.cover(&filter) {
                self.told.insert(&filter, (), filter.clone());
                bare.push(filter);
            }
        }
        bare
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
        self.told.matches(topic, |(), filter| {
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
