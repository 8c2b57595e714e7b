//! Digests of tables that change entry by entry.

use sedge_base::{StableHash, mix};
use sedge_mqtt::{TopicFilter, TopicName};

/// Number of entries and the sum of their hashes (FNV-1a, 64 bit, mixed): the same for the same entries, in whatever order they came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Digest {
    pub(super) entries: u64,
    pub(super) sum: u64,
}

impl Digest {
    pub(super) fn topic(&mut self, topic: &TopicName, there: bool) {
        self.count(b"t", topic.as_str(), there);
    }

    pub(super) fn filter(&mut self, filter: &TopicFilter, there: bool) {
        self.count(b"f", filter.as_str(), there);
    }

    fn count(&mut self, kind: &[u8], text: &str, there: bool) {
        let mut hash = StableHash::new();
        hash.add(kind);
        hash.add(text.as_bytes());
        let hash = mix(hash.get());
        if there {
            self.entries = self.entries.wrapping_add(1);
            self.sum = self.sum.wrapping_add(hash);
        } else {
            self.entries = self.entries.wrapping_sub(1);
            self.sum = self.sum.wrapping_sub(hash);
        }
    }

    /// The digest of two tables together.
    pub(super) const fn with(self, other: Self) -> Self {
        Self { entries: self.entries.wrapping_add(other.entries), sum: self.sum.wrapping_add(other.sum) }
    }
}
