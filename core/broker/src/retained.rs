//! Retained messages of a node (MQTT 5.0 section 3.3.1.3): the last writer wins, and replicas can be compared.

use std::collections::BTreeSet;
use std::sync::Arc;

use sedge_base::{Duration, StableHash, Timestamp, mix};
use sedge_mqtt::{Message, Stamp, TopicFilter, TopicName, TopicTree};
use slab::Slab;

use crate::level::{LastValue, Level, LevelQuery, level};
use crate::{RetainedConfig, detach};

/// Number of digest buckets.
pub const BUCKETS: usize = 256;

/// The result of a [`RetainedStore::set`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetOutcome {
    /// The message is the topic's value now.
    Stored,
    /// The topic has no value any more; a tombstone keeps the time.
    Cleared,
    /// The topic has no value and had none that is known here: nothing is kept of it.
    Absent,
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
    /// The tombstones among them.
    tombs_due: BTreeSet<(Timestamp, usize)>,
    /// The tombstones in the order in which they came here.
    tombs_since: BTreeSet<(u32, usize)>,
    /// Tombstones that are due by then are old: digests leave them out.
    old_until: Timestamp,
    /// Seconds since the node's start, as of the last [`RetainedStore::purge`].
    seconds: u32,
    messages: usize,
    bytes: usize,
    tomb_bytes: usize,
    crowded_out: u64,
}

