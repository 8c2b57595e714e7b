//! The parts of a PUBLISH that differ between the receivers of one message.

use core::num::NonZeroU16;

use smallvec::SmallVec;

use crate::{PacketId, QoS};

/// A topic alias in an outgoing PUBLISH (MQTT 5.0 section 3.3.2.3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicAlias {
    /// Number that stands for the topic on this connection.
    pub alias: NonZeroU16,
    /// Whether the receiver knows the alias already, so that the name stays away.
    pub omit_topic: bool,
}

/// How one message is delivered to one receiver. Alias, subscription ids and expiry exist in MQTT 5.0 only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delivery {
    /// Quality of service of this delivery.
    pub qos: QoS,
    /// Whether this may be a repetition; false for QoS 0.
    pub dup: bool,
    /// Retain flag of this delivery.
    pub retain: bool,
    /// Present exactly when the quality of service is 1 or 2.
    pub packet_id: Option<PacketId>,
    /// Alias for the topic.
    pub topic_alias: Option<TopicAlias>,
    /// Identifiers of the matching subscriptions, each 1 to 268,435,455.
    pub subscription_ids: SmallVec<[u32; 2]>,
    /// Seconds the message still lives (MQTT 5.0 section 3.3.2.3.3).
    pub message_expiry: Option<u32>,
}
