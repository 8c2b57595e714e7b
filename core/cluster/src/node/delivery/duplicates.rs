//! Suppression of publications that come twice (FT-17, FT-21).

use std::collections::{BTreeMap, VecDeque};

use sedge_base::{Incarnation, NodeId, ShardId};
use sedge_mqtt::MessageId;

/// Numbers below the highest one that are told apart; older ones count as seen.
const WIDTH: u64 = 4096;
const WORDS: usize = 64;
/// Sources that are remembered; the one that was new first is forgotten first.
const SOURCES: usize = 4096;

type Source = (NodeId, Incarnation, ShardId);

/// Which numbers of each source were seen.
#[derive(Debug, Default)]
pub(in crate::node) struct Windows {
    windows: BTreeMap<Source, Window>,
    order: VecDeque<Source>,
}

#[derive(Debug)]
struct Window {
    /// One above the highest number seen.
    end: u64,
    /// Bit `number % WIDTH` of the numbers below `end`.
    bits: Box<[u64; WORDS]>,
}

impl Windows {
    /// Notes a publication; says whether it is new.
    pub(in crate::node) fn note(&mut self, id: &MessageId) -> bool {
        let source = (id.node, id.incarnation, id.shard);
        if !self.windows.contains_key(&source) {
            if self.order.len() >= SOURCES
                && let Some(oldest) = self.order.pop_front()
            {
                self.windows.remove(&oldest);
            }
            self.order.push_back(source);
        }
        let window = self.windows.entry(source).or_insert_with(|| Window { end: 0, bits: Box::new([0; WORDS]) });
        window.note(id.seq)
    }

    /// Whether a publication was noted. One that is too old to be told apart counts as not noted.
    pub(in crate::node) fn has(&self, id: &MessageId) -> bool {
        let window = self.windows.get(&(id.node, id.incarnation, id.shard));
        window.is_some_and(|window| window.has(id.seq))
    }
}

impl Window {
    fn note(&mut self, number: u64) -> bool {
        if number.saturating_add(WIDTH) < self.end {
            return false;
        }
        if number >= self.end {
            if number - self.end >= WIDTH {
                *self.bits = [0; WORDS];
            } else {
                (self.end..number).for_each(|between| self.set(between, false));
            }
            self.end = number.saturating_add(1);
            self.set(number, true);
            return true;
        }
        let (word, bit) = place(number);
        let new = self.bits[word] & bit == 0;
        self.bits[word] |= bit;
        new
    }

    fn has(&self, number: u64) -> bool {
        let (word, bit) = place(number);
        number < self.end && number.saturating_add(WIDTH) >= self.end && self.bits[word] & bit != 0
    }

    fn set(&mut self, number: u64, seen: bool) {
        let (word, bit) = place(number);
        if seen {
            self.bits[word] |= bit;
        } else {
            self.bits[word] &= !bit;
        }
    }
}

fn place(number: u64) -> (usize, u64) {
    let at = number % WIDTH;
    (usize::try_from(at / 64).unwrap_or(0), 1 << (at % 64))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use sedge_base::Rng;

    use super::*;

    fn id(seq: u64) -> MessageId {
        MessageId { node: NodeId::new(1), incarnation: Incarnation::new(1), shard: ShardId(0), seq }
    }

    /// FT-21
    #[test]
    fn a_window_is_as_good_as_a_set_within_its_width() {
        let mut rng = Rng::new(3);
        for step in [1, 3, 100, 5_000] {
            let (mut windows, mut seen) = (Windows::default(), BTreeSet::new());
            let mut base = 10_000;
            for _ in 0..5_000 {
                base += rng.below(step);
                let seq = base - rng.below(WIDTH / 2);
                if seq + WIDTH >= seen.last().copied().unwrap_or(0) {
                    assert_eq!(windows.has(&id(seq)), seen.contains(&seq), "{seq}");
                    assert_eq!(windows.note(&id(seq)), seen.insert(seq), "{seq}");
                }
            }
        }
    }

    /// FT-21
    #[test]
    fn what_is_older_than_the_window_counts_as_seen() {
        let mut windows = Windows::default();
        assert!(windows.note(&id(WIDTH * 3)));
        assert!(!windows.note(&id(1)) && !windows.has(&id(1)));
        assert!(windows.note(&id(WIDTH * 3 - 1)));
        assert!(!windows.note(&id(WIDTH * 3)));
    }
}
