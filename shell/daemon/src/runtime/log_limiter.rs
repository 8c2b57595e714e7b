//! Keeps what others can cause as often as they like from filling the log: so many lines of each kind a second, and then and when a
//! summary of the rest.

use sedge_base::{Duration, Instant};

/// Lines are counted anew after this time.
const WINDOW: Duration = Duration::from_secs(1);
/// How long after the first suppressed line the summary comes.
const SUMMARY: Duration = Duration::from_secs(10);

/// Subject of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineKind {
    /// A client has connected.
    Connected,
    /// A client's connection has ended.
    Disconnected,
    /// A connection was closed before it had a client.
    Refused,
    /// A connected client may not do what it wants.
    Denied,
    /// Other nodes, and whoever connects to their port.
    Cluster,
}

impl LineKind {
    pub(crate) const ALL: [Self; 5] = [Self::Connected, Self::Disconnected, Self::Refused, Self::Denied, Self::Cluster];

    /// As it is called in summaries and metrics.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Connected => "connected",
            Self::Disconnected => "disconnected",
            Self::Refused => "refused",
            Self::Denied => "denied",
            Self::Cluster => "cluster",
        }
    }
}

/// See the module. Each thread has its own.
#[derive(Debug)]
pub(crate) struct LogLimiter {
    per_second: u32,
    kinds: [Counted; LineKind::ALL.len()],
}

#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    window: Option<Instant>,
    written: u32,
    suppressed: u64,
    summary: Option<Instant>,
    total: u64,
}

impl LogLimiter {
    /// Lets `per_second` lines of each kind through in a second. 0: of other nodes one, and without summaries.
    pub(crate) fn new(per_second: u32) -> Self {
        Self { per_second, kinds: [Counted::default(); LineKind::ALL.len()] }
    }

    /// Whether a line of this kind may be written now; counts it if not.
    pub(crate) fn allows(&mut self, kind: LineKind, now: Instant) -> bool {
        let counted = &mut self.kinds[kind as usize];
        if counted.window.is_none_or(|window| now.since(window) >= WINDOW) {
            (counted.window, counted.written) = (Some(now), 0);
        }
        // Changes of membership are too important to be left out altogether: at least one line of this kind is written.
        let limit = self.per_second.max(u32::from(kind == LineKind::Cluster));
        if counted.written < limit {
            counted.written += 1;
            return true;
        }
        counted.suppressed += 1;
        counted.total += 1;
        if self.per_second > 0 {
            counted.summary.get_or_insert(now + SUMMARY);
        }
        false
    }

    /// A kind whose summary is due, with the number of lines that were suppressed since its last one; call until there is none.
    pub(crate) fn summary(&mut self, now: Instant) -> Option<(LineKind, u64)> {
        let due = |kind: &LineKind| self.kinds[*kind as usize].summary.is_some_and(|at| at <= now);
        let kind = LineKind::ALL.into_iter().find(due)?;
        let counted = &mut self.kinds[kind as usize];
        counted.summary = None;
        Some((kind, std::mem::take(&mut counted.suppressed)))
    }

    /// When the next summary is due.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.kinds.iter().filter_map(|counted| counted.summary).min()
    }

    /// Lines suppressed since the start, in the order of [`LineKind::ALL`].
    pub(crate) fn suppressed(&self) -> [u64; LineKind::ALL.len()] {
        self.kinds.map(|counted| counted.total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    #[test]
    fn so_many_a_second_and_a_summary_of_the_rest() {
        let mut log = LogLimiter::new(3);
        let allowed = |log: &mut LogLimiter, millis, kind| (0..10).filter(|_| log.allows(kind, at(millis))).count();
        assert_eq!(allowed(&mut log, 0, LineKind::Refused), 3);
        assert_eq!(allowed(&mut log, 999, LineKind::Refused), 0);
        assert_eq!(allowed(&mut log, 999, LineKind::Connected), 3, "each kind has its own limit");
        assert_eq!(allowed(&mut log, 1_000, LineKind::Refused), 3);
        assert_eq!(log.summary(at(9_999)), None);
        assert_eq!(log.next_deadline(), Some(at(10_000)));
        assert_eq!(log.summary(at(10_000)), Some((LineKind::Refused, 24)));
        assert_eq!(log.summary(at(10_999)), Some((LineKind::Connected, 7)));
        assert_eq!((log.summary(at(60_000)), log.next_deadline()), (None, None));
        assert_eq!(log.suppressed(), [7, 0, 24, 0, 0]);
        assert_eq!(allowed(&mut log, 60_000, LineKind::Refused), 3);
        assert_eq!(log.next_deadline(), Some(at(70_000)), "a summary comes once in ten seconds");
    }

    #[test]
    fn none_a_second_is_silence_but_for_other_nodes() {
        let mut log = LogLimiter::new(0);
        assert!(!log.allows(LineKind::Connected, at(0)));
        assert!(log.allows(LineKind::Cluster, at(0)) && !log.allows(LineKind::Cluster, at(0)));
        assert_eq!((log.next_deadline(), log.suppressed()), (None, [1, 0, 0, 0, 1]));
    }
}
