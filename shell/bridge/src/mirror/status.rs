//! How the comparison stands.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use sedge_sidecar::{Delivered, Difference, MirrorCounters};

/// Differences that are shown; older ones are only counted.
const LINES_MAX: usize = 100;
/// Differences in the log, in each second; all are counted.
const LOGGED_PER_SECOND: u32 = 10;

/// How a node beside a broker stands to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MirrorStatus {
    /// Whether all subscriptions stand.
    pub up: bool,
    /// Seconds since they do, or do not.
    pub since_seconds: u64,
    /// Whether the broker speaks 3.1.1 only.
    pub only_311: bool,
    /// The last error.
    pub last_error: Option<String>,
    /// Counters of the deliveries compared, and of the results.
    pub counters: MirrorCounters,
    /// The last differences, oldest first.
    pub last: Vec<MirrorLine>,
}

/// A difference, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirrorLine {
    /// Kind of the difference.
    pub kind: &'static str,
    /// Seconds since the difference was found.
    pub seconds: u64,
    /// The filter by which the message came.
    pub filter: String,
    /// Topic of the message.
    pub topic: String,
    /// Deliveries of either side.
    pub detail: String,
}

#[derive(Debug)]
struct Inner {
    up: bool,
    since: Instant,
    only_311: bool,
    has_run: bool,
    last_error: Option<String>,
    counters: MirrorCounters,
    last: VecDeque<(Instant, MirrorLine)>,
    /// Of the present second, how many are in the log.
    logged: (Instant, u32),
}

/// Status that the mirror's thread writes and other threads read.
#[derive(Debug)]
pub(super) struct Record(Mutex<Inner>);

impl Default for Record {
    fn default() -> Self {
        let now = Instant::now();
        Self(Mutex::new(Inner {
            up: false,
            since: now,
            only_311: false,
            has_run: false,
            last_error: None,
            counters: MirrorCounters::default(),
            last: VecDeque::new(),
            logged: (now, 0),
        }))
    }
}

fn side(name: &str, message: Option<&Delivered>) -> String {
    message.map_or_else(
        || format!("{name}: nothing"),
        |message| {
            let retain = if message.retain { ", retained" } else { "" };
            format!("{name}: QoS {}{retain}, {} bytes", message.qos as u8, message.payload.len())
        },
    )
}

impl Record {
    fn with<T>(&self, look: impl FnOnce(&mut Inner) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn begins(&self, only_311: bool) {
        self.with(|inner| {
            (inner.up, inner.since, inner.only_311, inner.has_run) = (true, Instant::now(), only_311, true);
        });
        tracing::info!("what the broker delivers is compared from here on");
    }

    /// Whether there ever was a run.
    pub(super) fn has_run(&self) -> bool {
        self.with(|inner| inner.has_run)
    }

    pub(super) fn fail(&self, why: &str) {
        let is_news = self.with(|inner| {
            if core::mem::take(&mut inner.up) {
                inner.since = Instant::now();
            }
            inner.last_error.replace(why.to_owned()).as_deref() != Some(why)
        });
        if is_news {
            tracing::warn!(error = why, "nothing is compared: the broker is away");
        }
    }

    pub(super) fn count(&self, counters: MirrorCounters) {
        self.with(|inner| inner.counters = counters);
    }

    pub(super) fn note(&self, filter: &str, difference: &Difference) {
        let either = difference.broker.as_ref().or(difference.node.as_ref());
        let topic = either.map(|message| message.topic.as_str().to_owned()).unwrap_or_default();
        let detail =
            format!("{}; {}", side("broker", difference.broker.as_ref()), side("node", difference.node.as_ref()));
        let kind = difference.kind.name();
        let line =
            MirrorLine { kind, seconds: 0, filter: filter.to_owned(), topic: topic.clone(), detail: detail.clone() };
        let now = Instant::now();
        let is_logged = self.with(|inner| {
            if inner.last.len() >= LINES_MAX {
                inner.last.pop_front();
            }
            inner.last.push_back((now, line));
            if now.duration_since(inner.logged.0).as_secs() >= 1 {
                inner.logged = (now, 0);
            }
            inner.logged.1 += 1;
            inner.logged.1 <= LOGGED_PER_SECOND
        });
        if is_logged {
            tracing::warn!(kind, filter, topic, detail, "the node would have delivered otherwise than the broker");
        }
    }

    pub(super) fn read(&self) -> MirrorStatus {
        self.with(|inner| MirrorStatus {
            up: inner.up,
            since_seconds: inner.since.elapsed().as_secs(),
            only_311: inner.only_311,
            last_error: inner.last_error.clone(),
            counters: inner.counters,
            last: inner
                .last
                .iter()
                .map(|(at, line)| MirrorLine { seconds: at.elapsed().as_secs(), ..line.clone() })
                .collect(),
        })
    }
}
