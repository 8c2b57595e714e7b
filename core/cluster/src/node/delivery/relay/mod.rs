//! Publications that go over other nodes: numbered streams between sender and destination, whatever way the cooperation algorithm
//! sends them (`docs/adr/0010-relayed-publications.md`).

mod asking;
mod fence;
mod incoming;
mod order;
mod outgoing;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use sedge_base::{Duration, Incarnation, Instant, NodeId};
use sedge_mqtt::{Message, QoS};
use sedge_overlay::Way;
use smallvec::SmallVec;

use self::asking::Asking;
use self::fence::Fences;
pub(in crate::node) use self::incoming::Incoming;
use self::outgoing::{Open, Outgoing};
use crate::link::{ControlTopic, End, Frame, Publication, SendError, Waybill};
use crate::node::Node;
use crate::node::delivery::copied::Source;
use crate::wire::{RelayMail, WireError};

/// How long a publication may be on its way before it is sent over the direct link, too.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often that is looked at.
const PERIOD: Duration = Duration::from_millis(100);
/// How often a publication is passed on at most: more than any sensible way has.
const MAX_HOPS: u8 = 32;

/// A place in a stream: the last number before it, and how many publications with QoS 0 behind that.
type Place = (u64, u64);

/// See the module.
#[derive(Debug, Default)]
pub(in crate::node) struct Relay {
    pub outgoing: Outgoing,
    pub incoming: Incoming,
    pub asking: Asking,
    fences: Fences,
    next_look: Option<Instant>,
    /// Frames passed on for others.
    passed_on: u64,
    /// Publications sent again over the direct link.
    repaired: u64,
    /// Destinations of publications that a full link has refused.
    refused: u64,
}

impl Relay {
    pub(in crate::node) fn timeout(&self) -> Option<Instant> {
        [self.next_look, self.fences.timeout(), self.asking.timeout()].into_iter().flatten().min()
    }

    pub(in crate::node) fn counters(&self) -> [(&'static str, u64); 7] {
        [
            ("relay_passed_on", self.passed_on),
            ("relay_repaired", self.repaired),
            ("relay_refused", self.refused),
            ("relay_late", self.incoming.late()),
            ("relay_overtaken", self.incoming.overtaken()),
            ("relay_spared", self.asking.spared),
            ("relay_unanswered", self.asking.unanswered),
        ]
    }
}

/// The part of a publication that a destination gets.
#[derive(Clone, Copy, Debug)]
pub(in crate::node) struct Parcel {
    pub to: NodeId,
    pub plain: bool,
    pub retained_copy: bool,
}

/// The fate of parcels.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::node) struct Dispatched {
    /// How many are on their way.
    pub placed: usize,
    /// How many of them the sender has to keep until they have arrived.
    pub kept: usize,
    pub refused: bool,
}

impl Node {
    /// Sends a publication on its way to these destinations. `entry`: the publisher that waits. `straight`: over the direct links.
    pub(in crate::node) fn dispatch(
        &mut self,
        message: &Arc<Message>,
        parcels: &[Parcel],
        entry: Option<u64>,
        straight: bool,
    ) -> Dispatched {
        let mut dispatched = Dispatched::default();
        let waits = message.qos > QoS::AtMostOnce;
        let is_kept = self.hop_qos(message) > QoS::AtMostOnce;
        let mut ends: SmallVec<[End; 4]> = SmallVec::new();
        let (mut plain, mut retained_copy) = (false, false);
        for parcel in parcels {
            let open = Open {
                message: Arc::clone(message),
                plain: parcel.plain,
                retained_copy: parcel.retained_copy,
                entry,
                since: self.now.instant,
                direct: false,
            };
            let Some(end) = self.relay.outgoing.place(parcel.to, open, is_kept) else {
                self.counters.publications_refused += 1;
                dispatched.refused |= waits;
                continue;
            };
            dispatched.placed += 1;
            dispatched.kept += usize::from(is_kept);
            plain |= parcel.plain;
            retained_copy |= parcel.retained_copy;
            ends.push(end);
        }
        let mut ways = straight_ways(&ends);
        if !straight {
            self.overlay.ways(&message.topic, &mut ways);
        }
        let (sender, incarnation) = (self.config.node, self.config.incarnation);
        for (hop, ends) in legs(&ends, &ways) {
            for ends in ends.chunks(Waybill::MAX_ENDS) {
                let waybill = Waybill { sender, incarnation, hops: MAX_HOPS, ends: SmallVec::from_slice(ends) };
                self.forward(hop, message, (plain, retained_copy), waybill);
            }
        }
        if dispatched.kept > 0 && self.relay.next_look.is_none() {
            self.relay.next_look = Some(self.now.instant + PERIOD);
        }
        dispatched
    }

