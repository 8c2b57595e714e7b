//! Means over repetitions with their certainty.

use serde::Serialize;

use crate::num;

/// Mean of a figure over repetitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Average {
    pub(crate) mean: f64,
    /// Standard deviation of the sample (divided by n - 1); 0 for a single value.
    pub(crate) stddev: f64,
    /// Half the width of the interval that holds the true mean with 95 % certainty if the values are normally distributed
    /// (Student's t); none for a single value.
    pub(crate) ci95: Option<f64>,
    pub(crate) count: usize,
}

/// 97.5 % quantiles of Student's t with 1, 2, ... degrees of freedom.
const STUDENT: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];
/// Of the normal distribution, for more degrees of freedom.
const NORMAL: f64 = 1.960;

impl Average {
    /// Of `values`; none if there are none.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        let count = values.len();
        let n = num::real(num::count(count));
        if count == 0 {
            return None;
        }
        let mean = values.iter().sum::<f64>() / n;
        let Some(student) = count.checked_sub(2).map(|index| STUDENT.get(index).copied().unwrap_or(NORMAL)) else {
            return Some(Self { mean, stddev: 0.0, ci95: None, count });
        };
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let stddev = (squares / (n - 1.0)).sqrt();
        Some(Self { mean, stddev, ci95: Some(student * stddev / n.sqrt()), count })
    }

    /// For people: the mean, and how far the true one may be from it.
    pub(crate) fn text(self) -> String {
        let mean = crate::report::number(self.mean);
        self.ci95.map_or_else(|| mean.clone(), |ci95| format!("{mean} ± {}", crate::report::number(ci95)))
    }
}

/// A mean for people, or a dash.
pub(crate) fn text(mean: Option<Average>) -> String {
    mean.map_or_else(|| "-".to_owned(), Average::text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_and_intervals_are_those_of_the_textbook() {
        let five = Average::of([1.0, 2.0, 3.0, 4.0, 5.0]).expect("values");
        assert!((five.mean - 3.0).abs() < 1e-12 && (five.stddev - 2.5f64.sqrt()).abs() < 1e-12);
        // 2.776 * 1.5811 / sqrt 5
        assert!((five.ci95.expect("an interval") - 1.9629).abs() < 1e-3);
        assert_eq!(Average::of([7.0]), Some(Average { mean: 7.0, stddev: 0.0, ci95: None, count: 1 }));
        assert_eq!(Average::of([]), None);
        assert_eq!(Average::of([f64::NAN]), None);
        let many = Average::of((0..1_000u32).map(|number| f64::from(number % 2))).expect("values");
        assert!((many.ci95.expect("an interval") - 1.96 * many.stddev / 1_000f64.sqrt()).abs() < 1e-9);
    }
}
