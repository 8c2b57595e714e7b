//! Other processes: who they are, and how they are told to end.

use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long a node may take to say good-bye.
pub(super) const GRACE: Duration = Duration::from_secs(3);
const TURN: Duration = Duration::from_millis(20);

/// When a process started, in whatever measure the system has: with the pid it names a process even after the pid went to
/// another one. `None` if there is no such process, or only what its parent has not yet collected.
#[cfg(target_os = "linux")]
pub(super) fn started(pid: u32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the name of the program in parentheses, and may hold spaces and parentheses itself.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    fields.nth(18).map(str::to_owned)
}

/// As above, asking `ps`.
#[cfg(not(target_os = "linux"))]
pub(super) fn started(pid: u32) -> Option<String> {
    let output = std::process::Command::new("ps").args(["-o", "lstart=", "-p", &pid.to_string()]).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (!text.is_empty()).then_some(text)
}

/// Sends a signal. A process that is gone needs none.
pub(super) fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

/// Waits until `gone` says so, at most `limit`; returns whether it did.
pub(super) fn wait_until(limit: Duration, mut gone: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    loop {
        if gone() {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        thread::sleep(TURN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_start() {
        let own = started(std::process::id());
        assert!(own.is_some());
        assert_eq!(own, started(std::process::id()));
        assert_eq!(started(u32::MAX), None);
    }

    #[test]
    fn waiting_ends_at_its_limit() {
        assert!(wait_until(Duration::ZERO, || true));
        assert!(!wait_until(Duration::from_millis(1), || false));
    }
}
