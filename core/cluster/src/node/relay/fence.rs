//! Mail between two nodes keeps its place among the publications between them, although those go other ways: what is said about
//! sessions, tables and copies rests on what was published before (DESIGN section 1, "SUBACK means the cluster knows").

use std::collections::{BTreeMap, VecDeque};

use sedge_base::{Duration, Incarnation, Instant, NodeId};

use super::Place;
use crate::link::{ControlTopic, Frame};
use crate::node::Node;
use crate::node::marks::Source;
use crate::wire::RelayMail;

/// How long mail waits for publications with QoS 0; those that come later are dropped. So long it waits for others before they are asked
/// for.
const PATIENCE: Duration = Duration::from_millis(100);
/// Frames of a neighbour that may wait; more are taken without their publications.
const MAX_WAITING: usize = 10_000;

/// A neighbour whose mail waits.
#[derive(Debug)]
struct Fence {
    incarnation: Incarnation,
    place: Place,
    deadline: Instant,
    waiting: VecDeque<(u64, Frame)>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Fences(BTreeMap<NodeId, Fence>);

impl Fences {
    pub(super) fn timeout(&self) -> Option<Instant> {
        self.0.values().map(|fence| fence.deadline).min()
    }
}

impl Node {
    /// Says, before control mail goes to a node, what that has to wait for there.
    pub(in crate::node) fn fence_off(&mut self, to: NodeId) {
        if let Some((number, behind)) = self.relay.outgoing.fence(to) {
            let mail = RelayMail::Fence { incarnation: self.config.incarnation, number, behind };
            self.send_control(to, ControlTopic::Relay, mail.encode());
        }
    }

    /// A neighbour's frame, if its turn has come; it waits otherwise.
    pub(in crate::node) fn admit(&mut self, from: NodeId, number: u64, frame: Frame) -> Option<Frame> {
        let Some(fence) = self.relay.fences.0.get_mut(&from) else { return Some(frame) };
        let passes = match &frame {
            Frame::Publication(publication) => publication.waybill.is_some(),
            Frame::Control { topic: ControlTopic::Relay, payload } => {
                !matches!(RelayMail::decode(payload.clone()), Ok(RelayMail::Fence { .. }))
            }
            Frame::Control { .. } => false,
        };
        if passes {
            return Some(frame);
        }
        fence.waiting.push_back((number, frame));
        if fence.waiting.len() > MAX_WAITING {
            self.counters.control_early += 1;
            self.open_fence(from);
        }
        None
    }

    pub(super) fn fence(&mut self, from: NodeId, incarnation: Incarnation, place: Place) {
        if !self.relay.incoming.has((from, incarnation), place) {
            let deadline = self.now.instant + PATIENCE;
            let waiting = VecDeque::new();
            self.relay.fences.0.insert(from, Fence { incarnation, place, deadline, waiting });
        }
    }

    /// Lets the mail of a neighbour in that need not wait any longer; false if there is none.
    pub(in crate::node) fn open_next_fence(&mut self) -> bool {
        let incoming = &self.relay.incoming;
        let mut fences = self.relay.fences.0.iter();
        let open = fences.find(|(from, fence)| incoming.has((**from, fence.incarnation), fence.place));
        let Some((from, _)) = open else { return false };
        self.open_fence(*from);
        true
    }

    /// Lets the mail of a neighbour in, up to its next fence.
    pub(in crate::node) fn open_fence(&mut self, from: NodeId) {
        let Some(fence) = self.relay.fences.0.remove(&from) else { return };
        let mut waiting = fence.waiting;
        while let Some((number, frame)) = waiting.pop_front() {
            self.frame(from, number, frame);
            if let Some(fence) = self.relay.fences.0.get_mut(&from) {
                fence.waiting.append(&mut waiting);
            }
        }
    }

    /// The link has begun anew, or the neighbour is gone: what it said before is taken as it is.
    pub(in crate::node) fn open_all_fences(&mut self, from: NodeId) {
        while self.relay.fences.0.contains_key(&from) {
            self.open_fence(from);
        }
    }

    pub(super) fn fences_due(&mut self) {
        let now = self.now.instant;
        let fences = self.relay.fences.0.iter_mut().filter(|(_, fence)| fence.deadline <= now);
        let due = fences.map(|(from, fence)| {
            fence.deadline = now + PATIENCE;
            ((*from, fence.incarnation), fence.place)
        });
        for (life, place) in due.collect::<Vec<_>>() {
            match self.relay.incoming.give_up(life, place) {
                Ok(ready) => {
                    for (number, publication) in ready {
                        self.publication(Source::Stream(life.0), number, publication);
                    }
                }
                Err(up_to) => {
                    let (incarnation, before) = (life.1, place.0.saturating_add(1));
                    let mail = RelayMail::Missing { incarnation, up_to, before };
                    self.send_control(life.0, ControlTopic::Relay, mail.encode());
                }
            }
        }
    }
}
