//! The topics that clients publish to most, counted while somebody looks (OP-02). Fixed memory; nothing at all while nobody does.

use sedge_base::{Duration, HeavyHitters, Instant, Rng};

use crate::Broker;

/// Topics that are counted at the same time by a shard; one more takes the place of the rarest.
pub const HOT_TOPICS_MAX: usize = 128;
/// Longer topics are not counted.
pub const HOT_TOPIC_BYTES_MAX: usize = 256;
/// Counting begins anew after so long; the counts before are kept until the next time.
const WINDOW: Duration = Duration::from_secs(5);
/// Counting ends when nobody has looked for so long.
const PATIENCE: Duration = Duration::from_mins(1);
/// So many publications of a window are counted one by one.
const ONE_BY_ONE: u64 = 4_096;
/// Of those behind them one of so many, drawn by chance, stands for all.
const ONE_IN: u64 = 16;

/// A topic, and how often clients publish to it.
#[derive(Clone, Debug, PartialEq)]
pub struct HotTopic {
    /// The topic.
    pub topic: Box<str>,
    /// Publications a second, at most.
    pub rate: f64,
    /// By how much that may be too high.
    pub error: f64,
}

/// The counts since a moment.
#[derive(Debug)]
struct Window {
    since: Instant,
    counts: HeavyHitters,
    seen: u64,
}

