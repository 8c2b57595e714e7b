//! Every limit of a broker in one place.

use sedge_base::Duration;

/// Limits and times of one [`crate::Broker`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerConfig {
    /// Largest packet a client may send, in bytes, the whole packet counted (5.0: Maximum Packet Size, section 3.2.2.3.6).
    pub max_packet_bytes: u32,
    /// How long a connection may take until its CONNECT is complete.
    pub connect_timeout: Duration,
    /// How long the owner may take to say who a client is: nobody is to wait for ever, however many are asked about before. For an
    /// enhanced authentication there is `connect_timeout`, for all of CONNECT and AUTH.
    pub auth_timeout: Duration,
    /// How long a resumed session's interest may take to settle before CONNACK is sent all the same.
    pub resume_timeout: Duration,
    /// How long the last bytes of a closed connection are kept for its driver.
    pub close_timeout: Duration,
    /// Longest keep alive in seconds; clients that ask for more, or for none, are told this one (5.0: Server Keep Alive, section
    /// 3.2.2.3.14). 0: any. 3.1.1 has no way to be told and keeps its own.
    pub max_keep_alive: u16,
    /// Longest session expiry in seconds; `u32::MAX`: for ever. Also the expiry of 3.1.1 sessions with Clean Session 0.
    pub max_session_expiry: u32,
    /// QoS 1 and 2 publications taken from one client before they are answered (Receive Maximum, section 3.2.2.3.3); 1 to 65,535,
    /// 0 counts as 1.
    pub receive_maximum: u16,
    /// QoS 1 and 2 messages on their way to one client; a smaller Receive Maximum of the client's own counts; 1 to
    /// 65,535, 0 counts as 1.
    pub max_inflight: u16,
    /// Topic aliases a client may use (Topic Alias Maximum, section 3.2.2.3.8).
    pub topic_alias_maximum: u16,
    /// Topic aliases the broker uses towards a client that allows them.
    pub max_outgoing_aliases: u16,
    /// Subscriptions of one client; the next one is refused with `QuotaExceeded` (0x97).
    pub max_subscriptions: usize,
    /// Levels of a topic filter; a deeper one is refused with `TopicFilterInvalid` (0x8F).
    pub max_filter_levels: usize,
    /// Levels of a topic name; a deeper one is refused with `TopicNameInvalid` (0x90).
    pub max_topic_levels: usize,
    /// Messages that may wait for one session.
    pub queue_limit_messages: usize,
    /// Bytes that may wait for one session: payload, topic and 64 for each message.
    pub queue_limit_bytes: usize,
    /// Which QoS 1 and 2 messages go when there are more and none with QoS 0, which always go first: those that have waited longest,
    /// or the one that finds no room. The standard leaves the choice.
    pub queue_drops_oldest: bool,
    /// Bytes that may be held for all sessions and connections together: queues, messages that are not acknowledged, 256 more for
    /// each of them, and the memory of outboxes. One session may hold as much as is still free.
    pub total_limit_bytes: usize,
    /// Whether QoS 0 messages wait for sessions without a connection. The standard allows both; usual is not.
    pub queue_qos0_offline: bool,
    /// Bytes in a connection's outbox above which messages wait in the session's queue instead. With 256 KiB more of
    /// acknowledgements its packets are no longer read.
    pub outbox_high_water: usize,
}

impl Default for BrokerConfig {
    fn default() -> Self {
        Self {
            max_packet_bytes: 1024 * 1024,
            connect_timeout: Duration::from_secs(10),
            auth_timeout: Duration::from_mins(1),
            resume_timeout: Duration::from_secs(5),
            close_timeout: Duration::from_secs(5),
            max_keep_alive: 0,
            max_session_expiry: u32::MAX,
            receive_maximum: 1024,
            max_inflight: 256,
            topic_alias_maximum: 64,
            max_outgoing_aliases: 64,
            max_subscriptions: 10_000,
            max_filter_levels: 128,
            max_topic_levels: 128,
            queue_limit_messages: 100_000,
            queue_limit_bytes: 64 * 1024 * 1024,
            queue_drops_oldest: false,
            total_limit_bytes: usize::MAX,
            queue_qos0_offline: false,
            outbox_high_water: 1024 * 1024,
        }
    }
}

/// Limits of a [`crate::RetainedStore`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetainedConfig {
    /// Retained messages, tombstones not counted.
    pub max_messages: usize,
    /// Bytes of them: payload, topic and 256 for each message.
    pub max_bytes: usize,
    /// How long a cleared topic is remembered, so that no older value comes back from a node that was away.
    pub tombstones: Duration,
}

impl Default for RetainedConfig {
    fn default() -> Self {
        Self { max_messages: 1_000_000, max_bytes: 256 * 1024 * 1024, tombstones: Duration::from_hours(24) }
    }
}
