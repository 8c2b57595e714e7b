//! Bridges of a node, from start to stop: a thread for each, and one that watches who runs them.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use sedge_mqtt::TopicFilter;

use crate::acks;
#[cfg(feature = "kafka")]
use crate::config::Kind;
use crate::config::{BridgeConfig, Full};
use crate::crew::{Crew, Job, Roll, Work, rest as sleep};
use crate::error::BridgeError;
use crate::host::{Host, Runner, SessionView};
#[cfg(feature = "kafka")]
use crate::kafka;
use crate::map::Transform;
use crate::mqtt;
use crate::status::{BridgeState, BridgeStatus, Record};

/// The time between two looks of the supervisor at the node that runs a bridge.
const WATCH: Duration = Duration::from_millis(100);
/// The time between two measurements of the waiting messages.
const MEASURE: Duration = Duration::from_secs(1);
/// First pause after a failure.
const PAUSE: Duration = Duration::from_millis(200);
/// A connection that lasted so long was a good one: the next pause is the first again.
const GOOD: Duration = Duration::from_secs(5);

/// The bridges of a node. Dropping them ends their threads.
#[derive(Debug)]
pub struct Bridges {
    crew: Crew<Shared>,
    cluster: String,
    /// The threads that watch run.
    is_watched: AtomicBool,
}

/// State that the threads of one bridge share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: BridgeConfig,
    pub(crate) cluster: String,
    pub(crate) session: String,
    pub(crate) record: Record,
    /// This node runs the bridge.
    here: AtomicBool,
    stopping: AtomicBool,
    /// Filters of the publications that the bridge takes from the cluster, if its full buffer refuses more.
    refuses: Vec<TopicFilter>,
    /// The buffer of the bridge is full.
    is_full: AtomicBool,
}

impl Shared {
    /// Whether this node runs the bridge, as far as was last seen.
    pub(crate) fn goes_on(&self) -> bool {
        self.here.load(Ordering::Acquire) && !self.stopping.load(Ordering::Acquire)
    }

    /// Looks whether the buffer is full, or has room again: an eighth of it, so that not every message changes that.
    fn note_buffer(&self, session: &SessionView) {
        let limit = if self.is_full.load(Ordering::Acquire) {
            self.config.buffer_bytes - self.config.buffer_bytes / 8
        } else {
            self.config.buffer_bytes
        };
        self.is_full.store(session.is_tight || session.bytes >= limit, Ordering::Release);
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }
}

impl Job for Shared {
    fn name(&self) -> String {
        format!("bridge-{}", self.record.name)
    }

    fn tell_to_stop(&self) {
        self.stopping.store(true, Ordering::Release);
    }
}

impl Bridges {
    /// Starts the bridges of the configuration, by name; `transform` gives what changes the messages of each. The error is that of the
    /// system if it gives no threads.
    pub fn start(
        configs: &BTreeMap<String, BridgeConfig>,
        cluster: &str,
        host: &Arc<impl Host>,
        transform: impl Fn(&str) -> Option<Box<dyn Transform>>,
    ) -> io::Result<Self> {
        let all = Self { crew: Crew::new(), cluster: cluster.to_owned(), is_watched: AtomicBool::new(false) };
        all.change(configs, host, transform)?;
        Ok(all)
    }

    /// From here on there are these bridges. One that is as before goes on undisturbed; one that has changed ends first, and what waits for it
    /// stays in its session.
    pub fn change(
        &self,
        configs: &BTreeMap<String, BridgeConfig>,
        host: &Arc<impl Host>,
        transform: impl Fn(&str) -> Option<Box<dyn Transform>>,
    ) -> io::Result<()> {
        let is_as_before = |shared: &Shared| configs.get(&shared.record.name) == Some(&shared.config);
        let kept = self.crew.jobs();
        let is_kept = |name: &str| kept.iter().any(|shared| shared.record.name == name && is_as_before(shared));
        let mut new = Vec::new();
        for (name, config) in configs.iter().filter(|(name, _)| !is_kept(name)) {
            let shared = Arc::new(self.shared(name, config));
            let (job, host, transform) = (Arc::clone(&shared), Arc::clone(host), transform(name));
            let run: Work = Box::new(move || drive(&shared, &*host, transform));
            new.push((job, run));
        }
        self.crew.change(is_as_before, new)?;
        if !configs.is_empty() && !self.is_watched.swap(true, Ordering::AcqRel) {
            let (watcher, answerer) = (Arc::clone(host), Arc::clone(host));
            self.crew.watch("bridge-watch", move |roll| watch(&roll, &*watcher))?;
            self.crew.watch("bridge-acks", move |roll| acks::watch(&roll, &*answerer))?;
        }
        Ok(())
    }

