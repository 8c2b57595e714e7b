//! How much one client may hold of what all clients of a shard may hold together.

use std::sync::Arc;

use sedge_base::ClientId;

use crate::connection::Connection;
use crate::session::Session;
use crate::{BrokerConfig, Counters, DeadlineNames, QueueLimits};

/// Bytes that a waiting message takes beside payload and topic: its place in the queue, its header, and the rounding of allocations.
pub(crate) const MESSAGE_BYTES: usize = 256;

/// Memory that may be held for one session: as much as is still free of [`BrokerConfig::total_limit_bytes`], which all sessions share. However many
/// of them do not read, and however fast publications for them arrive, there is always as much left as the greediest has (dynamic thresholds,
/// Choudhury and Hahne 1998), so that the total stays below its limit and other sessions find room.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room<'a> {
    config: &'a BrokerConfig,
    /// The limits of its queue alone.
    pub(crate) limits: QueueLimits,
    /// Bytes held for the session outside of its queue; `None`: everything that is free is for the session.
    elsewhere: Option<usize>,
}

impl<'a> Room<'a> {
    /// For a session and its live connection.
    pub(crate) fn of(config: &'a BrokerConfig, session: &Session, connection: Option<&Connection>) -> Self {
        let outbox = connection.map_or(0, |connection| connection.outbox.footprint());
        let limits = config.queue_limits(Some(&session.client));
        Self { config, limits, elsewhere: Some(session.inflight.bytes() + outbox) }
    }

    /// Room for messages that were within the limits before, here or elsewhere.
    pub(crate) fn whole(config: &'a BrokerConfig, client: Option<&ClientId>) -> Self {
        Self { config, limits: config.queue_limits(client), elsewhere: None }
    }

    /// How publishers state the time until which a message is of use, where that counts.
    pub(crate) const fn deadlines(&self) -> Option<&'a Arc<DeadlineNames>> {
        self.config.deadlines.as_ref()
    }

    /// The same without the limits of its queue alone.
    pub(crate) const fn of_all(self) -> Self {
        let limits = QueueLimits { messages: usize::MAX, bytes: usize::MAX, ..self.limits };
        Self { limits, ..self }
    }

    /// Whether `more` bytes fit while `queued` bytes are in the session's queue.
    pub(crate) fn allows(&self, queued: usize, more: usize, counters: &Counters) -> bool {
        let held = self.elsewhere.map_or(0, |elsewhere| elsewhere + queued);
        held.saturating_add(more) <= free(self.config, counters)
    }
}

/// Bytes that may be held beside those that are.
pub(crate) fn free(config: &BrokerConfig, counters: &Counters) -> usize {
    let held = usize::try_from(counters.buffered_bytes()).unwrap_or(usize::MAX);
    config.total_limit_bytes.saturating_sub(held)
}
