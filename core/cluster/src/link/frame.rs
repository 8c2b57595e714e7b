//! Frames: the units that travel over a link.

use std::sync::Arc;

use bytes::Bytes;
use sedge_base::{Incarnation, NodeId};
use sedge_mqtt::{Message, TopicFilter};
use smallvec::SmallVec;

/// Number of a frame among those given to [`crate::link::Links::send`] for one neighbour; ascends by one, from 1, as long as the
/// neighbour is not forgotten. It goes on ascending when the neighbour starts anew, so that it never means two frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameSeq(pub u64);

/// One unit of what nodes tell each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// An application message on its way to subscribers.
    Publication(Publication),
    /// Mail of one of the mechanisms of the node.
    Control {
        /// Which mechanism.
        topic: ControlTopic,
        /// Content of the mail; opaque to the link.
        payload: Bytes,
    },
}

/// An application message and what the receiver has to do with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publication {
    /// The message. Arrives equal, but that empty properties are `None`.
    pub message: Arc<Message>,
    /// Whether to deliver it to ordinary subscriptions.
    pub plain: bool,
    /// The shared subscriptions of which one member at the receiver has to take it.
    pub groups: SmallVec<[TopicFilter; 1]>,
    /// Whether it is for the retained store of every node.
    pub retained_copy: bool,
    /// Where else than to the receiver it goes, or that it may have come over others (`docs/adr/0010-relayed-publications.md`).
    pub waybill: Option<Box<Waybill>>,
}

/// The nodes that a publication is for, as far as they are reached over the receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waybill {
    /// The node that gave the numbers and keeps the publication until it has arrived.
    pub sender: NodeId,
    /// Which life of it.
    pub incarnation: Incarnation,
    /// How often it may be passed on before it goes straight to its destinations.
    pub hops: u8,
    /// Its destinations; at least one, at most [`Waybill::MAX_ENDS`].
    pub ends: SmallVec<[End; 4]>,
}

impl Waybill {
    /// Destinations in one frame, so that they fit into an MQTT string. More take several frames.
    pub const MAX_ENDS: usize = 1000;
}

/// A destination and the place of the publication in its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// The destination.
    pub node: NodeId,
    /// Number in the stream, from 1; with QoS 0 that of the last publication with more.
    pub number: u64,
    /// 0 if the number is its own, else how many with QoS 0 have followed that number, this one included.
    pub behind: u64,
}

/// Mechanism that a control frame belongs to: the topic `$sedge/<name>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ControlTopic {
    /// Cooperation algorithm (signals of `core/overlay`).
    Overlay,
    /// Session directory.
    Directory,
    /// Sessions on their way between nodes.
    Session,
    /// Retained messages: anti-entropy.
    Retained,
    /// The node itself.
    Node,
    /// Copies of sessions at other nodes.
    Replica,
    /// Acknowledgement of publications that came over other nodes.
    Relay,
    /// Links between two other nodes, or to one that is not reached directly; the link itself takes it.
    Carry,
}

impl ControlTopic {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Overlay,
        Self::Directory,
        Self::Session,
        Self::Retained,
        Self::Node,
        Self::Replica,
        Self::Relay,
        Self::Carry,
    ];

    /// Whether a receiver relies on having all earlier publications that it may want. Ownership of a session is told over a third node, to
    /// which neither publisher nor subscriber belongs; and a copy of a session holds its messages itself.
    pub(crate) const fn rests_on_publications(self) -> bool {
        !matches!(self, Self::Directory | Self::Replica)
    }

    /// The topic on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Overlay => "$sedge/overlay",
            Self::Directory => "$sedge/directory",
            Self::Session => "$sedge/session",
            Self::Retained => "$sedge/retained",
            Self::Node => "$sedge/node",
            Self::Replica => "$sedge/replica",
            Self::Relay => "$sedge/relay",
            Self::Carry => "$sedge/carry",
        }
    }

    /// The mechanism of a topic on the wire.
    pub(super) fn from_bytes(topic: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.as_str().as_bytes() == topic)
    }
}