impl Window {
    const fn new(since: Instant) -> Self {
        Self { since, counts: HeavyHitters::new(HOT_TOPICS_MAX), seen: 0 }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct HotTopics {
    rng: Rng,
    /// Publications until the next one that is counted.
    skip: u64,
    window: Window,
    before: Option<Window>,
    looked: Instant,
    too_long: u64,
}

impl HotTopics {
    fn new(rng: Rng, now: Instant) -> Self {
        Self { rng, skip: 0, window: Window::new(now), before: None, looked: now, too_long: 0 }
    }

    /// A publication; false if nobody has looked for long.
    fn note(&mut self, now: Instant, topic: &str) -> bool {
        if self.skip > 0 {
            self.skip -= 1;
            return true;
        }
        if now.since(self.window.since) >= WINDOW {
            if now.since(self.looked) >= PATIENCE {
                return false;
            }
            self.before = Some(core::mem::replace(&mut self.window, Window::new(now)));
        }
        let one_by_one = self.window.seen < ONE_BY_ONE;
        let times = if one_by_one { 1 } else { ONE_IN };
        if !one_by_one {
            self.skip = self.rng.below(2 * ONE_IN - 1);
        }
        self.window.seen += 1;
        if topic.len() <= HOT_TOPIC_BYTES_MAX {
            self.window.counts.add(topic, times);
        } else {
            self.too_long += times;
        }
        true
    }

    /// The topics by their rates since the beginning of the last whole window, and how long ago that is.
    fn list(&self, now: Instant) -> (Duration, Vec<HotTopic>) {
        let is_fresh = |window: &&Window| now.since(window.since) < 2 * WINDOW + Duration::from_secs(1);
        let before = self.before.as_ref().filter(is_fresh);
        // Nobody has published since, so that the window has not ended by itself.
        let window = Some(&self.window).filter(is_fresh);
        let since = before.or(window).map_or(now, |window| window.since);
        let took = now.since(since);
        let mut sums = HeavyHitters::new(2 * HOT_TOPICS_MAX);
        let mut errors = std::collections::BTreeMap::<&str, u64>::new();
        for heavy in before.into_iter().chain(window).flat_map(|window| window.counts.iter()) {
            sums.add(&heavy.name, heavy.count);
            *errors.entry(&heavy.name).or_default() += heavy.error;
        }
        let rate = |count: u64| real(count) / took.as_secs_f64().max(0.001);
        let topic = |heavy: &sedge_base::Heavy| {
            let error = errors.get(&*heavy.name).copied().unwrap_or(0);
            HotTopic { topic: heavy.name.clone(), rate: rate(heavy.count), error: rate(error) }
        };
        let mut topics: Vec<HotTopic> = sums.iter().map(topic).collect();
        topics.sort_by(|one, other| other.rate.total_cmp(&one.rate).then_with(|| one.topic.cmp(&other.topic)));
        (took, topics)
    }

    fn bytes(&self) -> usize {
        self.window.counts.bytes() + self.before.as_ref().map_or(0, |window| window.counts.bytes())
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate for people: 53 bits are plenty")]
const fn real(count: u64) -> f64 {
    count as f64
}

impl Broker {
    /// Somebody looks at the topics that clients publish to most: they are counted from now on, for a minute at least.
    pub fn watch_topics(&mut self, now: Instant) {
        match &mut self.hot {
            Some(hot) => hot.looked = now,
            None => self.hot = Some(Box::new(HotTopics::new(self.rng.split(0x707), now))),
        }
    }

    /// The topics that clients publish to most, the busiest first, and over how long that was counted; nothing if nobody looks.
    pub fn hot_topics(&self, now: Instant) -> (Duration, Vec<HotTopic>) {
        self.hot.as_ref().map_or_else(|| (Duration::ZERO, Vec::new()), |hot| hot.list(now))
    }

    /// Bytes of what is counted about topics, and how many publications had a topic that is too long for it.
    pub fn hot_topics_kept(&self) -> (usize, u64) {
        self.hot.as_ref().map_or((0, 0), |hot| (hot.bytes(), hot.too_long))
    }

    /// A client has published.
    pub(crate) fn note_topic(&mut self, topic: &str) {
        let now = self.now.instant;
        if let Some(hot) = &mut self.hot
            && !hot.note(now, topic)
        {
            self.hot = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    fn hot() -> HotTopics {
        HotTopics::new(Rng::new(3), at(0))
    }

    #[test]
    fn few_publications_are_counted_exactly() {
        let mut hot = hot();
        for number in 0..200_u64 {
            let topic = if number.is_multiple_of(4) { "b" } else { "a" };
            assert!(hot.note(at(number * 10), topic));
        }
        let (took, topics) = hot.list(at(2_000));
        assert_eq!(took, Duration::from_secs(2));
        let want = [("a", 75.0), ("b", 25.0)].map(|(topic, rate)| HotTopic { topic: topic.into(), rate, error: 0.0 });
        assert_eq!(topics, want);
    }

    #[test]
    fn a_busy_shard_looks_at_a_part_of_them() {
        let mut hot = hot();
        for number in 0..1_000_000_u64 {
            // One that always comes at the same place of a round, as publishers that take turns do.
            let topic = if number.is_multiple_of(16) { "turn" } else { "rest" };
            hot.note(at(number / 250), topic);
        }
        assert!(hot.window.seen < 80_000, "{} were looked at", hot.window.seen);
        let (_, topics) = hot.list(at(4_000));
        assert_eq!((&*topics[0].topic, &*topics[1].topic), ("rest", "turn"));
        let turn = topics[1].rate;
        assert!((14_000.0..17_500.0).contains(&turn), "15,625 a second, not {turn}");
    }

    #[test]
    fn what_was_long_ago_is_forgotten_and_counting_ends_by_itself() {
        let mut hot = hot();
        hot.note(at(0), "old");
        hot.note(at(5_000), "new");
        assert_eq!(hot.list(at(6_000)).1.len(), 2);
        hot.note(at(10_000), "newer");
        let names: Vec<_> = hot.list(at(10_000)).1.into_iter().map(|hot| hot.topic).collect();
        assert_eq!(names, ["new".into(), "newer".into()] as [Box<str>; 2]);
        assert!(hot.list(at(40_000)).1.is_empty(), "nobody has published since");
        assert!(!hot.note(at(70_000), "late"));
    }

    #[test]
    fn memory_is_fixed_and_long_topics_are_only_counted_in_all() {
        let mut hot = hot();
        for number in 0..3_000_u64 {
            hot.note(at(number * 4), &format!("{number:0>250}"));
        }
        hot.note(at(12_000), &"x".repeat(HOT_TOPIC_BYTES_MAX + 1));
        assert_eq!((hot.too_long, hot.list(at(12_000)).1.len()), (1, 2 * HOT_TOPICS_MAX));
        assert!(hot.bytes() <= 2 * HOT_TOPICS_MAX * 320, "{}", hot.bytes());
    }
}
