//! A node beside a broker that reads its traffic off the wire: what clients publish there goes to the other nodes, and what they want comes
//! from there ([`sedge_sidecar::Sniffer`]; spec FT-03, FW-03).

mod capture;
mod run;

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use sedge_mqtt::Version;
use sedge_sidecar::{SniffConfig, SniffCounters};

use self::capture::Capture;
use self::run::{Run, Tap};
use crate::config::BridgeConfig;
use crate::host::Host;

/// Prefix of the client identifiers of nodes at their brokers: the sniffer does not read the traffic of such a client.
const OWN_PREFIX: &str = "sedge-sniff-";
/// First pause after a failure, and the longest.
const PAUSE: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// A run of this length was a good one: the next pause is the first again.
const GOOD: Duration = Duration::from_secs(5);

/// How a node that reads along stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SniffStatus {
    /// Whether publications read go to the other nodes, and publications of the other nodes to the broker.
    pub up: bool,
    /// Seconds since `up` has its present value.
    pub since_seconds: u64,
    /// Whether the broker speaks 3.1.1 only.
    pub only_311: bool,
    /// The last error.
    pub last_error: Option<String>,
    /// Counters of the traffic read.
    pub counters: SniffCounters,
    /// Connections that are followed.
    pub followed: usize,
    /// Filters that the broker's clients want.
    pub filters: usize,
    /// Publications that did not go to the other nodes or the broker: a receiver was away or refused them, or too many waited.
    pub dropped: u64,
    /// Publications of other nodes that went to the broker.
    pub replayed: u64,
    /// Bytes that the kernel keeps for packets that wait to be read.
    pub kernel_bytes: usize,
}

#[derive(Debug)]
struct Shared {
    config: BridgeConfig,
    session: String,
    record: Mutex<(SniffStatus, Instant)>,
    stopping: AtomicBool,
}

impl Shared {
    fn goes_on(&self) -> bool {
        !self.stopping.load(Ordering::Acquire)
    }

    fn record<T>(&self, change: impl FnOnce(&mut SniffStatus, &mut Instant) -> T) -> T {
        let mut record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        let (status, since) = &mut *record;
        change(status, since)
    }

    /// Something went wrong, and it goes on.
    fn warn(&self, why: &str) {
        if self.record(|status, _| status.last_error.replace(why.to_owned()).as_deref() != Some(why)) {
            tracing::warn!(error = why, "publications are lost between the broker and the other nodes");
        }
    }

    fn fail(&self, why: &str) {
        let is_news = self.record(|status, since| {
            if core::mem::take(&mut status.up) {
                *since = Instant::now();
            }
            status.last_error.replace(why.to_owned()).as_deref() != Some(why)
        });
        if is_news {
            tracing::warn!(error = why, "what the broker's clients publish does not reach the other nodes");
        }
    }
}

/// The thread that reads along, until it is dropped.
#[derive(Debug)]
pub struct Sniffing {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Sniffing {
    /// Client id of the session at the node with this id that publishes the messages read and gets those that the broker's clients want.
    pub fn session_id(node: &str) -> String {
        format!("{}.sniff/{node}", BridgeConfig::session_id(""))
    }

    /// Begins to read along. `config`: address, user and password; `addresses`: where clients reach the broker, all with one port; `node`: id of the node; `room`:
    /// bytes in the kernel. An error if the process must not capture packets.
    pub fn start(
        mut config: BridgeConfig,
        addresses: Vec<SocketAddr>,
        (node, room): (&str, usize),
        host: &Arc<impl Host>,
    ) -> io::Result<Self> {
        let port = addresses.first().map_or(0, SocketAddr::port);
        let capture = Capture::open(port, room)?;
        config.client_id = format!("{OWN_PREFIX}{node}");
        let status = SniffStatus { kernel_bytes: capture.kernel_bytes, ..SniffStatus::default() };
        let record = Mutex::new((status, Instant::now()));
        let shared =
            Arc::new(Shared { config, session: Self::session_id(node), record, stopping: AtomicBool::new(false) });
        let settings = SniffConfig { addresses, own_prefix: OWN_PREFIX.to_owned(), ..SniffConfig::default() };
        let tap = Tap::new(capture, settings);
        let (own, host) = (Arc::clone(&shared), Arc::clone(host));
        let thread = thread::Builder::new().name("sniff".to_owned()).spawn(move || drive(&own, &*host, tap))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// How it stands.
    pub fn status(&self) -> SniffStatus {
        self.shared.record(|status, since| SniffStatus { since_seconds: since.elapsed().as_secs(), ..status.clone() })
    }
}

impl Drop for Sniffing {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Release);
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that reads the broker's traffic did not end in order");
        }
    }
}

/// One run after the other; a broker that does not take 5.0 is asked with 3.1.1 the next time.
fn drive(shared: &Shared, host: &impl Host, mut tap: Tap) {
    let (mut pause, mut version, mut has_run) = (PAUSE, Version::V5, false);
    while shared.goes_on() {
        let began = Instant::now();
        let begun = Run::begin(shared, host, version, &mut tap);
        has_run |= begun.is_ok();
        let Err(error) = begun.and_then(Run::until_the_end) else { continue };
        shared.fail(&error.to_string());
        if began.elapsed() >= GOOD {
            pause = PAUSE;
        } else if !has_run {
            version = if version == Version::V5 { Version::V311 } else { Version::V5 };
        }
        let until = Instant::now() + pause;
        while shared.goes_on() && Instant::now() < until {
            // Subscriptions of clients during the pause have to be known afterwards.
            tap.read_on(shared);
        }
        pause = (pause * 2).min(PAUSE_MAX);
    }
}
