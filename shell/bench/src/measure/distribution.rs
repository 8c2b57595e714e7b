//! A distribution of times: exact count, extremes and moments; quantiles by an HDR histogram within 0.1 %.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::num;

/// Longest time that is told apart, one hour. What is longer counts as that in quantiles; the maximum stays exact.
const LONGEST: u64 = 3_600_000_000_000;
/// Significant digits.
const DIGITS: u8 = 3;

/// A distribution of times in ns.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(from = "Sparse", into = "Sparse")]
pub(crate) struct Distribution {
    /// None if the fixed bounds were wrong, which a test rules out; then there are no quantiles.
    histogram: Option<Histogram<u64>>,
    count: u64,
    sum: u128,
    /// A real number: squares of hours in ns, a million times, fit no integer.
    squares: f64,
    min: u64,
    max: u64,
}

impl Default for Distribution {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, LONGEST, DIGITS).ok();
        Self { histogram, count: 0, sum: 0, squares: 0.0, min: u64::MAX, max: 0 }
    }
}

impl Distribution {
    /// Counts one time.
    pub(crate) fn record(&mut self, nanos: u64) {
        if let Some(histogram) = &mut self.histogram {
            histogram.saturating_record(nanos);
        }
        self.count += 1;
        self.sum += u128::from(nanos);
        self.squares += num::real(nanos) * num::real(nanos);
        self.min = self.min.min(nanos);
        self.max = self.max.max(nanos);
    }

    /// Adds the values of another distribution.
    pub(crate) fn merge(&mut self, other: &Self) {
        if let (Some(histogram), Some(others)) = (&mut self.histogram, &other.histogram) {
            // Both have the same bounds.
            let _ = histogram.add(others);
        }
        self.count += other.count;
        self.sum += other.sum;
        self.squares += other.squares;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// How many times were counted.
    pub(crate) const fn count(&self) -> u64 {
        self.count
    }

    /// The shortest, 0 if there are none.
    pub(crate) const fn min(&self) -> u64 {
        if self.count == 0 { 0 } else { self.min }
    }

    /// The longest.
    pub(crate) const fn max(&self) -> u64 {
        self.max
    }

    /// Arithmetic mean.
    pub(crate) fn mean(&self) -> f64 {
        let sum = num::real(u64::try_from(self.sum).unwrap_or(u64::MAX));
        num::ratio(sum, num::real(self.count))
    }

    /// Standard deviation of the values counted.
    pub(crate) fn deviation(&self) -> f64 {
        let mean = self.mean();
        (num::ratio(self.squares, num::real(self.count)) - mean * mean).max(0.0).sqrt()
    }

    /// The time that the share `part` (0 to 1) does not exceed.
    pub(crate) fn quantile(&self, part: f64) -> u64 {
        let Some(histogram) = self.histogram.as_ref().filter(|_| self.count > 0) else { return 0 };
        // A bucket's upper end may lie beyond the largest value in it.
        histogram.value_at_quantile(part).clamp(self.min, self.max)
    }

    /// Values with their counts, ascending.
    pub(crate) fn values(&self) -> impl Iterator<Item = (u64, u64)> {
        let recorded = self.histogram.iter().flat_map(|histogram| histogram.iter_recorded());
        recorded.map(|step| (step.value_iterated_to(), step.count_at_value()))
    }
}

/// Form in which distributions go from driver to driver.
#[derive(Clone, Serialize, Deserialize)]
struct Sparse {
    values: Vec<(u64, u64)>,
    count: u64,
    sum: u128,
    squares: f64,
    min: u64,
    max: u64,
}

impl From<Distribution> for Sparse {
    fn from(all: Distribution) -> Self {
        let values = all.values().collect();
        Self { values, count: all.count, sum: all.sum, squares: all.squares, min: all.min, max: all.max }
    }
}

impl From<Sparse> for Distribution {
    fn from(sparse: Sparse) -> Self {
        let mut all = Self::default();
        if let Some(histogram) = &mut all.histogram {
            for (value, count) in sparse.values {
                histogram.saturating_record_n(value, count);
            }
        }
        let Sparse { values: _, count, sum, squares, min, max } = sparse;
        Self { count, sum, squares, min, max, ..all }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_equal_recomputation_from_raw_data() {
        let mut rng = sedge_base::Rng::new(5);
        let mut raw: Vec<u64> = (0..10_001).map(|_| 50_000 + rng.below(5_000_000)).collect();
        let mut all = Distribution::default();
        let (mut left, mut right) = (Distribution::default(), Distribution::default());
        for (number, nanos) in raw.iter().enumerate() {
            all.record(*nanos);
            if number % 3 == 0 { left.record(*nanos) } else { right.record(*nanos) }
        }
        raw.sort_unstable();
        let mean = num::real(raw.iter().sum()) / num::real(num::count(raw.len()));
        let squares: f64 = raw.iter().map(|nanos| (num::real(*nanos) - mean).powi(2)).sum();
        let deviation = (squares / num::real(num::count(raw.len()))).sqrt();
        left.merge(&right);
        let text = serde_json::to_string(&left).expect("JSON");
        let moved: Distribution = serde_json::from_str(&text).expect("the same");
        for figures in [&all, &left, &moved] {
            assert_eq!(figures.count(), 10_001);
            assert_eq!(Some(&figures.min()), raw.first());
            assert_eq!(Some(&figures.max()), raw.last());
            assert!((figures.mean() - mean).abs() < 1e-3);
            assert!((figures.deviation() / deviation - 1.0).abs() < 1e-6);
            for (part, rank) in [(0.5, 5_000), (0.9, 9_000), (0.99, 9_900), (0.999, 9_990)] {
                let exact = num::real(*raw.get(rank).expect("a rank"));
                assert!((num::real(figures.quantile(part)) / exact - 1.0).abs() < 1.1e-3, "{part}");
            }
        }
    }

    #[test]
    fn nothing_and_too_much_are_no_trouble() {
        let mut none = Distribution::default();
        assert!(none.histogram.is_some());
        assert_eq!((none.count(), none.min(), none.max(), none.quantile(0.5)), (0, 0, 0, 0));
        none.record(u64::MAX);
        assert_eq!(none.max(), u64::MAX);
    }
}
