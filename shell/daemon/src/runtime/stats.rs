//! What the event loops count. Plain numbers of one thread; summed up when asked.

use crate::transport::Reason;

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
