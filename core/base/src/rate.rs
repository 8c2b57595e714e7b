//! Rates with bursts: token buckets that need one number each.

use crate::{Duration, Instant};

const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// So many a second, and so many at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rate {
    /// Tokens a second; 0: any number.
    pub per_second: u64,
    /// Tokens that a full bucket holds; 0: as many as come in a second.
    pub burst: u64,
}

impl Rate {
    /// Whether there is a limit.
    pub const fn is_limited(self) -> bool {
        self.per_second > 0
    }

    /// Time in which so many tokens come.
    fn time_for(self, tokens: u64) -> Duration {
        let nanos = u128::from(tokens) * NANOS_PER_SECOND / u128::from(self.per_second.max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Time in which an empty bucket fills.
    fn time_to_fill(self) -> Duration {
        self.time_for(if self.burst == 0 { self.per_second } else { self.burst })
    }
}

/// A bucket that fills at a [`Rate`], which is an argument: many buckets share one. A new one is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenBucket {
    /// When it is full again; one that is further from it than a full bucket's time is in debt.
    full_at: Instant,
}

impl TokenBucket {
    /// Takes a token if there is one.
    pub fn try_take(&mut self, rate: Rate, now: Instant) -> bool {
        if !rate.is_limited() {
            return true;
        }
        let full_at = self.full_at.max(now) + rate.time_for(1);
        let has_one = full_at.since(now) <= rate.time_to_fill().max(rate.time_for(1));
        if has_one {
            self.full_at = full_at;
        }
        has_one
    }

    /// Takes `tokens` even if the bucket has fewer; returns the time until the bucket owes none, zero if it owes none. Debt above what the
    /// rate pays back within `patience` is forgiven.
    pub fn take(&mut self, tokens: u64, rate: Rate, now: Instant, patience: Duration) -> Duration {
        if !rate.is_limited() {
            return Duration::ZERO;
        }
        let worst = now + rate.time_to_fill() + patience;
        self.full_at = (self.full_at.max(now) + rate.time_for(tokens)).min(worst);
        self.full_at.since(now).saturating_sub(rate.time_to_fill())
    }

    /// Whether it is full, so that a new one is as good.
    pub fn is_full(&self, now: Instant) -> bool {
        self.full_at <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_the_rate() {
        let rate = Rate { per_second: 10, burst: 3 };
        let mut bucket = TokenBucket::default();
        let start = Instant::from_millis(5_000);
        let passed = (0..1_000).filter(|millis| bucket.try_take(rate, start + Duration::from_millis(*millis))).count();
        assert_eq!(passed, 3 + 9);
        assert!(!bucket.is_full(start + Duration::from_secs(1)));
        assert!(bucket.is_full(start + Duration::from_millis(1_300)));
    }

    #[test]
    fn a_debt_takes_its_time() {
        let rate = Rate { per_second: 1_000, burst: 0 };
        let mut bucket = TokenBucket::default();
        let now = Instant::from_millis(1);
        let patience = Duration::from_secs(10);
        assert_eq!(bucket.take(1_000, rate, now, patience), Duration::ZERO);
        assert_eq!(bucket.take(500, rate, now, patience), Duration::from_millis(500));
        assert!(!bucket.try_take(rate, now + Duration::from_millis(500)));
        assert!(bucket.try_take(rate, now + Duration::from_millis(501)));
    }

    #[test]
    fn no_limit_and_no_overflow() {
        let mut bucket = TokenBucket::default();
        let now = Instant::ZERO;
        assert!((0..1_000).all(|_| bucket.try_take(Rate::default(), now)));
        let patience = Duration::from_secs(5);
        assert_eq!(bucket.take(u64::MAX, Rate::default(), now, patience), Duration::ZERO);
        let slow = Rate { per_second: 1, burst: 1 };
        assert!(bucket.try_take(slow, now) && !bucket.try_take(slow, now));
        assert_eq!(bucket.take(u64::MAX, slow, now, patience), patience);
        assert_eq!(bucket.take(u64::MAX, slow, now + patience, patience), patience);
    }
}
