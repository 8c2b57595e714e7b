//! The sender's side: what has not arrived yet, by destination.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use sedge_base::{Duration, Instant, NodeId};
use sedge_mqtt::{Message, QoS};
use sedge_overlay::Barrier;

use super::Place;
use crate::link::End;

/// Bytes kept for one destination; more are refused.
const MAX_BYTES: usize = 64 * 1024 * 1024;

/// A publication that has not arrived yet.
#[derive(Clone, Debug)]
pub(in crate::node) struct Open {
    pub message: Arc<Message>,
    pub plain: bool,
    pub retained_copy: bool,
    /// The publisher that waits for it, by its number in the acknowledgement table.
    pub entry: Option<u64>,
    pub since: Instant,
    /// Whether it was given to the link to the destination, which loses nothing while it stands.
    pub direct: bool,
}

impl Open {
    fn bytes(&self) -> usize {
        self.message.payload.len() + self.message.topic.as_bytes().len() + 128
    }
}

/// Everything for one destination.
#[derive(Debug, Default)]
pub(in crate::node) struct Stream {
    last: u64,
    behind: u64,
    open: BTreeMap<u64, Open>,
    bytes: usize,
    /// The last number that has arrived.
    arrived: u64,
    /// Up to where the destination was asked about those with QoS 0, and where it has answered.
    asked: Place,
    sealed: Place,
}

impl Stream {
    /// Where this publication stands in the stream; `None` if there is no room to keep it.
    fn place(&mut self, node: NodeId, open: Open) -> Option<End> {
        if open.message.qos == QoS::AtMostOnce {
            self.behind += 1;
            return Some(End { node, number: self.last, behind: self.behind });
        }
        if self.bytes + open.bytes() > MAX_BYTES {
            return None;
        }
        self.bytes += open.bytes();
        self.last += 1;
        self.behind = 0;
        self.open.insert(self.last, open);
        Some(End { node, number: self.last, behind: 0 })
    }

    /// Where the next publication will stand behind.
    const fn place_so_far(&self) -> Place {
        (self.last, self.behind)
    }

    /// Whether nothing that was sent up to this place can still be delivered.
    fn is_past(&self, place: Place) -> bool {
        let (number, behind) = place;
        let is_open = self.open.keys().next().is_some_and(|first| *first <= number);
        !is_open && (behind == 0 || self.arrived > number || self.sealed >= place)
    }

    /// What has not arrived and is not on the direct link, after number `from` and before `to`; it is from here on.
    pub(super) fn take_indirect(&mut self, from: u64, to: u64) -> Vec<(u64, Open)> {
        let range = self.open.range_mut(from.saturating_add(1)..to.max(from.saturating_add(1)));
        let indirect = range.filter(|(_, open)| !open.direct);
        indirect
            .map(|(number, open)| {
                open.direct = true;
                (*number, open.clone())
            })
            .collect()
    }
}

/// What has not arrived anywhere.
#[derive(Debug, Default)]
pub(in crate::node) struct Outgoing {
    streams: BTreeMap<NodeId, Stream>,
    barriers: VecDeque<(Barrier, BTreeMap<NodeId, Place>)>,
}

impl Outgoing {
    pub(super) fn place(&mut self, node: NodeId, open: Open) -> Option<End> {
        self.streams.entry(node).or_default().place(node, open)
    }

    /// It was given to the link to the destination.
    pub(super) fn note_direct(&mut self, end: End) {
        if end.behind == 0
            && let Some(open) = self.stream(end.node).and_then(|stream| stream.open.get_mut(&end.number))
        {
            open.direct = true;
        }
    }

    pub(super) fn stream(&mut self, node: NodeId) -> Option<&mut Stream> {
        self.streams.get_mut(&node)
    }

    /// The link to a destination has begun anew and may have lost what was given to it. Returns the number behind which the stream goes
    /// on, if it ever began.
    pub(super) fn restart(&mut self, node: NodeId) -> Option<u64> {
        let stream = self.streams.get_mut(&node)?;
        stream.open.values_mut().for_each(|open| open.direct = false);
        stream.asked = stream.sealed;
        Some(stream.open.keys().next().map_or(stream.last, |first| first - 1))
    }

    /// The destination has everything up to this number. Visits the publishers' entries.
    pub(super) fn arrived(&mut self, node: NodeId, up_to: u64, mut visit: impl FnMut(u64)) {
        let Some(stream) = self.streams.get_mut(&node) else { return };
        stream.arrived = stream.arrived.max(up_to);
        while let Some(first) = stream.open.first_entry().filter(|first| *first.key() <= up_to) {
            let open = first.remove();
            stream.bytes -= open.bytes();
            open.entry.into_iter().for_each(&mut visit);
        }
    }

    /// The destination is gone: what it has not got. Its stream goes on with the next number if it comes back.
    pub(in crate::node) fn take(&mut self, node: NodeId) -> Vec<Open> {
        let Some(stream) = self.streams.get_mut(&node) else { return Vec::new() };
        stream.bytes = 0;
        stream.arrived = stream.last;
        stream.sealed = stream.place_so_far();
        core::mem::take(&mut stream.open).into_values().collect()
    }

    /// Destinations for which something has been on its way for this long and is neither there nor on the direct link.
    pub(super) fn overdue(&self, now: Instant, patience: Duration) -> Vec<NodeId> {
        let is_overdue = |stream: &Stream| {
            let oldest = stream.open.values().find(|open| !open.direct);
            oldest.is_some_and(|open| open.since + patience <= now)
        };
        self.streams.iter().filter(|(_, stream)| is_overdue(stream)).map(|(node, _)| *node).collect()
    }

    /// Destinations for which anything is open.
    pub(super) fn waiting(&self) -> Vec<NodeId> {
        self.streams.iter().filter(|(_, stream)| !stream.open.is_empty()).map(|(node, _)| *node).collect()
    }

    /// Publications that have not arrived.
    pub(in crate::node) fn len(&self) -> usize {
        self.streams.values().map(|stream| stream.open.len()).sum()
    }

    /// A barrier that waits until everything sent so far has arrived, or will not be taken any more.
    pub(super) fn push_barrier(&mut self, barrier: Barrier) {
        let places = self.streams.iter().map(|(node, stream)| (*node, stream, stream.place_so_far()));
        let waits = places.filter(|(_, stream, place)| !stream.is_past(*place));
        self.barriers.push_back((barrier, waits.map(|(node, _, place)| (node, place)).collect()));
    }

    /// Which destinations have to be asked up to which place, because barriers wait.
    pub(super) fn take_questions(&mut self) -> Vec<(NodeId, Place)> {
        let mut questions = Vec::new();
        let Some((_, waits)) = self.barriers.back() else { return questions };
        for (node, place) in waits {
            if let Some(stream) = self.streams.get_mut(node).filter(|stream| place.1 > 0 && stream.asked < *place) {
                stream.asked = *place;
                questions.push((*node, *place));
            }
        }
        questions
    }

    /// A destination has answered.
    pub(super) fn note_sealed(&mut self, node: NodeId, place: Place) {
        if let Some(stream) = self.streams.get_mut(&node) {
            stream.sealed = stream.sealed.max(place);
        }
    }

    /// The next barrier that need not wait any longer.
    pub(super) fn pop_barrier(&mut self) -> Option<Barrier> {
        let streams = &self.streams;
        let is_past = |(node, place): (&NodeId, &Place)| streams.get(node).is_none_or(|stream| stream.is_past(*place));
        let front = self.barriers.pop_front_if(|(_, waits)| waits.iter().all(is_past));
        front.map(|(barrier, _)| barrier)
    }
}
