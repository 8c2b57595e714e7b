//! The metric store: aggregates made when a sample comes in, never raw samples (Pham, EL-11).

use std::collections::{BTreeMap, VecDeque};

use sedge_base::{Duration, Instant};

use crate::site::Metric;

/// Most buckets of a series; older ones are dropped.
pub(crate) const MAX_BUCKETS: usize = 1_024;
/// Most series: samples of further ones are dropped and counted.
pub(crate) const MAX_SERIES: usize = 4_096;

/// Aggregate of the samples of one period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Aggregate {
    /// Number of samples.
    pub count: u64,
    /// Sum of the samples.
    pub sum: f64,
    /// The least sample.
    pub min: f64,
    /// The greatest sample.
    pub max: f64,
}

impl Aggregate {
    const fn of(value: f64) -> Self {
        Self { count: 1, sum: value, min: value, max: value }
    }

    fn add(&mut self, other: Self) {
        self.count += other.count;
        self.sum += other.sum;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// The mean of the samples.
    #[expect(clippy::cast_precision_loss, reason = "nobody takes 2^52 samples")]
    pub fn mean(&self) -> f64 {
        self.sum / self.count.max(1) as f64
    }
}

#[derive(Clone, Debug, Default)]
struct Series {
    /// Number of each bucket with its aggregate; ascending.
    buckets: VecDeque<(u64, Aggregate)>,
    last: Option<(Instant, f64)>,
}

/// Aggregates of all nodes and metrics in buckets of one length.
#[derive(Clone, Debug)]
pub struct Store {
    grain: Duration,
    series: BTreeMap<(String, Metric), Series>,
    dropped: u64,
}

impl Store {
    /// An empty store whose buckets are `grain` long.
    pub const fn new(grain: Duration) -> Self {
        Self { grain, series: BTreeMap::new(), dropped: 0 }
    }

    fn bucket(&self, at: Instant) -> u64 {
        at.as_nanos() / u64::try_from(self.grain.as_nanos()).unwrap_or(u64::MAX).max(1)
    }

    /// Takes a sample in. Numbers that are none (NaN, infinite) are dropped and counted.
    pub fn add(&mut self, node: &str, metric: Metric, at: Instant, value: f64) {
        let bucket = self.bucket(at);
        let known = self.series.contains_key(&(node.to_owned(), metric));
        if !value.is_finite() || (!known && self.series.len() >= MAX_SERIES) {
            self.dropped += 1;
            return;
        }
        let series = self.series.entry((node.to_owned(), metric)).or_default();
        if series.last.is_none_or(|(before, _)| before <= at) {
            series.last = Some((at, value));
        }
        match series.buckets.iter_mut().rev().find(|(number, _)| *number <= bucket) {
            Some((number, aggregate)) if *number == bucket => aggregate.add(Aggregate::of(value)),
            _ => {
                let place = series.buckets.partition_point(|(number, _)| *number < bucket);
                series.buckets.insert(place, (bucket, Aggregate::of(value)));
            }
        }
        while series.buckets.len() > MAX_BUCKETS {
            series.buckets.pop_front();
        }
    }

    /// Aggregate of a node's metric from `from` on and before `to`; both are rounded down to whole buckets.
    pub fn query(&self, node: &str, metric: Metric, from: Instant, to: Instant) -> Option<Aggregate> {
        let series = self.series.get(&(node.to_owned(), metric))?;
        let (from, to) = (self.bucket(from), self.bucket(to));
        let mut found = series.buckets.iter().filter(|(number, _)| (from..to).contains(number)).map(|(_, part)| *part);
        let mut whole = found.next()?;
        found.for_each(|part| whole.add(part));
        Some(whole)
    }

    /// The newest sample of a node's metric.
    pub fn last(&self, node: &str, metric: Metric) -> Option<f64> {
        self.series.get(&(node.to_owned(), metric)).and_then(|series| series.last).map(|(_, value)| value)
    }

    /// The newest samples of a node.
    pub fn latest(&self, node: &str) -> Vec<(Metric, f64)> {
        let of_node = self.series.iter().filter(|((name, _), _)| name == node);
        of_node.filter_map(|((_, metric), series)| series.last.map(|(_, value)| (*metric, value))).collect()
    }

    /// Drops everything about a node.
    pub fn forget(&mut self, node: &str) {
        self.series.retain(|(name, _), _| name != node);
    }

    /// Samples that were not taken in.
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    #![expect(
        clippy::float_cmp,
        clippy::cast_precision_loss,
        reason = "the least and greatest sample are copied, not computed"
    )]

    use proptest::prelude::*;

    use super::*;

    const GRAIN: Duration = Duration::from_secs(1);

    proptest! {
        /// EL-11
        #[test]
        fn aggregates_equal_recomputation_from_the_samples(
            samples in prop::collection::vec((0_u64..30_000, -1_000.0..1_000.0_f64), 1..200), from in 0_u64..30, length in 1_u64..30,
        ) {
            let mut store = Store::new(GRAIN);
            for (at, value) in &samples {
                store.add("n", Metric::CpuUtil, Instant::from_millis(*at), *value);
            }
            let (from, to) = (from * 1_000, (from + length) * 1_000);
            let inside: Vec<f64> = samples.iter().filter(|(at, _)| (from..to).contains(at)).map(|(_, value)| *value).collect();
            let found = store.query("n", Metric::CpuUtil, Instant::from_millis(from), Instant::from_millis(to));
            prop_assert_eq!(found.is_none(), inside.is_empty());
            if let Some(found) = found {
                prop_assert_eq!(found.count, inside.len() as u64);
                let mean = inside.iter().sum::<f64>() / inside.len() as f64;
                prop_assert!((found.mean() - mean).abs() < 1e-6);
                prop_assert_eq!(found.min, inside.iter().copied().fold(f64::INFINITY, f64::min));
                prop_assert_eq!(found.max, inside.iter().copied().fold(f64::NEG_INFINITY, f64::max));
            }
        }
    }

    #[test]
    fn a_series_and_the_number_of_series_are_bounded() {
        let mut store = Store::new(GRAIN);
        for second in 0..2 * MAX_BUCKETS as u64 {
            store.add("n", Metric::CpuUtil, Instant::from_millis(second * 1_000), 1.0);
        }
        let all = store.query("n", Metric::CpuUtil, Instant::ZERO, Instant::NEVER).unwrap();
        assert_eq!(all.count, MAX_BUCKETS as u64);
        for node in 0..MAX_SERIES {
            store.add(&node.to_string(), Metric::Drops, Instant::ZERO, 1.0);
        }
        store.add("n", Metric::CpuUtil, Instant::ZERO, f64::NAN);
        assert_eq!((store.series.len(), store.dropped()), (MAX_SERIES, 2));
    }
}
