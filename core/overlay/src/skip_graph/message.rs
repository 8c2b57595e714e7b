//! Messages between nodes of the graph.

use super::{Key, Note, Peer, Side, Status};

/// Task to be done where a key belongs: see [`Message::Route`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Errand<T> {
    /// Let this virtual node join beside you.
    Join(Peer<T>),
    /// Here is a virtual node that is in a list already; you should know each other.
    Meet(Peer<T>),
    /// A publisher of the topic is suspended although its neighbour is not, or has the wrong status in another way.
    Report(T),
}

/// A message from one node to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message<T> {
    /// On its way to the last virtual node before `target`, or to the first of all if none is before it.
    Route {
        /// The virtual node that is to pass it on, in the table of the sender.
        to: Option<Key<T>>,
        /// Where to.
        target: Key<T>,
        /// How often it was passed on.
        hops: u16,
        /// The purpose.
        errand: Errand<T>,
    },
    /// The virtual node `to` is in the list, between these two.
    Joined {
        /// The virtual node that joined.
        to: Key<T>,
        /// Its left neighbour; none if it is the first.
        left: Option<Peer<T>>,
        /// Its right neighbour; none if it is the last.
        right: Option<Peer<T>>,
        /// Status of the topic that the sender knows, if both publish to the topic (SG-12).
        status: Option<Status>,
    },
    /// A new virtual node presents itself, from level to level.
    Walk {
        /// The virtual node that is met.
        to: Key<T>,
        /// The new one.
        peer: Peer<T>,
        /// The direction in which the new virtual node goes.
        side: Side,
    },
    /// I take you for my neighbour from this level on.
    Link {
        /// The neighbour.
        to: Key<T>,
        /// The sender.
        peer: Peer<T>,
        /// The lowest such level.
        level: u32,
    },
    /// You are in my table, or I am answering your [`Message::Link`].
    Linked {
        /// The receiver.
        to: Key<T>,
        /// The sender.
        peer: Peer<T>,
        /// A virtual node that you may want for a neighbour, too.
        hint: Option<Peer<T>>,
        /// Status of the topic that the sender knows, if both publish to the topic.
        status: Option<Status>,
    },
    /// Let this virtual node, your right neighbour, go.
    Leave {
        /// The receiver.
        to: Key<T>,
        /// The virtual node that leaves.
        key: Key<T>,
        /// In which life.
        life: u64,
        /// The virtual node behind it.
        right: Option<Peer<T>>,
        /// How often it was passed on.
        hops: u16,
    },
    /// You are out of the list.
    Left {
        /// The virtual node that has left.
        to: Key<T>,
        /// Its former left neighbour.
        by: Peer<T>,
    },
    /// There is no such virtual node at my node.
    Gone {
        /// Its key.
        key: Key<T>,
        /// The last life that is over.
        life: u64,
        /// The virtual node that takes its place for the receiver.
        instead: Vec<Peer<T>>,
    },
    /// A status for all publishers of a topic, delegated like a publication.
    Cast {
        /// Note with the part of the publishers that the receiver has to see to.
        note: Note<T>,
        /// The topic.
        topic: T,
        /// The status of the topic.
        status: Status,
    },
    /// A status for this publisher alone.
    Order {
        /// The topic.
        topic: T,
        /// Its status.
        status: Status,
    },
    /// A question for the receiver's status.
    Ask {
        /// The publisher that is asked.
        to: Key<T>,
        /// The one that asks.
        from: Key<T>,
    },
    /// Answer to [`Message::Ask`].
    Answer {
        /// The publisher that asked.
        to: Key<T>,
        /// The status of the other.
        status: Status,
    },
    /// You asked me to help you into the list, and I am in none myself.
    Outside,
    /// Are you there?
    Ping,
    /// I am.
    Pong,
}
