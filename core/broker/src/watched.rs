//! The topics that clients publish to, with rates and last values, while somebody looks at the tree of topics (OP-02). Nothing while nobody does.

use bytes::Bytes;
use sedge_base::{ClientId, Duration, Instant, Rng};
use sedge_mqtt::{Message, QoS, TopicName, TopicTree};

use crate::Broker;
use crate::broker::Timer;
use crate::level::{LastValue, Level, LevelQuery, level};

/// A shard keeps so many bytes of topics and values; a new topic beyond it is only counted.
pub const WATCHED_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Longer topics are only counted.
pub const WATCHED_TOPIC_BYTES_MAX: usize = 1024;
/// Of a longer payload only the length is kept.
pub const WATCHED_VALUE_BYTES_MAX: usize = 16 * 1024;
/// A topic takes so many bytes beside its name and value.
const ENTRY_BYTES: usize = 192;
/// Rates are over the last whole window and the one that runs.
const WINDOW: Duration = Duration::from_secs(5);
/// Watching ends when nobody has looked for so long.
const PATIENCE: Duration = Duration::from_mins(1);
/// So many publications of a window are looked at one by one.
const ONE_BY_ONE: u64 = 50_000;
/// Of those behind them one of so many, drawn by chance, stands for all.
const ONE_IN: u32 = 16;

/// A topic and its last message.
#[derive(Debug)]
struct Watched {
    at_ms: u64,
    qos: QoS,
    retain: bool,
    bytes: usize,
    payload: Option<Box<[u8]>>,
    publisher: Option<ClientId>,
    /// The window of `count`.
    window: u64,
    count: u32,
    /// Publications in the window before.
    before: u32,
}

impl Watched {
    fn last(&self) -> LastValue {
        LastValue {
            at_ms: self.at_ms,
            qos: self.qos,
            retain: self.retain,
            bytes: self.bytes,
            payload: self.payload.as_deref().map(Bytes::copy_from_slice),
            publisher: self.publisher.clone(),
        }
    }

    fn kept(&self) -> usize {
        self.payload.as_ref().map_or(0, |payload| payload.len())
    }
}

/// How much is kept for the tree of topics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchedKept {
    /// Topics.
    pub topics: usize,
    /// Bytes of them and their values.
    pub bytes: usize,
    /// Publications to topics that found no room, or are too long.
    pub left_out: u64,
}

/// The topics of one shard that clients publish to while somebody looks.
#[derive(Debug)]
pub(crate) struct WatchedTopics {
    topics: TopicTree<Watched>,
    bytes: usize,
    left_out: u64,
    rng: Rng,
    /// Publications until the next one that is looked at.
    skip: u64,
    began: Instant,
    window: u64,
    looked_at: u64,
}

impl WatchedTopics {
    const fn new(rng: Rng, now: Instant) -> Self {
        let topics = TopicTree::new();
        Self { topics, bytes: 0, left_out: 0, rng, skip: 0, began: now, window: 0, looked_at: 0 }
    }

    const fn window_at(&self, now: Instant) -> u64 {
        now.since(self.began).as_secs() / WINDOW.as_secs()
    }

    fn note(&mut self, now: Instant, message: &Message) {
        if self.skip > 0 {
            self.skip -= 1;
            return;
        }
        let window = self.window_at(now);
        if window != self.window {
            (self.window, self.looked_at) = (window, 0);
        }
        let one_by_one = self.looked_at < ONE_BY_ONE;
        let times = if one_by_one { 1 } else { ONE_IN };
        if !one_by_one {
            self.skip = self.rng.below(2 * u64::from(ONE_IN) - 1);
        }
        self.looked_at += 1;
        self.put(message, window, times);
    }

    fn put(&mut self, message: &Message, window: u64, times: u32) {
        let value = Some(&message.payload).filter(|payload| payload.len() <= WATCHED_VALUE_BYTES_MAX);
        let wanted = value.map_or(0, Bytes::len);
        let new = ENTRY_BYTES + message.topic.as_bytes().len();
        let known = self.topics.get_mut(&message.topic);
        let (freed, needed) = known.as_ref().map_or((0, new + wanted), |watched| (watched.kept(), wanted));
        let has_room = self.bytes - freed + needed <= WATCHED_BYTES_MAX;
        if known.is_none() && (!has_room || message.topic.as_bytes().len() > WATCHED_TOPIC_BYTES_MAX) {
            self.left_out += u64::from(times);
            return;
        }
        let payload = value.filter(|_| has_room).map(|payload| Box::<[u8]>::from(&payload[..]));
        self.bytes = self.bytes - freed + needed - if payload.is_none() { wanted } else { 0 };
        let (at_ms, qos, retain) = (message.stamp.millis, message.qos, message.retain);
        let (bytes, publisher) = (message.payload.len(), message.publisher.clone());
        let (before, count) = known.as_ref().map_or((0, 0), |watched| match window - watched.window {
            0 => (watched.before, watched.count),
            1 => (watched.count, 0),
            _ => (0, 0),
        });
        let count = count.saturating_add(times);
        let watched = Watched { at_ms, qos, retain, bytes, payload, publisher, window, count, before };
        match known {
            Some(place) => *place = watched,
            None => drop(self.topics.insert(&message.topic, watched)),
        }
    }

