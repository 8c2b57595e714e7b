//! The numbered frames to and from one neighbour, which outlive any single connection (FT-17, FT-18, FT-21).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use sedge_base::{Incarnation, NodeId, Outbox};
use sedge_mqtt::QoS;

use super::encode;
use super::greeting::Progress;
use super::{Frame, FrameSeq, Publication};

/// An empty log of more places than this gives its memory back.
const KEEP_PLACES: usize = 1024;

/// The rest of a frame that is begun is not taken for one if it is shorter than this: other packets may begin with the same bytes.
const MIN_REST: usize = 4;

#[derive(Debug)]
struct Logged {
    frame: Frame,
    bytes: usize,
    /// The connection that it was encoded for last.
    lane: u8,
    /// Whether it is not to be sent again, should the stream begin anew.
    is_void: bool,
}

/// A frame that came before one with a lower number; `None`: one that only newer versions know.
#[derive(Debug)]
struct Early {
    frame: Option<Frame>,
    bytes: usize,
}

/// The result of comparing notes with the neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Synced {
    /// Whether our stream had to be given another number, which the neighbour has to be told.
    pub(super) renewed: bool,
    /// Frames newly known to have arrived.
    pub(super) acked: u64,
}

/// The frames that were lost when a stream began anew.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Frames up to this number that were not acknowledged are lost, but for those that are sent again. 0 if nothing was lost.
    pub up_to: FrameSeq,
    /// The former numbers of publications that are sent again, in order: they have the numbers that follow `up_to`.
    pub resent: Vec<FrameSeq>,
}

/// A number that no frame ever had was acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NeverSent;

/// Too much waits for earlier frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoRoom;

/// The fate of a frame that came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// It is the next one.
    Next,
    /// It came before.
    Duplicate,
    /// One before it is missing.
    Gap,
}

/// A channel to one neighbour. Numbers on the wire start at 1 with each stream; [`FrameSeq`] goes on.
#[derive(Debug)]
pub(super) struct Channel {
    /// Life of the neighbour that the frames are meant for, once known.
    pub(super) incarnation: Option<Incarnation>,
    /// Publications with QoS 0 are sent again, too, when the stream begins anew.
    pub(super) keeps_all: bool,
    /// Number of our stream.
    pub(super) stream: u64,
    /// Frames before this stream.
    base: u64,
    /// Frames that wait for acknowledgement: `acked + 1` and following.
    log: VecDeque<Logged>,
    log_bytes: usize,
    publications: usize,
    acked: u64,
    /// The next frame to be encoded for the current connection.
    next: u64,
    /// The highest frame ever encoded.
    sent: u64,
    /// Of the frames before `next` those that were lost with one of several connections.
    again: BTreeSet<u64>,
    /// Frames that are lost and not yet owned up to.
    lost_up_to: FrameSeq,
    /// Of these the publications that are sent again, at the beginning of the stream.
    resent: Vec<FrameSeq>,
    /// Whether the owner has still to be told that the neighbour knows nothing of before.
    is_new: bool,
    /// Stream of the neighbour that `received` counts.
    peer_stream: Option<(Incarnation, u64)>,
    received: u64,
    /// Frames that wait for earlier ones.
    early: BTreeMap<u64, Early>,
    early_bytes: usize,
    /// The highest frame acknowledged to the neighbour.
    told: u64,
    /// The highest frame that may be acknowledged; `u64::MAX`: any.
    ack_limit: u64,
}

impl Channel {
    /// A channel that nothing has passed through.
    pub(super) const fn new(incarnation: Option<Incarnation>, stream: u64) -> Self {
        Self {
            incarnation,
            keeps_all: false,
            stream,
            base: 0,
            log: VecDeque::new(),
            log_bytes: 0,
            publications: 0,
            acked: 0,
            next: 1,
            sent: 0,
            again: BTreeSet::new(),
            lost_up_to: FrameSeq(0),
            resent: Vec::new(),
            is_new: true,
            peer_stream: None,
            received: 0,
            early: BTreeMap::new(),
            early_bytes: 0,
            told: 0,
            ack_limit: u64::MAX,
        }
    }

    /// Bytes of the frames in the log.
    pub(super) const fn log_bytes(&self) -> usize {
        self.log_bytes
    }

    /// Frames in the log.
    pub(super) fn log_len(&self) -> usize {
        self.log.len()
    }

