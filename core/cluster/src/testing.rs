//! Helpers for tests of several modules.

use std::sync::Arc;

use sedge_mqtt::{Message, MessageId, QoS, ReadAt, Stamp, TopicName};

/// A publication on the topic `t` with one byte.
pub(crate) fn message(id: MessageId, qos: QoS) -> Arc<Message> {
    Arc::new(Message {
        id,
        topic: TopicName::new("t").unwrap(),
        payload: b"x".as_slice().into(),
        qos,
        retain: false,
        properties: None,
        stamp: Stamp { millis: 1, counter: 0, node: id.node, shard: id.shard },
        expires_at: None,
        publisher: None,
        read_at: ReadAt::default(),
    })
}
