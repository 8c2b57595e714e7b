//! A node beside a broker: what the broker publishes is published here, and what both deliver is compared ([`sedge_sidecar::Mirror`]).

mod run;
mod status;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use self::run::Run;
use self::status::Record;
pub use self::status::{MirrorLine, MirrorStatus};
use crate::config::BridgeConfig;
use crate::host::Host;
use sedge_mqtt::Version;

/// First pause after a failure, and the longest.
const PAUSE: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// A run of this length was a good one: the next pause is the first again.
const GOOD: Duration = Duration::from_secs(5);

/// The thread that compares, until it is dropped.
#[derive(Debug)]
pub struct Mirroring {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// State that the mirror's thread and its watchers share.
#[derive(Debug)]
struct Shared {
    /// How the broker is reached.
    config: BridgeConfig,
    filters: Vec<String>,
    record: Record,
    stopping: AtomicBool,
}

impl Shared {
    fn goes_on(&self) -> bool {
        !self.stopping.load(Ordering::Acquire)
    }
}

impl Mirroring {
    /// The client id of the session at this node that gets what matches the filter of this number.
    pub fn session_id(filter: usize) -> String {
        format!("{}.mirror/{filter}", BridgeConfig::session_id(""))
    }

    /// Begins to compare. `config`: address, TLS, user and password; `filters`: what is compared.
    pub fn start(config: BridgeConfig, filters: Vec<String>, host: &Arc<impl Host>) -> io::Result<Self> {
        let shared = Shared { config, filters, record: Record::default(), stopping: AtomicBool::new(false) };
        let shared = Arc::new(shared);
        let (own, host) = (Arc::clone(&shared), Arc::clone(host));
        let thread = thread::Builder::new().name("mirror".to_owned()).spawn(move || drive(&own, &*host))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// How it stands.
    pub fn status(&self) -> MirrorStatus {
        self.shared.record.read()
    }

    /// Tells the thread to end. It does within a second.
    pub fn tell_to_stop(&self) {
        self.shared.stopping.store(true, Ordering::Release);
        self.thread.iter().for_each(|thread| thread.thread().unpark());
    }
}

impl Drop for Mirroring {
    fn drop(&mut self) {
        self.tell_to_stop();
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that compares with the broker did not end in order");
        }
    }
}

/// One run after the other; a broker that does not take 5.0 is asked with 3.1.1 the next time.
fn drive(shared: &Shared, host: &impl Host) {
    let (mut pause, mut version) = (PAUSE, Version::V5);
    let mut machine = run::machine(shared.filters.len());
    while shared.goes_on() {
        let began = Instant::now();
        let result = Run::begin(shared, host, version, &mut machine).and_then(Run::until_the_end);
        let Err(error) = result else { continue };
        shared.record.fail(&error.to_string());
        if began.elapsed() >= GOOD {
            pause = PAUSE;
        } else if !shared.record.has_run() {
            version = if version == Version::V5 { Version::V311 } else { Version::V5 };
        }
        let until = Instant::now() + pause;
        while shared.goes_on() && Instant::now() < until {
            thread::park_timeout(until.saturating_duration_since(Instant::now()));
        }
        pause = (pause * 2).min(PAUSE_MAX);
    }
}
