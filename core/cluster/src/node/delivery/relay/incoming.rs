//! The destination's side: publications in the order of their numbers, once each.

use std::collections::{BTreeMap, BTreeSet};

use sedge_base::{Incarnation, NodeId};

use super::Place;
use super::order::Order;
use crate::link::{End, Publication};

/// Publications of one sender that wait for an earlier one, and their bytes. Those beyond that which come over a relay are dropped: the sender
/// has them.
const MAX_HELD: usize = 10_000;
const MAX_HELD_BYTES: usize = 16 * 1024 * 1024;

/// The result of a publication that came in.
#[derive(Debug, Default)]
pub(super) struct Accepted {
    /// Publications to deliver, with their numbers (0: none of its own), in order.
    pub ready: Vec<(u64, Publication)>,
    /// The last number before a gap, and the first behind it; once for each gap.
    pub gap: Option<(u64, u64)>,
}

/// One sender's stream to this node.
#[derive(Debug)]
struct Stream {
    incarnation: Incarnation,
    up_to: u64,
    behind: u64,
    held: BTreeMap<(u64, u64), Publication>,
    held_bytes: usize,
    /// The end of the last gap that was told.
    told: Option<u64>,
    /// The numbers that may be acknowledged for now.
    limit: u64,
    acknowledged: Option<u64>,
    /// The last deliveries with QoS 0, topic by topic.
    order: Order,
    /// Mail that had to stay behind this place was taken in: publications before it that come now are too late for any topic.
    sealed: Place,
}

/// The streams of all senders.
#[derive(Debug, Default)]
pub(in crate::node) struct Incoming {
    streams: BTreeMap<NodeId, Stream>,
    /// Senders to acknowledge to.
    due: BTreeSet<NodeId>,
    late: u64,
    overtaken: u64,
}

impl Stream {
    fn new(incarnation: Incarnation) -> Self {
        Self {
            incarnation,
            up_to: 0,
            behind: 0,
            held: BTreeMap::new(),
            held_bytes: 0,
            told: None,
            limit: u64::MAX,
            acknowledged: None,
            order: Order::default(),
            sealed: (0, 0),
        }
    }

    /// The place behind which nothing has come that is next.
    const fn place(&self) -> Place {
        (self.up_to, self.behind)
    }

    fn hold(&mut self, key: (u64, u64), publication: Publication, may_drop: bool) {
        let size = publication.message.payload.len() + 128;
        let is_full = self.held.len() >= MAX_HELD || self.held_bytes + size > MAX_HELD_BYTES;
        if (is_full && may_drop) || self.held.contains_key(&key) {
            return;
        }
        self.held_bytes += size;
        self.held.insert(key, publication);
    }

    /// Whether this is the next one; it is taken then.
    fn takes(&mut self, key: (u64, u64), publication: &Publication) -> bool {
        let takes = self.is_next(key);
        if takes && key.1 > 0 {
            self.order.note(&publication.message);
        }
        takes
    }

    fn is_next(&mut self, (number, behind): (u64, u64)) -> bool {
        if behind == 0 && number == self.up_to + 1 {
            (self.up_to, self.behind) = (number, 0);
            return true;
        }
        if behind > self.behind && number == self.up_to {
            self.behind = behind;
            return true;
        }
        false
    }

    fn drain(&mut self, ready: &mut Vec<(u64, Publication)>) {
        while let Some(first) = self.held.first_entry() {
            let key = *first.key();
            let is_old = key.0 < self.up_to || (key.0 == self.up_to && key.1 <= self.behind);
            let is_next = (key.1 == 0 && key.0 == self.up_to + 1) || (key.1 > 0 && key.0 == self.up_to);
            if !is_old && !is_next {
                break;
            }
            let publication = first.remove();
            self.held_bytes -= publication.message.payload.len() + 128;
            if !is_old && self.takes(key, &publication) {
                ready.push((own_number(key), publication));
            }
        }
    }
}

const fn own_number((number, behind): (u64, u64)) -> u64 {
    if behind == 0 { number } else { 0 }
}

impl Incoming {
    /// The stream of this life of a sender; `None` if a later one is known.
    fn stream(&mut self, sender: NodeId, incarnation: Incarnation) -> Option<&mut Stream> {
        let stream = self.streams.entry(sender).or_insert_with(|| Stream::new(incarnation));
        if stream.incarnation < incarnation {
            *stream = Stream::new(incarnation);
        }
        (stream.incarnation == incarnation).then_some(stream)
    }

