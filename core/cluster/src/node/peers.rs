//! State that a node keeps about each node it is, or was, linked to, and large mail on its way there.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use sedge_base::{Incarnation, Instant, NodeId};
use sedge_mqtt::{Message, TopicFilter, Utf8};

use crate::link::{ControlTopic, Frame, FrameSeq, SendError};
use crate::node::Node;
use crate::node::clock::Reading;
#[cfg(doc)]
use crate::wire::NodeMail;
use crate::wire::{RetainedMail, message_len};

/// Bytes of large mail that one neighbour may have to acknowledge: so a joining node does not hold up publications for long.
const IN_FLIGHT_BYTES: usize = 1024 * 1024;
/// Bytes of signals that wait for a link to be resumed.
const HELD_BYTES: usize = 16 * 1024 * 1024;
/// About the size of one piece.
const PIECE_BYTES: usize = 256 * 1024;

/// How the link to a node is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::node) enum Standing {
    /// The overlay does not take the node for a neighbour.
    #[default]
    Stranger,
    /// The link is lost; it may be resumed.
    Lost,
    /// The link stands.
    Up,
}

/// The future of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::node) enum Intent {
    /// It serves.
    #[default]
    Serve,
    /// It is being emptied: it wants no sessions, and no copies of any.
    Leave,
}

/// A node to which a link exists or has existed since membership knows it.
#[derive(Debug, Default)]
pub(in crate::node) struct Peer {
    /// How the link is.
    pub standing: Standing,
    /// From when on a lost link should be back, if the node lives.
    pub missed_at: Option<Instant>,
    /// Signals that wait for the link to be resumed. Should the neighbour begin anew instead, they must not come before what it is
    /// told then.
    held: Vec<Bytes>,
    held_bytes: usize,
    /// Which life of it the link leads to.
    pub incarnation: Option<Incarnation>,
    /// The life before it, if this node has known one.
    pub former: Option<Incarnation>,
    /// The nodes that take its sessions over when it is gone, in order.
    pub backups: Vec<NodeId>,
    /// Whether the overlay has said sync-ok.
    pub overlay_synced: bool,
    /// The members it knew when it last registered its clients.
    pub registered: Option<u64>,
    /// Where clients reach it, as it says.
    pub client_address: Option<Utf8>,
    /// Whether it has sent its retained messages.
    pub retained_done: bool,
    /// Whether it has no room to keep publications, as it says.
    pub is_full: bool,
    /// Topics for which it has none, as it says.
    pub closed_topics: Vec<TopicFilter>,
    /// The wishes of its operator, as the node says.
    pub intent: Intent,
    /// Number of the question that it has not answered since this node began; see [`NodeMail::Hear`].
    pub asked: Option<u64>,
    /// The members that it knows, if it lets clients in.
    pub serving: Option<Vec<NodeId>>,
    /// The readings of its clocks, as the node says.
    pub clock: Option<Reading>,
    /// Large mail that waits.
    bulk: VecDeque<Piece>,
    /// Large mail that is not acknowledged.
    in_flight: VecDeque<(FrameSeq, Piece)>,
    in_flight_bytes: usize,
    /// Of a session whose last piece is not acknowledged, those that are.
    begun: Vec<Piece>,
    /// Retained messages that it lacks.
    push: Option<RetainedPush>,
}

/// A piece of large mail.
#[derive(Clone, Debug)]
struct Piece {
    topic: ControlTopic,
    bytes: Bytes,
    /// Of a session: whether it is the last one.
    ends: bool,
}

impl Piece {
    fn is_session(&self) -> bool {
        self.topic == ControlTopic::Session
    }
}

/// Retained messages on their way to one node.
#[derive(Debug)]
struct RetainedPush {
    buckets: VecDeque<usize>,
    messages: VecDeque<Arc<Message>>,
}

impl Peer {
    /// Whether everything has come from it that a joining node needs (FT-26).
    pub(in crate::node) fn is_synced(&self) -> bool {
        let is_told = self.overlay_synced && self.registered.is_some() && self.retained_done;
        self.is_linked() && is_told && self.asked.is_none()
    }

    /// Whether the overlay takes it for a neighbour.
    pub(in crate::node) fn is_linked(&self) -> bool {
        self.standing != Standing::Stranger
    }

    /// Whether it is being emptied.
    pub(in crate::node) fn is_draining(&self) -> bool {
        self.intent == Intent::Leave
    }

    /// Whether the link stands.
    pub(in crate::node) fn is_up(&self) -> bool {
        self.standing == Standing::Up
    }

    /// The neighbour has taken frames up to this one.
    pub(in crate::node) fn acked(&mut self, up_to: FrameSeq) {
        while self.in_flight.front().is_some_and(|(seq, _)| *seq <= up_to)
            && let Some((_, piece)) = self.in_flight.pop_front()
        {
            self.in_flight_bytes -= piece.bytes.len();
            if piece.is_session() && piece.ends {
                self.begun.clear();
            } else if piece.is_session() {
                self.begun.push(piece);
            }
        }
    }

    /// The link has begun anew, and mail on its way is lost with the former one. Sessions that were given away are nowhere else: they
    /// are sent again.
    pub(in crate::node) fn begin_anew(&mut self) {
        let begun = core::mem::take(&mut self.begun);
        let sent = core::mem::take(&mut self.in_flight).into_iter().map(|(_, piece)| piece);
        let mut bulk: VecDeque<Piece> = begun.into_iter().chain(sent).filter(Piece::is_session).collect();
        bulk.append(&mut self.bulk);
        self.bulk = bulk;
        self.restart();
    }

