//! Recent events for operators and the dashboard: the last events of all threads, in a ring of fixed size.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sedge_base::{Duration, Instant};
use tokio::sync::watch;

/// Most events that are kept; the oldest one goes for a new one.
pub(crate) const EVENTS_MAX: usize = 1_000;
/// Most bytes of events that are kept.
pub(crate) const EVENTS_BYTES_MAX: usize = 256 * 1024;
/// Most events of each kind a second; the rest is counted.
const EVENTS_PER_SECOND: u32 = 100;
const WINDOW: Duration = Duration::from_secs(1);
/// Longest text of an event.
const TEXT_BYTES_MAX: usize = 256;
/// Memory of an event without its texts.
const EVENT_BYTES: usize = 160;

/// Subject of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventKind {
    /// A client has connected.
    Connected,
    /// A client's connection has ended.
    Disconnected,
    /// A connection was closed before it had a client.
    Refused,
    /// A connected client may not do what it wants.
    Denied,
    /// Other nodes.
    Cluster,
    /// Somebody has asked for something through the API.
    Operator,
}

impl EventKind {
    const COUNT: usize = 6;

    /// As it is called in the API.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Connected => "connected",
            Self::Disconnected => "disconnected",
            Self::Refused => "refused",
            Self::Denied => "denied",
            Self::Cluster => "cluster",
            Self::Operator => "operator",
        }
    }
}

/// Something that has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Happened {
    pub(crate) kind: EventKind,
    /// Whether somebody should look at it.
    pub(crate) warning: bool,
    pub(crate) client: Option<Box<str>>,
    pub(crate) peer: Option<Box<str>>,
    /// The event in words.
    pub(crate) text: Box<str>,
}

impl Happened {
    /// An event without a client.
    pub(crate) fn new(kind: EventKind, warning: bool, text: &str) -> Self {
        Self { kind, warning, client: None, peer: None, text: short(text) }
    }

    /// The same of a client.
    pub(crate) fn of(mut self, client: Option<&str>, peer: Option<&str>) -> Self {
        (self.client, self.peer) = (client.map(short), peer.map(short));
        self
    }

    fn bytes(&self) -> usize {
        let text = |text: &Option<Box<str>>| text.as_deref().map_or(0, str::len);
        EVENT_BYTES + text(&self.client) + text(&self.peer) + self.text.len()
    }
}

/// As much of a text as an event has room for.
fn short(text: &str) -> Box<str> {
    match text.get(..text.floor_char_boundary(TEXT_BYTES_MAX)) {
        Some(beginning) if beginning.len() < text.len() => format!("{beginning}…").into(),
        _ => text.into(),
    }
}

/// An event with its place in the sequence and its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Noted {
    /// 1 for the first event of the process.
    pub(crate) id: u64,
    /// Milliseconds since 1970.
    pub(crate) at_ms: u64,
    pub(crate) happened: Happened,
}

#[derive(Debug, Default)]
struct Ring {
    kept: VecDeque<Arc<Noted>>,
    bytes: usize,
    last: u64,
    /// Not kept for want of room in a second.
    dropped: u64,
    windows: [(Option<Instant>, u32); EventKind::COUNT],
}

impl Ring {
    fn admits(&mut self, kind: EventKind, now: Instant) -> bool {
        let Some((window, count)) = self.windows.get_mut(kind as usize) else { return false };
        if window.is_none_or(|window| now.since(window) >= WINDOW) {
            (*window, *count) = (Some(now), 0);
        }
        *count += 1;
        *count <= EVENTS_PER_SECOND
    }

    fn push(&mut self, at_ms: u64, happened: Happened) {
        self.last += 1;
        self.bytes += happened.bytes();
        self.kept.push_back(Arc::new(Noted { id: self.last, at_ms, happened }));
        while self.kept.len() > EVENTS_MAX || self.bytes > EVENTS_BYTES_MAX {
            let Some(oldest) = self.kept.pop_front() else { return };
            self.bytes -= oldest.happened.bytes();
        }
    }
}

/// How full the ring is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EventStats {
    pub(crate) kept: usize,
    pub(crate) bytes: usize,
    pub(crate) noted: u64,
    pub(crate) dropped: u64,
}

