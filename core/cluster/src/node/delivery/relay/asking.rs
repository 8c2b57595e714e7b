//! Publications to topics that are new here: those who have not said yet whether they want them get them when they have.
//!
//! Algorithms that learn from publications which topics there are ask all nodes about a new one. Its first publications go at once where
//! they are known to be wanted; for those who were asked they are kept back until all have answered, and go together to those that want them.
//!
//! ```text
//!  publisher's node                          others
//!  │ publish t 1  ask t                      │
//!  ├────────────────────────────────────────►│
//!  │ publish t 2                      wanted │
//!  │◄────────────────────────────────────────┤    kept for them: 1, 2
//!  │                              not wanted │
//!  │◄────────────────────────────────────────┤
//!  │ 1, 2                                    │    to the first only
//!  ├────────────────────────────────────────►│
//! ```
//!
//! After [`PATIENCE`] they no longer wait for each other: nodes that have answered get them. They go to nodes that have not answered [`LONGER`] after
//! that, when there is no room to keep more, and before mail on which more rests than on an answer (DESIGN section 1, "SUBACK means the
//! cluster knows"). So to a destination that wants them it looks as if they had been slow on their way, and one that says no would not have
//! wanted them when the question came, which was on the same link before them.
//!
//! # Order
//!
//! Publications to the same topic stay in order, and to each destination those with QoS 1 and 2 of one shard, whatever their topics: copies of
//! sessions and takeovers rest on that. So one to a known topic may have to wait behind one to a new topic. It does not wait for
//! all answers then: those before it go alone to the nodes that have answered.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use sedge_base::{Duration, Instant, NodeId, ShardId};
use sedge_mqtt::{Message, QoS, ReasonCode, TopicName};
use smallvec::SmallVec;

use super::outgoing::Open;
use super::{Dispatched, Parcel};
use crate::node::Node;

/// How long all wait for a node to answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// How much longer a node may take to answer, whose link may be busy.
const LONGER: Duration = Duration::from_secs(9);
/// Publications that are kept back, and their bytes; when there are more, those who would have to wait get everything at once.
const MAX_KEPT: usize = 1_000;
const MAX_KEPT_BYTES: usize = 16 * 1024 * 1024;
/// How many publications of the same shard one may fall behind: receivers tell apart what has come before within 4096.
const MAX_BEHIND: u64 = 1_024;
/// How often a publication is sent for the sake of mail before all have answered. Every time takes its way through the links again.
const MAX_HURRIES: u8 = 3;

/// A destination of something that is kept.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    parcel: Parcel,
    /// Whether it was asked and had not answered; if not, it waits for what is before it only.
    is_asked: bool,
}

/// A publication, and for whom it is kept.
#[derive(Debug)]
struct Kept {
    message: Arc<Message>,
    /// The publisher that waits for it.
    entry: Option<u64>,
    waiting: SmallVec<[Waiting; 4]>,
    until: Instant,
    /// Whether [`PATIENCE`] has ended.
    is_late: bool,
    hurries: u8,
}

/// A publication that is kept no longer.
#[derive(Debug)]
struct Released {
    message: Arc<Message>,
    entry: Option<u64>,
    waiting: SmallVec<[Waiting; 4]>,
}

/// Destinations of which the relay waits for nothing but the answer.
#[derive(Debug, Default)]
struct Blocked {
    topics: BTreeSet<(TopicName, NodeId)>,
    shards: BTreeSet<(ShardId, NodeId)>,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(in crate::node) struct Asking {
    kept: VecDeque<Kept>,
    bytes: usize,
    /// When something has waited long enough next.
    next: Option<Instant>,
    /// Of which shards publications with QoS 1 and 2 are kept for which nodes.
    ordered: BTreeSet<(ShardId, NodeId)>,
    /// Numbers of publications of shards below which nothing is kept.
    oldest: BTreeMap<ShardId, u64>,
    /// Somebody may have answered.
    is_news: bool,
    /// Destinations that did not want what was kept for them.
    pub(super) spared: u64,
    /// Destinations that got something without having answered.
    pub(super) unanswered: u64,
}

fn size(message: &Message) -> usize {
    message.payload.len() + message.topic.as_bytes().len() + 128
}

fn is_ordered(message: &Message) -> bool {
    message.qos > QoS::AtMostOnce
}

impl Blocked {
    fn has(&self, message: &Message, to: NodeId) -> bool {
        self.topics.contains(&(message.topic.clone(), to))
            || (is_ordered(message) && self.shards.contains(&(message.id.shard, to)))
    }

