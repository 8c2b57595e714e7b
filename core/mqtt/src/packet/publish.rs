//! PUBLISH.

use bytes::Bytes;
use smallvec::SmallVec;

use super::{PacketId, QoS, UserProperties, detached};
use crate::{TopicName, Utf8};

/// PUBLISH (MQTT 5.0 section 3.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publish {
    /// Whether this may be a repetition of an earlier attempt.
    pub dup: bool,
    /// Quality of service.
    pub qos: QoS,
    /// To the server: keep it for later subscribers. From the server: it was kept.
    pub retain: bool,
    /// Where the message goes; `None` where the topic alias stands for a name sent before.
    pub topic: Option<TopicName>,
    /// Present exactly when the quality of service is 1 or 2.
    pub packet_id: Option<PacketId>,
    /// The message itself: a slice of the buffer it was read into.
    pub payload: Bytes,
    /// MQTT 5.0 properties; `None` where there are none, which costs nothing.
    pub properties: Option<Box<PublishProperties>>,
}

/// Properties of PUBLISH (MQTT 5.0 section 3.3.2.3).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublishProperties {
    /// Whether the payload is UTF-8 text.
    pub payload_is_utf8: Option<bool>,
    /// Seconds the message still lives.
    pub message_expiry: Option<u32>,
    /// Number that stands for the topic on this connection; never 0.
    pub topic_alias: Option<u16>,
    /// Topic for a response; never holds a wildcard.
    pub response_topic: Option<Utf8>,
    /// Data to recognise the response by.
    pub correlation_data: Option<Bytes>,
    /// User properties.
    pub user: UserProperties,
    /// Identifiers of the subscriptions that matched; server to client only.
    pub subscription_ids: SmallVec<[u32; 2]>,
    /// MIME type of the payload.
    pub content_type: Option<Utf8>,
}

impl PublishProperties {
    /// A copy that shares no buffer with anything: for what is kept longer than the packet it came in.
    #[must_use]
    pub fn detached(&self) -> Self {
        Self {
            payload_is_utf8: self.payload_is_utf8,
            message_expiry: self.message_expiry,
            topic_alias: self.topic_alias,
            response_topic: self.response_topic.as_ref().map(Utf8::detached),
            correlation_data: self.correlation_data.as_deref().map(Bytes::copy_from_slice),
            user: detached(&self.user),
            subscription_ids: self.subscription_ids.clone(),
            content_type: self.content_type.as_ref().map(Utf8::detached),
        }
    }
}