/// See the module. All threads write, the HTTP thread reads.
#[derive(Debug)]
pub(crate) struct Events {
    ring: Mutex<Ring>,
    /// The last event; closed with the node.
    news: watch::Sender<u64>,
}

impl Default for Events {
    fn default() -> Self {
        Self { ring: Mutex::default(), news: watch::Sender::new(0) }
    }
}

impl Events {
    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what has happened; `describe` is not called if there have been too many of the kind in this second.
    pub(crate) fn note(&self, kind: EventKind, now: Instant, at_ms: u64, describe: impl FnOnce() -> Happened) {
        let mut ring = self.ring();
        if !ring.admits(kind, now) {
            ring.dropped += 1;
            return;
        }
        ring.push(at_ms, describe());
        let last = ring.last;
        drop(ring);
        self.news.send_replace(last);
    }

    /// The kept events after the one with this number, and how many of them are not there any more.
    pub(crate) fn after(&self, id: u64) -> (Vec<Arc<Noted>>, u64) {
        let ring = self.ring();
        let first = ring.last + 1 - ring.kept.len() as u64;
        let from = first.max(id.saturating_add(1));
        let skip = usize::try_from(from - first).unwrap_or(usize::MAX);
        (ring.kept.iter().skip(skip).cloned().collect(), first.saturating_sub(id.saturating_add(1)))
    }

    /// Tells of new events.
    pub(crate) fn news(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }

    /// Wakes whoever waits for news.
    pub(crate) fn wake(&self) {
        self.news.send_modify(|_| ());
    }

    pub(crate) fn stats(&self) -> EventStats {
        let ring = self.ring();
        EventStats { kept: ring.kept.len(), bytes: ring.bytes, noted: ring.last, dropped: ring.dropped }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(events: &Events, kind: EventKind, millis: u64, text: &str) {
        events.note(kind, Instant::from_millis(millis), millis, || Happened::new(kind, false, text));
    }

    fn ids(events: &Events, after: u64) -> (Vec<u64>, u64) {
        let (found, missed) = events.after(after);
        (found.iter().map(|noted| noted.id).collect(), missed)
    }

    #[test]
    fn the_newest_are_kept_and_what_is_missing_is_counted() {
        let events = Events::default();
        assert_eq!(ids(&events, 0), (vec![], 0));
        for number in 0..EVENTS_MAX as u64 + 5 {
            note(&events, EventKind::Connected, number * 1_000, "x");
        }
        let last = EVENTS_MAX as u64 + 5;
        assert_eq!(ids(&events, last - 2), (vec![last - 1, last], 0));
        let (found, missed) = ids(&events, 2);
        assert_eq!((found.len(), found[0], missed), (EVENTS_MAX, 6, 3));
        assert_eq!(ids(&events, u64::MAX), (vec![], 0));
    }

    #[test]
    fn long_texts_are_cut_and_bytes_have_a_limit() {
        let events = Events::default();
        for number in 0..EVENTS_MAX as u64 {
            note(&events, EventKind::Cluster, number * 1_000, &"ä".repeat(10_000));
        }
        let stats = events.stats();
        assert!(stats.bytes <= EVENTS_BYTES_MAX && stats.kept < EVENTS_MAX && stats.kept > 500, "{stats:?}");
        assert!(events.after(0).0.iter().all(|noted| noted.happened.text.len() <= TEXT_BYTES_MAX + 3));
    }

    #[test]
    fn a_flood_of_one_kind_leaves_room_for_the_others() {
        let events = Events::default();
        for _ in 0..1_000 {
            note(&events, EventKind::Connected, 5, "x");
        }
        note(&events, EventKind::Cluster, 5, "x");
        let stats = events.stats();
        assert_eq!((stats.kept, stats.dropped), (EVENTS_PER_SECOND as usize + 1, 1_000 - u64::from(EVENTS_PER_SECOND)));
        note(&events, EventKind::Connected, 1_005, "x");
        assert_eq!(events.stats().noted, u64::from(EVENTS_PER_SECOND) + 2);
    }
}
