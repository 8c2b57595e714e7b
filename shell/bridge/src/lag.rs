//! Messages that wait for a bridge or a rule.

use std::time::{Duration, Instant};

use crate::host::SessionView;

/// Messages that wait for less than this are on their way, and nothing has fallen behind.
const FRESH: Duration = Duration::from_secs(2);

/// Messages that wait at a node for a bridge or a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lag {
    /// Messages.
    pub messages: u64,
    /// Bytes of the messages in the queue.
    pub bytes: u64,
    /// The time for which the oldest message has waited; zero: no message waits.
    pub waits: Duration,
    /// Most messages that waited at once since it fell behind.
    pub most: u64,
}

/// The lag of a bridge or a rule, measured now and then.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Measured {
    pub(crate) lag: Lag,
    /// The time since which messages wait.
    since: Option<Instant>,
}

impl Measured {
    /// Notes the messages that wait now.
    pub(crate) fn note(&mut self, session: &SessionView, now: Instant) {
        if session.messages == 0 {
            *self = Self::default();
            return;
        }
        let since = *self.since.get_or_insert(now);
        // A stored message may be older than its wait, which began when something began to wait or later.
        let waits = session.waits.max(session.waits_stored.min(now.saturating_duration_since(since)));
        let most = if waits < FRESH { 0 } else { self.lag.most };
        self.lag = Lag { messages: session.messages, bytes: session.bytes, waits, most: most.max(session.messages) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(messages: u64, waits: u64, waits_stored: u64) -> SessionView {
        let (waits, waits_stored) = (Duration::from_secs(waits), Duration::from_secs(waits_stored));
        SessionView { messages, bytes: messages * 100, waits, waits_stored, ..SessionView::default() }
    }

    /// OP-02: what has waited longest, and how far a bridge has fallen behind until it is fresh again.
    #[test]
    fn a_bridge_that_falls_behind_and_catches_up() {
        let begin = Instant::now();
        let mut measured = Measured::default();
        let mut at = |second: u64, session: SessionView| {
            measured.note(&session, begin + Duration::from_secs(second));
            (measured.lag.messages, measured.lag.waits.as_secs(), measured.lag.most)
        };
        assert_eq!(at(0, seen(0, 0, 0)), (0, 0, 0));
        assert_eq!(at(1, seen(5, 1, 0)), (5, 1, 5));
        assert_eq!(at(60, seen(700, 60, 60)), (700, 60, 700));
        assert_eq!(at(61, seen(200, 40, 40)), (200, 40, 700));
        assert_eq!(at(62, seen(9, 1, 1)), (9, 1, 9), "it is fresh again");
        assert_eq!(at(63, seen(0, 0, 0)), (0, 0, 0));
        assert_eq!(at(70, seen(3, 0, 90_000)), (3, 0, 3), "stored long ago, given now");
        assert_eq!(at(75, seen(3, 0, 90_005)), (3, 5, 3));
        assert_eq!(at(76, seen(4, 3_600, 3_600)), (4, 3_600, 4), "the session came from another node");
    }
}
