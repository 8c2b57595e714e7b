//! Every limit of a broker in one place.

use std::collections::BTreeMap;
use std::sync::Arc;

use sedge_base::{ClientId, Duration};
use sedge_mqtt::TopicName;

use crate::access::is_inside;
use crate::awaited::Awaits;
use crate::connection::is_owned_topic;
use crate::urgent::DeadlineNames;

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
    /// The same for clients without a user name that somebody vouches for; the shorter of both counts.
    pub max_anonymous_session_expiry: u32,
    /// Bytes of a client id; a longer one is refused with `ClientIdentifierNotValid` (0x85).
    pub max_client_id_bytes: usize,
    /// Sessions of the node; a client that wants one more that outlives its connection is refused with `QuotaExceeded` (0x97).
    pub max_sessions: usize,
    /// Sessions of one user at the node that outlive their connections; a client that wants one more is refused with `QuotaExceeded`
    /// (0x97). 0: any number.
    pub max_sessions_per_user: usize,
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
    /// Bytes of the subscriptions of one client, filters and 256 for each; the next one is refused with `QuotaExceeded` (0x97).
    pub max_subscription_bytes: usize,
    /// The same for all clients of the node, divided among its shards.
    pub max_node_subscription_bytes: usize,
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
    /// The same limits for sessions of parts of the process, by client id, in place of those above.
    pub inside_queues: BTreeMap<Box<str>, QueueLimits>,
    /// Sessions of parts of the process that decide when publishers are acknowledged.
    pub awaits: Arc<[Awaits]>,
    /// Bytes that may be held for all sessions and connections together: queues, messages that are not acknowledged, 256 more for
    /// each of them, and the memory of outboxes. One session may hold as much as is still free.
    pub total_limit_bytes: usize,
    /// Whether QoS 0 messages wait for sessions without a connection. The standard allows both; usual is not.
    pub queue_qos0_offline: bool,
    /// How publishers say until when a message is of use; `None`: waiting messages leave in their order.
    pub deadlines: Option<Arc<DeadlineNames>>,
    /// Whether the broker keeps births of Sparkplug edge nodes.
    pub births: Births,
    /// Whether somebody else delivers what clients publish to the ordinary subscriptions here, a foreign broker behind this node: see
    /// [`crate::Broker::receivers`].
    pub delivers_elsewhere: bool,
    /// Bytes in a connection's outbox above which messages wait in the session's queue instead. With 256 KiB more of
    /// acknowledgements its packets are no longer read.
    pub outbox_high_water: usize,
}

/// How the broker treats births of Sparkplug edge nodes and devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Births {
    /// They are messages as others are.
    #[default]
    Pass,
    /// They are also kept as retained messages below `$sparkplug/certificates/`, where then nobody else publishes.
    Keep,
}

/// How many messages and bytes may wait for one session, and which of them the broker drops when there are more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// See [`BrokerConfig::queue_limit_messages`].
    pub messages: usize,
    /// See [`BrokerConfig::queue_limit_bytes`].
    pub bytes: usize,
    /// See [`BrokerConfig::queue_drops_oldest`].
    pub drops_oldest: bool,
    /// Whether QoS 1 and 2 messages beyond the limit are taken all the same, as far as all sessions together may hold them: a client that publishes
    /// more is refused as soon as the owner says so with [`crate::Input::ClosedTopics`].
    pub refuses: bool,
}

impl BrokerConfig {
    /// Whether a topic belongs to the broker: clients do not publish there.
    pub(crate) fn owns(&self, topic: &TopicName) -> bool {
        is_owned_topic(topic) || self.births == Births::Keep && topic.as_bytes().starts_with(b"$sparkplug/")
    }

    /// The queue limits of the session of this client: those of its bridge or rule, or else those of all.
    pub(crate) fn queue_limits(&self, client: Option<&ClientId>) -> QueueLimits {
        let inside = || self.inside_queues.get(client.filter(|client| is_inside(client))?.as_str()).copied();
        let of_own = if self.inside_queues.is_empty() { None } else { inside() };
        of_own.unwrap_or(QueueLimits {
            messages: self.queue_limit_messages,
            bytes: self.queue_limit_bytes,
            drops_oldest: self.queue_drops_oldest,
            refuses: false,
        })
    }
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
            max_anonymous_session_expiry: u32::MAX,
            max_client_id_bytes: 1024,
            max_sessions: 1_000_000,
            max_sessions_per_user: 0,
            receive_maximum: 1024,
            max_inflight: 256,
            topic_alias_maximum: 64,
            max_outgoing_aliases: 64,
            max_subscriptions: 10_000,
            max_subscription_bytes: 4 * 1024 * 1024,
            max_node_subscription_bytes: 256 * 1024 * 1024,
            max_filter_levels: 128,
            max_topic_levels: 128,
            queue_limit_messages: 100_000,
            queue_limit_bytes: 64 * 1024 * 1024,
            queue_drops_oldest: false,
            inside_queues: BTreeMap::new(),
            awaits: Arc::default(),
            total_limit_bytes: usize::MAX,
            queue_qos0_offline: false,
            deadlines: None,
            births: Births::Pass,
            delivers_elsewhere: false,
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
    /// How long it is remembered once all nodes agree; at most as long as that.
    pub agreed_tombstones: Duration,
}

impl Default for RetainedConfig {
    fn default() -> Self {
        Self {
            max_messages: 1_000_000,
            max_bytes: 256 * 1024 * 1024,
            tombstones: Duration::from_hours(24),
            agreed_tombstones: Duration::from_mins(10),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MQ-18
    #[test]
    fn parts_of_the_process_have_queues_of_their_own() {
        let own = QueueLimits { messages: 7, bytes: 70, drops_oldest: true, refuses: false };
        let inside_queues = BTreeMap::from([("$bridge/a".into(), own)]);
        let config = BrokerConfig { inside_queues, ..BrokerConfig::default() };
        let limits = |client: &str| config.queue_limits(Some(&ClientId::new(client)));
        assert_eq!(limits("$bridge/a"), own);
        for other in ["$bridge/b", "a"] {
            assert_eq!(limits(other).messages, config.queue_limit_messages);
        }
    }
}
