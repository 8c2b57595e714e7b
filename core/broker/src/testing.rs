//! Values for unit tests.

use bytes::Bytes;
use sedge_base::{Incarnation, NodeId, ShardId};
use sedge_mqtt::{Message, MessageId, QoS, ReadAt, Stamp, TopicName};

/// A QoS 0 message with everything else at its first value.
pub(crate) fn message(topic: &str, payload: &str) -> Message {
    let (node, shard) = (NodeId::new(1), ShardId(0));
    Message {
        id: MessageId { node, incarnation: Incarnation::new(1), shard, seq: 1 },
        topic: TopicName::new(topic).unwrap(),
        payload: Bytes::copy_from_slice(payload.as_bytes()),
        qos: QoS::AtMostOnce,
        retain: false,
        properties: None,
        stamp: Stamp { millis: 1, counter: 0, node, shard },
        expires_at: None,
        publisher: None,
        read_at: ReadAt::default(),
    }
}
