//! One other node as this one knows it.

use std::collections::{BTreeMap, BTreeSet};

use sedge_base::NodeId;
use sedge_mqtt::TopicFilter;

use super::interest::{Counts, Interest, Role, Sum};
use super::overlaps::Overlaps;
use super::signal::{Facts, SignalError};
use crate::Neighbour;
use crate::mesh::Answers;
use crate::spanning::Rank;
use crate::spanning::cost::Edge;

/// How far the neighbour's snapshot has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Incoming {
    #[default]
    Nothing,
    Snapshot,
    Complete,
}

/// State that lasts as long as one link.
#[derive(Debug, Default)]
pub(super) struct Session {
    /// Number of the link: no two links have the same.
    pub(super) link: u64,
    /// Signals given to the link.
    pub(super) sent: u64,
    /// Signals that have arrived over it.
    pub(super) heard: u64,
    pub(super) whole_sent: bool,
    pub(super) whole_heard: bool,
    /// The highest number of the neighbour's own.
    number: u64,
    pub(super) answers: Answers,
    incoming: Incoming,
}

/// Another node: its part in the topics of this node, and the link to it if there is one.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) neighbour: Neighbour,
    pub(super) session: Option<Session>,
    /// Membership has lost the node although a link stands: the node's interest is forgotten with the link.
    pub(super) lost: bool,
    /// The highest number of this node's signals that the peer has confirmed since the last link came up.
    pub(super) acked: u64,
    /// Of its interests those that concern this node, with the snapshot in which, or since which, each was last confirmed.
    held: Overlaps<u64>,
    groups: BTreeMap<TopicFilter, (Counts, u64)>,
    snapshot: u64,
    /// Of all that it has announced.
    pub(super) sum: Sum,
    pub(super) facts: Option<Facts>,
    pub(super) edge: Edge,
}

impl Peer {
    pub(super) fn new(neighbour: Neighbour) -> Self {
        Self {
            neighbour,
            session: None,
            lost: false,
            acked: 0,
            held: Overlaps::new(),
            groups: BTreeMap::new(),
            snapshot: 0,
            sum: Sum::default(),
            facts: None,
            edge: Edge::UNMEASURED,
        }
    }

    pub(super) fn link_up(&mut self, neighbour: Neighbour, link: u64) {
        self.neighbour = neighbour;
        self.lost = false;
        self.acked = 0;
        self.edge = Edge::UNMEASURED;
        self.session = Some(Session { link, ..Session::default() });
    }

    pub(super) const fn is_linked(&self) -> bool {
        self.session.is_some()
    }

    /// Whether either side has confirmed the interest that the other told when the link came up.
    pub(super) fn is_in_step(&self) -> bool {
        !self.lost && self.session.as_ref().is_some_and(|session| session.whole_sent && session.whole_heard)
    }

    /// Its rank by the capacity that it tells.
    pub(super) fn rank(&self) -> Rank {
        let capability = self.facts.as_ref().map_or(self.neighbour.capacity, |facts| facts.capacity);
        Rank { capability: u64::from(capability), address: self.neighbour.address, node: self.neighbour.node }
    }

    pub(super) fn begin_snapshot(&mut self) {
        if let Some(session) = &mut self.session {
            session.incoming = Incoming::Snapshot;
            self.snapshot += 1;
            self.sum = Sum::default();
        }
    }

    pub(super) fn check_chunk(&self) -> Result<(), SignalError> {
        match &self.session {
            Some(Session { incoming: Incoming::Snapshot, .. }) => Ok(()),
            _ => Err(SignalError::Value("order: chunk outside of a snapshot")),
        }
    }

    /// The snapshot is complete: returns the interests and groups that were not in it.
    pub(super) fn end_snapshot(&mut self, number: u64) -> Result<(Vec<Interest>, Vec<TopicFilter>), SignalError> {
        let Some(session) = self.session.as_mut().filter(|session| session.incoming == Incoming::Snapshot) else {
            return Err(SignalError::Value("order: end without a snapshot"));
        };
        if number < session.number {
            return Err(SignalError::Value("number"));
        }
        session.number = number;
        session.answers.rely(number);
        session.incoming = Incoming::Complete;
        let snapshot = self.snapshot;
        let groups = self.groups.extract_if(.., |_, (_, seen)| *seen != snapshot).map(|(group, _)| group).collect();
        Ok((self.held.extract(|seen| *seen != snapshot), groups))
    }

    /// A numbered question comes in; `is_question`: only about topics that are published, or no longer.
    pub(super) fn take_number(&mut self, number: u64, is_question: bool) -> Result<(), SignalError> {
        let Some(session) = self.session.as_mut().filter(|session| session.incoming != Incoming::Nothing) else {
            return Err(SignalError::Value("order: question before a snapshot"));
        };
        if number <= session.number {
            return Err(SignalError::Value("number"));
        }
        session.number = number;
        if !is_question {
            session.answers.rely(number);
        }
        Ok(())
    }

    /// Whether its digest can be compared: a whole snapshot is here.
    pub(super) fn is_complete(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.incoming == Incoming::Complete)
    }

    /// Keeps an interest; says whether it is new.
    pub(super) fn hold(&mut self, interest: Interest) -> bool {
        self.held.insert(interest, self.snapshot).is_none()
    }

    /// Says whether it was kept.
    pub(super) fn release(&mut self, interest: &Interest) -> bool {
        self.held.remove(interest).is_some()
    }

    /// Sets how many members of a shared subscription live there; returns how many there were.
    pub(super) fn set_group(&mut self, group: &TopicFilter, counts: Counts) -> Counts {
        let before = match counts {
            Counts::NONE => self.groups.remove(group),
            _ => self.groups.insert(group.clone(), (counts, self.snapshot)),
        };
        before.map_or(Counts::NONE, |(counts, _)| counts)
    }

    /// Takes out everything that it wants.
    pub(super) fn forget(&mut self) -> (Vec<Interest>, Vec<TopicFilter>) {
        self.sum = Sum::default();
        (self.held.extract(|_| true), core::mem::take(&mut self.groups).into_keys().collect())
    }

    /// Interests kept of the peer that overlap `filter`.
    pub(super) fn held_near<'a>(&'a self, filter: &'a TopicFilter) -> impl Iterator<Item = &'a Interest> {
        self.held.matching(filter).map(|(interest, _)| interest)
    }

    /// Filters that are kept of the peer.
    pub(super) fn wants(&self) -> impl Iterator<Item = &TopicFilter> {
        self.held.iter().filter(|(held, _)| held.role == Role::Subscriber).map(|(held, _)| &held.filter)
    }

    /// The filters that publications for it have to be kept by. Of topics that this node does not publish nobody here knows whether it
    /// wants them, so `#` is always among them.
    pub(super) fn routes(&self) -> impl Iterator<Item = TopicFilter> {
        let kept = self.wants().chain(self.groups.keys()).cloned();
        let wanted: BTreeSet<TopicFilter> = kept.chain(TopicFilter::new("#")).collect();
        wanted.into_iter()
    }
}

/// All other nodes that this one knows.
pub(super) type Peers = BTreeMap<NodeId, Peer>;
