//! The part of a broker's state that outlives the process, as a sequence of small changes.
//!
//! With a journal the broker makes a [`Record`] of every change of a session that outlives its connection, and of a will. [`Image`] plays records
//! back; [`crate::Broker::restore`] takes the state they lead to. Records of one turn belong together: nobody has seen a state in between.
//!
//! The log would grow for ever: [`crate::Broker::checkpoint`] writes everything that is alive once more, a little at a time. When the checkpoint is
//! done, records before its beginning are not needed.

mod image;
mod notes;
mod restore;
mod writer;

use std::sync::Arc;

use sedge_base::{ClientId, Timestamp};
use sedge_mqtt::{Message, MessageId, PacketId, QoS, ReasonCode, TopicFilter, Version, Will};

pub use image::{Image, RestoredSession};
pub(crate) use notes::kept;
pub(crate) use writer::{Journal, Origin};

use crate::SubscriptionState;

/// Names a session in the journal; never used twice in one journal.
pub type SessionNumber = u64;

/// A message that waits for a session, or is on its way to it; its content has a record of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedRecord {
    /// Which message.
    pub message: MessageId,
    /// Quality of service of this delivery; not 0.
    pub qos: QoS,
    /// Retain flag of this delivery.
    pub retain: bool,
    /// Identifiers of the subscriptions that matched.
    pub subscription_ids: Vec<u32>,
    /// The shared subscription (whole filter) it was chosen by.
    pub group: Option<TopicFilter>,
}

/// The facts of a session beside its subscriptions and messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionFacts {
    /// The ownership under which it is held.
    pub epoch: u64,
    /// Protocol version of its last connection.
    pub version: Version,
    /// Seconds it outlives its connection; `u32::MAX`: for ever.
    pub expiry_secs: u32,
    /// When it lost its connection; `None`: it has one.
    pub disconnected_at: Option<Timestamp>,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// The content of a message, before anything refers to it.
    Message(Arc<Message>),
    /// A session begins, without anything. Whatever there was of this number or client is gone.
    Begin {
        /// Its number.
        session: SessionNumber,
        /// The session's client.
        client: ClientId,
    },
    /// The client came or went, or the ownership changed.
    Facts {
        /// Which session.
        session: SessionNumber,
        /// The facts.
        facts: SessionFacts,
    },
    /// The session has this will, or none any more. The time is when it is due; `None`: the client is connected.
    Will {
        /// Which session.
        session: SessionNumber,
        /// The will.
        will: Option<(Box<Will>, Option<Timestamp>)>,
    },
    /// A subscription is new, or replaces one of the same filter.
    Subscribed {
        /// Which session.
        session: SessionNumber,
        /// The subscription.
        subscription: SubscriptionState,
    },
    /// A subscription is gone.
    Unsubscribed {
        /// Which session.
        session: SessionNumber,
        /// Its filter.
        filter: TopicFilter,
    },
    /// A message waits behind the others.
    Queued {
        /// Which session.
        session: SessionNumber,
        /// The message.
        item: QueuedRecord,
    },
    /// A message that did not wait is sent.
    Sent {
        /// Which session.
        session: SessionNumber,
        /// Packet identifier of the PUBLISH.
        packet_id: PacketId,
        /// The message.
        item: QueuedRecord,
    },
    /// A message that waited is sent.
    SentQueued {
        /// Which session.
        session: SessionNumber,
        /// Packet identifier of the PUBLISH.
        packet_id: PacketId,
        /// Which message.
        message: MessageId,
    },
    /// A message that waited will not be sent.
    Dropped {
        /// Which session.
        session: SessionNumber,
        /// Which message.
        message: MessageId,
    },
    /// PUBREC came.
    Released {
        /// Which session.
        session: SessionNumber,
        /// Which flow.
        packet_id: PacketId,
    },
    /// PUBACK or PUBCOMP came, or the flow ended otherwise.
    Completed {
        /// Which session.
        session: SessionNumber,
        /// Which flow.
        packet_id: PacketId,
    },
    /// The client published with QoS 2.
    Received {
        /// Which session.
        session: SessionNumber,
        /// Packet identifier of its PUBLISH.
        packet_id: PacketId,
        /// Reason code of the PUBREC, if it is known, ...
        answer: Option<ReasonCode>,
        /// ... else the message on its way to the receivers.
        message: Option<MessageId>,
    },
    /// The reason code of the PUBREC is known.
    Answered {
        /// Which session.
        session: SessionNumber,
        /// Which publication.
        packet_id: PacketId,
        /// Reason code of the PUBREC.
        answer: ReasonCode,
    },
    /// PUBREL came: the packet identifier is free.
    Forgotten {
        /// Which session.
        session: SessionNumber,
        /// Which publication.
        packet_id: PacketId,
    },
    /// The session is gone.
    Ended {
        /// Which session.
        session: SessionNumber,
    },
    /// A checkpoint is complete, or the journal is new: records before the checkpoint's beginning mean nothing.
    Checkpointed,
}