    /// Over how long rates are.
    fn took(&self, now: Instant) -> Duration {
        let window = self.window_at(now);
        let since = self.began + WINDOW.saturating_mul(u32::try_from(window.saturating_sub(1)).unwrap_or(u32::MAX));
        now.since(since)
    }

    fn level(&self, asked: &LevelQuery, now: Instant) -> Level {
        let window = self.window_at(now);
        let seconds = self.took(now).as_secs_f64().max(1.0);
        let rate = |watched: &Watched| {
            let count = match window.saturating_sub(watched.window) {
                0 => watched.before.saturating_add(watched.count),
                1 => watched.count,
                _ => 0,
            };
            f64::from(count) / seconds
        };
        level(&self.topics, asked, |_| true, rate, Watched::last)
    }
}

impl Broker {
    /// Somebody looks at the tree of topics: publications are noted from now on, for a minute.
    pub fn watch_topic_tree(&mut self, now: Instant) {
        self.timers.set(Timer::Watched, now + PATIENCE);
        if self.watched.is_none() {
            self.watched = Some(Box::new(WatchedTopics::new(self.rng.split(0x7e), now)));
        }
    }

    /// One level of the tree of topics that clients have published to while somebody looks, and over how long rates are.
    pub fn watched_level(&self, asked: &LevelQuery, now: Instant) -> (Duration, Level) {
        let nothing = || (Duration::ZERO, Level::default());
        self.watched.as_ref().map_or_else(nothing, |watched| (watched.took(now), watched.level(asked, now)))
    }

    /// The last publication to a topic while somebody looks.
    pub fn watched_value(&self, topic: &TopicName) -> Option<LastValue> {
        self.watched.as_ref()?.topics.get(topic).map(Watched::last)
    }

    /// The number and bytes of the topics that are kept for those who look.
    pub fn watched_kept(&self) -> WatchedKept {
        let kept = |watched: &WatchedTopics| WatchedKept {
            topics: watched.topics.len(),
            bytes: watched.bytes,
            left_out: watched.left_out,
        };
        self.watched.as_deref().map_or_else(WatchedKept::default, kept)
    }

    /// A client's publication is taken.
    pub(crate) fn note_value(&mut self, message: &Message) {
        let now = self.now.instant;
        if let Some(watched) = &mut self.watched {
            watched.note(now, message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    fn watched() -> WatchedTopics {
        WatchedTopics::new(Rng::new(3), at(0))
    }

    fn root(watched: &WatchedTopics, now: Instant) -> Vec<(String, f64, Option<Bytes>)> {
        let asked = LevelQuery { below: String::new(), after: None, limit: 100 };
        let lines = watched.level(&asked, now).lines.into_iter();
        lines.map(|line| (line.key, line.rate, line.last.and_then(|last| last.payload))).collect()
    }

    /// OP-02
    #[test]
    fn the_last_value_and_the_rate_are_known() {
        let mut watched = watched();
        for number in 0..100_u64 {
            watched.note(at(number * 100), &testing::message("a", &number.to_string()));
        }
        assert_eq!(root(&watched, at(10_000)), [("a".to_owned(), 10.0, Some(Bytes::from("99")))]);
        assert_eq!(root(&watched, at(60_000)), [("a".to_owned(), 0.0, Some(Bytes::from("99")))]);
    }

    /// OP-02: memory ends at the bound, and known topics go on being renewed.
    #[test]
    fn memory_is_bounded() {
        let mut watched = watched();
        let value = "x".repeat(WATCHED_VALUE_BYTES_MAX);
        for number in 0..2_000 {
            watched.note(at(number), &testing::message(&format!("t/{number}"), &value));
        }
        assert!(watched.bytes <= WATCHED_BYTES_MAX && watched.bytes > WATCHED_BYTES_MAX - 20_000, "{}", watched.bytes);
        assert_eq!(watched.left_out + watched.topics.len() as u64, 2_000);
        let kept = watched.topics.len();
        watched.note(at(3_000), &testing::message("t/1", &"y".repeat(WATCHED_VALUE_BYTES_MAX + 1)));
        let name = |topic: &str| TopicName::new(topic).unwrap();
        let renewed = watched.topics.get(&name("t/1")).unwrap().last();
        assert_eq!((renewed.bytes, renewed.payload), (WATCHED_VALUE_BYTES_MAX + 1, None));
        watched.note(at(3_001), &testing::message("t/1", "z"));
        assert_eq!(watched.topics.get(&name("t/1")).unwrap().last().payload, Some(Bytes::from("z")));
        watched.note(at(3_002), &testing::message(&"t".repeat(WATCHED_TOPIC_BYTES_MAX + 1), "z"));
        assert_eq!(watched.topics.len(), kept);
        let sum: usize =
            watched.topics.iter().map(|(topic, of)| ENTRY_BYTES + topic.as_bytes().len() + of.kept()).sum();
        assert_eq!(watched.bytes, sum);
    }

    /// OP-02
    #[test]
    fn a_busy_shard_looks_at_a_part_of_them() {
        let mut watched = watched();
        for number in 0..1_000_000_u64 {
            watched.note(at(number / 200), &testing::message("a", "x"));
        }
        assert!(watched.looked_at < 115_000, "{} were looked at", watched.looked_at);
        let rate = root(&watched, at(4_999))[0].1;
        assert!((190_000.0..210_000.0).contains(&rate), "200,000 a second, not {rate}");
    }
}