    fn add(&mut self, message: &Message, to: NodeId) {
        self.topics.insert((message.topic.clone(), to));
        if is_ordered(message) {
            self.shards.insert((message.id.shard, to));
        }
    }
}

impl Asking {
    pub(super) fn timeout(&self) -> Option<Instant> {
        self.next
    }

    /// Publications that are kept back.
    pub(in crate::node) fn len(&self) -> usize {
        self.kept.len()
    }

    /// An algorithm has heard something, or a link is down.
    pub(in crate::node) const fn note_news(&mut self) {
        self.is_news = true;
    }

    fn has_room(&self, message: &Message) -> bool {
        self.kept.len() < MAX_KEPT && self.bytes + size(message) <= MAX_KEPT_BYTES
    }

    /// Whether something is kept for a node that this has to stay behind.
    fn is_before(&self, message: &Message, to: NodeId) -> bool {
        let same_topic = |kept: &Kept| kept.message.topic == message.topic && kept.is_for(to);
        (is_ordered(message) && self.ordered.contains(&(message.id.shard, to))) || self.kept.iter().any(same_topic)
    }

    fn keep(&mut self, kept: Kept) {
        self.bytes += size(&kept.message);
        self.next = Some(self.next.map_or(kept.until, |next| next.min(kept.until)));
        self.oldest.entry(kept.message.id.shard).or_insert(kept.message.id.seq);
        if is_ordered(&kept.message) {
            self.ordered.extend(kept.waiting.iter().map(|waiting| (kept.message.id.shard, waiting.parcel.to)));
        }
        self.kept.push_back(kept);
    }

    fn take(&mut self) -> VecDeque<Kept> {
        (self.bytes, self.next) = (0, None);
        self.ordered.clear();
        self.oldest.clear();
        core::mem::take(&mut self.kept)
    }

    /// A node is gone: returns the publications that were kept for it with QoS 1 and 2.
    pub(in crate::node) fn forget(&mut self, node: NodeId) -> Vec<Open> {
        self.is_news = true;
        let mut found = Vec::new();
        for mut kept in self.take() {
            if let Some(at) = kept.waiting.iter().position(|waiting| waiting.parcel.to == node) {
                let Parcel { plain, retained_copy, .. } = kept.waiting.remove(at).parcel;
                if is_ordered(&kept.message) {
                    let (message, entry, since) = (Arc::clone(&kept.message), kept.entry, kept.until);
                    found.push(Open { message, plain, retained_copy, entry, since, direct: false });
                }
            }
            if !kept.waiting.is_empty() {
                self.keep(kept);
            }
        }
        found
    }

    /// For whom something to a topic that is known waits behind the publication at each place, by shard and node: the last such place.
    fn last_behind(&self) -> BTreeMap<(ShardId, NodeId), usize> {
        let mut last = BTreeMap::new();
        for (at, kept) in self.kept.iter().enumerate().filter(|(_, kept)| is_ordered(&kept.message)) {
            for waiting in kept.waiting.iter().filter(|waiting| !waiting.is_asked) {
                last.insert((kept.message.id.shard, waiting.parcel.to), at);
            }
        }
        last
    }

