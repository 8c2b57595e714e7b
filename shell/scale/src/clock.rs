//! The clocks of the controller.

use std::time::{Instant as Moment, SystemTime, UNIX_EPOCH};

use sedge_base::{Instant, Now, Timestamp};

/// Both clocks since a start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Moment,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Self { start: Moment::now() }
    }

    pub(crate) fn now(&self) -> Now {
        let nanos = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Now { instant: Instant::from_nanos(nanos), wall: wall() }
    }
}

/// The wall clock.
pub(crate) fn wall() -> Timestamp {
    let passed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(u64::try_from(passed.as_millis()).unwrap_or(u64::MAX))
}