    /// Publications in the log.
    pub(super) const fn publications(&self) -> usize {
        self.publications
    }

    /// Whether the neighbour has gone on to a later stream than this one.
    pub(super) fn is_behind(&self, incarnation: Incarnation, stream: u64) -> bool {
        self.peer_stream.is_some_and(|known| known > (incarnation, stream))
    }

    /// Whether the neighbour's frames belong to this stream.
    pub(super) fn is_current(&self, incarnation: Incarnation, stream: u64) -> bool {
        self.peer_stream == Some((incarnation, stream))
    }

    /// How far the neighbour's frames are done with.
    pub(super) fn progress(&self) -> Option<Progress> {
        let seq = self.done();
        self.peer_stream.map(|(incarnation, stream)| Progress { incarnation, stream, seq })
    }

    /// Frames up to this one are done with.
    fn done(&self) -> u64 {
        self.received.min(self.ack_limit)
    }

    /// Frames behind this one must not be acknowledged.
    pub(super) const fn limit_acks(&mut self, up_to: u64) {
        self.ack_limit = up_to;
    }

    /// Frames that the neighbour has not acknowledged, oldest first.
    pub(super) fn log(&self) -> impl Iterator<Item = &Frame> {
        self.log.iter().map(|logged| &logged.frame)
    }

    /// Frames of which not all bytes have left, newest first. `rest`: the bytes that the current connection of this lane has still to write. Frames are
    /// looked for among them: numbers of other packets stand between frames.
    pub(super) fn unwritten(&self, lane: u8, rest: &[u8]) -> Vec<&Frame> {
        let (mut end, mut found) = (rest.len(), Vec::new());
        for (seq, logged) in (self.acked + 1..).zip(&self.log).collect::<Vec<_>>().into_iter().rev() {
            if seq >= self.next || self.again.contains(&seq) {
                found.push(&logged.frame);
                continue;
            }
            if logged.lane != lane {
                continue;
            }
            let mut out = Outbox::new();
            encode::frame(&logged.frame, seq, &mut out);
            let bytes = out.take().concat();
            if let Some(at) = rest[..end].windows(bytes.len()).rposition(|part| part == bytes) {
                found.push(&logged.frame);
                end = at;
                continue;
            }
            // The connection may have written its first bytes.
            let is_begun = (MIN_REST..bytes.len()).any(|at| rest[..end].starts_with(&bytes[bytes.len() - at..]));
            found.extend(is_begun.then_some(&logged.frame));
            break;
        }
        found
    }

    /// Others took this node for dead. A neighbour that has forgotten the stream gets no QoS 2 publications of its clients from here: the successor passes
    /// them on, as its copy has them.
    pub(super) fn passes_nothing_on(&mut self, me: NodeId) {
        for logged in &mut self.log {
            let Frame::Publication(Publication { message, .. }) = &logged.frame else { continue };
            logged.is_void = message.id.node == me && message.qos == QoS::ExactlyOnce;
        }
    }

    /// Appends a frame of this size to the log.
    pub(super) fn push(&mut self, frame: Frame, bytes: usize) -> FrameSeq {
        self.log_bytes += bytes;
        self.publications += usize::from(matches!(frame, Frame::Publication(_)));
        self.log.push_back(Logged { frame, bytes, lane: 0, is_void: false });
        FrameSeq(self.base + self.last())
    }

    /// The next frame to be encoded, if it is not one that was lost with another connection.
    pub(super) fn peek(&self) -> Option<&Frame> {
        let index = usize::try_from(self.next - self.acked - 1).ok()?;
        self.log.get(index).map(|logged| &logged.frame).filter(|_| self.again.is_empty())
    }

    /// Encodes the next frame for this one of the current connections. Says whether it is a publication and whether it was encoded
    /// before; `None` if there is nothing to send.
    pub(super) fn encode_next(&mut self, out: &mut Outbox, lane: u8) -> Option<(bool, bool)> {
        let seq = self.again.pop_first().unwrap_or(self.next);
        let index = usize::try_from(seq - self.acked - 1).ok()?;
        let logged = self.log.get_mut(index)?;
        encode::frame(&logged.frame, seq, out);
        logged.lane = lane;
        let again = seq <= self.sent;
        self.sent = self.sent.max(seq);
        self.next = self.next.max(seq + 1);
        Some((matches!(logged.frame, Frame::Publication(_)), again))
    }

