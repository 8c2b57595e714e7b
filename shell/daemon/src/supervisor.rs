//! Notifications for systemd: the node listens, all its threads still answer, the node stops (`sd_notify(3)`).

use std::env;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use sedge_base::ShardId;

use crate::runtime::{Letter, Shared, View};

/// Where systemd listens, and how often it wants to hear of the node.
pub(crate) struct Supervisor {
    socket: UnixDatagram,
    address: SocketAddr,
    interval: Option<Duration>,
}

/// The thread that reports; dropping it ends it.
pub(crate) struct Watch {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Supervisor {
    /// The supervisor that started this process and listens, if any. An address that cannot be used is ignored, and the log names it.
    pub(crate) fn from_environment() -> Option<Self> {
        let path = env::var("NOTIFY_SOCKET").ok().filter(|path| !path.is_empty())?;
        let address = match path.strip_prefix('@') {
            Some(name) => SocketAddr::from_abstract_name(name),
            None => SocketAddr::from_pathname(&path),
        };
        let interval = watchdog(env::var("WATCHDOG_USEC").ok(), env::var("WATCHDOG_PID").ok(), std::process::id());
        match address.and_then(|address| Ok((address, UnixDatagram::unbound()?))) {
            Ok((address, socket)) => Some(Self { socket, address, interval }),
            Err(error) => {
                tracing::warn!(NOTIFY_SOCKET = path, %error, "the supervisor cannot be told that the node runs");
                None
            }
        }
    }

    fn say(&self, what: &str) {
        if let Err(error) = self.socket.send_to_addr(what.as_bytes(), &self.address) {
            tracing::warn!(what, %error, "the supervisor did not take what it was told");
        }
    }

    /// Says that the node listens, and from then on, as often as it is wanted, that all shards answer.
    pub(crate) fn ready(self, shared: &Arc<Shared>) -> std::io::Result<Watch> {
        self.say("READY=1\nSTATUS=listening");
        let (stop, stopped) = mpsc::channel();
        let shared = Arc::clone(shared);
        let watch = move || {
            let pause = self.interval.unwrap_or(Duration::MAX);
            let wait = |pause| match stopped.recv_timeout(pause) {
                Err(RecvTimeoutError::Timeout) => true,
                Ok(()) | Err(RecvTimeoutError::Disconnected) => false,
            };
            loop {
                if self.interval.is_some() && answers(&shared, pause) {
                    self.say("WATCHDOG=1");
                }
                // A supervisor that watches nothing waits for the end only; an hour is as good as any time.
                if !wait(pause.min(Duration::from_hours(1))) {
                    break;
                }
            }
            self.say("STOPPING=1\nSTATUS=stopping");
        };
        let thread = thread::Builder::new().name("supervisor".to_owned()).spawn(watch)?;
        Ok(Watch { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It does nothing that could fail.
            let _ = thread.join();
        }
    }
}

/// How often to report: a third of the time after which `period` (microseconds) is over, if it is for this `process`.
fn watchdog(period: Option<String>, meant: Option<String>, process: u32) -> Option<Duration> {
    if meant.is_some_and(|meant| meant.parse() != Ok(process)) {
        return None;
    }
    let micros: u64 = period?.parse().ok()?;
    (micros > 0).then(|| Duration::from_micros(micros) / 3)
}

/// Whether the threads of all shards answer within `patience`.
fn answers(shared: &Shared, patience: Duration) -> bool {
    let (sender, receiver) = mpsc::channel();
    let shards = shared.boxes.len();
    for number in 0..shards {
        let sender = sender.clone();
        let question = move |_: &View<'_>| {
            // Nobody listens any more when this took too long.
            let _ = sender.send(());
        };
        shared.post(ShardId(u16::try_from(number).unwrap_or(0)), Letter::Query(Box::new(question)));
    }
    let due = Instant::now() + patience;
    (0..shards).all(|_| receiver.recv_timeout(due.saturating_duration_since(Instant::now())).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watchdog_of_another_process_is_none_of_ours() {
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(watchdog(text("30000000"), None, 7), Some(Duration::from_secs(10)));
        assert_eq!(watchdog(text("30000000"), text("7"), 7), Some(Duration::from_secs(10)));
        assert_eq!(watchdog(text("30000000"), text("8"), 7), None);
        assert_eq!(watchdog(text("x"), None, 7), None);
        assert_eq!(watchdog(None, None, 7), None);
    }
}
