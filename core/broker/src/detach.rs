//! Copies of messages that pin no read buffer.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use sedge_mqtt::{Message, TopicName, Utf8};

use crate::chunks::Chunks;

/// Messages with a smaller payload than this are copied by [`detach`]; larger ones fill most of their buffer anyway.
pub const DETACH_BELOW_BYTES: usize = 16 * 1024;

/// `message` for keeping long: topic, payload and properties are slices of the buffer they were read into, which may be much
/// larger and would stay alive with them. A message with a payload of 16 KiB or more is returned as it is.
#[must_use]
pub fn detach(message: &Arc<Message>) -> Arc<Message> {
    if message.payload.len() >= DETACH_BELOW_BYTES {
        return Arc::clone(message);
    }
    let (topic, payload) = content(message);
    let properties = message.properties.as_deref().map(|properties| Box::new(properties.detached()));
    Arc::new(Message { topic, payload, properties, publisher: message.publisher.clone(), ..**message })
}

/// As [`detach`], in a buffer with others if there is one.
pub(crate) fn detach_among(message: &Arc<Message>, chunks: &mut Chunks) -> Arc<Message> {
    if message.properties.is_none()
        && let Some((topic, payload)) = chunks.content(&message.topic, &message.payload)
    {
        return Arc::new(Message {
            topic,
            payload,
            properties: None,
            publisher: message.publisher.clone(),
            ..**message
        });
    }
    detach(message)
}

/// As [`detach`]; a message that nobody else has is changed where it is.
pub(crate) fn detach_own(mut message: Arc<Message>) -> Arc<Message> {
    let Some(own) = Arc::get_mut(&mut message).filter(|own| own.payload.len() < DETACH_BELOW_BYTES) else {
        return detach(&message);
    };
    (own.topic, own.payload) = content(own);
    own.properties = own.properties.take().map(|properties| Box::new(properties.detached()));
    message
}

/// Copies of topic and payload, in one buffer.
fn content(message: &Message) -> (TopicName, Bytes) {
    let topic = message.topic.as_bytes();
    let mut buffer = BytesMut::with_capacity(topic.len() + message.payload.len());
    buffer.extend_from_slice(topic);
    buffer.extend_from_slice(&message.payload);
    let mut payload = buffer.freeze();
    let topic = shared_topic(payload.split_to(topic.len()), &message.topic);
    (topic, payload)
}

/// The topic in the buffer of the payload: one allocation for both.
pub(crate) fn shared_topic(text: Bytes, topic: &TopicName) -> TopicName {
    let shared = Utf8::from_bytes(text).ok().and_then(|text| TopicName::try_from(text).ok());
    shared.unwrap_or_else(|| topic.detached())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::message;

    #[test]
    fn a_message_of_ones_own_is_changed_where_it_is_and_equals_a_copy() {
        let read = Bytes::from_static(b"a/bxyz");
        let mut inner = message("a/b", "xyz");
        inner.payload = read.slice(3..);
        let shared = Arc::new(inner.clone());
        let copy = detach(&shared);
        assert_eq!((copy.payload.as_ptr() == shared.payload.as_ptr(), &*copy), (false, &inner));
        let kept = Arc::clone(&shared);
        assert!(!Arc::ptr_eq(&detach_own(shared), &kept), "somebody else has it");
        let place = Arc::as_ptr(&kept);
        let own = detach_own(kept);
        assert_eq!((Arc::as_ptr(&own), &*own), (place, &inner));
        assert_ne!(own.payload.as_ptr(), inner.payload.as_ptr());
        let large = Arc::new(Message { payload: Bytes::from(vec![1; DETACH_BELOW_BYTES]), ..inner });
        let payload = large.payload.as_ptr();
        assert_eq!(detach_own(large).payload.as_ptr(), payload);
    }
}
