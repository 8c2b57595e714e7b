//! Means and correlations.

/// A mean in the making.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mean {
    sum: f64,
    count: f64,
}

impl Mean {
    pub(crate) fn add(&mut self, value: f64) {
        self.sum += value;
        self.count += 1.0;
    }

    pub(crate) fn get(self) -> f64 {
        if self.count > 0.0 { self.sum / self.count } else { 0.0 }
    }
}

/// A count as a number to reckon with; exact below 2^53.
#[expect(clippy::cast_precision_loss, reason = "counts of experiments are far below 2^53")]
pub(crate) const fn real(count: usize) -> f64 {
    count as f64
}

/// Pearson's correlation coefficient; none if one of both does not vary.
pub(crate) fn correlation(pairs: &[(f64, f64)]) -> Option<f64> {
    let (mut x, mut y) = (Mean::default(), Mean::default());
    for pair in pairs {
        x.add(pair.0);
        y.add(pair.1);
    }
    let (x, y) = (x.get(), y.get());
    let (mut xx, mut yy, mut xy) = (0.0, 0.0, 0.0);
    for pair in pairs {
        let (dx, dy) = (pair.0 - x, pair.1 - y);
        xx += dx * dx;
        yy += dy * dy;
        xy += dx * dy;
    }
    (xx > 0.0 && yy > 0.0).then(|| xy / (xx * yy).sqrt())
}

/// The 99 % interval of a correlation coefficient over `count` pairs (Fisher's transformation).
pub(crate) fn interval(coefficient: f64, count: usize) -> Option<(f64, f64)> {
    if coefficient.abs() >= 1.0 - 1e-12 || count <= 3 {
        return None;
    }
    let (z, width) = (coefficient.atanh(), 2.575_829 / real(count - 3).sqrt());
    Some(((z - width).tanh(), (z + width).tanh()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn correlations_are_those_of_the_textbook() {
        let line: Vec<(f64, f64)> = (0..10).map(|x| (f64::from(x), 3.0 * f64::from(x) - 1.0)).collect();
        assert!((correlation(&line).expect("it varies") - 1.0).abs() < 1e-12);
        assert_eq!(correlation(&[(1.0, 2.0), (1.0, 3.0)]), None);
        // The interval that the source gives for its coefficient over 100 publishers.
        let (low, high) = interval(0.1310, 100).expect("an interval");
        assert!((low + 0.1290).abs() < 0.001 && (high - 0.3742).abs() < 0.001, "{low} {high}");
    }
}
