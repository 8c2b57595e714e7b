//! The counters of a broker.

use crate::room::MESSAGE_BYTES;

/// Ascending counts since the start, except where a field says that it is a present number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Connections that were opened.
    pub connections_opened: u64,
    /// Connections that have ended, for whatever reason.
    pub connections_closed: u64,
    /// Connections that were closed before a CONNACK with success.
    pub connections_refused: u64,
    /// CONNECT packets.
    pub connects: u64,
    /// Connections closed because the same client connected again, here or on another shard or node.
    pub takeovers: u64,
    /// Connections closed because the client was silent for too long.
    pub keep_alive_timeouts: u64,
    /// Packets that were malformed or broke the protocol.
    pub malformed: u64,
    /// Bytes from clients.
    pub bytes_in: u64,
    /// Bytes that were written to clients.
    pub bytes_out: u64,
    /// Packets from clients.
    pub packets_in: u64,
    /// Packets to clients.
    pub packets_out: u64,
    /// PUBLISH packets from clients by QoS, repetitions included.
    pub publishes_in: [u64; 3],
    /// PUBLISH packets to clients by QoS, repetitions included.
    pub publishes_out: [u64; 3],
    /// Payload bytes of the PUBLISH packets from clients.
    pub payload_bytes_in: u64,
    /// Payload bytes of the PUBLISH packets to clients.
    pub payload_bytes_out: u64,
    /// QoS 1 and 2 PUBLISH packets sent again with DUP.
    pub redeliveries: u64,
    /// Messages that left a queue before older ones, for the sake of a deadline.
    pub deadlines_first: u64,
    /// Messages that waited in a queue beyond their deadline.
    pub deadlines_missed: u64,
    /// Wills that were published.
    pub wills: u64,
    /// CONNECTs refused because the client did not prove who it is.
    pub authentications_refused: u64,
    /// Connections ended because the time for which the client was let in was over.
    pub expired_admissions: u64,
    /// Publications and wills refused because the client may not publish there.
    pub refused_publications: u64,
    /// Subscriptions refused because the client may receive nothing of them.
    pub refused_subscriptions: u64,
    /// Publications refused because their topic belongs to the broker or, with QoS 1 and 2, has too many levels.
    pub refused_topics: u64,
    /// Times that a client published too fast and was not read for a while.
    pub publish_pauses: u64,
    /// These times together, in microseconds.
    pub publish_pause_micros: u64,
    /// Packets about QoS 2 publications that waited for another owner of their session, their clients not being read.
    pub packets_parked: u64,
    /// QoS 1 and 2 publications refused because there was no room to keep them.
    pub refused_full: u64,
    /// Publications of these whose topics were closed, or for whose session of the process too many others waited.
    pub refused_closed: u64,
    /// Present number of publications whose acknowledgement waits for a session of the process.
    pub awaited: u64,
    /// Shared-subscription messages given back because no member was left.
    pub bounced: u64,
    /// Sessions that began here or came from elsewhere.
    pub sessions_started: u64,
    /// Sessions that a client found again.
    pub sessions_resumed: u64,
    /// Sessions that ended by expiry.
    pub sessions_expired: u64,
    /// Deliveries that did not happen, by cause.
    pub dropped: Dropped,
    /// Present number of messages in all queues.
    pub queued_messages: u64,
    /// Present number of bytes in all queues.
    pub queued_bytes: u64,
    /// Present number of bytes of messages that were sent and are not acknowledged, 256 for each included.
    pub inflight_bytes: u64,
    /// Present number of bytes of memory for what is on its way to clients, room that is not used yet included.
    pub outbox_bytes: u64,
    /// Present number of clients that are connected: CONNACK was sent, and the connection has not ended.
    pub connected: u64,
    /// Present number of subscriptions, shared ones included.
    pub subscriptions: u64,
    /// Present number of shared subscriptions.
    pub shared_subscriptions: u64,
    /// Present number of bytes of all subscriptions: filters and 256 for each.
    pub subscription_bytes: u64,
    /// Present number of sessions.
    pub sessions: u64,
    /// CONNECTs refused because of the length of the client id or because there are as many sessions as may be.
    pub refused_sessions: u64,
    /// Subscriptions refused because there are as many, or as many bytes of them, as may be.
    pub refused_over_quota: u64,
}

impl Counters {
    /// Bytes held for clients at present, compared with [`crate::BrokerConfig::total_limit_bytes`].
    pub const fn buffered_bytes(&self) -> u64 {
        self.queued_bytes + self.queued_messages * MESSAGE_BYTES as u64 + self.inflight_bytes + self.outbox_bytes
    }

    /// The outbox of a connection held `before` bytes of memory, and holds `after`.
    pub(crate) const fn note_outbox(&mut self, before: usize, after: usize) {
        self.outbox_bytes = self.outbox_bytes + after as u64 - before as u64;
    }
}

/// Deliveries that did not happen: each counts one message for one session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// QoS 0 with a full queue; the oldest QoS 0 messages go first.
    pub queue_full_qos0: u64,
    /// QoS 1 or 2 with a full queue; [`crate::BrokerConfig::queue_drops_oldest`] says which goes.
    pub queue_full: u64,
    /// Any, because too much was held for all clients together.
    pub buffers_full: u64,
    /// QoS 0 for a session without a connection.
    pub offline_qos0: u64,
    /// The message expired while it waited.
    pub expired: u64,
    /// The packet would be larger than the client takes.
    pub too_large: u64,
    /// The client may not receive it.
    pub not_authorized: u64,
    /// The session ended with the message in its queue.
    pub session_ended: u64,
}
