//! Mail between two nodes keeps its place among the publications between them, although those go other ways: mail about
//! sessions, tables and copies rests on earlier publications (DESIGN section 1, "SUBACK means the cluster knows").

use std::collections::{BTreeMap, VecDeque};

use sedge_base::{Duration, Incarnation, Instant, NodeId};

use super::Place;
use crate::link::{ControlTopic, Frame};
use crate::node::Node;
use crate::node::delivery::copied::Source;
use crate::wire::RelayMail;

/// How long mail waits for publications with QoS 0; those that come later are dropped. So long it waits for others before they are asked
/// for.
const PATIENCE: Duration = Duration::from_millis(100);
/// Publications of the sender that come at such distances are a stream in front of a busy link: mail waits on.
const DISTANCE: Duration = Duration::from_secs(1);
/// But no longer than this.
const LONGEST: Duration = Duration::from_secs(10);
/// Frames of a neighbour that may wait; more are taken without their publications.
const MAX_WAITING: usize = 10_000;

/// A neighbour whose mail waits.
#[derive(Debug)]
struct Fence {
    incarnation: Incarnation,
    place: Place,
    deadline: Instant,
    /// When the patience with QoS 0 ends.
    end: Instant,
    waiting: VecDeque<(u64, Frame)>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Fences {
    fences: BTreeMap<NodeId, Fence>,
    /// When the last publication of each sender came.
    last: BTreeMap<NodeId, Instant>,
}

impl Fences {
    pub(super) fn timeout(&self) -> Option<Instant> {
        self.fences.values().map(|fence| fence.deadline).min()
    }
}

impl Node {
    /// Tells a node, before control mail goes there, the publications that the mail has to wait for.
    pub(in crate::node) fn fence_off(&mut self, to: NodeId) {
        if let Some((number, behind)) = self.relay.outgoing.fence(to) {
            let mail = RelayMail::Fence { incarnation: self.config.incarnation, number, behind };
            self.send_control(to, ControlTopic::Relay, mail.encode());
        }
    }

    /// A neighbour's frame, if its turn has come; it waits otherwise.
    pub(in crate::node) fn admit(&mut self, from: NodeId, number: u64, frame: Frame) -> Option<Frame> {
        let Some(fence) = self.relay.fences.fences.get_mut(&from) else { return Some(frame) };
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
        if self.relay.incoming.has((from, incarnation), place) {
            return self.relay.incoming.seal((from, incarnation), place);
        }
        let now = self.now.instant;
        let stream_ends = self.relay.fences.last.get(&from).map_or(now, |last| *last + DISTANCE);
        let (deadline, end) = ((now + PATIENCE).max(stream_ends), now + LONGEST);
        let waiting = VecDeque::new();
        self.relay.fences.fences.insert(from, Fence { incarnation, place, deadline, end, waiting });
    }

    /// Something of a sender's stream has come: the publications that its mail waits for may be behind that.
    pub(super) fn put_off_fence(&mut self, from: NodeId) {
        let now = self.now.instant;
        self.relay.fences.last.insert(from, now);
        if let Some(fence) = self.relay.fences.fences.get_mut(&from) {
            fence.deadline = (now + DISTANCE).min(fence.end).max(fence.deadline);
        }
    }

    /// Lets the mail of a neighbour in that need not wait any longer; false if there is none.
    pub(in crate::node) fn open_next_fence(&mut self) -> bool {
        let incoming = &self.relay.incoming;
        let mut fences = self.relay.fences.fences.iter();
        let open = fences.find(|(from, fence)| incoming.has((**from, fence.incarnation), fence.place));
        let Some((from, _)) = open else { return false };
        self.open_fence(*from);
        true
    }

    /// Lets the mail of a neighbour in, up to its next fence.
    pub(in crate::node) fn open_fence(&mut self, from: NodeId) {
        let Some(Fence { incarnation, place, mut waiting, .. }) = self.relay.fences.fences.remove(&from) else {
            return;
        };
        self.relay.incoming.seal((from, incarnation), place);
        while let Some((number, frame)) = waiting.pop_front() {
            self.frame(from, number, frame);
            if let Some(fence) = self.relay.fences.fences.get_mut(&from) {
                fence.waiting.append(&mut waiting);
            }
        }
    }

    /// The link has begun anew, or the neighbour is gone: its earlier mail is taken as it is.
    pub(in crate::node) fn open_all_fences(&mut self, from: NodeId) {
        self.relay.fences.last.remove(&from);
        while self.relay.fences.fences.contains_key(&from) {
            self.open_fence(from);
        }
    }

    /// A node is gone over which publications may have come: those with QoS 0 that are missing are lost with it, and mail waits no longer for them.
    pub(super) fn fences_without(&mut self) {
        let end = self.now.instant + PATIENCE;
        for fence in self.relay.fences.fences.values_mut() {
            fence.end = fence.end.min(end);
            fence.deadline = fence.deadline.min(end);
        }
    }

    pub(super) fn fences_due(&mut self) {
        let now = self.now.instant;
        let fences = self.relay.fences.fences.iter_mut().filter(|(_, fence)| fence.deadline <= now);
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
