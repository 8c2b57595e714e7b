//! Retained messages of a node (MQTT 5.0 section 3.3.1.3): the last writer wins, and replicas can be compared.

use std::collections::BTreeSet;
use std::sync::Arc;

use sedge_base::{Duration, Timestamp};
use sedge_mqtt::{Message, TopicFilter, TopicTree};
use slab::Slab;

use crate::{RetainedConfig, detach};

/// Number of digest buckets.
pub const BUCKETS: usize = 256;

/// What became of a [`RetainedStore::set`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetOutcome {
    /// The message is the topic's value now.
    Stored,
    /// The topic has no value any more; a tombstone keeps the time.
    Cleared,
    /// The store holds the same or a later value or tombstone already; nothing changed.
    Stale,
    /// A limit is reached; nothing changed.
    Full,
}

/// One value or tombstone per topic, found by filter, compared by digest.
#[derive(Debug)]
pub struct RetainedStore {
    config: RetainedConfig,
    entries: Slab<Entry>,
    topics: TopicTree<usize>,
    buckets: Vec<Vec<usize>>,
    digests: Box<[u64; BUCKETS]>,
    due: BTreeSet<(Timestamp, usize)>,
    messages: usize,
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    message: Arc<Message>,
    /// Position in its bucket.
    position: usize,
}

impl RetainedStore {
    /// An empty store.
    pub fn new(config: RetainedConfig) -> Self {
        Self {
            config,
            entries: Slab::new(),
            topics: TopicTree::new(),
            buckets: vec![Vec::new(); BUCKETS],
            digests: Box::new([0; BUCKETS]),
            due: BTreeSet::new(),
            messages: 0,
            bytes: 0,
        }
    }

    /// Sets the value of the message's topic, or clears it if the payload is empty, unless what the store has is as late. Keeps a
    /// detached copy.
    pub fn set(&mut self, message: &Arc<Message>) -> SetOutcome {
        let before = self.topics.get(&message.topic).copied();
        if before.is_some_and(|key| self.entries[key].message.stamp >= message.stamp) {
            return SetOutcome::Stale;
        }
        let tombstone = message.payload.is_empty();
        let (had, freed) = before.map_or((0, 0), |key| self.weight(key));
        let size = if tombstone { 0 } else { size_of(message) };
        let messages = self.messages - had + usize::from(!tombstone);
        if !tombstone && (messages > self.config.max_messages || self.bytes - freed + size > self.config.max_bytes) {
            return SetOutcome::Full;
        }
        if let Some(key) = before {
            self.remove(key);
        }
        self.insert(if tombstone { tombstone_of(message) } else { detach(message) });
        if tombstone { SetOutcome::Cleared } else { SetOutcome::Stored }
    }

    /// Visits the values whose topic `filter` matches and that have not expired at `now`. Shared subscriptions get none.
    pub fn matching(&self, filter: &TopicFilter, now: Timestamp, mut visit: impl FnMut(&Arc<Message>)) {
        if filter.share_group().is_some() {
            return;
        }
        self.topics.matching(filter, |_, &key| {
            let message = &self.entries[key].message;
            if !message.payload.is_empty() && message.expires_at.is_none_or(|at| at > now) {
                visit(message);
            }
        });
    }

    /// Number of values, tombstones not counted, expired ones counted until [`RetainedStore::purge`].
    pub const fn len(&self) -> usize {
        self.messages
    }

    /// Whether there are no values.
    pub const fn is_empty(&self) -> bool {
        self.messages == 0
    }

    /// Bytes of the values: payload, topic and 256 for each.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Number of tombstones.
    pub fn tombstones(&self) -> usize {
        self.entries.len() - self.messages
    }

    /// A hash for each bucket over (topic, stamp) of its values and tombstones, whatever their order. Equal contents have equal
    /// digests on every node.
    pub const fn digests(&self) -> &[u64; BUCKETS] {
        &self.digests
    }

