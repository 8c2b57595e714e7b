//! A thread that asks a service again and again.

use std::io;
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};

use super::{Addresses, Post, Source};

/// How long the stop waits for the last words to a service.
const FAREWELL: Duration = Duration::from_secs(1);

/// A service that knows addresses. Calls may take seconds.
pub(super) trait Service: Send + 'static {
    /// Asks it, and tells it what it has to know.
    fn ask(&mut self) -> Result<Addresses, String>;

    /// The node stops.
    fn farewell(&mut self) {}
}

/// Asks until it is dropped.
#[derive(Debug)]
pub(super) struct Rounds {
    /// Dropped first: ends the thread.
    stop: Option<Sender<()>>,
    /// Closed when the thread has said its last words.
    ended: Receiver<()>,
}

impl Rounds {
    pub(super) fn start(mut service: impl Service, source: Source, period: Duration, post: Post) -> io::Result<Self> {
        let (stop, stopped) = bounded::<()>(0);
        let (end, ended) = bounded::<()>(0);
        let run = move || {
            let _end = end;
            loop {
                match service.ask() {
                    Ok(found) => post.found(source, found.addresses, found.failure),
                    Err(why) => post.failed(source, why),
                }
                if stopped.recv_timeout(period) != Err(RecvTimeoutError::Timeout) {
                    return service.farewell();
                }
            }
        };
        thread::Builder::new().name(format!("sedge-{}", source.name())).spawn(run)?;
        Ok(Self { stop: Some(stop), ended })
    }
}

impl Drop for Rounds {
    fn drop(&mut self) {
        drop(self.stop.take());
        // A service that does not answer holds nobody up: its entry for this node expires.
        let _ = self.ended.recv_timeout(FAREWELL);
    }
}
