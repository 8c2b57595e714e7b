//! SUBSCRIBE, SUBACK, UNSUBSCRIBE and UNSUBACK.

use super::{PacketId, QoS, UserProperties};
use crate::{ReasonCode, TopicFilter, Utf8};

/// Handling of retained messages at the time of a SUBSCRIBE (MQTT 5.0 section 3.8.3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum RetainHandling {
    /// Retained messages are sent, as 3.1.1 always does.
    #[default]
    Send = 0,
    /// Retained messages are sent only if the subscription did not exist.
    SendIfNew = 1,
    /// Retained messages are not sent.
    DoNotSend = 2,
}

/// Options of one subscription (MQTT 5.0 section 3.8.3.1). 3.1.1 has only the quality of service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubscriptionOptions {
    /// Highest quality of service of the deliveries.
    pub qos: QoS,
    /// Do not deliver messages that the same client published.
    pub no_local: bool,
    /// Deliver the retain flag as the publisher set it.
    pub retain_as_published: bool,
    /// Handling of retained messages.
    pub retain_handling: RetainHandling,
}

/// One filter of a SUBSCRIBE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubscriptionRequest {
    /// Topic filter, `$share/group/filter` included.
    pub filter: TopicFilter,
    /// Options.
    pub options: SubscriptionOptions,
}

/// SUBSCRIBE (MQTT 5.0 section 3.8).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscribe {
    /// Packet identifier.
    pub packet_id: PacketId,
    /// At least one request.
    pub requests: Vec<SubscriptionRequest>,
    /// Identifier to be sent with what matches, 1 to 268,435,455.
    pub subscription_id: Option<u32>,
    /// User properties.
    pub user: UserProperties,
}

/// SUBACK (MQTT 5.0 section 3.9): one reason code for each request. In 3.1.1 every failure is 0x80 on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubAck {
    /// Packet identifier of the SUBSCRIBE.
    pub packet_id: PacketId,
    /// A granted quality of service or a failure for each request, in order.
    pub reasons: Vec<ReasonCode>,
    /// Words for a person reading a log.
    pub reason_string: Option<Utf8>,
    /// User properties.
    pub user: UserProperties,
}

/// UNSUBSCRIBE (MQTT 5.0 section 3.10).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsubscribe {
    /// Packet identifier.
    pub packet_id: PacketId,
    /// At least one filter.
    pub filters: Vec<TopicFilter>,
    /// User properties.
    pub user: UserProperties,
}

/// UNSUBACK (MQTT 5.0 section 3.11). In 3.1.1 the reason codes stay away from the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsubAck {
    /// Packet identifier of the UNSUBSCRIBE.
    pub packet_id: PacketId,
    /// Outcome for each filter, in order.
    pub reasons: Vec<ReasonCode>,
    /// Words for a person reading a log.
    pub reason_string: Option<Utf8>,
    /// User properties.
    pub user: UserProperties,
}
