//! Medians and their spread over few repetitions.

use serde::Serialize;

/// Median and range of a figure over repetitions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    /// Share of certainty in percent that the true median lies between `low` and `high`.
    pub(crate) certainty: f64,
    pub(crate) count: usize,
}

impl Spread {
    /// Of `values`; none if there are none.
    ///
    /// The interval is that of the sign test: the narrowest pair of order statistics that holds the true median in at least
    /// 95 of 100 cases, whatever the distribution; below six values even the extremes are less certain, and stand.
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let count = sorted.len();
        let at = |index: usize| sorted.get(index).copied();
        let upper = at(count / 2)?;
        let lower = at(count.checked_sub(1)? / 2)?;
        let inner = (0..count / 2).rev().find(|cut| certainty(count, *cut) >= 0.95).unwrap_or(0);
        Some(Self {
            median: f64::midpoint(lower, upper),
            low: at(inner)?,
            high: at(count - 1 - inner)?,
            certainty: (certainty(count, inner) * 1_000.0).round() / 10.0,
            count,
        })
    }
}

/// How often the true median lies between the values number `cut` from both ends, of `count` values.
fn certainty(count: usize, cut: usize) -> f64 {
    let n = crate::num::real(crate::num::count(count));
    let mut tail = 0.0;
    let mut term = 0.5_f64.powf(n);
    for k in 0..=cut {
        tail += term;
        let k = crate::num::real(crate::num::count(k));
        term *= (n - k) / (k + 1.0);
    }
    (1.0 - 2.0 * tail).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_intervals_are_those_of_the_tables() {
        let spread = Spread::of(&[5.0, 1.0, 3.0]).expect("values");
        assert!((spread.median - 3.0).abs() < 1e-12 && (spread.certainty - 75.0).abs() < 1e-9);
        assert_eq!(Spread::of(&[2.0, 4.0]).map(|spread| spread.median), Some(3.0));
        let one = Spread::of(&[7.0]).expect("a value");
        assert!((one.low - 7.0).abs() < 1e-12 && one.certainty.abs() < 1e-12);
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(Spread::of(&[f64::NAN]), None);
        // Five: extremes 93.8 %. Six: 96.9 %. Ten: second and ninth, 97.9 %.
        let first = |n: u32| Spread::of(&(1..=n).map(f64::from).collect::<Vec<_>>()).expect("values");
        assert!((first(5).certainty - 93.8).abs() < 1e-9 && (first(5).low - 1.0).abs() < 1e-12);
        assert!((first(6).certainty - 96.9).abs() < 1e-9);
        assert!((first(10).certainty - 97.9).abs() < 1e-9 && (first(10).low - 2.0).abs() < 1e-12);
    }
}
