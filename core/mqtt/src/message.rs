//! An application message on its way through the cluster.

use bytes::Bytes;
use sedge_base::{ClientId, Incarnation, Instant, NodeId, ShardId, Timestamp};

use crate::{PublishProperties, QoS, TopicName};

/// Names one publication in the whole cluster and for all time (DESIGN section 5; FT-17): origin, life of the origin, number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId {
    /// Node where the publication entered.
    pub node: NodeId,
    /// Life of that node.
    pub incarnation: Incarnation,
    /// Shard of that node where it entered. Numbers ascend per shard.
    pub shard: ShardId,
    /// Ascending number.
    pub seq: u64,
}

/// When a retained value was set: hybrid logical clock, compared field by field; the greatest wins (DESIGN section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp {
    /// Wall-clock milliseconds, never behind any stamp seen before.
    pub millis: u64,
    /// Counts events of one millisecond.
    pub counter: u32,
    /// Breaks ties between nodes.
    pub node: NodeId,
    /// Breaks ties between shards of a node.
    pub shard: ShardId,
}

/// When this node has read a publication from a client, by its own clock. It is for measuring only, and no part of what a message is: all are
/// equal, and none is written down or told to other nodes.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadAt(Instant);

impl ReadAt {
    /// At this moment.
    pub const fn at(now: Instant) -> Self {
        Self(now)
    }

    /// The moment, if it is known.
    pub fn get(self) -> Option<Instant> {
        (self.0 != Instant::ZERO).then_some(self.0)
    }
}

impl PartialEq for ReadAt {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for ReadAt {}

/// An application message as the publisher meant it, shared by all its deliveries (`Arc<Message>`); the parts that differ between
/// receivers (packet id, granted QoS, retain flag, subscription ids, DUP) are added at delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Name of this publication.
    pub id: MessageId,
    /// Where it goes; never empty, no wildcard.
    pub topic: TopicName,
    /// Payload as received.
    pub payload: Bytes,
    /// Quality of service it was published with.
    pub qos: QoS,
    /// Whether the publisher asked to retain it.
    pub retain: bool,
    /// MQTT 5.0 properties without topic alias, subscription ids and message expiry.
    pub properties: Option<Box<PublishProperties>>,
    /// Wall-clock time of entry; with `retain` set its stamp decides between values.
    pub stamp: Stamp,
    /// When the message ceases to be of use (message expiry interval).
    pub expires_at: Option<Timestamp>,
    /// Client that published the message; for No Local.
    pub publisher: Option<ClientId>,
    /// When this node has read the message.
    pub read_at: ReadAt,
}

impl Message {
    /// A copy that shares no buffer with anything: for what is kept long, like retained messages and queues of absent
    /// clients, so that a small message does not keep a large read buffer alive.
    #[must_use]
    pub fn detached(&self) -> Self {
        Self {
            topic: self.topic.detached(),
            payload: Bytes::copy_from_slice(&self.payload),
            properties: self.properties.as_ref().map(|properties| Box::new(properties.detached())),
            publisher: self.publisher.clone(),
            ..*self
        }
    }
}
