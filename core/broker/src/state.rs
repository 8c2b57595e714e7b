//! A session as plain data, to be carried to another shard or node.

use std::sync::Arc;

use sedge_base::{ClientId, Duration, Timestamp};
use sedge_mqtt::{Message, PacketId, QoS, ReasonCode, SubscriptionOptions, TopicFilter, Version, Will};

/// Everything the standard calls session state (MQTT 5.0 section 4.1), and the will.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionState {
    /// The client.
    pub client: ClientId,
    /// The ownership under which the session was held.
    pub epoch: u64,
    /// Protocol version of its last connection.
    pub version: Version,
    /// Seconds the session outlives its connection; `u32::MAX`: for ever.
    pub expiry_secs: u32,
    /// When it lost its connection.
    pub disconnected_at: Timestamp,
    /// Its subscriptions.
    pub subscriptions: Vec<SubscriptionState>,
    /// QoS 1 and 2 messages on their way to the client, in the order they were sent first.
    pub inflight: Vec<InflightState>,
    /// Messages that were not sent yet, oldest first.
    pub queue: Vec<QueuedState>,
    /// QoS 2 publications of the client that wait for PUBREC or PUBREL.
    pub inbound: Vec<InboundState>,
    /// A will that is not published and not cancelled.
    pub will: Option<WillState>,
}

/// A subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubscriptionState {
    /// The whole filter, `$share/group/` included.
    pub filter: TopicFilter,
    /// Its options.
    pub options: SubscriptionOptions,
    /// Its identifier.
    pub id: Option<u32>,
}

/// A message for the client with what its delivery adds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedState {
    /// The message.
    pub message: Arc<Message>,
    /// Quality of service of this delivery.
    pub qos: QoS,
    /// Retain flag of this delivery.
    pub retain: bool,
    /// Identifiers of the subscriptions that matched.
    pub subscription_ids: Vec<u32>,
    /// The shared subscription (whole filter) it was chosen by.
    pub group: Option<TopicFilter>,
}

/// How far an outgoing QoS 1 or 2 message has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InflightPhase {
    /// PUBLISH was sent; PUBACK or PUBREC is missing.
    Sent(QueuedState),
    /// PUBREC came and PUBREL was sent; PUBCOMP is missing. The message itself is no longer needed.
    Released,
}

/// An outgoing QoS 1 or 2 message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InflightState {
    /// Its packet identifier.
    pub packet_id: PacketId,
    /// How far it has come.
    pub phase: InflightPhase,
}

/// A QoS 2 publication of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InboundState {
    /// Its packet identifier.
    pub packet_id: PacketId,
    /// Reason code that its PUBREC carried or will carry; `None`: the former owner did not learn it, the publication was on its way.
    pub answer: Option<ReasonCode>,
}

/// A will that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WillState {
    /// The will.
    pub will: Box<Will>,
    /// How long it still waits.
    pub remaining: Duration,
}
