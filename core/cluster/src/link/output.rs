//! Orders of the links to their owner.

use core::net::SocketAddr;

use sedge_base::NodeId;

use super::{Frame, FrameSeq, Hello, Lost};
use crate::{LinkId, NodeEvent};

/// See [`crate::link::Links::poll_output`].
#[derive(Debug, PartialEq, Eq)]
pub enum Output {
    /// Connect; answer with [`crate::link::Links::dialled`] or [`crate::link::Links::closed`].
    Dial {
        /// Number of the link to be; below [`LinkId::ACCEPTED`].
        link: LinkId,
        /// Where to.
        to: SocketAddr,
    },
    /// The link's outbox holds something to write. Said once until it was looked at with [`crate::link::Links::outbox`].
    Transmit {
        /// Which link.
        link: LinkId,
    },
    /// Close the link once its outbox is written, give up after a moment if it cannot be; also if it is still being dialled.
    /// No more events for it are expected but [`crate::link::Links::written`].
    Close {
        /// Which link.
        link: LinkId,
    },
    /// A neighbour is linked. Up and Down of one node alternate.
    Up {
        /// The neighbour.
        peer: Hello,
        /// Whether both sides go on where they were when the link was lost: no frame was lost or repeated. If not, the
        /// neighbour knows nothing of before and needs everything anew.
        resumed: bool,
        /// The frames that were lost. The link sends all others that were not acknowledged, in order.
        lost: Lost,
    },
    /// The link to a neighbour is gone. Its frames are kept for the next link until the owner forgets the neighbour.
    Down {
        /// The neighbour.
        node: NodeId,
        /// Why, in words.
        reason: String,
        /// Whether that is only because nothing has come for too long: no evidence that its process has ended.
        silent: bool,
    },
    /// Nobody listens where a node was dialled, as its host says.
    Refused {
        /// The node that was dialled.
        node: NodeId,
    },
    /// A frame, exactly once and in order between the same lives of two nodes.
    Frame {
        /// The neighbour that sent the frame.
        from: NodeId,
        /// Number of the frame, for [`crate::link::Links::limit_acks`].
        number: u64,
        /// The frame.
        frame: Frame,
    },
    /// The neighbour is done with all frames up to this one.
    Acked {
        /// The neighbour.
        node: NodeId,
        /// Number of the last frame taken.
        up_to: FrameSeq,
    },
    /// The round trip to a neighbour was measured.
    RoundTrip {
        /// The neighbour.
        node: NodeId,
        /// Microseconds, smoothed.
        micros: u32,
    },
    /// A line for the log.
    Event(NodeEvent),
}

/// Why a frame was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The node is neither wanted nor linked.
    #[error("there is no channel to this node")]
    NoChannel,
    /// The neighbour has too many bytes to acknowledge ([`crate::link::LinkConfig::send_log_bytes`]).
    #[error("the channel to this node is full")]
    Full,
    /// The frame is larger than [`crate::link::LinkConfig::max_packet_bytes`].
    #[error("the frame is larger than a link carries")]
    TooLarge,
}
