//! Inputs and outputs of the membership machine.

use std::net::SocketAddr;

use bytes::Bytes;
use sedge_base::NodeId;

use crate::Member;

/// An event for the machine.
#[derive(Clone, Debug)]
pub enum Input {
    /// A datagram has arrived. Untrusted: bytes that are no datagram of this version are counted and dropped.
    Datagram {
        /// Sender's address, as the socket says.
        from: SocketAddr,
        /// Its content; longer than [`crate::Config::max_packet`] is dropped.
        bytes: Bytes,
    },
    /// The addresses at which there may be nodes, all that are known at this time: they take the place of [`crate::Config::seeds`]
    /// and of those given before. May include this node's own.
    Seeds(Vec<SocketAddr>),
    /// There is evidence that this member is dead (its link closed): probe it at once, directly and through others. If no
    /// life sign comes within [`crate::Config::confirm_timeout`], it is declared dead.
    Suspect {
        /// The member. Unknown and dead ones are ignored.
        node: NodeId,
    },
    /// The host of this member refuses connections to it: nobody listens there. As [`Input::Suspect`], but
    /// [`crate::Config::refused_timeout`] is long enough for a life sign.
    Refused {
        /// The member. Unknown and dead ones are ignored.
        node: NodeId,
    },
    /// Probe this member, directly and through others, without any consequence: [`crate::Membership::last_sign`] tells whether it has
    /// answered.
    Probe {
        /// The member. Unknown and dead ones are ignored.
        node: NodeId,
    },
    /// Ask whoever listens at this address to take this node in, once.
    Call {
        /// UDP address.
        to: SocketAddr,
    },
    /// Tell everyone that this node leaves. Nothing but the farewell datagrams comes out afterwards.
    Leave,
}

/// Something that the owner has to do or know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send this datagram; it may get lost.
    Datagram {
        /// UDP address.
        to: SocketAddr,
        /// At most [`crate::Config::max_packet`] bytes.
        bytes: Bytes,
    },
    /// A node is a member now. Never given twice for one node without [`Output::Down`] in between.
    Up(Member),
    /// A node is no member any more.
    Down {
        /// As it was last known.
        member: Member,
        /// Why.
        cause: DownCause,
    },
    /// A member lives on, in the same incarnation, under other addresses.
    Moved(Member),
    /// The cluster had declared this node dead although it lives; it is back under this renewed identity. The others may have
    /// forgotten all that they knew of it.
    Rejoined(Member),
    /// Another process runs with the id of this node, and other addresses.
    SameId {
        /// Its UDP address.
        at: SocketAddr,
    },
    /// The cluster refuses this node's identity again and again: another process runs with the same node id, or this one
    /// started with an incarnation that is not above that of its earlier life. Given once until a rejoin succeeds.
    Outranked,
}

/// Why a node is no member any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DownCause {
    /// It said so itself.
    Left,
    /// It did not answer anyone.
    Dead,
    /// A later life of the same node took its place; [`Output::Up`] follows.
    Restarted,
}