#[derive(Debug)]
struct Entry {
    message: Arc<Message>,
    /// Position in its bucket.
    position: u32,
    /// When it came here, in seconds since the node's start.
    since: u32,
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
            tombs_due: BTreeSet::new(),
            tombs_since: BTreeSet::new(),
            old_until: Timestamp::default(),
            seconds: 0,
            messages: 0,
            bytes: 0,
            tomb_bytes: 0,
            crowded_out: 0,
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
        self.crowd_out();
        if tombstone { SetOutcome::Cleared } else { SetOutcome::Stored }
    }

    /// Like [`RetainedStore::set`] for a publication that has just been made, at this node or another. A topic without a value is not
    /// cleared: a tombstone says that there was a value, so that it would cost nothing to fill the memory of all nodes with them. Should
    /// another node have a value that has not come here, it keeps the tombstone, and tells this one when they compare their stores.
    pub fn take(&mut self, message: &Arc<Message>) -> SetOutcome {
        if message.payload.is_empty() && !self.knows(&message.topic) {
            return SetOutcome::Absent;
        }
        self.set(message)
    }

    /// Whether the topic has a value or a tombstone.
    pub fn knows(&self, topic: &TopicName) -> bool {
        self.topics.get(topic).is_some()
    }

    /// Forgets those tombstones that would be forgotten first, as long as they take more than a quarter of what values may take.
    fn crowd_out(&mut self) {
        while (self.tomb_bytes > self.config.max_bytes / 4 || self.tombstones() > self.config.max_messages.div_ceil(4))
            && let Some(&(_, key)) = self.tombs_due.first()
        {
            self.remove(key);
            self.crowded_out += 1;
        }
    }

    /// Like [`RetainedStore::set`] for a publication of a client of this very node: it comes after everything that the node has told
    /// anyone, whatever the clocks of other nodes and shards say, so it is never stale. Returns it as it is to be passed on, with a
    /// later stamp if it needed one.
    pub fn publish(&mut self, message: Arc<Message>) -> (Arc<Message>, SetOutcome) {
        let latest = self.topics.get(&message.topic).map(|&key| self.entries[key].message.stamp);
        let message = match latest.filter(|&latest| latest >= message.stamp) {
            Some(latest) => Arc::new(Message { stamp: after(latest, message.stamp), ..Message::clone(&message) }),
            None => message,
        };
        let outcome = self.take(&message);
        (message, outcome)
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

    /// At most `limit` values from the place `from` on, 0 being the first, whose topic `filter` matches; and the place to go on from,
    /// if there may be more. Looks at no more than `examine` entries, so that a page costs the same however much is retained. Whatever
    /// is set meanwhile, no value that stays as it is is left out.
    pub fn page(
        &self,
        filter: &TopicFilter,
        now: Timestamp,
        (from, limit, examine): (usize, usize, usize),
    ) -> (Vec<Arc<Message>>, Option<usize>) {
        let mut found = Vec::new();
        let end = self.entries.capacity().min(from.saturating_add(examine));
        for key in from..end {
            if found.len() == limit {
                return (found, Some(key));
            }
            let Some(Entry { message, .. }) = self.entries.get(key) else { continue };
            let alive = !message.payload.is_empty() && message.expires_at.is_none_or(|at| at > now);
            if alive && filter.matches(&message.topic) {
                found.push(Arc::clone(message));
            }
        }
        (found, (end < self.entries.capacity()).then_some(end))
    }

    /// One level of the tree of topics that have a value.
    pub fn level(&self, asked: &LevelQuery, now: Timestamp) -> Level {
        let alive = |key: &usize| {
            let message = &self.entries[*key].message;
            !message.payload.is_empty() && message.expires_at.is_none_or(|at| at > now)
        };
        level(&self.topics, asked, alive, |_| 0.0, |key| LastValue::of(&self.entries[*key].message))
    }

    /// The value of a topic.
    pub fn value(&self, topic: &TopicName, now: Timestamp) -> Option<&Arc<Message>> {
        let message = &self.entries[*self.topics.get(topic)?].message;
        (!message.payload.is_empty() && message.expires_at.is_none_or(|at| at > now)).then_some(message)
    }

    /// All entries, tombstones included: for a broker that has to agree with the store.
    pub fn everything(&self) -> Vec<Arc<Message>> {
        self.entries.iter().map(|(_, entry)| Arc::clone(&entry.message)).collect()
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

    /// Bytes of the tombstones: topic and 256 for each.
    pub const fn tombstone_bytes(&self) -> usize {
        self.tomb_bytes
    }

    /// How many tombstones were forgotten early because there were too many.
    pub const fn tombstones_crowded_out(&self) -> u64 {
        self.crowded_out
    }

    /// A hash for each bucket over (topic, stamp) of its values and young tombstones, whatever their order. Equal contents have equal
    /// digests on every node; and equal digests say that no node has a value that another node has not.
    pub const fn digests(&self) -> &[u64; BUCKETS] {
        &self.digests
    }

    /// Contents of a bucket: values, and tombstones as messages with `retain` set and an empty payload. Empty if there is no
    /// such bucket.
    pub fn bucket(&self, index: usize) -> impl Iterator<Item = Arc<Message>> {
        let keys = self.buckets.get(index).map_or(&[][..], Vec::as_slice);
        keys.iter().map(|&key| Arc::clone(&self.entries[key].message))
    }

    /// Turns expired values into tombstones, which changes no digest, forgets tombstones that are old enough, and leaves those out of the
    /// digests that are no longer young. `uptime`: time since the node's start. Returns how many values expired.
    pub fn purge(&mut self, now: Timestamp, uptime: Duration) -> usize {
        self.seconds = whole_seconds(uptime);
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
        self.crowd_out();
        self.grow_old(now);
        expired
    }

    /// Tombstones that are no longer young count in no digest: nodes may forget them at different times.
    fn grow_old(&mut self, now: Timestamp) {
        let rest = self.config.tombstones.saturating_sub(self.config.agreed_tombstones);
        let until = now + rest;
        let from = (self.old_until, usize::MAX);
        if until <= self.old_until {
            return;
        }
        for &(_, key) in self.tombs_due.range(from..=(until, usize::MAX)) {
            let message = &self.entries[key].message;
            let digest = &mut self.digests[bucket_of(message)];
            *digest = digest.wrapping_sub(fingerprint(message));
        }
        self.old_until = until;
    }

    /// Every node that may bring values back has had the same digests as this one since `uptime`: forgets the tombstones that came here
    /// [`RetainedConfig::agreed_tombstones`] before that. Returns how many. No node has a value that they would keep away.
    pub fn agreed(&mut self, uptime: Duration) -> usize {
        let until = whole_seconds(uptime.saturating_sub(self.config.agreed_tombstones));
        let old = self.tombs_since.range(..(until, 0)).map(|(_, key)| *key);
        let old: Vec<usize> = old.filter(|key| !self.counts(&self.entries[*key].message)).collect();
        for key in &old {
            self.remove(*key);
        }
        old.len()
    }

    /// Whether the message is part of a digest.
    fn counts(&self, message: &Message) -> bool {
        !message.payload.is_empty() || due_at(message, self.config.tombstones).is_none_or(|due| due > self.old_until)
    }

    fn insert(&mut self, message: Arc<Message>) {
        let bucket = bucket_of(&message);
        let due = due_at(&message, self.config.tombstones);
        if self.counts(&message) {
            self.digests[bucket] = self.digests[bucket].wrapping_add(fingerprint(&message));
        }
        let topic = message.topic.clone();
        let (position, since) = (u32::try_from(self.buckets[bucket].len()).unwrap_or(u32::MAX), self.seconds);
        let key = self.entries.insert(Entry { message, position, since });
        self.buckets[bucket].push(key);
        self.topics.insert(&topic, key);
        let (messages, bytes) = self.weight(key);
        self.messages += messages;
        self.bytes += bytes;
        self.due.extend(due.map(|at| (at, key)));
        if messages == 0 {
            self.tomb_bytes += size_of(&self.entries[key].message);
            self.tombs_due.extend(due.map(|at| (at, key)));
            self.tombs_since.insert((since, key));
        }
    }

    fn remove(&mut self, key: usize) {
        let (messages, bytes) = self.weight(key);
        self.messages -= messages;
        self.bytes -= bytes;
        let Entry { message, position, since } = self.entries.remove(key);
        let bucket = bucket_of(&message);
        if self.counts(&message) {
            self.digests[bucket] = self.digests[bucket].wrapping_sub(fingerprint(&message));
        }
        let place = position as usize;
        self.buckets[bucket].swap_remove(place);
        if let Some(&moved) = self.buckets[bucket].get(place) {
            self.entries[moved].position = position;
        }
        self.topics.remove(&message.topic);
        if messages == 0 {
            self.tomb_bytes -= size_of(&message);
            self.tombs_since.remove(&(since, key));
        }
        if let Some(at) = due_at(&message, self.config.tombstones) {
            self.due.remove(&(at, key));
            self.tombs_due.remove(&(at, key));
        }
    }

    /// Messages and bytes that the entry adds to the totals: none for a tombstone.
    fn weight(&self, key: usize) -> (usize, usize) {
        let message = &self.entries[key].message;
        if message.payload.is_empty() { (0, 0) } else { (1, size_of(message)) }
    }
}

/// The stamp of the same writer next after `latest`.
fn after(latest: Stamp, writer: Stamp) -> Stamp {
    let next = latest.counter.checked_add(1).map(|counter| (latest.millis, counter));
    let (millis, counter) = next.unwrap_or_else(|| (latest.millis.saturating_add(1), 0));
    Stamp { millis, counter, ..writer }
}

fn whole_seconds(time: Duration) -> u32 {
    u32::try_from(time.as_secs()).unwrap_or(u32::MAX)
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
    mix(StableHash::of(message.topic.as_bytes()))
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sedge_base::NodeId;

    use super::*;
    use crate::testing;

    fn message(topic: &str, payload: &str, millis: u64) -> Arc<Message> {
        let mut message = testing::message(topic, payload);
        message.retain = true;
        message.stamp.millis = millis;
        Arc::new(message)
    }

    fn store() -> RetainedStore {
        let tombstones = Duration::from_secs(10);
        RetainedStore::new(RetainedConfig {
            max_messages: 3,
            max_bytes: 10_000,
            tombstones,
            ..RetainedConfig::default()
        })
    }

    fn matching(store: &RetainedStore, filter: &str, millis: u64) -> Vec<String> {
        let mut found = Vec::new();
        let filter = TopicFilter::new(filter).unwrap();
        store.matching(&filter, Timestamp::from_millis(millis), |message| {
            found.push(format!("{}={}", message.topic, String::from_utf8_lossy(&message.payload)));
        });
        found.sort();
        found
    }

    /// MQ-07
    #[test]
    fn the_last_writer_wins_and_a_tombstone_too() {
        let mut store = store();
        assert_eq!(store.set(&message("a", "2", 20)), SetOutcome::Stored);
        assert_eq!(store.set(&message("a", "1", 10)), SetOutcome::Stale);
        assert_eq!(store.set(&message("a", "2", 20)), SetOutcome::Stale);
        assert_eq!(matching(&store, "#", 100), ["a=2"]);
        assert_eq!(store.set(&message("a", "", 30)), SetOutcome::Cleared);
        assert_eq!(store.set(&message("a", "late", 25)), SetOutcome::Stale);
        assert_eq!(matching(&store, "#", 100), <[&str; 0]>::default());
        assert_eq!((store.len(), store.bytes(), store.tombstones()), (0, 0, 1));
        assert_eq!(store.purge(Timestamp::from_millis(10_029), Duration::ZERO), 0);
        assert_eq!(store.tombstones(), 1);
        store.purge(Timestamp::from_millis(10_030), Duration::ZERO);
        assert_eq!((store.tombstones(), store.digests()), (0, &[0; BUCKETS]));
    }

    /// MQ-07: one client's value goes, then another's, and the clock behind the second is late.
    #[test]
    fn a_publication_of_this_node_is_never_stale() {
        let mut store = store();
        let mut first = (*message("a", "first", 20)).clone();
        first.stamp.counter = u32::MAX;
        first.stamp.node = NodeId::new(9);
        assert_eq!(store.set(&Arc::new(first)), SetOutcome::Stored);
        let (passed_on, outcome) = store.publish(message("a", "second", 10));
        assert_eq!((outcome, matching(&store, "a", 100)), (SetOutcome::Stored, vec!["a=second".to_owned()]));
        assert_eq!((passed_on.stamp.millis, passed_on.stamp.counter), (21, 0));
        assert_eq!(store.set(&passed_on), SetOutcome::Stale);
        let (passed_on, outcome) = store.publish(message("a", "", 10));
        assert_eq!((outcome, passed_on.stamp.counter), (SetOutcome::Cleared, 1));
        let later = message("a", "third", 30);
        let (passed_on, outcome) = store.publish(Arc::clone(&later));
        assert_eq!((outcome, passed_on), (SetOutcome::Stored, later));
    }

    /// MQ-07
    #[test]
    fn limits_hold_for_what_is_new_or_grows() {
        let mut store = store();
        for topic in ["a", "b", "c"] {
            assert_eq!(store.set(&message(topic, "x", 1)), SetOutcome::Stored);
        }
        let digests = *store.digests();
        assert_eq!(store.set(&message("d", "x", 1)), SetOutcome::Full);
        assert_eq!(store.set(&message("a", &"x".repeat(20_000), 2)), SetOutcome::Full);
        assert_eq!(store.digests(), &digests);
        assert_eq!(store.set(&message("a", "y", 2)), SetOutcome::Stored);
        assert_eq!(store.set(&message("b", "", 2)), SetOutcome::Cleared);
        assert_eq!(store.set(&message("d", "x", 1)), SetOutcome::Stored);
        assert_eq!(matching(&store, "+", 1), ["a=y", "c=x", "d=x"]);
    }

    /// MQ-07: an expired value turns into a tombstone that keeps the older one of another node away.
    #[test]
    fn expiry_leaves_a_tombstone_with_the_same_digest() {
        let mut store = store();
        let mut expiring = (*message("a", "x", 100)).clone();
        expiring.expires_at = Some(Timestamp::from_millis(5_000));
        let expiring = Arc::new(expiring);
        store.set(&expiring);
        let digests = *store.digests();
        assert_eq!(matching(&store, "a", 4_999).len(), 1);
        assert_eq!(matching(&store, "a", 5_000).len(), 0);
        assert_eq!(store.purge(Timestamp::from_millis(5_000), Duration::ZERO), 1);
        assert_eq!(store.digests(), &digests);
        assert_eq!(store.set(&expiring), SetOutcome::Stale);
        assert_eq!(store.set(&message("a", "old", 50)), SetOutcome::Stale);
        store.purge(Timestamp::from_millis(15_000), Duration::ZERO);
        assert_eq!(store.tombstones(), 0);
    }

    /// MQ-07: nobody can fill the memory with topics that never had a value; a value that another node had is cleared here as well.
    #[test]
    fn a_topic_without_a_value_is_not_cleared() {
        let mut store = store();
        assert_eq!(store.publish(message("a", "", 10)).1, SetOutcome::Absent);
        assert_eq!(store.take(&message("b", "", 10)), SetOutcome::Absent);
        assert_eq!((store.tombstones(), store.tombstone_bytes(), store.digests()), (0, 0, &[0; BUCKETS]));
        assert_eq!(store.set(&message("c", "", 10)), SetOutcome::Cleared, "from the store of another node");
        assert_eq!(store.take(&message("c", "late", 5)), SetOutcome::Stale);
        assert_eq!((store.tombstones(), store.tombstone_bytes()), (1, 257));
        assert_eq!(store.take(&message("c", "later", 20)), SetOutcome::Stored);
        assert_eq!((store.tombstones(), store.tombstone_bytes()), (0, 0));
    }

    /// MQ-07: tombstones weigh what their topics do, and those go first that would be forgotten first.
    #[test]
    fn tombstones_have_a_quarter_of_the_room_of_values() {
        let config = RetainedConfig {
            max_messages: 1_000,
            max_bytes: 20_000,
            tombstones: Duration::from_secs(10),
            ..RetainedConfig::default()
        };
        let mut store = RetainedStore::new(config);
        for number in 0..100 {
            let topic = format!("{number}/{}", "x".repeat(1_000));
            assert_eq!(store.take(&message(&topic, "value", number)), SetOutcome::Stored);
            assert_eq!(store.take(&message(&topic, "", number + 1)), SetOutcome::Cleared);
            assert!(store.tombstone_bytes() <= 5_000 && store.bytes() == 0);
        }
        assert_eq!((store.tombstones(), store.tombstones_crowded_out()), (3, 97));
        let kept: Vec<u64> =
            (0..BUCKETS).flat_map(|index| store.bucket(index)).map(|found| found.stamp.millis).collect();
        assert_eq!(kept.iter().min(), Some(&98), "the latest are kept");
        let few = RetainedConfig { max_messages: 8, ..RetainedConfig::default() };
        let mut store = RetainedStore::new(few);
        for number in 0..10 {
            store.set(&message(&number.to_string(), "", 1));
        }
        assert_eq!(store.tombstones(), 2);
    }

    /// MQ-07: nodes that agree may forget a cleared topic at different times, and their digests stay equal.
    #[test]
    fn an_old_tombstone_is_forgotten_when_all_agree() {
        let day = Duration::from_hours(24);
        let (mut one, mut two) =
            (RetainedStore::new(RetainedConfig::default()), RetainedStore::new(RetainedConfig::default()));
        let (start, at) = (1_000_000, |secs: u64| Timestamp::from_millis(1_000_000 + secs * 1_000));
        for store in [&mut one, &mut two] {
            store.purge(at(0), Duration::from_secs(100));
            store.set(&message("a", "", start));
            store.set(&message("b", "value", start));
        }
        let with_both = *one.digests();
        assert_eq!(one.agreed(Duration::from_secs(699)), 0, "publications may be on their way");
        assert_eq!(one.agreed(Duration::from_secs(5_000)), 0, "others may still count it");
        one.purge(at(600), Duration::from_secs(700));
        assert_ne!(one.digests(), &with_both, "it counts no longer");
        two.purge(at(600), Duration::from_secs(700));
        assert_eq!(one.agreed(Duration::from_secs(700)), 0);
        assert_eq!((one.agreed(Duration::from_secs(701)), one.tombstones(), one.len()), (1, 0, 1));
        assert_eq!(one.digests(), two.digests());
        assert_eq!((one.purge(at(0) + day, day), one.digests() == two.digests()), (0, true));
        // A value that an old tombstone keeps away makes digests differ, so that the tombstone clears a value that a node brings back.
        two.bucket(bucket_of(&message("a", "", 1)))
            .for_each(|message| assert_eq!(one.set(&message), SetOutcome::Cleared));
        assert_eq!(one.digests(), two.digests());
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// MQ-07: replicas agree whatever the order, and exchanging differing buckets makes them agree.
        #[test]
        fn replicas_converge(
            writes in prop::collection::vec((0_u8..20, any::<bool>(), 1_u64..50, 1_u64..4), 0..60),
            seed in any::<u64>(),
        ) {
            let config = RetainedConfig::default();
            let (mut one, mut two) = (RetainedStore::new(config.clone()), RetainedStore::new(config.clone()));
            let mut lagging = RetainedStore::new(config);
            let mut messages = Vec::new();
            for (topic, clear, millis, node) in writes {
                let payload = if clear { String::new() } else { format!("{millis}-{node}") };
                let mut message = (*message(&format!("t/{topic}"), &payload, millis)).clone();
                message.stamp.node = NodeId::new(node);
                messages.push(Arc::new(message));
            }
            // One writer gives one stamp once.
            messages.sort_by_key(|message| (message.topic.clone(), message.stamp));
            messages.dedup_by_key(|message| (message.topic.clone(), message.stamp));
            for message in &messages {
                one.set(message);
            }
            sedge_base::Rng::new(seed).shuffle(&mut messages);
            for (index, message) in messages.iter().enumerate() {
                two.set(message);
                if index % 2 == 0 {
                    lagging.set(message);
                }
            }
            prop_assert_eq!(one.digests(), two.digests());
            prop_assert_eq!(matching(&one, "#", 0), matching(&two, "#", 0));
            for bucket in 0..BUCKETS {
                if lagging.digests()[bucket] != one.digests()[bucket] {
                    one.bucket(bucket).for_each(|message| { lagging.set(&message); });
                }
            }
            prop_assert_eq!(one.digests(), lagging.digests());
            prop_assert_eq!(matching(&one, "#", 0), matching(&lagging, "#", 0));
            prop_assert_eq!((one.len(), one.bytes()), (lagging.len(), lagging.bytes()));
        }
    }
}
