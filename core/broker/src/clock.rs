//! Names and times of publications.

use sedge_base::{Duration, Now, Timestamp};
use sedge_mqtt::{MessageId, Stamp};

use crate::Place;

/// When a message with this message expiry interval, in seconds, ceases to be of use. An interval of zero is over at every node from the
/// beginning, also at one whose clock is a little behind this one's (MQTT 5.0, 3.3.2.3.3).
pub(crate) fn expires_at(now: Now, interval: u32) -> Timestamp {
    if interval == 0 { Timestamp::from_millis(0) } else { now.wall + Duration::from_secs(u64::from(interval)) }
}

/// Hands out message ids and stamps, both ascending.
#[derive(Debug)]
pub(crate) struct Clock {
    place: Place,
    seq: u64,
    millis: u64,
    counter: u32,
}

impl Clock {
    pub(crate) const fn new(place: Place) -> Self {
        Self { place, seq: 0, millis: 0, counter: 0 }
    }

    /// The next id.
    pub(crate) const fn next_id(&mut self) -> MessageId {
        self.seq += 1;
        let Place { node, incarnation, shard, shards: _ } = self.place;
        MessageId { node, incarnation, shard, seq: self.seq }
    }

    /// The number of the last id.
    pub(crate) const fn last(&self) -> u64 {
        self.seq
    }

    /// The next stamp: the wall clock's time, but after every stamp given or seen before.
    pub(crate) fn next_stamp(&mut self, now: Now) -> Stamp {
        let millis = now.wall.as_millis();
        if millis > self.millis {
            (self.millis, self.counter) = (millis, 0);
        } else {
            let next = self.counter.checked_add(1).map(|counter| (self.millis, counter));
            (self.millis, self.counter) = next.unwrap_or_else(|| (self.millis.saturating_add(1), 0));
        }
        Stamp { millis: self.millis, counter: self.counter, node: self.place.node, shard: self.place.shard }
    }

    /// A stamp of another shard or node was seen.
    pub(crate) fn observe(&mut self, stamp: Stamp) {
        if (stamp.millis, stamp.counter) > (self.millis, self.counter) {
            (self.millis, self.counter) = (stamp.millis, stamp.counter);
        }
    }
}

#[cfg(test)]
mod tests {
    use sedge_base::{Incarnation, Instant, NodeId, ShardId, Timestamp};

    use super::*;

    #[test]
    fn an_interval_of_zero_is_over_also_where_the_clock_is_behind() {
        let now = Now { instant: Instant::ZERO, wall: Timestamp::from_millis(5_000) };
        assert!(expires_at(now, 0) <= Timestamp::from_millis(4_990));
        assert_eq!(expires_at(now, 2), Timestamp::from_millis(7_000));
    }

    #[test]
    fn stamps_ascend_whatever_the_wall_clock_does() {
        let place = Place { node: NodeId::new(1), incarnation: Incarnation::new(1), shard: ShardId(0), shards: 1 };
        let mut clock = Clock::new(place);
        let mut last = None;
        for millis in [10, 10, 20, 5, 20, 21] {
            let now = Now { instant: Instant::ZERO, wall: Timestamp::from_millis(millis) };
            let stamp = clock.next_stamp(now);
            assert!(last < Some(stamp));
            last = Some(stamp);
        }
        let seen = Stamp { millis: 1_000, counter: 7, node: NodeId::new(9), shard: ShardId(3) };
        clock.observe(seen);
        let now = Now { instant: Instant::ZERO, wall: Timestamp::from_millis(30) };
        assert!(clock.next_stamp(now) > seen);
        assert!(clock.next_id() < clock.next_id());
    }
}