    /// With which QoS a publication goes from node to node.
    pub(in crate::node) fn hop_qos(&self, message: &Message) -> QoS {
        self.config.link_qos.unwrap_or(message.qos)
    }

    /// Sends one frame to the next node; to the destinations themselves if there is no link to that. A publication that a full link refuses does not
    /// go straight: it would overtake others on their way. With QoS 0 it is lost, any other is sent again by its sender.
    fn forward(&mut self, hop: NodeId, message: &Arc<Message>, flags: (bool, bool), waybill: Waybill) {
        let Waybill { sender, incarnation, .. } = waybill;
        let ends = waybill.ends.clone();
        match self.links.send(self.now.instant, hop, frame(message, flags, waybill)) {
            Ok(_) => return ends.iter().filter(|end| end.node == hop).for_each(|end| self.went_straight(sender, *end)),
            Err(SendError::Full | SendError::TooLarge) => return self.relay.refused += ends.len() as u64,
            Err(SendError::NoChannel) => {}
        }
        for end in ends {
            let waybill = Waybill { sender, incarnation, hops: 0, ends: SmallVec::from_slice(&[end]) };
            let frame = frame(message, flags, waybill);
            let sent = (end.node != hop).then(|| self.links.send(self.now.instant, end.node, frame));
            match sent {
                Some(Ok(_)) => self.went_straight(sender, end),
                Some(Err(SendError::Full | SendError::TooLarge)) => self.relay.refused += 1,
                Some(Err(SendError::NoChannel)) | None => self.counters.publications_without_channel += 1,
            }
        }
    }

    fn went_straight(&mut self, sender: NodeId, end: End) {
        if sender == self.config.node {
            self.relay.outgoing.note_direct(end);
        }
    }

    /// A publication with a waybill: for this node, for others behind it, or both.
    pub(in crate::node) fn relayed(&mut self, from: NodeId, mut publication: Publication) {
        let Some(waybill) = publication.waybill.take() else { return };
        let Waybill { sender, incarnation, hops, ends } = *waybill;
        let me = self.config.node;
        let others: SmallVec<[End; 4]> = ends.iter().filter(|end| end.node != me).copied().collect();
        let mut ways = straight_ways(&others);
        if hops > 0 {
            self.overlay.ways(&publication.message.topic, &mut ways);
        }
        for way in ways.iter_mut().filter(|way| way.next == from || way.next == me) {
            way.next = way.destination;
        }
        let flags = (publication.plain, publication.retained_copy);
        for (hop, ends) in legs(&others, &ways) {
            self.relay.passed_on += 1;
            let waybill = Waybill { sender, incarnation, hops: hops.saturating_sub(1), ends };
            self.forward(hop, &publication.message, flags, waybill);
        }
        if let Some(end) = ends.iter().find(|end| end.node == me && sender != me) {
            self.arrives((sender, incarnation), *end, publication, sender == from);
        }
    }

    fn arrives(&mut self, life: (NodeId, Incarnation), end: End, publication: Publication, straight: bool) {
        self.put_off_fence(life.0);
        let accepted = self.relay.incoming.accept(life, end, publication, straight);
        for (number, publication) in accepted.ready {
            self.publication(Source::Stream(life.0), number, publication);
        }
        if let Some((up_to, before)) = accepted.gap {
            let mail = RelayMail::Missing { incarnation: life.1, up_to, before };
            self.send_control(life.0, ControlTopic::Relay, mail.encode());
        }
    }

