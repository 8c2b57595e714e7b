//! The two clocks, read once a turn.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use sedge_base::{Now, Timestamp};

/// Reads the time for all machines of a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
}

impl Clock {
    /// A clock that starts now.
    pub(crate) fn start() -> Self {
        Self { start: Instant::now() }
    }

    pub(crate) fn now(&self) -> Now {
        let nanos = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Now { instant: sedge_base::Instant::from_nanos(nanos), wall: wall() }
    }

    /// Time since the start.
    pub(crate) fn uptime(&self) -> std::time::Duration {
        self.start.elapsed()
    }
}

/// The wall clock.
pub(crate) fn wall() -> Timestamp {
    let millis = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis());
    Timestamp::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))
}
