//! Second choices for shared subscriptions.

use std::collections::{BTreeMap, VecDeque};

use sedge_mqtt::{MessageId, TopicFilter};
use smallvec::SmallVec;

use crate::mail::Location;

/// Choices after the first one.
const TRIES: usize = 3;
/// Messages whose tried places are remembered.
const LIMIT: usize = 1024;

/// Which places were tried in vain for the last few messages that came back.
#[derive(Debug, Default)]
pub(super) struct Bounces {
    tried: BTreeMap<(MessageId, TopicFilter), SmallVec<[Location; TRIES]>>,
    order: VecDeque<(MessageId, TopicFilter)>,
}

impl Bounces {
    /// Notes that there is no member at `place`. Without a place a member has had the message, and its session has ended: places tried before that
    /// are worth trying again. Returns all places tried for this message, or nothing if it is enough.
    pub(super) fn note(&mut self, id: &MessageId, group: &TopicFilter, place: Option<Location>) -> Option<&[Location]> {
        let key = (*id, group.clone());
        let Some(place) = place else {
            if self.tried.remove(&key).is_some() {
                self.order.retain(|other| *other != key);
            }
            return Some(&[]);
        };
        if !self.tried.contains_key(&key) {
            if self.order.len() >= LIMIT
                && let Some(oldest) = self.order.pop_front()
            {
                self.tried.remove(&oldest);
            }
            self.order.push_back(key.clone());
        }
        let tried = self.tried.entry(key).or_default();
        if tried.len() >= TRIES {
            return None;
        }
        tried.push(place);
        Some(tried)
    }

    /// There is a member at a place now: messages that came back from there may go there again.
    pub(super) fn has_member(&mut self, group: &TopicFilter, place: Location) {
        let of_group = self.tried.iter_mut().filter(|((_, other), _)| other == group);
        for (_, tried) in of_group {
            tried.retain(|other| *other != place);
        }
    }
}

#[cfg(test)]
mod tests {
    use sedge_base::{Incarnation, NodeId, ShardId};

    use super::*;

    const NOWHERE: Option<Location> = Some(Location::Shard(ShardId(0)));

    /// MQ-14
    #[test]
    fn a_message_is_tried_a_few_times_only() {
        let mut bounces = Bounces::default();
        let id = |seq| MessageId { node: NodeId::new(1), incarnation: Incarnation::new(1), shard: ShardId(0), seq };
        let group = TopicFilter::new("$share/g/a").unwrap();
        // A session that ended says nothing of its place.
        assert_eq!(bounces.note(&id(1), &group, None), Some(&[][..]));
        for round in 1..=TRIES {
            let tried = bounces.note(&id(1), &group, NOWHERE).map(<[Location]>::len);
            assert_eq!(tried, Some(round));
        }
        assert!(bounces.note(&id(1), &group, NOWHERE).is_none());
        bounces.has_member(&TopicFilter::new("$share/h/a").unwrap(), Location::Shard(ShardId(0)));
        bounces.has_member(&group, Location::Shard(ShardId(1)));
        assert!(bounces.note(&id(1), &group, NOWHERE).is_none());
        bounces.has_member(&group, Location::Shard(ShardId(0)));
        assert_eq!(bounces.note(&id(1), &group, NOWHERE).map(<[Location]>::len), Some(1));
        // A member has had it, and its session has ended: what was tried before says nothing of now.
        assert_eq!(bounces.note(&id(1), &group, None), Some(&[][..]));
        assert_eq!(bounces.note(&id(1), &group, NOWHERE).map(<[Location]>::len), Some(1));
        for seq in 2..2 + LIMIT as u64 {
            assert!(bounces.note(&id(seq), &group, NOWHERE).is_some());
        }
        assert_eq!((bounces.tried.len(), bounces.order.len()), (LIMIT, LIMIT));
    }
}
