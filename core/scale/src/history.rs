//! Load of a group at the same hour of earlier days, for the forecast strategy.

use std::collections::BTreeMap;

use sedge_base::Timestamp;

/// Time that the history reaches back: two weeks.
const MAX_HOURS: usize = 14 * 24;
const HOUR_MILLIS: u64 = 3_600_000;

/// The greatest sum of a metric over a group, hour by hour.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    hours: BTreeMap<u64, f64>,
}

impl History {
    /// Takes in the measurement of the whole group at `at`.
    pub(crate) fn add(&mut self, at: Timestamp, sum: f64) {
        let greatest = self.hours.entry(at.as_millis() / HOUR_MILLIS).or_insert(sum);
        *greatest = greatest.max(sum);
        while self.hours.len() > MAX_HOURS {
            self.hours.pop_first();
        }
    }

    /// The most that the group measured in this hour of an earlier day, and in the next hour if it is less than ten minutes away.
    pub(crate) fn expected(&self, at: Timestamp) -> Option<f64> {
        let this = at.as_millis() / HOUR_MILLIS;
        let soon = (at.as_millis() + HOUR_MILLIS / 6) / HOUR_MILLIS;
        let alike = |hour: &u64| *hour + 24 <= soon && [this % 24, soon % 24].contains(&(hour % 24));
        self.hours.iter().filter(|(hour, _)| alike(hour)).map(|(_, sum)| *sum).reduce(f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hour(hour: u64, minute: u64) -> Timestamp {
        Timestamp::from_millis(hour * HOUR_MILLIS + minute * 60_000)
    }

    #[test]
    fn the_same_hour_of_earlier_days_is_expected_again() {
        let mut history = History::default();
        assert_eq!(history.expected(hour(8, 0)), None);
        history.add(hour(8, 10), 300.0);
        history.add(hour(8, 20), 200.0);
        history.add(hour(9, 0), 900.0);
        assert_eq!(history.expected(hour(9, 30)), None, "today is no earlier day");
        assert_eq!(history.expected(hour(24 + 8, 30)), Some(300.0));
        assert_eq!(history.expected(hour(24 + 8, 55)), Some(900.0), "ten minutes ahead");
        assert_eq!(history.expected(hour(24 + 12, 0)), None);
    }
}
