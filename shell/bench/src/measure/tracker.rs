//! Which messages of a stream have come.

use serde::{Deserialize, Serialize};

/// How a message came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Arrival {
    /// After all that came before it was sent.
    InOrder,
    /// For the first time, but after one that was sent later.
    Late,
    /// Not for the first time.
    Again,
}

/// Which messages of one stream one receiver has. As big as the number of gaps, not of messages.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tracker {
    next: u64,
    /// Last arrival, 0 before the first.
    pub(crate) last_at: u64,
    /// Sequence numbers missing below `next`: runs (first, end), ascending. Mostly none.
    #[expect(clippy::box_collection, reason = "there may be a million trackers, nearly all without a gap")]
    gaps: Option<Box<Vec<(u64, u64)>>>,
}

impl Tracker {
    /// Notes message `sequence`.
    pub(crate) fn arrive(&mut self, sequence: u64) -> Arrival {
        if sequence == self.next {
            self.next += 1;
            return Arrival::InOrder;
        }
        if sequence > self.next {
            self.gaps.get_or_insert_default().push((self.next, sequence));
            self.next = sequence + 1;
            return Arrival::InOrder;
        }
        if self.fill(sequence) { Arrival::Late } else { Arrival::Again }
    }

    /// Takes `sequence` out of the gaps; false if it is in none.
    fn fill(&mut self, sequence: u64) -> bool {
        let Some(gaps) = &mut self.gaps else { return false };
        let at = gaps.partition_point(|(_, end)| *end <= sequence);
        let Some((first, end)) = gaps.get(at).copied().filter(|(first, _)| *first <= sequence) else { return false };
        let left = (first < sequence).then_some((first, sequence));
        let right = (sequence + 1 < end).then_some((sequence + 1, end));
        gaps.splice(at..=at, left.into_iter().chain(right));
        true
    }

    /// How many of the messages from `first` on, before `end`, have not come.
    pub(crate) fn missing(&self, first: u64, end: u64) -> u64 {
        let gaps = self.gaps.iter().flat_map(|gaps| gaps.iter());
        let below: u64 = gaps.map(|(from, to)| to.min(&end).saturating_sub(*from.max(&first))).sum();
        below + end.saturating_sub(self.next.max(first))
    }
}

/// Which messages of one stream the members of a shared subscription have together: a bit each.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bits(Vec<u64>);

impl Bits {
    /// Notes message `sequence`; false if it has come before.
    pub(crate) fn set(&mut self, sequence: u64) -> bool {
        let word = crate::num::index(sequence / 64);
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        let bit = 1 << (sequence % 64);
        self.0.get_mut(word).is_some_and(|word| {
            let new = *word & bit == 0;
            *word |= bit;
            new
        })
    }

    /// How many of the messages from `first` on, before `end`, have not come.
    pub(crate) fn missing(&self, first: u64, end: u64) -> u64 {
        let has = |sequence: u64| {
            self.0.get(crate::num::index(sequence / 64)).is_some_and(|word| word >> (sequence % 64) & 1 == 1)
        };
        crate::num::count((first..end).filter(|sequence| !has(*sequence)).count())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn arrivals_are_told_apart() {
        use Arrival::{Again, InOrder, Late};
        let mut tracker = Tracker::default();
        let came: Vec<Arrival> = [0, 1, 4, 2, 2, 5, 0, 3].into_iter().map(|number| tracker.arrive(number)).collect();
        assert_eq!(came, [InOrder, InOrder, InOrder, Late, Again, InOrder, Again, Late]);
        assert_eq!(tracker.missing(0, 6), 0);
        assert_eq!(tracker.missing(4, 9), 3);
    }

    #[test]
    fn any_order_is_counted_as_a_set_counts_it() {
        let mut rng = sedge_base::Rng::new(11);
        for _ in 0..300 {
            let (mut tracker, mut bits, mut seen) = (Tracker::default(), Bits::default(), BTreeSet::new());
            for _ in 0..rng.below(120) {
                let number = rng.below(100);
                let newest = seen.last().is_none_or(|last| number > *last);
                let new = seen.insert(number);
                let expected = match (new, newest) {
                    (true, true) => Arrival::InOrder,
                    (true, false) => Arrival::Late,
                    (false, _) => Arrival::Again,
                };
                assert_eq!(tracker.arrive(number), expected);
                assert_eq!(bits.set(number), new);
            }
            for _ in 0..10 {
                let (first, end) = (rng.below(110), rng.below(110));
                let missing = crate::num::count((first..end).filter(|number| !seen.contains(number)).count());
                assert_eq!(tracker.missing(first, end), missing);
                assert_eq!(bits.missing(first, end), missing);
            }
        }
    }
}