    /// What is in a bucket: values, and tombstones as messages with `retain` set and an empty payload. Empty if there is no
    /// such bucket.
    pub fn bucket(&self, index: usize) -> impl Iterator<Item = Arc<Message>> {
        let keys = self.buckets.get(index).map_or(&[][..], Vec::as_slice);
        keys.iter().map(|&key| Arc::clone(&self.entries[key].message))
    }

    /// Turns expired values into tombstones, which changes no digest, and forgets tombstones that are old enough. Returns
    /// how many values expired. Cheap when nothing is due.
    pub fn purge(&mut self, now: Timestamp) -> usize {
        let mut expired = 0;
        while let Some(&(at, key)) = self.due.first()
            && at <= now
        {
            let message = Arc::clone(&self.entries[key].message);
            self.remove(key);
            if !message.payload.is_empty() {
                expired += 1;
                self.insert(tombstone_of(&message));
            }
        }
        expired
    }

    fn insert(&mut self, message: Arc<Message>) {
        let bucket = bucket_of(&message);
        let due = due_at(&message, self.config.tombstones);
        self.digests[bucket] = self.digests[bucket].wrapping_add(fingerprint(&message));
        let topic = message.topic.clone();
        let key = self.entries.insert(Entry { message, position: self.buckets[bucket].len() });
        self.buckets[bucket].push(key);
        self.topics.insert(&topic, key);
        let (messages, bytes) = self.weight(key);
        self.messages += messages;
        self.bytes += bytes;
        self.due.extend(due.map(|at| (at, key)));
    }

    fn remove(&mut self, key: usize) {
        let (messages, bytes) = self.weight(key);
        self.messages -= messages;
        self.bytes -= bytes;
        let Entry { message, position } = self.entries.remove(key);
        let bucket = bucket_of(&message);
        self.digests[bucket] = self.digests[bucket].wrapping_sub(fingerprint(&message));
        self.buckets[bucket].swap_remove(position);
        if let Some(&moved) = self.buckets[bucket].get(position) {
            self.entries[moved].position = position;
        }
        self.topics.remove(&message.topic);
        if let Some(at) = due_at(&message, self.config.tombstones) {
            self.due.remove(&(at, key));
        }
    }

    /// What the entry adds to the number of messages and bytes: nothing for a tombstone.
    fn weight(&self, key: usize) -> (usize, usize) {
        let message = &self.entries[key].message;
        if message.payload.is_empty() { (0, 0) } else { (1, size_of(message)) }
    }
}

fn size_of(message: &Message) -> usize {
    message.payload.len() + message.topic.as_bytes().len() + 256
}

/// The message without what is no longer needed; its stamp stays, and its expiry, from which the tombstone's own end counts.
fn tombstone_of(message: &Arc<Message>) -> Arc<Message> {
    let topic = message.topic.detached();
    let payload = bytes::Bytes::new();
    Arc::new(Message { topic, payload, properties: None, retain: true, publisher: None, ..**message })
}

/// When a value expires or a tombstone is forgotten: alike on every node.
fn due_at(message: &Message, tombstones: Duration) -> Option<Timestamp> {
    if !message.payload.is_empty() {
        return message.expires_at;
    }
    let set_at = Timestamp::from_millis(message.stamp.millis);
    Some(message.expires_at.map_or(set_at, |expired| expired.max(set_at)) + tombstones)
}

fn topic_hash(message: &Message) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for &byte in message.topic.as_bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    mix(hash)
}

/// The low byte of the topic's hash: stable over nodes and versions.
fn bucket_of(message: &Message) -> usize {
    usize::from(topic_hash(message).to_le_bytes()[0])
}

fn fingerprint(message: &Message) -> u64 {
    let stamp = message.stamp;
    let words = [stamp.millis, u64::from(stamp.counter), stamp.node.get(), u64::from(stamp.shard.0)];
    words.iter().fold(topic_hash(message), |hash, word| mix(hash.rotate_left(17) ^ word))
}

const fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
