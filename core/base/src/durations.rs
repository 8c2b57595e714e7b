//! How long something takes: durations counted by fixed bounds, as Prometheus has histograms.

use core::time::Duration;

/// Upper bounds in microseconds: 1, 2.5 and 5 of each power of ten from 100 µs to 10 s, and a minute.
const BOUNDS: [u64; 17] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    5_000_000, 10_000_000, 60_000_000,
];

/// Durations, counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Durations {
    /// By bound; the last one has those above all.
    counts: [u64; BOUNDS.len() + 1],
    micros: u64,
}

impl Durations {
    /// Something took so long.
    pub fn note(&mut self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let place = BOUNDS.partition_point(|bound| *bound < micros);
        if let Some(count) = self.counts.get_mut(place) {
            *count += 1;
        }
        self.micros = self.micros.saturating_add(micros);
    }

    /// Adds what was counted elsewhere.
    pub fn add(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.micros = self.micros.saturating_add(other.micros);
    }

    /// How many took at most so long, bound by bound; without a bound at the end: all.
    pub fn up_to(&self) -> impl Iterator<Item = (Option<Duration>, u64)> {
        let bounds = BOUNDS.iter().map(|bound| Some(Duration::from_micros(*bound))).chain([None]);
        let mut sum = 0;
        bounds.zip(&self.counts).map(move |(bound, count)| {
            sum += count;
            (bound, sum)
        })
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// All of them together.
    pub const fn sum(&self) -> Duration {
        Duration::from_micros(self.micros)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// OP-01
    #[test]
    fn each_duration_counts_for_its_bound_and_all_above() {
        let mut durations = Durations::default();
        for micros in [0, 100, 101, 1_000_000, 61_000_000] {
            durations.note(Duration::from_micros(micros));
        }
        let mut twice = durations.clone();
        twice.add(&durations);
        let found: Vec<u64> = twice.up_to().map(|(_, count)| count).collect();
        assert_eq!(found[..2], [4, 6]);
        assert_eq!((found[11], found[12], found[16], found[17]), (6, 8, 8, 10));
        assert_eq!(twice.up_to().last(), Some((None, 10)));
        assert_eq!((twice.count(), twice.sum()), (10, Duration::from_micros(2 * 62_000_201)));
    }
}
