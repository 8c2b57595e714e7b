//! The clock of a run: wall time at its start, then monotonic, so that several drivers can share it.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::num;

/// A clock in ns since 1970 that never goes back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    started: Instant,
    at_start: u64,
}

impl Clock {
    /// The clock of this machine.
    pub(crate) fn new() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { started: Instant::now(), at_start: u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX) }
    }

    /// Nanoseconds since 1970.
    pub(crate) fn now(&self) -> u64 {
        self.at_start.saturating_add(u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// This clock set to that of another machine, which is ahead by so many ns.
    pub(crate) fn shifted(self, ahead: i64) -> Self {
        Self { at_start: self.at_start.saturating_add_signed(ahead), ..self }
    }
}

/// CPU time of the calling thread in ns.
pub(crate) fn thread_cpu() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    num::nanos_of(time.tv_sec, time.tv_nsec)
}
