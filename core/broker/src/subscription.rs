//! The subscriptions of one session.

use core::cmp::Ordering;

use sedge_mqtt::{QoS, SubscriptionOptions, TopicFilter};

use crate::SubscriptionState;

/// The options of a subscription that a match needs to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Granted {
    /// Subscription identifier; 0: none.
    pub(crate) id: u32,
    pub(crate) qos: QoS,
    pub(crate) no_local: bool,
    pub(crate) retain_as_published: bool,
    /// Whether access rules may forbid some of what it matches.
    pub(crate) checked: bool,
}

/// A subscription with all its options.
#[derive(Clone, Debug)]
pub(crate) struct Subscription {
    pub(crate) filter: TopicFilter,
    pub(crate) options: SubscriptionOptions,
    /// Subscription identifier; 0: none.
    pub(crate) id: u32,
    /// Whether access rules may forbid some of what it matches.
    pub(crate) checked: bool,
}

impl Subscription {
    pub(crate) const fn granted(&self) -> Granted {
        let SubscriptionOptions { qos, no_local, retain_as_published, retain_handling: _ } = self.options;
        Granted { id: self.id, qos, no_local, retain_as_published, checked: self.checked }
    }

    /// As plain data.
    pub(crate) fn state(&self) -> SubscriptionState {
        let id = (self.id != 0).then_some(self.id);
        SubscriptionState { filter: self.filter.clone(), options: self.options, id }
    }

    /// Bytes that it counts for limits.
    pub(crate) fn weight(&self) -> usize {
        weight(&self.filter)
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.filter.share_group().is_some()
    }
}

/// Bytes that a subscription takes beside its filter, here and in the tables of all nodes, about.
const SUBSCRIPTION_BYTES: usize = 256;

/// Bytes that a subscription to this filter counts for limits.
pub(crate) fn weight(filter: &TopicFilter) -> usize {
    filter.as_str().len() + SUBSCRIPTION_BYTES
}

/// Subscriptions by filter. Sorted, since most sessions have few and some have thousands.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    sorted: Vec<Subscription>,
}

impl Subscriptions {
    pub(crate) const fn len(&self) -> usize {
        self.sorted.len()
    }

    /// Bytes of all: filters and 256 for each.
    pub(crate) fn bytes(&self) -> usize {
        self.sorted.iter().map(Subscription::weight).sum()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Subscription> {
        self.sorted.iter()
    }

    pub(crate) fn get(&self, filter: &TopicFilter) -> Option<&Subscription> {
        self.find(filter).ok().map(|index| &self.sorted[index])
    }

    /// Adds or replaces; says whether the filter is new.
    pub(crate) fn insert(&mut self, subscription: Subscription) -> bool {
        match self.find(&subscription.filter) {
            Ok(index) => {
                self.sorted[index] = subscription;
                false
            }
            Err(index) => {
                if self.sorted.is_empty() {
                    self.sorted.reserve_exact(1);
                }
                self.sorted.insert(index, subscription);
                true
            }
        }
    }

    pub(crate) fn remove(&mut self, filter: &TopicFilter) -> Option<Subscription> {
        self.find(filter).ok().map(|index| self.sorted.remove(index))
    }

    fn find(&self, filter: &TopicFilter) -> Result<usize, usize> {
        let order = |other: &Subscription| -> Ordering { other.filter.as_utf8().cmp(filter.as_utf8()) };
        self.sorted.binary_search_by(order)
    }
}
