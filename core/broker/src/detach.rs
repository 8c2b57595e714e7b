//! Copies of messages that pin no read buffer.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use sedge_mqtt::{Message, TopicName, Utf8};

/// Messages with a smaller payload than this are copied by [`detach`]; larger ones fill most of their buffer anyway.
pub const DETACH_BELOW_BYTES: usize = 16 * 1024;

/// `message` for keeping long: topic, payload and properties are slices of the buffer they were read into, which may be much
/// larger and would stay alive with them. A message with a payload of 16 KiB or more is returned as it is.
#[must_use]
pub fn detach(message: &Arc<Message>) -> Arc<Message> {
    if message.payload.len() >= DETACH_BELOW_BYTES {
        return Arc::clone(message);
    }
    let topic = message.topic.as_bytes();
    let mut buffer = BytesMut::with_capacity(topic.len() + message.payload.len());
    buffer.extend_from_slice(topic);
    buffer.extend_from_slice(&message.payload);
    let mut payload = buffer.freeze();
    let topic = shared_topic(payload.split_to(topic.len()), &message.topic);
    let properties = message.properties.as_deref().map(|properties| Box::new(properties.detached()));
    Arc::new(Message { topic, payload, properties, publisher: message.publisher.clone(), ..**message })
}

/// The topic in the buffer of the payload: one allocation for both.
fn shared_topic(text: Bytes, topic: &TopicName) -> TopicName {
    let shared = Utf8::from_bytes(text).ok().and_then(|text| TopicName::try_from(text).ok());
    shared.unwrap_or_else(|| topic.detached())
}
