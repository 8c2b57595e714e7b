//! Measurement: from single messages to the figures of a run. Reads no clock and does no I/O.

mod distribution;
mod raw;
mod recorder;
mod tally;
mod tracker;

pub(crate) use distribution::Distribution;
pub(crate) use raw::{Delivery, HEAD};
pub(crate) use recorder::{Place, Recorder};
pub(crate) use tally::Tally;

use serde::{Deserialize, Serialize};

/// The time that is measured, in ns of the run's clock: from `start` on, before `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Window {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl Window {
    pub(crate) const fn contains(self, time: u64) -> bool {
        self.start <= time && time < self.end
    }
}

/// Numbers of the messages of a stream that were sent within the window: from `first` on, before `end`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SentRange {
    pub(crate) stream: u32,
    pub(crate) first: u64,
    pub(crate) end: u64,
}

impl SentRange {
    /// How many they are.
    pub(crate) const fn count(self) -> u64 {
        self.end.saturating_sub(self.first)
    }
}

/// Length of a bin of the series in ns.
pub(crate) const BIN: u64 = 100_000_000;

#[cfg(test)]
mod tests;