    /// Takes out what may go. `is_open`: whether a node has yet to say whether it wants a topic; `is_hurried`: whether a node gets something
    /// all the same.
    fn release(
        &mut self,
        is_open: impl Fn(&TopicName, NodeId) -> bool,
        is_hurried: impl Fn(&Kept, NodeId) -> bool,
    ) -> Vec<Released> {
        let last = self.last_behind();
        let mut blocked = Blocked::default();
        let mut released = Vec::new();
        for (at, mut kept) in self.take().into_iter().enumerate() {
            let (mut ready, mut hurried) = (BTreeSet::new(), false);
            for Waiting { parcel: Parcel { to, .. }, is_asked } in kept.waiting.iter().copied() {
                let is_now = is_hurried(&kept, to);
                hurried |= is_now;
                let has_answered = !is_asked || kept.hurries >= MAX_HURRIES || !is_open(&kept.message.topic, to);
                if is_now || (has_answered && !blocked.has(&kept.message, to)) {
                    ready.insert(to);
                }
            }
            let shard = kept.message.id.shard;
            let is_whole = ready.len() == kept.waiting.len();
            let goes = |waiting: &Waiting| {
                let to = waiting.parcel.to;
                let is_waited_for = last.get(&(shard, to)).is_some_and(|last| *last > at);
                let goes_alone = hurried || kept.is_late || (is_ordered(&kept.message) && is_waited_for);
                ready.contains(&to) && (is_whole || goes_alone)
            };
            let (now, later) = kept.waiting.iter().copied().partition(goes);
            kept.waiting = later;
            kept.hurries += u8::from(hurried);
            let now: SmallVec<[Waiting; 4]> = now;
            if !now.is_empty() {
                released.push(Released { message: Arc::clone(&kept.message), entry: kept.entry, waiting: now });
            }
            if !kept.waiting.is_empty() {
                kept.waiting.iter().for_each(|waiting| blocked.add(&kept.message, waiting.parcel.to));
                self.keep(kept);
            }
        }
        released
    }
}

impl Kept {
    fn is_for(&self, to: NodeId) -> bool {
        self.waiting.iter().any(|waiting| waiting.parcel.to == to)
    }
}

impl Node {
    /// Keeps a publication of a client of this node back from those who may not want it; leaves those to whom it goes at once. Returns for how
    /// many its publisher has to wait besides, and how many of them may not want it.
    pub(in crate::node) fn keep_back(
        &mut self,
        message: &Arc<Message>,
        entry: Option<u64>,
        parcels: &mut SmallVec<[Parcel; 8]>,
    ) -> (usize, usize) {
        let mut asked = Vec::new();
        if !message.retain {
            self.overlay.unanswered(&message.topic, &mut asked);
        }
        if asked.is_empty() && self.relay.asking.kept.is_empty() {
            return (0, 0);
        }
        let asking = &self.relay.asking;
        let mut waiting = SmallVec::<[Waiting; 4]>::new();
        for parcel in parcels.iter().copied() {
            let is_asked = asked.contains(&parcel.to);
            if is_asked || asking.is_before(message, parcel.to) {
                waiting.push(Waiting { parcel, is_asked });
            }
        }
        if waiting.is_empty() {
            return (0, 0);
        }
        if !asking.has_room(message) {
            let is_waiting = |to| waiting.iter().any(|waiting| waiting.parcel.to == to);
            self.hand_out(|_, to| is_waiting(to));
            return (0, 0);
        }
        parcels.retain(|parcel| waiting.iter().all(|waiting| waiting.parcel.to != parcel.to));
        let is_asked = waiting.iter().filter(|waiting| waiting.is_asked).count();
        let counts = if is_ordered(message) { (waiting.len(), is_asked) } else { (0, 0) };
        // A message that is kept long must not hold the buffer that its packet came in.
        let (message, until) = (sedge_broker::detach(message), self.now.instant + PATIENCE);
        self.relay.asking.keep(Kept { message, entry, waiting, until, is_late: false, hurries: 0 });
        counts
    }

    /// A client of this node publishes: the messages kept of its shard must not fall too far behind.
    pub(in crate::node) fn keep_pace(&mut self, message: &Message) {
        let oldest = self.relay.asking.oldest.get(&message.id.shard);
        if oldest.is_some_and(|oldest| message.id.seq > oldest.saturating_add(MAX_BEHIND)) {
            self.hand_out_all();
        }
    }

    /// Ends a turn: sends each kept message for which all destinations have answered.
    pub(in crate::node) fn hand_out_answered(&mut self) {
        if core::mem::take(&mut self.relay.asking.is_news) {
            self.hand_out(|_, _| false);
        }
    }

