//! The subscriptions of one session.

use core::cmp::Ordering;

use sedge_mqtt::{QoS, SubscriptionOptions, TopicFilter};

use crate::SubscriptionState;

/// What a match needs to know of a subscription.
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

    pub(crate) fn is_shared(&self) -> bool {
        self.filter.share_group().is_some()
    }
}

/// Subscriptions by filter. Sorted, since most sessions have few and some have thousands.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions(Vec<Subscription>);

impl Subscriptions {
    pub(crate) const fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Subscription> {
        self.0.iter()
    }

    pub(crate) fn get(&self, filter: &TopicFilter) -> Option<&Subscription> {
        self.find(filter).ok().map(|index| &self.0[index])
    }

    /// Adds or replaces; says whether the filter is new.
    pub(crate) fn insert(&mut self, subscription: Subscription) -> bool {
        match self.find(&subscription.filter) {
            Ok(index) => {
                self.0[index] = subscription;
                false
            }
            Err(index) => {
                if self.0.is_empty() {
                    self.0.reserve_exact(1);
                }
                self.0.insert(index, subscription);
                true
            }
        }
    }

    pub(crate) fn remove(&mut self, filter: &TopicFilter) -> Option<Subscription> {
        self.find(filter).ok().map(|index| self.0.remove(index))
    }

    fn find(&self, filter: &TopicFilter) -> Result<usize, usize> {
        let order = |other: &Subscription| -> Ordering { other.filter.as_utf8().cmp(filter.as_utf8()) };
        self.0.binary_search_by(order)
    }
}
