//! The publications of each shard that have come to this node: the first and the last one. Those that a session has not had are a gap.

use std::collections::{BTreeMap, BTreeSet};

use sedge_base::Instant;
use sedge_mqtt::MessageId;

use crate::mail::{Gap, Gaps, Heard, ShardLife};

/// Shards that are remembered; those of the node with the lowest id are forgotten first.
pub(super) const MAX_SHARDS: usize = 4_096;
/// Publications that came after later ones of their shard had begun to come. With more of them a session of the journal has no gaps.
const MAX_EARLIER: usize = 4_096;

/// The publications of one shard that have come.
#[derive(Clone, Copy, Debug)]
struct Reached {
    /// The one that came first.
    first: u64,
    last: u64,
    /// When the last one came.
    at: Instant,
}

/// The publications with QoS 1 or 2 that have come here.
#[derive(Debug, Default)]
pub(super) struct Here {
    shards: BTreeMap<ShardLife, Reached>,
    /// Those that came after a later one of their shard had come first.
    earlier: BTreeSet<MessageId>,
}

impl Here {
    /// A publication has come.
    pub(super) fn note(&mut self, now: Instant, id: &MessageId) {
        let shard = (id.node, id.incarnation, id.shard);
        let is_earlier = self.shards.get(&shard).is_some_and(|known| id.seq < known.first);
        if is_earlier && self.earlier.len() <= MAX_EARLIER {
            self.earlier.insert(*id);
        }
        self.reaches(now, shard, id.seq);
    }

    /// Publications of a shard have come as far as this one.
    pub(super) fn reaches(&mut self, now: Instant, shard: ShardLife, last: u64) {
        let known = self.shards.entry(shard).or_insert(Reached { first: last, last, at: now });
        (known.last, known.at) = (last.max(known.last), now);
        if self.shards.len() > MAX_SHARDS {
            self.shards.pop_first();
        }
    }

    /// Forgets the shards of which none has come since `since`, unless they are to stay.
    pub(super) fn retain(&mut self, is_recent: impl Fn(Instant) -> bool, stays: impl Fn(&ShardLife) -> bool) {
        self.shards.retain(|shard, reached| is_recent(reached.at) || stays(shard));
        let shards = &self.shards;
        self.earlier.retain(|id| shards.contains_key(&(id.node, id.incarnation, id.shard)));
    }

    /// The last publication of each shard.
    pub(super) fn marks(&self) -> Heard {
        self.shards.iter().map(|(shard, reached)| (*shard, reached.last)).collect()
    }

    /// The gaps of a session that has had publications up to `had`: all that came here behind them.
    pub(super) fn behind(&self, had: &Heard) -> Gaps {
        let gaps = self.shards.iter().filter_map(|(shard, reached)| {
            let after = *had.get(shard).filter(|after| **after < reached.last)?;
            Some((*shard, vec![Gap { after, to: reached.last }]))
        });
        gaps.collect()
    }

    /// The same, where it is known of all shards what a session has had.
    pub(super) fn all_behind(&self, had: &Heard) -> Gaps {
        let unnamed = self.shards.iter().filter(|(shard, _)| !had.contains_key(shard));
        let whole = unnamed.map(|(shard, reached)| (*shard, vec![Gap { after: 0, to: reached.last }]));
        self.behind(had).into_iter().chain(whole).collect()
    }

    /// The gaps of a session of the journal, which had come to `had` before: publications did not reach it until the first one came here. The
    /// second value has those of the gaps that have come all the same.
    pub(super) fn before(&self, had: &Heard) -> (Gaps, BTreeSet<MessageId>) {
        if self.earlier.len() > MAX_EARLIER {
            return (Gaps::new(), BTreeSet::new());
        }
        let gaps = self.shards.iter().filter_map(|(shard, reached)| {
            let (after, to) = (had.get(shard).copied().unwrap_or(0), reached.first.saturating_sub(1));
            (after < to).then(|| (*shard, vec![Gap { after, to }]))
        });
        (gaps.collect(), self.earlier.clone())
    }
}

#[cfg(test)]
mod tests {
    use sedge_base::{Incarnation, NodeId, ShardId};

    use super::*;

    fn id(node: u64, seq: u64) -> MessageId {
        MessageId { node: NodeId::new(node), incarnation: Incarnation::new(1), shard: ShardId(0), seq }
    }

    fn shard(node: u64) -> ShardLife {
        (NodeId::new(node), Incarnation::new(1), ShardId(0))
    }

    /// FT-21: publications made while a node was away have not reached the sessions of its journal.
    #[test]
    fn what_came_first_ends_the_gap_before_it() {
        let (mut here, at) = (Here::default(), Instant::from_millis(0));
        for seq in [9, 12, 7] {
            here.note(at, &id(1, seq));
        }
        here.note(at, &id(2, 1));
        let had = Heard::from([(shard(1), 4), (shard(3), 6)]);
        let (gaps, came) = here.before(&had);
        assert_eq!(gaps, Gaps::from([(shard(1), vec![Gap { after: 4, to: 8 }])]));
        assert_eq!(came, BTreeSet::from([id(1, 7)]));
        assert_eq!(here.behind(&had), Gaps::from([(shard(1), vec![Gap { after: 4, to: 12 }])]));
    }
}