    /// Sends what has been kept long enough.
    pub(super) fn hand_out_due(&mut self) {
        let now = self.now.instant;
        if self.relay.asking.timeout().is_some_and(|until| until <= now) {
            for kept in self.relay.asking.kept.iter_mut().filter(|kept| !kept.is_late && kept.until <= now) {
                kept.is_late = true;
                kept.until = kept.until + LONGER;
            }
            self.hand_out(|kept, _| kept.until <= now);
        }
    }

    /// Sends all that is kept.
    pub(in crate::node) fn hand_out_all(&mut self) {
        self.hand_out(|_, _| true);
    }

    /// Mail is about to go to a node that has to find there what was published before it: sends what is kept for that node. Others who are
    /// known to want it get theirs with it, since a part of the way may be the same.
    pub(in crate::node) fn hand_out_for(&mut self, to: NodeId) {
        if self.relay.asking.kept.iter().any(|kept| kept.is_for(to)) {
            self.hand_out(|_, one| one == to);
        }
    }

    /// Sends what is kept to those who want it, and in a hurry to those who have not answered.
    fn hand_out(&mut self, is_hurried: impl Fn(&Kept, NodeId) -> bool) {
        if self.relay.asking.kept.is_empty() {
            return;
        }
        let mut open = BTreeMap::<TopicName, Vec<NodeId>>::new();
        for kept in &self.relay.asking.kept {
            if !open.contains_key(&kept.message.topic) {
                let mut nodes = Vec::new();
                self.overlay.unanswered(&kept.message.topic, &mut nodes);
                open.insert(kept.message.topic.clone(), nodes);
            }
        }
        let is_open = |topic: &TopicName, to| open.get(topic).is_some_and(|nodes| nodes.contains(&to));
        let released = self.relay.asking.release(is_open, is_hurried);
        for released in released {
            self.send_released(&released, is_open);
        }
    }

    fn send_released(&mut self, released: &Released, is_open: impl Fn(&TopicName, NodeId) -> bool) {
        let Released { message, entry, waiting } = released;
        let mut wanting = Vec::new();
        self.overlay.destinations(&message.topic, &mut wanting);
        let goes = |waiting: &&Waiting| {
            let Waiting { parcel, is_asked } = waiting;
            let is_wanted = !is_asked || parcel.retained_copy || wanting.contains(&parcel.to);
            is_wanted && self.peers.contains_key(&parcel.to)
        };
        let wanted: SmallVec<[Waiting; 4]> = waiting.iter().filter(goes).copied().collect();
        let is_unsure = |one: &&Waiting| one.is_asked && is_open(&message.topic, one.parcel.to);
        self.relay.asking.spared += (waiting.len() - wanted.len()) as u64;
        self.relay.asking.unanswered += wanted.iter().filter(is_unsure).count() as u64;
        // As for whoever publishes to a topic that is known: see `publish`.
        let has_room = |one: &&Waiting| entry.is_none() || !one.is_asked || !self.is_full_at(one.parcel.to);
        let parcels: SmallVec<[Parcel; 8]> = wanted.iter().filter(has_room).map(|one| one.parcel).collect();
        let sent =
            if parcels.is_empty() { Dispatched::default() } else { self.dispatch(message, &parcels, *entry, false) };
        let Some(entry) = entry else { return };
        // The publisher knows of the others: they have been counted in `publish`.
        if wanted.iter().any(|one| one.is_asked) {
            self.acks.wanted(*entry);
        }
        self.counters.publications_refused += (wanted.len() - parcels.len()) as u64;
        let accepted = &mut self.accepted;
        let mut note = |shard, ticket, reason| crate::node::dispatch::note(accepted, shard, ticket, reason);
        for _ in sent.placed..wanted.len() {
            self.acks.refused(*entry, ReasonCode::QuotaExceeded, &mut note);
        }
        for _ in (wanted.len()..waiting.len()).chain(sent.kept..sent.placed) {
            self.acks.arrived(*entry, &mut note);
        }
    }
}
