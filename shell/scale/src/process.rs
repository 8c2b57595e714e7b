//! Processes of this machine, known by their number and their start.

use std::io;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

/// How long a process that is told to end may take before it is killed.
pub const GRACE: Duration = Duration::from_secs(3);
const TURN: Duration = Duration::from_millis(20);

/// A process that was started. A number alone may belong to another process by now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proof {
    /// Its number.
    pub pid: u32,
    /// When it started, in the system's own notation.
    pub started: String,
}

impl Proof {
    /// The process with this number, if it runs.
    pub fn of(pid: u32) -> Option<Self> {
        started(pid).map(|started| Self { pid, started })
    }

    /// Whether this very process still runs.
    pub fn is_running(&self) -> bool {
        started(self.pid).is_some_and(|now| now == self.started)
    }

    /// Sends a signal, if this very process still runs.
    pub fn signal(&self, what: Signal) {
        if self.is_running() {
            signal(self.pid, what);
        }
    }

    /// Ends it: tells it first, then kills it. Says whether it is gone.
    pub fn end(&self, grace: Duration) -> bool {
        self.signal(Signal::TERM);
        if !wait_until(grace, || !self.is_running()) {
            self.signal(Signal::KILL);
        }
        wait_until(GRACE, || !self.is_running())
    }
}

/// When a process started, in the system's own notation; nothing if it has ended, waited for or not.
#[cfg(target_os = "linux")]
pub fn started(pid: u32) -> Option<String> {
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

/// When a process started, in the system's own notation; nothing if it has ended.
#[cfg(not(target_os = "linux"))]
pub fn started(pid: u32) -> Option<String> {
    let output = std::process::Command::new("ps").args(["-o", "lstart=", "-p", &pid.to_string()]).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (!text.is_empty()).then_some(text)
}

/// Sends a signal. That the process is gone is no error.
pub fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

/// Waits for a condition; says whether it came true in time.
pub fn wait_until(limit: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    loop {
        if holds() {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        thread::sleep(TURN);
    }
}

/// Whether a port of this machine is free, for TCP and if wanted for UDP.
///
/// # Errors
/// The system's error.
pub fn listen(port: u16, udp: bool) -> io::Result<()> {
    let address = (Ipv4Addr::LOCALHOST, port);
    TcpListener::bind(address)?;
    if udp {
        UdpSocket::bind(address)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_start() {
        let own = Proof::of(std::process::id()).unwrap();
        assert!(own.is_running());
        assert!(!Proof { started: "another time".to_owned(), ..own }.is_running());
        assert_eq!(Proof::of(u32::MAX), None);
    }

    #[test]
    fn waiting_ends_at_its_limit() {
        assert!(wait_until(Duration::ZERO, || true));
        assert!(!wait_until(Duration::from_millis(1), || false));
    }
}
