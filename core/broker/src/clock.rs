//! Names and times of publications.

use sedge_base::Now;
use sedge_mqtt::{MessageId, Stamp};

use crate::Place;

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
