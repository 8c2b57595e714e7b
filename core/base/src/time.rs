//! Two clocks: a monotonic one for timers and a wall clock for what must survive a restart.

use core::fmt;
use core::ops::{Add, Sub};

pub use core::time::Duration;

/// Monotonic time in nanoseconds since the owner's own start. Cannot be read, only handed in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The owner's start.
    pub const ZERO: Self = Self(0);
    /// Later than anything that happens.
    pub const NEVER: Self = Self(u64::MAX);

    /// The instant `nanos` nanoseconds after the owner's start.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The instant `millis` milliseconds after the owner's start.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// Nanoseconds since the owner's start.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Time that has passed since `earlier`; zero if `earlier` lies in the future.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(rhs.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub for Instant {
    type Output = Duration;

    fn sub(self, rhs: Self) -> Duration {
        self.since(rhs)
    }
}

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.0 / 1_000;
        write!(f, "{}.{:06}s", micros / 1_000_000, micros % 1_000_000)
    }
}

/// Wall-clock time in milliseconds since the Unix epoch, for what is compared between nodes or kept over a restart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The time `millis` milliseconds after the Unix epoch.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the Unix epoch.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// Time that has passed since `earlier`; zero if `earlier` lies in the future.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;

    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(rhs.as_millis()).unwrap_or(u64::MAX)))
    }
}

/// Both clocks, read once by the owner for each turn of its loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// For timers.
    pub instant: Instant,
    /// For what is compared between nodes or kept over a restart.
    pub wall: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_saturate_instead_of_wrapping() {
        let late = Instant::from_nanos(u64::MAX - 1) + Duration::from_secs(1);
        assert_eq!(late, Instant::from_nanos(u64::MAX));
        assert_eq!(Instant::ZERO.since(late), Duration::ZERO);
    }

    #[test]
    fn instants_print_as_seconds() {
        assert_eq!(Instant::from_millis(1_250).to_string(), "1.250000s");
    }
}