    fn shared(&self, name: &str, config: &BridgeConfig) -> Shared {
        Shared {
            config: config.clone(),
            cluster: self.cluster.clone(),
            session: BridgeConfig::session_id(name),
            record: Record::new(name),
            here: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            refuses: refuses(config),
            is_full: AtomicBool::new(false),
        }
    }

    /// How they do, by name.
    pub fn status(&self) -> Vec<BridgeStatus> {
        let read = |shared: &Arc<Shared>| shared.record.read(shared.config.kind_name(), shared.config.direction.name());
        self.crew.jobs().iter().map(read).collect()
    }

    /// Tells all threads to end. They do within a second.
    pub fn tell_to_stop(&self) {
        self.crew.tell_to_stop();
    }
}

impl Drop for Bridges {
    fn drop(&mut self) {
        self.tell_to_stop();
    }
}

/// Topic filters of the publications to refuse while the buffer is full.
fn refuses(config: &BridgeConfig) -> Vec<TopicFilter> {
    if config.buffer_full != Full::Refuse || !config.direction.goes_out() {
        return Vec::new();
    }
    let taken = if config.takes.is_empty() { &config.from } else { &config.takes };
    taken.iter().filter_map(|filter| TopicFilter::new(filter).ok()).collect()
}

/// Tells the node the topic filters of the publications to refuse, if they have changed.
fn close_topics(bridges: &[Arc<Shared>], host: &impl Host, closed: &mut Vec<TopicFilter>) {
    let is_full = |shared: &&Arc<Shared>| shared.here.load(Ordering::Acquire) && shared.is_full.load(Ordering::Acquire);
    let now: Vec<TopicFilter> = bridges.iter().filter(is_full).flat_map(|shared| shared.refuses.clone()).collect();
    if *closed != now {
        closed.clone_from(&now);
        host.close_topics(now);
    }
}

/// Looks which node runs each bridge, and measures the messages that wait.
fn watch(roll: &Roll<Shared>, host: &impl Host) {
    let mut measured = None::<Instant>;
    let mut closed = Vec::new();
    while !roll.ends() {
        let bridges = roll.jobs();
        let measures = measured.is_none_or(|at| at.elapsed() >= MEASURE);
        for shared in &bridges {
            observe(shared, host, measures);
        }
        close_topics(&bridges, host, &mut closed);
        if measures {
            measured = Some(Instant::now());
        }
        sleep(bridges.is_empty(), WATCH);
    }
}

fn observe(shared: &Shared, host: &impl Host, measures: bool) {
    if let Some(other) = Runner::observe(host, &shared.session, &shared.here) {
        shared.record.set_state(match other {
            Runner::Elsewhere(node) => BridgeState::Elsewhere(node),
            Runner::Here | Runner::Nobody => BridgeState::Waiting,
        });
    }
    let is_guarded = !shared.refuses.is_empty() && shared.here.load(Ordering::Acquire);
    if !measures && !is_guarded {
        return;
    }
    let session = host.session(&shared.session);
    if let Some(session) = session.as_ref().filter(|_| is_guarded) {
        shared.note_buffer(session);
    }
    if measures {
        shared.record.set_lag(&session.unwrap_or_default());
    }
}

/// The life of one bridge: while this node runs it, one connection after the other.
fn drive(shared: &Shared, host: &impl Host, transform: Option<Box<dyn Transform>>) {
    #[cfg(feature = "kafka")]
    if shared.config.kind == Some(Kind::Kafka) {
        let mut bridge = kafka::Bridge::new(shared, host, transform);
        return repeat(shared, || bridge.run());
    }
    let mut bridge = mqtt::Bridge::new(shared, host, transform);
    repeat(shared, || bridge.run());
}

fn repeat(shared: &Shared, mut run: impl FnMut() -> Result<(), BridgeError>) {
    let mut pause = PAUSE;
    while !shared.is_stopping() {
        if !shared.goes_on() {
            thread::park_timeout(WATCH);
            continue;
        }
        let began = Instant::now();
        match run() {
            Ok(()) => pause = PAUSE,
            Err(error) => {
                shared.record.fail(&error);
                if began.elapsed() >= GOOD {
                    pause = PAUSE;
                }
                rest(shared, pause);
                pause = (pause * 2).min(shared.config.reconnect_max);
            }
        }
    }
}

/// Waits, but no longer than the bridge is wanted here.
fn rest(shared: &Shared, pause: Duration) {
    let until = Instant::now() + pause;
    while shared.goes_on() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        thread::park_timeout(left.min(WATCH));
    }
}