    /// One of the current connections is gone: frames that were encoded for it and are not acknowledged have to be encoded again.
    pub(super) fn lose_lane(&mut self, lane: u8) {
        let (first, next) = (self.acked + 1, self.next);
        let encoded = (first..next).zip(&self.log);
        self.again.extend(encoded.filter(|(_, logged)| logged.lane == lane).map(|(seq, _)| seq));
    }

    /// All current connections are gone, or will be: frames that wait for earlier ones come again.
    pub(super) fn lose_lanes(&mut self) {
        self.again.clear();
        self.early.clear();
        self.early_bytes = 0;
    }

    /// Keeps a frame that came before an earlier one. Says whether it had come already; `Err` if there is no room for it.
    pub(super) fn keep_early(&mut self, seq: u64, frame: Option<Frame>, most: usize) -> Result<bool, NoRoom> {
        let bytes = frame.as_ref().map_or(0, encode::size_bound);
        if self.early.contains_key(&seq) {
            return Ok(true);
        }
        if self.early_bytes + bytes > most {
            return Err(NoRoom);
        }
        self.early_bytes += bytes;
        self.early.insert(seq, Early { frame, bytes });
        Ok(false)
    }

    /// The next frame, if it has come before its turn.
    pub(super) fn take_early(&mut self) -> Option<(u64, Option<Frame>)> {
        let first = self.early.first_entry().filter(|first| *first.key() == self.received + 1)?;
        let (seq, Early { frame, bytes }) = first.remove_entry();
        self.early_bytes -= bytes;
        self.received = seq;
        Some((seq, frame))
    }

    /// The neighbour has all frames of our stream up to `seq`. Returns how many of them are news.
    pub(super) fn acknowledge(&mut self, seq: u64) -> Result<u64, NeverSent> {
        if seq > self.sent {
            return Err(NeverSent);
        }
        let before = self.acked;
        while self.acked < seq {
            let Some(logged) = self.log.pop_front() else { break };
            self.log_bytes -= logged.bytes;
            self.publications -= usize::from(matches!(logged.frame, Frame::Publication(_)));
            self.acked += 1;
        }
        self.next = self.next.max(self.acked + 1);
        while self.again.first().is_some_and(|seq| *seq <= self.acked) {
            self.again.pop_first();
        }
        if self.log.is_empty() && self.log.capacity() > KEEP_PLACES {
            self.log = VecDeque::new();
        }
        Ok(self.acked - before)
    }

    /// Number of the last frame known to have arrived.
    pub(super) const fn acked(&self) -> FrameSeq {
        FrameSeq(self.base + self.acked)
    }

    /// A frame of the neighbour's stream has come.
    pub(super) const fn arrive(&mut self, seq: u64) -> Arrival {
        if seq <= self.received {
            return Arrival::Duplicate;
        }
        if seq > self.received + 1 {
            return Arrival::Gap;
        }
        self.received = seq;
        Arrival::Next
    }

    /// The number to acknowledge to the neighbour, if it is news.
    pub(super) fn take_ack(&mut self) -> Option<u64> {
        let done = self.done();
        if self.told == done {
            return None;
        }
        self.told = done;
        Some(done)
    }

    /// The number that was last acknowledged to the neighbour.
    pub(super) const fn told(&self) -> u64 {
        self.told
    }

    /// News for the owner when the link is up: whether both sides go on where they were when it was last told, and the frames that were
    /// lost since.
    pub(super) fn take_news(&mut self) -> (bool, Lost) {
        let up_to = core::mem::take(&mut self.lost_up_to);
        (!core::mem::take(&mut self.is_new), Lost { up_to, resent: core::mem::take(&mut self.resent) })
    }

    /// Begins anew for another life of the neighbour. Returns how many frames are lost.
    pub(super) fn restart(&mut self, incarnation: Incarnation) -> usize {
        self.incarnation = Some(incarnation);
        self.drop_log()
    }

