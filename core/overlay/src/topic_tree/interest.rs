//! The part that a node takes in a topic.

use sedge_base::{StableHash, mix};
use sedge_mqtt::{TopicFilter, TopicName};

/// Role in which a node takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Role {
    Publisher,
    Subscriber,
}

/// A topic that clients of a node publish, or a plain filter to which some subscribe.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Interest {
    /// Without `$share`; without wildcards for a publisher.
    pub(super) filter: TopicFilter,
    pub(super) role: Role,
}

impl Interest {
    /// None for names that would be the filter of a shared subscription.
    pub(super) fn publisher(topic: &TopicName) -> Option<Self> {
        let filter = TopicFilter::new(topic.as_str()).ok().filter(|filter| filter.share_group().is_none())?;
        Some(Self { filter, role: Role::Publisher })
    }

    pub(super) const fn subscriber(filter: TopicFilter) -> Self {
        Self { filter, role: Role::Subscriber }
    }

    /// The topic that a publisher publishes.
    pub(super) fn topic(&self) -> Option<TopicName> {
        if self.role == Role::Subscriber {
            return None;
        }
        TopicName::new(self.filter.as_str()).ok()
    }

    /// Subscriptions to topics whose names start with `$` concern every node: only they make shards hand over publications there.
    pub(super) fn is_reserved(&self) -> bool {
        self.role == Role::Subscriber && self.filter.as_str().starts_with('$')
    }
}

/// How many members of a shared subscription live at a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) online: u32,
    pub(super) offline: u32,
}

impl Counts {
    pub(super) const NONE: Self = Self { online: 0, offline: 0 };

    pub(super) fn of(&mut self, online: bool) -> &mut u32 {
        if online { &mut self.online } else { &mut self.offline }
    }
}

/// Number and hash of all interests that a node has announced and not withdrawn. The order does not matter, so that a listener can keep the
/// sum without keeping the interests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) entries: u64,
    pub(super) hash: u64,
}

impl Sum {
    pub(super) fn add(&mut self, interest: &Interest) {
        self.entries = self.entries.wrapping_add(1);
        self.hash = self.hash.wrapping_add(hash_of(interest));
    }

    pub(super) fn remove(&mut self, interest: &Interest) {
        self.entries = self.entries.wrapping_sub(1);
        self.hash = self.hash.wrapping_sub(hash_of(interest));
    }

    /// A shared subscription has other counts.
    pub(super) fn turn(&mut self, group: &TopicFilter, before: Counts, after: Counts) {
        for (counts, sign) in [(before, 1_u64.wrapping_neg()), (after, 1)] {
            if counts != Counts::NONE {
                self.entries = self.entries.wrapping_add(sign);
                self.hash = self.hash.wrapping_add(hash_of_group(group, counts).wrapping_mul(sign));
            }
        }
    }
}

fn hash_of(interest: &Interest) -> u64 {
    let mut hash = StableHash::new();
    hash.add(&[u8::from(interest.role == Role::Subscriber)]);
    hash.add(interest.filter.as_str().as_bytes());
    mix(hash.get())
}

fn hash_of_group(group: &TopicFilter, counts: Counts) -> u64 {
    let mut hash = StableHash::new();
    hash.add(&[2]);
    hash.add(&counts.online.to_be_bytes());
    hash.add(&counts.offline.to_be_bytes());
    hash.add(group.as_str().as_bytes());
    mix(hash.get())
}
