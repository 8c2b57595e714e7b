//! Counts of the event loops: plain numbers of one thread; a question of another thread adds them up.

use std::time::Duration;

use sedge_base::Instant;

use crate::transport::Reason;

/// How long the longest turn is remembered, at least; twice this at most.
const LAG_WINDOW: Duration = Duration::from_secs(5);

/// Counts of one thread since its start, except where a field says that it is a present number.
#[derive(Clone, Debug, Default)]
pub(crate) struct WorkerStats {
    /// Turns of the loop.
    pub(crate) turns: u64,
    /// Reads that brought bytes.
    pub(crate) reads: u64,
    /// Vectored writes.
    pub(crate) writes: u64,
    /// Writes that the socket did not take completely.
    pub(crate) writes_blocked: u64,
    /// Present number of connections that wait for a later turn with what they have to write.
    pub(crate) put_off: usize,
    /// Pauses of a thread before a foreign broker, so that reads bring several packets.
    pub(crate) pauses: u64,
    /// Times such a thread looked for the broker's answer without sleeping.
    pub(crate) lingers: u64,
    /// Present number of connections that wait for room in the backlog of the broker's Unix socket.
    pub(crate) crowded: usize,
    /// Letters for other threads.
    pub(crate) letters: u64,
    /// Batches of them.
    pub(crate) batches: u64,
    /// Times a mailbox was found full, so that reading stopped.
    pub(crate) mailbox_full: u64,
    /// Connections accepted.
    pub(crate) accepted: u64,
    /// Connections closed because there were too many.
    pub(crate) over_limit: u64,
    /// Times accepting paused because the process had no file descriptors left.
    pub(crate) no_descriptors: u64,
    /// Connections that sent no complete CONNECT in time.
    pub(crate) connect_timeouts: u64,
    /// Connections that have finished what comes before MQTT: PROXY header, TLS, WebSocket.
    pub(crate) handshakes: u64,
    /// Connections that came to nothing below MQTT, in the order of [`Reason::ALL`].
    pub(crate) faults: [u64; Reason::ALL.len()],
    /// Present number of connections that have not finished it.
    pub(crate) handshaking: usize,
    /// Connections handed to another shard.
    pub(crate) handovers: u64,
    /// Datagrams received from nodes.
    pub(crate) datagrams_in: u64,
    /// Datagrams sent to nodes.
    pub(crate) datagrams_out: u64,
    /// Datagrams without the right seal.
    pub(crate) datagrams_refused: u64,
    /// Datagrams that could not be sent.
    pub(crate) datagrams_lost: u64,
    /// Lines of the log that were suppressed, by [`super::LineKind`].
    pub(crate) log_suppressed: [u64; super::LineKind::ALL.len()],
    /// Present number of connections of this thread.
    pub(crate) connections: usize,
    /// How long turns take.
    pub(crate) lag: LoopLag,
}

/// The longest turn of a loop in the last 5 to 10 seconds: so long an event may have had to wait.
#[derive(Clone, Debug, Default)]
pub(crate) struct LoopLag {
    /// End of the present window.
    until: Instant,
    longest: Duration,
    /// The longest of the window before.
    before: Duration,
}

impl LoopLag {
    /// A turn has ended that took so long.
    pub(crate) fn note(&mut self, now: Instant, took: Duration) {
        self.advance(now);
        self.longest = self.longest.max(took);
    }

    /// The longest turn, as of `now`.
    pub(crate) fn longest(&self, now: Instant) -> Duration {
        let mut seen = self.clone();
        seen.advance(now);
        seen.longest.max(seen.before)
    }

    fn advance(&mut self, now: Instant) {
        if now < self.until {
            return;
        }
        let follows = now.since(self.until) < LAG_WINDOW;
        self.before = if follows { self.longest } else { Duration::ZERO };
        self.longest = Duration::ZERO;
        self.until = now + LAG_WINDOW;
    }
}

impl WorkerStats {
    /// Counts a connection that came to nothing.
    pub(crate) fn note(&mut self, reason: Reason) {
        let slots = Reason::ALL.iter().zip(&mut self.faults);
        for (_, count) in slots.filter(|((known, _), _)| *known == reason) {
            *count += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// EL-10
    #[test]
    fn a_long_turn_is_remembered_for_a_while() {
        let mut lag = LoopLag::default();
        let millis = Duration::from_millis;
        lag.note(Instant::from_millis(1_000), millis(80));
        lag.note(Instant::from_millis(1_100), millis(3));
        assert_eq!(lag.longest(Instant::from_millis(5_900)), millis(80));
        lag.note(Instant::from_millis(6_100), millis(4));
        assert_eq!(lag.longest(Instant::from_millis(10_900)), millis(80));
        assert_eq!(lag.longest(Instant::from_millis(12_000)), millis(4));
        assert_eq!(lag.longest(Instant::from_millis(60_000)), Duration::ZERO);
    }
}
