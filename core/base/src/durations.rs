//! How long something takes: durations counted by fixed bounds, as Prometheus has classic histograms, and by fine ones, as it has native ones.

use core::time::Duration;

/// Upper bounds in microseconds: 1, 2.5 and 5 of each power of ten from 100 µs to 10 s, and a minute.
const BOUNDS: [u64; 17] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    5_000_000, 10_000_000, 60_000_000,
];

/// Fine bounds are powers of 2^(2^-3) seconds: each is 9 percent above the one before.
const FINE_SCHEMA: i32 = 3;
/// Powers of the first fine bound, which a microsecond lies below, and of the last: 4096 seconds.
const FINE_FIRST: i32 = -159;
const FINE_LAST: i32 = 96;
const FINE_COUNT: usize = FINE_FIRST.abs_diff(FINE_LAST) as usize + 1;
/// In microseconds, rounded down, which is as good for whole ones.
const FINE_BOUNDS: [u64; FINE_COUNT] = fine_bounds();

/// Durations, counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Durations {
    /// By bound; the last one has those above all.
    counts: [u64; BOUNDS.len() + 1],
    /// By fine bound; the last one has those above all, too.
    fine: [u64; FINE_COUNT],
    /// Those of no time at all, which no fine bound is below.
    zeros: u64,
    micros: u64,
}

/// Durations by bounds that grow by a factor of 2^(2^-`schema`): the sparse buckets of a native histogram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fine {
    /// Resolution.
    pub schema: i32,
    /// How many took no time.
    pub zeros: u64,
    /// Which power of the factor, in seconds, is the upper bound, and how many took so long; ascending, none is zero.
    pub buckets: Vec<(i32, u64)>,
}

#[expect(clippy::cast_possible_truncation, reason = "4096 seconds have less than 2^32 microseconds")]
const fn fine_bounds() -> [u64; FINE_COUNT] {
    /// 2^60 times 2^0 to 2^(7/8).
    const PARTS: [u128; 8] = [
        1_152_921_504_606_846_976,
        1_257_269_815_929_830_108,
        1_371_062_456_318_104_877,
        1_495_154_210_581_915_421,
        1_630_477_228_166_597_776,
        1_778_048_025_250_290_523,
        1_938_975_120_585_633_118,
        2_114_467_362_444_183_333,
    ];
    let mut bounds = [0; FINE_COUNT];
    let mut place = 0;
    while place < FINE_COUNT {
        // The powers from -160 on, which is -20 octaves.
        let number = place + 1;
        bounds[place] = ((1_000_000 * PARTS[number % 8]) >> (80 - number / 8)) as u64;
        place = number;
    }
    bounds
}

impl Default for Durations {
    fn default() -> Self {
        Self { counts: [0; BOUNDS.len() + 1], fine: [0; FINE_COUNT], zeros: 0, micros: 0 }
    }
}

impl Durations {
    /// Something took so long.
    pub fn note(&mut self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let place = BOUNDS.partition_point(|bound| *bound < micros);
        if let Some(count) = self.counts.get_mut(place) {
            *count += 1;
        }
        let fine = FINE_BOUNDS.partition_point(|bound| *bound < micros).min(FINE_COUNT - 1);
        match self.fine.get_mut(fine).filter(|_| micros > 0) {
            Some(count) => *count += 1,
            None => self.zeros += 1,
        }
        self.micros = self.micros.saturating_add(micros);
    }

    /// Adds what was counted elsewhere.
    pub fn add(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        for (count, more) in self.fine.iter_mut().zip(&other.fine) {
            *count += more;
        }
        self.zeros += other.zeros;
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

    /// The same by fine bounds.
    pub fn fine(&self) -> Fine {
        let counted = (FINE_FIRST..).zip(self.fine).filter(|(_, count)| *count > 0);
        Fine { schema: FINE_SCHEMA, zeros: self.zeros, buckets: counted.collect() }
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

    /// OP-01: each duration lies in the bucket whose bounds it lies between.
    #[test]
    fn fine_bounds_are_powers_of_the_eighth_root_of_two() {
        for micros in [1, 2, 3, 999, 1_000, 7_812, 7_813, 250_000, 1_000_000, 1_000_001, 2_000_000, 4_096_000_000] {
            let mut durations = Durations::default();
            durations.note(Duration::from_micros(micros));
            let Fine { schema, zeros, buckets } = durations.fine();
            let [(power, 1)] = buckets[..] else { panic!("{buckets:?}") };
            let upper = 2_f64.powf(f64::from(power) / 8.0);
            let (lower, seconds) = (upper / 2_f64.powf(0.125), Duration::from_micros(micros).as_secs_f64());
            assert!(seconds <= upper && seconds > lower, "{lower} < {seconds} <= {upper}");
            assert_eq!((schema, zeros), (3, 0));
        }
        let mut durations = Durations::default();
        for seconds in [0, 4096, 5000] {
            durations.note(Duration::from_secs(seconds));
        }
        let mut twice = durations.clone();
        twice.add(&durations);
        assert_eq!(twice.fine(), Fine { schema: 3, zeros: 2, buckets: vec![(96, 4)] });
        assert_eq!(FINE_BOUNDS.len(), 256);
    }
}