    /// Compares notes at the end of a handshake: `peer` is the neighbour's stream, `received` how far it says to have read.
    /// `new_stream` is the number of our stream should it have to begin anew.
    pub(super) fn sync(
        &mut self,
        me: Incarnation,
        peer: (Incarnation, u64),
        received: Option<Progress>,
        new_stream: u64,
    ) -> Result<Synced, NeverSent> {
        self.lose_lanes();
        let same_in = self.peer_stream == Some(peer);
        if !same_in {
            self.peer_stream = Some(peer);
            self.received = 0;
            self.ack_limit = u64::MAX;
            self.is_new = true;
        }
        // The greeting has told the neighbour how far we are; an acknowledgement on top is cheap and settles any doubt.
        self.told = 0;
        let ours = received.filter(|progress| progress.incarnation == me && progress.stream == self.stream);
        // A neighbour that goes on with its own stream has kept what it knew of ours, too, even if the greeting was written
        // before it knew: two handshakes may cross. One with a new stream has kept it only if it has not fallen back.
        if same_in || ours.is_some_and(|progress| progress.seq >= self.acked) {
            let acked = self.acknowledge(ours.map_or(0, |progress| progress.seq))?;
            self.next = self.acked + 1;
            return Ok(Synced { renewed: false, acked });
        }
        // A neighbour that has never acknowledged anything may simply not have heard of our stream yet. Otherwise it has
        // forgotten it, and the stream cannot be picked up in the middle.
        let renewed = self.acked > 0;
        if renewed {
            self.stream = new_stream;
            self.begin_anew();
        }
        self.next = 1;
        Ok(Synced { renewed, acked: 0 })
    }

    /// The neighbour lives, but has forgotten the stream. Signals of before mean nothing to it; publications with QoS 1 and 2, whose
    /// publishers wait, are sent again: it can tell those that it had by their ids.
    fn begin_anew(&mut self) {
        let keeps_all = self.keeps_all;
        let first = self.base + self.acked + 1;
        let waits = |logged: &Logged| match &logged.frame {
            Frame::Publication(_) if logged.is_void => false,
            Frame::Publication(publication) => keeps_all || publication.message.qos > QoS::AtMostOnce,
            Frame::Control { .. } => false,
        };
        let mut log = core::mem::take(&mut self.log);
        self.base = first - 1 + log.len() as u64;
        self.lost_up_to = FrameSeq(self.base);
        self.resent = (first..).zip(&log).filter(|(_, logged)| waits(logged)).map(|(seq, _)| FrameSeq(seq)).collect();
        log.retain(waits);
        self.log_bytes = log.iter().map(|logged| logged.bytes).sum();
        self.publications = log.len();
        self.log = log;
        (self.acked, self.next, self.sent) = (0, 1, 0);
    }

    fn drop_log(&mut self) -> usize {
        self.lose_lanes();
        let lost = self.log.len();
        self.resent = Vec::new();
        self.base += self.last();
        if lost > 0 {
            self.lost_up_to = FrameSeq(self.base);
        }
        self.log = VecDeque::new();
        self.log_bytes = 0;
        self.publications = 0;
        (self.acked, self.next, self.sent) = (0, 1, 0);
        lost
    }

    /// The last frame of the stream.
    fn last(&self) -> u64 {
        self.acked + self.log.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::link::ControlTopic;

    /// MQ-06: a node stood still after the kernel had taken so many bytes of what it had to write.
    #[test]
    fn frames_of_which_not_all_bytes_have_left_are_known() {
        let payloads: Vec<Bytes> = (0..4_u8).map(|number| Bytes::from(vec![number; 300])).collect();
        let mut channel = Channel::new(None, 1);
        let (mut outbox, mut ends) = (Outbox::new(), Vec::new());
        for payload in &payloads {
            channel.push(Frame::Control { topic: ControlTopic::Replica, payload: payload.clone() }, payload.len());
        }
        for _ in 0..3 {
            channel.encode_next(&mut outbox, 0);
            ends.push(outbox.len());
            encode::number(encode::ACK, 7, &mut outbox);
        }
        let bytes = outbox.to_vec();
        for written in 0..=bytes.len() {
            let unwritten: Vec<_> = channel.unwritten(0, &bytes[written..]).into_iter().rev().cloned().collect();
            // Of a frame whose last three bytes are left this is not told.
            let left = ends.iter().filter(|end| **end >= written + MIN_REST).count();
            let expected: Vec<_> = payloads[3 - left..].to_vec();
            let expected: Vec<_> =
                expected.into_iter().map(|payload| Frame::Control { topic: ControlTopic::Replica, payload }).collect();
            assert_eq!(unwritten, expected, "{written} of {} written", bytes.len());
        }
    }
}