    pub(in crate::node) fn relay_mail(&mut self, from: NodeId, payload: Bytes) -> Result<(), WireError> {
        let own = self.config.incarnation;
        match RelayMail::decode(payload)? {
            RelayMail::Begin { incarnation, behind } => {
                for (number, publication) in self.relay.incoming.begin(from, incarnation, behind) {
                    self.publication(Source::Stream(from), number, publication);
                }
            }
            RelayMail::Arrived { incarnation, up_to } if incarnation == own => self.have_arrived(from, up_to),
            // The destination need not have copied yet what it has up to there: only `Arrived` acknowledges.
            RelayMail::Missing { incarnation, up_to, before } if incarnation == own => {
                self.send_straight(from, up_to, before);
            }
            RelayMail::Fence { incarnation, number, behind } => self.fence(from, incarnation, (number, behind)),
            RelayMail::Arrived { .. } | RelayMail::Missing { .. } => {}
        }
        Ok(())
    }

    fn have_arrived(&mut self, at: NodeId, up_to: u64) {
        let (acks, accepted) = (&mut self.acks, &mut self.accepted);
        self.relay.outgoing.arrived(at, up_to, |entry| {
            acks.arrived(entry, |shard, ticket, reason| crate::node::dispatch::note(accepted, shard, ticket, reason));
        });
    }

    /// Sends over the direct link what lies between these numbers of the stream, has not arrived and is not on that link.
    fn send_straight(&mut self, to: NodeId, after: u64, before: u64) {
        let Some(stream) = self.relay.outgoing.stream(to) else { return };
        let (sender, incarnation) = (self.config.node, self.config.incarnation);
        for (number, open) in stream.indirect(after, before) {
            let end = End { node: to, number, behind: 0 };
            let waybill = Waybill { sender, incarnation, hops: 0, ends: SmallVec::from_slice(&[end]) };
            let frame = frame(&open.message, (open.plain, open.retained_copy), waybill);
            if self.links.send(self.now.instant, to, frame).is_err() {
                // When there is room again, or a link: see `relay_due` and `relay_restarts`.
                break;
            }
            self.relay.repaired += 1;
            self.relay.outgoing.note_direct(end);
        }
    }

    /// A link has begun anew: the neighbour may have lost what it had, and may be another life.
    pub(in crate::node) fn relay_restarts(&mut self, node: NodeId) {
        if let Some(behind) = self.relay.outgoing.restart(node) {
            let mail = RelayMail::Begin { incarnation: self.config.incarnation, behind };
            self.send_control(node, ControlTopic::Relay, mail.encode());
            self.send_straight(node, 0, u64::MAX);
        }
    }

    /// A node is gone that others may have relied on: whatever is on its way goes straight.
    pub(in crate::node) fn relay_without(&mut self, node: NodeId) {
        self.relay.incoming.forget(node);
        self.fences_without();
        for to in self.relay.outgoing.waiting() {
            self.send_straight(to, 0, u64::MAX);
        }
    }

    pub(in crate::node) fn relay_due(&mut self) {
        self.fences_due();
        self.hand_out_due();
        let now = self.now.instant;
        if self.relay.next_look.is_none_or(|at| at > now) {
            return;
        }
        for to in self.relay.outgoing.overdue(now, PATIENCE) {
            self.send_straight(to, 0, u64::MAX);
        }
        self.relay.next_look = (self.relay.outgoing.len() > 0).then_some(now + PERIOD);
    }

    /// Ends a turn: acknowledges what has arrived.
    pub(in crate::node) fn acknowledge_arrivals(&mut self) {
        while let Some((sender, incarnation, up_to)) = self.relay.incoming.pop_due() {
            let mail = RelayMail::Arrived { incarnation, up_to };
            self.send_control(sender, ControlTopic::Relay, mail.encode());
        }
    }
}

/// A way for each of these, in the same order.
fn straight_ways(ends: &[End]) -> SmallVec<[Way; 4]> {
    ends.iter().map(|end| Way::straight(end.node)).collect()
}

/// The parcels for each next node.
fn legs(ends: &[End], ways: &[Way]) -> BTreeMap<NodeId, SmallVec<[End; 4]>> {
    let mut legs: BTreeMap<NodeId, SmallVec<[End; 4]>> = BTreeMap::new();
    for (end, way) in ends.iter().zip(ways) {
        legs.entry(way.next).or_default().push(*end);
    }
    legs
}

fn frame(message: &Arc<Message>, (plain, retained_copy): (bool, bool), waybill: Waybill) -> Frame {
    let waybill = Some(Box::new(waybill));
    let message = Arc::clone(message);
    Frame::Publication(Publication { message, plain, groups: SmallVec::new(), retained_copy, waybill })
}
