//! Wakes an event loop at a time in ns. The timeout of the loop itself knows only ms.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

/// A timer of the kernel that an event loop watches.
pub(crate) struct Ticker {
    timer: OwnedFd,
    /// When it will fire, 0 if it will not.
    due: u64,
}

impl Ticker {
    pub(crate) fn new(registry: &Registry, token: Token) -> io::Result<Self> {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        registry.register(&mut SourceFd(&timer.as_fd().as_raw_fd()), token, Interest::READABLE)?;
        Ok(Self { timer, due: 0 })
    }

    /// Fires once at `due`, which is not before `now`.
    pub(crate) fn set(&mut self, due: u64, now: u64) -> io::Result<()> {
        if self.due == due {
            return Ok(());
        }
        let ahead = due.saturating_sub(now).max(1);
        let value = Timespec {
            tv_sec: i64::try_from(ahead / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(ahead % 1_000_000_000).unwrap_or(0),
        };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once)?;
        self.due = due;
        Ok(())
    }
}
