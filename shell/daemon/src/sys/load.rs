//! Moving averages, as they are known from the load of Unix systems.

use std::time::Duration;

/// The windows, in seconds, with their names.
pub(super) const WINDOWS: [(&str, f64); 3] = [("1min", 60.0), ("5min", 300.0), ("15min", 900.0)];

/// How many of something came in a minute, averaged over each of [`WINDOWS`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Load {
    last: u64,
    averages: [f64; WINDOWS.len()],
}

impl Load {
    /// There were `total` of them so far; `elapsed` has passed since that was told last.
    pub(super) fn observe(&mut self, total: u64, elapsed: Duration) {
        let seconds = elapsed.as_secs_f64();
        let new = total.saturating_sub(std::mem::replace(&mut self.last, total));
        if seconds <= 0.0 {
            return;
        }
        let per_minute = real(new) * 60.0 / seconds;
        for (average, (_, window)) in self.averages.iter_mut().zip(WINDOWS) {
            let weight = (-seconds / window).exp();
            *average = *average * weight + per_minute * (1.0 - weight);
        }
    }

    /// The averages, in the order of [`WINDOWS`].
    pub(super) const fn averages(&self) -> [f64; WINDOWS.len()] {
        self.averages
    }
}

#[expect(clippy::cast_precision_loss, reason = "figures for people: 53 bits are plenty")]
const fn real(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// OP-07
    #[test]
    fn a_steady_rate_is_the_average_in_the_end_and_sooner_in_short_windows() {
        let mut load = Load::default();
        let mut total = 0;
        let mut observe = |load: &mut Load, times: u64, each: u64| {
            for _ in 0..times {
                total += each;
                load.observe(total, Duration::from_secs(10));
            }
        };
        observe(&mut load, 6, 100);
        let [one, five, fifteen] = load.averages();
        assert!((379.2..379.4).contains(&one), "600 a minute, 1 - 1/e of it after a minute: {one}");
        assert!(one > five && five > fifteen && fifteen > 0.0, "{:?}", load.averages());
        observe(&mut load, 6 * 200, 100);
        assert!(load.averages().iter().all(|average| (599.9..=600.0).contains(average)), "{:?}", load.averages());
        observe(&mut load, 6 * 300, 0);
        assert!(load.averages().iter().all(|average| *average < 0.01), "{:?}", load.averages());
    }

    #[test]
    fn no_time_is_no_rate() {
        let mut load = Load::default();
        load.observe(5, Duration::ZERO);
        assert_eq!(load.averages().map(f64::to_bits), [0; 3]);
        load.observe(5, Duration::from_secs(1));
        assert_eq!(load.averages().map(f64::to_bits), [0; 3]);
    }
}
