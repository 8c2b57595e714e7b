//! Percentiles: exact for few values, then by buckets whose bounds grow by two percent, so that a result is at most one percent off
//! (`DDSketch`).

use std::collections::BTreeMap;

use crate::codec::{Reader, Writer};
use crate::value::{from_u64, to_u64};

/// Most values that are kept one by one.
const EXACT_MAX: usize = 256;
/// Greatest error of a bucket, relative to the value.
const ERROR: f64 = 0.01;
/// Numbers nearer to zero count as zero, and numbers beyond its inverse as that: a sketch has at most about 5,600 buckets.
const SMALLEST: f64 = 1e-24;
/// Bytes of a bucket in its map.
const BUCKET_BYTES: usize = 20;

/// The values of a window, more or less.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Quantile {
    /// All of them.
    Exact(Vec<f64>),
    /// How many lie in each bucket; buckets are numbered in the order of their values, zero is 0.
    Sketch(BTreeMap<i32, u64>),
}

impl Default for Quantile {
    fn default() -> Self {
        Self::Exact(Vec::new())
    }
}

/// Bucket of zero's neighbours: numbers of buckets are moved by this so that they have the sign of their values.
const OFFSET: i32 = 3000;

fn growth() -> f64 {
    ((1.0 + ERROR) / (1.0 - ERROR)).ln()
}

#[expect(clippy::cast_possible_truncation, reason = "the logarithm of a clamped number is below 3,000")]
fn bucket(value: f64) -> i32 {
    let size = value.abs();
    if size < SMALLEST {
        return 0;
    }
    let index = (size.min(1.0 / SMALLEST).ln() / growth()).ceil() as i32 + OFFSET;
    if value < 0.0 { -index } else { index }
}

/// The value that is at most one percent away from all of its bucket.
fn middle(bucket: i32) -> f64 {
    if bucket == 0 {
        return 0.0;
    }
    let upper = (f64::from(bucket.abs() - OFFSET) * growth()).exp();
    let middle = upper * (1.0 - ERROR);
    if bucket < 0 { -middle } else { middle }
}

impl Quantile {
    pub(super) fn add(&mut self, value: f64) {
        if let Self::Exact(values) = self {
            if values.len() < EXACT_MAX {
                values.push(value);
                return;
            }
            self.condense();
        }
        if let Self::Sketch(buckets) = self {
            *buckets.entry(bucket(value)).or_default() += 1;
        }
    }

    fn condense(&mut self) {
        if let Self::Exact(values) = self {
            let mut buckets = BTreeMap::new();
            for &value in &*values {
                *buckets.entry(bucket(value)).or_default() += 1;
            }
            *self = Self::Sketch(buckets);
        }
    }

    pub(super) fn join(&mut self, other: Self) {
        match other {
            Self::Exact(values) => values.into_iter().for_each(|value| self.add(value)),
            Self::Sketch(others) => {
                self.condense();
                if let Self::Sketch(buckets) = self {
                    for (bucket, count) in others {
                        *buckets.entry(bucket).or_default() += count;
                    }
                }
            }
        }
    }

    /// The value below which this percentage lies; of an even number of exact values, the middle lies between two.
    pub(super) fn result(&self, percent: f64) -> Option<f64> {
        match self {
            Self::Exact(values) => {
                let mut values = values.clone();
                values.sort_unstable_by(f64::total_cmp);
                let last = values.len().checked_sub(1)?;
                let rank = from_u64(u64::try_from(last).ok()?) * percent / 100.0;
                let below = usize::try_from(to_u64(rank)?).ok()?;
                let (low, high) = (values.get(below)?, values.get((below + 1).min(last))?);
                Some(low + (high - low) * rank.fract())
            }
            Self::Sketch(buckets) => {
                let total: u64 = buckets.values().sum();
                let rank = to_u64((from_u64(total.checked_sub(1)?) * percent / 100.0).round())?;
                let mut below = 0;
                buckets.iter().find_map(|(&bucket, count)| {
                    below += count;
                    (below > rank).then(|| middle(bucket))
                })
            }
        }
    }

    pub(super) fn heap(&self) -> usize {
        match self {
            Self::Exact(values) => values.len() * 8,
            Self::Sketch(buckets) => buckets.len() * BUCKET_BYTES,
        }
    }

    pub(super) fn write(&self, writer: &mut Writer) {
        match self {
            Self::Exact(values) => {
                writer.u8(0);
                writer.len(values.len());
                for value in values {
                    writer.f64(*value);
                }
            }
            Self::Sketch(buckets) => {
                writer.u8(1);
                writer.len(buckets.len());
                for (bucket, count) in buckets {
                    writer.u64(u64::from(bucket.cast_unsigned()));
                    writer.u64(*count);
                }
            }
        }
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Option<Self> {
        if reader.u8()? == 0 {
            let count = reader.len(8)?;
            return (0..count).map(|_| reader.f64()).collect::<Option<_>>().map(Self::Exact);
        }
        let count = reader.len(16)?;
        let bucket = |reader: &mut Reader<'_>| {
            Some((u32::try_from(reader.u64()?).ok()?.cast_signed(), reader.count()?.min(1 << 48)))
        };
        let buckets: BTreeMap<i32, u64> = (0..count).map(|_| bucket(reader)).collect::<Option<_>>()?;
        buckets.keys().all(|bucket| bucket.abs() < 2 * OFFSET).then_some(Self::Sketch(buckets))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_values_are_exact() {
        let mut quantile = Quantile::default();
        for value in [4.0, 1.0, 3.0, 2.0] {
            quantile.add(value);
        }
        assert_eq!(quantile.result(50.0), Some(2.5));
        assert_eq!(quantile.result(0.0), Some(1.0));
        assert_eq!(quantile.result(100.0), Some(4.0));
    }

    #[test]
    fn many_values_are_one_percent_off_at_most() {
        let mut quantile = Quantile::default();
        for value in -20_000..80_000_i32 {
            quantile.add(f64::from(value) / 7.0);
        }
        for (percent, exact) in [(1.0, -19_000.0), (10.0, -10_000.0), (50.0, 30_000.0), (99.0, 79_000.0)] {
            let found = quantile.result(percent).unwrap();
            let exact: f64 = exact / 7.0;
            assert!((found - exact).abs() <= exact.abs() * 0.011, "{percent}: {found} {exact}");
        }
        assert!(quantile.heap() < 20_000, "{}", quantile.heap());
    }

    #[test]
    fn no_number_leads_out_of_the_buckets() {
        for value in [f64::MAX, f64::MIN, f64::MIN_POSITIVE, -0.0, 1e-23, -1e23] {
            assert!(bucket(value).abs() < 2 * OFFSET, "{value}");
            let inside = value.abs() < 1e24 && value.abs() >= SMALLEST;
            assert!(!inside || (middle(bucket(value)) - value).abs() <= value.abs() * 0.0101, "{value}");
        }
    }
}