    /// Whether all large mail has been taken by it.
    pub(in crate::node) fn has_taken_all(&self) -> bool {
        self.bulk.is_empty() && self.in_flight.is_empty()
    }

    /// Adds mail that goes behind other large mail to this node.
    pub(in crate::node) fn push_bulk(&mut self, topic: ControlTopic, bytes: Bytes, ends: bool) {
        self.bulk.push_back(Piece { topic, bytes, ends });
    }

    /// All messages of these buckets are to be sent.
    pub(in crate::node) fn push_retained(&mut self, buckets: impl Iterator<Item = usize>) {
        self.push = Some(RetainedPush { buckets: buckets.collect(), messages: VecDeque::new() });
    }

    /// Keeps a signal until the link is resumed; false if there is too much of it.
    pub(in crate::node) fn hold(&mut self, signal: Bytes) -> bool {
        self.held_bytes += signal.len();
        self.held.push(signal);
        self.held_bytes <= HELD_BYTES
    }

    /// The signals that waited for the link.
    pub(in crate::node) fn take_held(&mut self) -> Vec<Bytes> {
        self.held_bytes = 0;
        core::mem::take(&mut self.held)
    }

    /// Forgets signals that wait, and mail that is on its way: the neighbour begins anew. Large mail that waits is kept.
    pub(in crate::node) fn restart(&mut self) {
        *self = Self { bulk: core::mem::take(&mut self.bulk), former: self.former, ..Self::default() };
    }
}

impl Node {
    /// Sends large mail as far as it may be on its way.
    pub(in crate::node) fn pump(&mut self, to: NodeId) {
        while let Some(piece) = self.next_piece(to) {
            self.fence_off(to);
            let frame = Frame::Control { topic: piece.topic, payload: piece.bytes.clone() };
            let sent = self.links.send(self.now.instant, to, frame);
            let Some(peer) = self.peers.get_mut(&to) else { return };
            match sent {
                Ok(seq) => {
                    peer.in_flight_bytes += piece.bytes.len();
                    peer.in_flight.push_back((seq, piece));
                }
                Err(SendError::Full) => {
                    peer.bulk.push_front(piece);
                    return;
                }
                Err(SendError::NoChannel | SendError::TooLarge) => self.counters.control_lost += 1,
            }
        }
    }

    fn next_piece(&mut self, to: NodeId) -> Option<Piece> {
        let peer = self.peers.get_mut(&to)?;
        if peer.in_flight_bytes >= IN_FLIGHT_BYTES || !peer.is_linked() {
            return None;
        }
        if let Some(piece) = peer.bulk.pop_front() {
            return Some(piece);
        }
        let push = peer.push.as_mut()?;
        let (mut messages, mut size) = (Vec::new(), 0);
        while size < PIECE_BYTES {
            if let Some(message) = push.messages.pop_front() {
                size += message_len(&message);
                messages.push(message);
            } else if let Some(bucket) = push.buckets.pop_front() {
                push.messages.extend(self.retained.bucket(bucket));
            } else {
                break;
            }
        }
        let mail = if messages.is_empty() {
            peer.push = None;
            RetainedMail::Done
        } else {
            self.counters.retained_pushed += messages.len() as u64;
            RetainedMail::Messages(messages)
        };
        Some(Piece { topic: ControlTopic::Retained, bytes: mail.encode(), ends: true })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(peer: &mut Peer, numbers: core::ops::RangeInclusive<u64>) {
        for number in numbers {
            let piece = peer.bulk.pop_front().unwrap();
            peer.in_flight_bytes += piece.bytes.len();
            peer.in_flight.push_back((FrameSeq(number), piece));
        }
    }

    fn waiting(peer: &Peer) -> Vec<&[u8]> {
        peer.bulk.iter().map(|piece| &piece.bytes[..]).collect()
    }

    /// MQ-11: a session that was on its way when the neighbour lost the channel is sent again, whole, and ahead of what came later;
    /// other large mail is told anew anyway.
    #[test]
    fn sessions_on_their_way_are_sent_again() {
        let mut peer = Peer::default();
        let session = |peer: &mut Peer, text: &'static str, ends| {
            peer.push_bulk(ControlTopic::Session, Bytes::from_static(text.as_bytes()), ends);
        };
        session(&mut peer, "a", true);
        session(&mut peer, "b1", false);
        peer.push_bulk(ControlTopic::Retained, Bytes::from_static(b"r"), true);
        session(&mut peer, "b2", false);
        session(&mut peer, "b3", true);
        session(&mut peer, "c", true);
        sent(&mut peer, 1..=4);
        peer.acked(FrameSeq(2));
        peer.begin_anew();
        assert_eq!(waiting(&peer), [b"b1".as_slice(), b"b2", b"b3", b"c"]);
        assert_eq!(peer.in_flight_bytes, 0);
        sent(&mut peer, 5..=8);
        peer.acked(FrameSeq(8));
        assert!(peer.has_taken_all() && peer.begun.is_empty());
        peer.begin_anew();
        assert_eq!(waiting(&peer), Vec::<&[u8]>::new());
    }
}