    /// A publication. `straight`: it came from its sender itself.
    pub(super) fn accept(
        &mut self,
        (sender, incarnation): (NodeId, Incarnation),
        end: End,
        publication: Publication,
        straight: bool,
    ) -> Accepted {
        let mut accepted = Accepted::default();
        let Some(stream) = self.stream(sender, incarnation) else { return accepted };
        let key = (end.number, end.behind);
        if stream.takes(key, &publication) {
            accepted.ready.push((own_number(key), publication));
            stream.drain(&mut accepted.ready);
            self.due.insert(sender);
        } else if end.number > stream.up_to {
            stream.hold(key, publication, !straight);
            let before = stream.held.keys().next().map_or(end.number, |(number, _)| *number);
            let before = before.max(stream.up_to + 2);
            if stream.told != Some(before) {
                stream.told = Some(before);
                accepted.gap = Some((stream.up_to, before));
            }
        } else if end.behind > 0 && key > stream.sealed && stream.order.takes_late(&publication.message) {
            self.overtaken += 1;
            accepted.ready.push((own_number(key), publication));
        } else {
            stream.acknowledged = None;
            self.late += 1;
            self.due.insert(sender);
        }
        accepted
    }

    /// The sender says where its stream goes on.
    pub(super) fn begin(&mut self, sender: NodeId, incarnation: Incarnation, behind: u64) -> Vec<(u64, Publication)> {
        let mut ready = Vec::new();
        let Some(stream) = self.stream(sender, incarnation) else { return ready };
        if stream.up_to < behind {
            (stream.up_to, stream.behind) = (behind, 0);
        }
        stream.acknowledged = None;
        stream.told = None;
        stream.drain(&mut ready);
        self.due.insert(sender);
        ready
    }

    /// Publications behind this number are not acknowledged until another limit is set; `u64::MAX`: no limit.
    pub(in crate::node) fn limit_acks(&mut self, sender: NodeId, up_to: u64) {
        if let Some(stream) = self.streams.get_mut(&sender) {
            stream.limit = up_to;
            self.due.insert(sender);
        }
    }

    /// The next acknowledgement to send: sender, its life, number.
    pub(super) fn pop_due(&mut self) -> Option<(NodeId, Incarnation, u64)> {
        while let Some(sender) = self.due.pop_first() {
            let Some(stream) = self.streams.get_mut(&sender) else { continue };
            let up_to = stream.up_to.min(stream.limit);
            if up_to > 0 && stream.acknowledged != Some(up_to) {
                stream.acknowledged = Some(up_to);
                return Some((sender, stream.incarnation, up_to));
            }
        }
        None
    }

    /// Whether everything up to a place has come.
    pub(super) fn has(&self, (sender, incarnation): (NodeId, Incarnation), place: Place) -> bool {
        match self.streams.get(&sender) {
            Some(stream) if stream.incarnation > incarnation => true,
            Some(stream) => stream.incarnation == incarnation && stream.place() >= place,
            None => false,
        }
    }

    /// Mail is taken in that had to wait for everything up to a place.
    pub(super) fn seal(&mut self, (sender, incarnation): (NodeId, Incarnation), place: Place) {
        if let Some(stream) = self.streams.get_mut(&sender).filter(|stream| stream.incarnation == incarnation) {
            stream.sealed = stream.sealed.max(place);
        }
    }

    /// Waits no longer for what was sent with QoS 0 up to a place; returns what had waited for it. `Err`: the last publication with a
    /// number that has come, for others are missing.
    pub(super) fn give_up(
        &mut self,
        (sender, incarnation): (NodeId, Incarnation),
        (number, behind): Place,
    ) -> Result<Vec<(u64, Publication)>, u64> {
        let mut ready = Vec::new();
        if let Some(stream) = self.stream(sender, incarnation) {
            if stream.up_to < number {
                return Err(stream.up_to);
            }
            if stream.up_to == number {
                stream.behind = stream.behind.max(behind);
                stream.sealed = stream.sealed.max((number, behind));
                stream.drain(&mut ready);
            }
        }
        Ok(ready)
    }

    /// The sender is gone. Should this life of it come back, it says where its stream goes on.
    pub(in crate::node) fn forget(&mut self, sender: NodeId) {
        self.streams.remove(&sender);
        self.due.remove(&sender);
    }

    /// Publications that wait for earlier ones.
    pub(in crate::node) fn held(&self) -> usize {
        self.streams.values().map(|stream| stream.held.len()).sum()
    }

    /// Publications that had come before, or with QoS 0 too late.
    pub(in crate::node) const fn late(&self) -> u64 {
        self.late
    }

    /// Publications with QoS 0 that were overtaken by others than those of their topic and publisher, and so were not too late.
    pub(in crate::node) const fn overtaken(&self) -> u64 {
        self.overtaken
    }
}
