//! Nodes that are gone and whose sessions another node takes over: messages for them are kept until that node has them (FT-20 to FT-24).
//!
//! The interest of such nodes is remembered, so that nothing that is published meanwhile is overlooked, and publishers wait for their
//! acknowledgements as if the node were slow. Where no node is left that has copies, the gone node may still live on the other side of a
//! partition: publishers do not wait then, and a node that comes back gets the messages that were kept.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use sedge_base::{Deadlines, Duration, Incarnation, Instant, NodeId, Seed};
use sedge_mqtt::{Message, QoS, SubscriptionTrie, TopicFilter, TopicName};
use smallvec::SmallVec;

use crate::link::{ControlTopic, Frame, Publication};
use crate::mail::{Life, Location, TableChange};
use crate::node::Node;
use crate::node::delivery::relay::Parcel;
use crate::node::peers::Peer;
use crate::wire::{ReplicaMail, Stray};

/// How long a successor may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long something is kept for a node that is gone with all its successors.
const ABSENCE: Duration = Duration::from_mins(10);
/// How long it is kept for others that are away when that node has come back.
const RETURN: Duration = Duration::from_secs(10);
/// How long a node may be away and nobody know it.
const UNNOTICED: Duration = Duration::from_secs(3);
/// The interest of a node of which nothing is known.
pub(in crate::node) const ALL: &str = "#";
/// Strays in one mail.
const PER_MAIL: usize = 256;
/// Lives that were taken over and are remembered.
const MAX_TAKEN: usize = 64;
/// How long they are: the news of a death spread faster, and a node that lives after all may really die later.
const TAKEN_FOR: Duration = Duration::from_secs(5);
/// Nodes that are gone and are remembered; the one with the lowest id is forgotten first.
const MAX_ENDED: usize = 1024;

/// See the module.
#[derive(Debug)]
pub(in crate::node) struct Orphans {
    nodes: BTreeMap<NodeId, Orphaned>,
    /// The interest of these nodes' sessions.
    filters: SubscriptionTrie<NodeId, ()>,
    /// For how many of these nodes a filter is kept in the shards' tables.
    kept: BTreeMap<TopicFilter, u32>,
    /// Filters that nobody else wants.
    withdrawn: BTreeSet<TopicFilter>,
    deadlines: Deadlines<NodeId>,
    /// Lives whose sessions somebody has.
    taken: VecDeque<(Life, Instant)>,
    /// Lives that have ended as this node sees it.
    ended: BTreeMap<NodeId, Incarnation>,
    /// Nodes that were gone, and have not said yet what they want, should they be back. Since when, also by the stamps of this node's shards
    /// in milliseconds.
    away: BTreeMap<NodeId, (Instant, u64)>,
    /// Successors who have asked before this node knew.
    early: Vec<(NodeId, Life, Instant)>,
    /// Whether the overlay has told that some other node wants everything.
    is_all_wanted: bool,
    /// Bytes kept for the sessions of one node; more are dropped and counted.
    max_bytes: usize,
    dropped: u64,
}

#[derive(Debug)]
struct Orphaned {
    incarnation: Incarnation,
    /// When it was known to be gone.
    since: Instant,
    /// The nodes that take the sessions over, one after the other should they die, too.
    successors: Vec<NodeId>,
    filters: BTreeSet<TopicFilter>,
    /// Shared subscriptions of which it is taken for a place with members until somebody has them.
    groups: BTreeSet<TopicFilter>,
    strays: Vec<Stray>,
    /// So many of the first of them are for others only: it was back then.
    for_others: usize,
    bytes: usize,
    /// Whether there is a successor for whom publishers wait.
    is_awaited: bool,
    /// The successor that was sent all that is kept here. Its own members of shared subscriptions are known here since before.
    given_to: Option<NodeId>,
    /// Whether the node has come back, so that the kept messages are for others.
    is_back: bool,
    /// Nodes that have come back, and how much of what was kept they have.
    told: BTreeMap<Life, usize>,
}

/// Whether a publication is kept for a node that is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::node) enum Kept {
    /// It is not.
    No,
    /// It is, and its publisher has to wait.
    Awaited,
    /// It is, in case that the node comes back.
    Absent,
}

impl Orphaned {
    /// From which stamp on another node may have missed what is kept, that was known to be away from that time on. If both went together, that
    /// may have been earlier.
    fn missed_by(&self, at: Instant, stamp: u64) -> u64 {
        let unnoticed = u64::try_from(UNNOTICED.as_millis()).unwrap_or(u64::MAX);
        if at < self.since + UNNOTICED { stamp.saturating_sub(unnoticed) } else { stamp }
    }

    /// Messages that are kept for the node itself.
    fn own(&self) -> &[Stray] {
        if self.is_back { &[] } else { self.strays.get(self.for_others..).unwrap_or_default() }
    }

    /// Keeps a publication; false if that would be more than `max_bytes`.
    fn push(&mut self, stray: Stray, max_bytes: usize) -> bool {
        let size = stray.message.payload.len() + stray.message.topic.as_bytes().len() + 128;
        if self.bytes + size > max_bytes {
            return false;
        }
        self.bytes += size;
        self.strays.push(stray);
        true
    }
}

impl Orphans {
    /// Nodes that are gone and whose sessions a successor is about to have.
    pub(in crate::node) fn awaited(&self) -> impl Iterator<Item = NodeId> {
        self.nodes.iter().filter(|(_, orphaned)| orphaned.is_awaited).map(|(node, _)| *node)
    }

    pub(in crate::node) fn new(max_bytes: usize, seed: Seed) -> Self {
        Self {
            nodes: BTreeMap::new(),
            filters: SubscriptionTrie::with_seed(seed),
            kept: BTreeMap::new(),
            withdrawn: BTreeSet::new(),
            deadlines: Deadlines::new(),
            taken: VecDeque::new(),
            ended: BTreeMap::new(),
            away: BTreeMap::new(),
            early: Vec::new(),
            is_all_wanted: false,
            max_bytes,
            dropped: 0,
        }
    }

    /// Nodes whose sessions want a publication.
    fn matching(&self, topic: &TopicName) -> SmallVec<[NodeId; 2]> {
        let mut found = SmallVec::new();
        if !self.nodes.is_empty() {
            self.filters.matches(topic, |node, ()| {
                if !found.contains(node) {
                    found.push(*node);
                }
            });
        }
        found
    }

    /// Other nodes want, or no longer want, a filter. Returns whether the shards are to be told.
    pub(in crate::node) fn note_route(&mut self, filter: &TopicFilter, wanted: bool) -> bool {
        if filter.as_str() == ALL {
            self.is_all_wanted = wanted;
        }
        if wanted {
            self.withdrawn.remove(filter);
            return true;
        }
        let kept = self.kept.contains_key(filter);
        if kept {
            self.withdrawn.insert(filter.clone());
        }
        !kept
    }

    fn keep(&mut self, node: NodeId, filters: &BTreeSet<TopicFilter>) {
        for filter in filters {
            self.filters.insert(filter, node, ());
            *self.kept.entry(filter.clone()).or_default() += 1;
        }
    }

    /// Keeps everything for a node that is kept for. Returns whether the shards are to be told.
    pub(in crate::node) fn keep_all(&mut self, node: NodeId, all: &TopicFilter) -> bool {
        let is_known = self.is_all_wanted || self.kept.contains_key(all);
        let Some(orphaned) = self.nodes.get_mut(&node).filter(|orphaned| !orphaned.filters.contains(all)) else {
            return false;
        };
        orphaned.filters.insert(all.clone());
        self.keep(node, &BTreeSet::from([all.clone()]));
        if !is_known {
            self.withdrawn.insert(all.clone());
        }
        !is_known
    }

    /// Bytes that are kept.
    pub(in crate::node) fn bytes(&self) -> usize {
        self.nodes.values().map(|orphaned| orphaned.bytes).sum()
    }

    /// Returns the filters that nobody wants any more.
    fn let_go(&mut self, node: NodeId, filters: &BTreeSet<TopicFilter>) -> Vec<TopicFilter> {
        let mut unwanted = Vec::new();
        for filter in filters {
            self.filters.remove(filter, &node);
            let Some(count) = self.kept.get_mut(filter) else { continue };
            *count -= 1;
            if *count == 0 {
                self.kept.remove(filter);
                unwanted.extend(self.withdrawn.take(filter));
            }
        }
        unwanted
    }

    pub(in crate::node) fn timeout(&self) -> Option<Instant> {
        self.deadlines.next()
    }

    /// Whether another node takes over the sessions of this one.
    pub(in crate::node) fn has(&self, node: NodeId) -> bool {
        self.nodes.contains_key(&node)
    }

    /// Whether it is known who takes over from a node that is gone.
    pub(in crate::node) fn knows_successors(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|orphaned| !orphaned.successors.is_empty())
    }

    /// Publications that were dropped because there were too many.
    pub(in crate::node) const fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Nodes that were gone, and have not said yet what they want.
    pub(in crate::node) fn away(&self) -> usize {
        self.away.len()
    }

    /// Whether what this node wanted is kept for it, or for others, and nobody is known to take over its sessions.
    fn is_absent(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|orphaned| !orphaned.is_awaited)
    }

    /// How many nodes' sessions are being taken over.
    pub(in crate::node) fn nodes(&self) -> usize {
        self.nodes.values().filter(|orphaned| orphaned.is_awaited).count()
    }

    /// Messages that are kept.
    pub(in crate::node) fn len(&self) -> usize {
        self.nodes.values().map(|orphaned| orphaned.strays.len()).sum()
    }

    /// A successor asks about a life that has not ended as this node sees it.
    fn asks(&mut self, by: NodeId, life: Life, now: Instant) {
        self.early.retain(|(asker, of, at)| (*asker, *of) != (by, life) && now < *at + TAKEN_FOR);
        self.early.push((by, life, now));
    }

    /// Whether somebody has asked about a life that has not ended as this node sees it.
    fn is_asked_early(&self, life: Life, now: Instant) -> bool {
        self.early.iter().any(|(_, of, at)| *of == life && now < *at + TAKEN_FOR)
    }

    /// Whether somebody has the sessions of this life already.
    pub(in crate::node) fn is_taken(&self, life: Life, now: Instant) -> bool {
        self.taken.iter().any(|(taken, at)| *taken == life && now < *at + TAKEN_FOR)
    }

    /// This life goes on after all.
    pub(in crate::node) fn lives(&mut self, life: Life) {
        self.taken.retain(|(taken, _)| *taken != life);
        self.ended.remove(&life.node);
    }

    /// A node is gone that has not said farewell: it may be on the other side of a partition.
    pub(in crate::node) fn is_away(&mut self, now: Instant, stamp: u64, node: NodeId) {
        self.away.retain(|_, (at, _)| now < *at + ABSENCE);
        self.away.insert(node, (now, stamp));
        if self.away.len() > MAX_ENDED {
            self.away.pop_first();
        }
    }

    /// This life has ended; false if that is no news.
    pub(in crate::node) fn ends(&mut self, life: Life) -> bool {
        let is_news = self.ended.insert(life.node, life.incarnation) != Some(life.incarnation);
        if self.ended.len() > MAX_ENDED {
            self.ended.pop_first();
        }
        is_news
    }
}

impl Node {
    /// A node is gone, and others have its sessions: keeps the messages that were on their way there, and those still to come.
    pub(in crate::node) fn orphan(&mut self, life: Life, successors: Vec<NodeId>, strays: Vec<Stray>) {
        let Life { node, incarnation } = life;
        // Messages that the node was not to get when it was back are still for others that were away at the same time. Messages kept while it lived
        // and could not be reached are its own.
        let is_kept = |before: &&mut Orphaned| before.is_back || before.incarnation == incarnation;
        let before = self.orphans.nodes.get_mut(&node).filter(is_kept).map(|before| {
            let (kept, told) = (core::mem::take(&mut before.strays), core::mem::take(&mut before.told));
            let for_others = if before.is_back { kept.len() } else { before.for_others };
            (kept, for_others, before.bytes, told, before.filters.clone())
        });
        let (kept, for_others, bytes, told, mut filters) = before.unwrap_or_default();
        self.end_orphan(node);
        let routes = self.overlay.routes(0, usize::MAX).into_iter().filter(|route| route.node == node);
        filters.extend(routes.map(|route| route.filter).filter(|filter| filter.share_group().is_none()));
        self.orphans.keep(node, &filters);
        let is_awaited = successors.iter().any(|successor| self.ring.binary_search(successor).is_ok());
        let mut orphaned = Orphaned {
            incarnation,
            since: self.now.instant,
            successors,
            filters,
            groups: BTreeSet::new(),
            for_others,
            strays: kept,
            bytes,
            is_awaited,
            given_to: None,
            is_back: false,
            told,
        };
        for stray in strays {
            self.orphans.dropped += u64::from(!orphaned.push(stray, self.orphans.max_bytes));
        }
        self.orphans.nodes.insert(node, orphaned);
        self.orphans.deadlines.set(node, self.now.instant + if is_awaited { PATIENCE } else { ABSENCE });
    }

    /// A node has come back that may have been on the other side of a partition: it gets what was kept for it and, as its sessions may have been
    /// at any node that was away at the same time, for those, ahead of everything that is published from now on. It can tell what it has had.
    pub(in crate::node) fn give_kept(&mut self, to: Life) {
        let away = self.orphans.away.get(&to.node).copied();
        let mut kept = Vec::new();
        for (node, orphaned) in &mut self.orphans.nodes {
            let goes_on = *node == to.node && (!orphaned.is_awaited || orphaned.incarnation == to.incarnation);
            let missed_since = match away.filter(|_| !orphaned.is_awaited) {
                _ if goes_on => 0,
                Some((at, stamp)) => orphaned.missed_by(at, stamp),
                None => continue,
            };
            let told = orphaned.told.insert(to, orphaned.strays.len()).unwrap_or_default();
            if goes_on {
                let given = told.saturating_sub(orphaned.for_others);
                kept.extend(orphaned.own().iter().skip(given).cloned());
            } else {
                let missed = orphaned.strays.iter().skip(told).filter(|stray| stray.plain);
                let missed = missed.filter(|stray| stray.message.stamp.millis >= missed_since);
                kept.extend(missed.cloned().map(|stray| Stray { groups: Vec::new(), ..stray }));
            }
        }
        kept.sort_by_key(|stray| (stray.message.id.shard, stray.message.id.incarnation, stray.message.id.seq));
        kept.dedup_by(|more, stray| {
            let is_same = more.message.id == stray.message.id;
            if is_same {
                stray.plain |= more.plain;
                stray.groups.append(&mut more.groups);
            }
            is_same
        });
        for Stray { message, mut plain, groups } in kept {
            if plain && self.overlay.relays() {
                let parcel = Parcel { to: to.node, plain, retained_copy: false };
                self.dispatch(&message, &[parcel], None, true);
                plain = false;
            }
            if !plain && groups.is_empty() {
                continue;
            }
            let publication =
                Publication { message, plain, groups: groups.into(), retained_copy: false, waybill: None };
            if self.links.send(self.now.instant, to.node, Frame::Publication(publication)).is_err() {
                self.orphans.dropped += 1;
            }
        }
    }

    /// A node that was gone has told its interest: it need not be remembered. Others may have taken its sessions over, and
    /// the kept messages are theirs, too.
    pub(in crate::node) fn has_returned(&mut self, Life { node, incarnation }: Life) {
        self.orphans.away.remove(&node);
        if self.orphans.nodes.get(&node).is_some_and(|known| known.is_awaited && known.incarnation == incarnation) {
            // It goes on with its sessions itself, and has everything.
            return self.end_orphan(node);
        }
        if let Some(orphaned) = self.orphans.nodes.get_mut(&node).filter(|orphaned| !orphaned.is_awaited) {
            orphaned.is_back = true;
            self.orphans.deadlines.set(node, self.now.instant + RETURN);
        }
        if self.orphans.away.is_empty() {
            let back = self.orphans.nodes.iter().filter(|(_, orphaned)| orphaned.is_back);
            for node in back.map(|(node, _)| *node).collect::<Vec<_>>() {
                self.end_orphan(node);
            }
        }
    }

    /// The nodes to which a publication goes because of gone nodes that this node sees to: those themselves, and each node that is linked again and
    /// has not told its interest yet. That one gets messages kept for others at once, lest they come behind those of interest it has told already.
    pub(in crate::node) fn plan_for_orphans(&mut self, message: &Arc<Message>, nodes: &mut Vec<NodeId>) {
        let matching = self.orphans.matching(&message.topic);
        if message.qos > QoS::AtMostOnce && matching.iter().any(|node| self.orphans.is_absent(*node)) {
            let is_linked = |node: &&NodeId| self.peers.get(node).is_some_and(Peer::is_linked);
            nodes.extend(self.orphans.away.keys().filter(is_linked));
        }
        for node in matching {
            if !self.keep_for_others(node, message) {
                nodes.push(node);
            }
        }
    }

    /// A publication that a node wanted which has come back: it says itself whether it wants it still, but a session that did may have moved to
    /// one that is still away. False if it is not back.
    fn keep_for_others(&mut self, node: NodeId, message: &Arc<Message>) -> bool {
        let Some(orphaned) = self.orphans.nodes.get_mut(&node).filter(|orphaned| orphaned.is_back) else {
            return false;
        };
        if message.qos > QoS::AtMostOnce {
            let stray = Stray { message: sedge_broker::detach(message), plain: true, groups: Vec::new() };
            self.orphans.dropped += u64::from(!orphaned.push(stray, self.orphans.max_bytes));
        }
        true
    }

    /// A publication for a node that is gone.
    pub(in crate::node) fn stray(
        &mut self,
        node: NodeId,
        message: &Arc<Message>,
        plain: bool,
        groups: &[TopicFilter],
    ) -> Kept {
        let groups = if self.keeps_for_groups(node) { groups } else { &[] };
        let orphaned = self.orphans.nodes.get_mut(&node).filter(|orphaned| !orphaned.is_back);
        let Some(orphaned) = orphaned else { return Kept::No };
        if message.qos == QoS::AtMostOnce || (!plain && groups.is_empty()) {
            return Kept::No;
        }
        let stray = Stray { message: sedge_broker::detach(message), plain, groups: groups.to_vec() };
        let is_kept = orphaned.push(stray, self.orphans.max_bytes);
        self.orphans.dropped += u64::from(!is_kept);
        match (is_kept, orphaned.is_awaited) {
            (false, _) => Kept::No,
            (true, true) => Kept::Awaited,
            (true, false) => Kept::Absent,
        }
    }

    /// Whether the successor of a node that is gone chooses members for what is kept. A shared subscription has members elsewhere, or none; once the
    /// successor has what was kept, others are chosen at once.
    pub(in crate::node) fn keeps_for_groups(&self, node: NodeId) -> bool {
        self.orphans.nodes.get(&node).is_some_and(|orphaned| {
            let life = Life { node, incarnation: orphaned.incarnation };
            let is_given = orphaned.given_to.is_some_and(|to| self.ring.contains(&to));
            orphaned.is_awaited && !is_given && !self.takeovers.is_arriving(life)
        })
    }

    /// The first of the nodes that have copies of this one's sessions and live.
    pub(in crate::node) fn successor_of(&self, node: NodeId) -> Option<NodeId> {
        let orphaned = self.orphans.nodes.get(&node)?;
        orphaned.successors.iter().copied().find(|successor| self.ring.binary_search(successor).is_ok())
    }

    /// Messages that are kept for a node.
    pub(in crate::node) fn strays_of(&self, node: NodeId) -> Vec<Stray> {
        self.orphans.nodes.get(&node).map(|orphaned| orphaned.own().to_vec()).unwrap_or_default()
    }

    /// Whether this node has not seen to the end of this life yet, whatever membership may know already.
    pub(in crate::node) fn knows_alive(&self, life: Life) -> bool {
        self.peers.get(&life.node).is_some_and(|peer| peer.incarnation == Some(life.incarnation))
    }

    /// A successor asks what was on its way to a node.
    pub(in crate::node) fn strays_wanted(&mut self, by: NodeId, of: NodeId, incarnation: Incarnation) {
        let life = Life { node: of, incarnation };
        let is_gone = !self.knows_alive(life);
        if is_gone && self.reclaims.is_held_up() {
            // The successor is to know of all that is kept here before it hears that this is all.
            self.orphans.asks(by, life, self.now.instant);
            return self.give_strays(by, life, false);
        }
        if !is_gone {
            // As this node sees it, the node is not gone yet, or is back. Messages kept while it was gone are there to be asked for; this node can
            // tell which ones are on their way there now when the node is gone again.
            self.orphans.asks(by, life, self.now.instant);
            self.membership.handle(self.now, sedge_membership::Input::Suspect { node: of });
        }
        self.give_strays(by, life, is_gone);
    }

    /// A node is gone: answers the successors that have asked before.
    pub(in crate::node) fn give_early(&mut self, life: Life) {
        if self.reclaims.is_held_up() {
            return;
        }
        let early = core::mem::take(&mut self.orphans.early);
        let (due, early): (Vec<_>, Vec<_>) = early.into_iter().partition(|(_, of, _)| *of == life);
        self.orphans.early = early;
        for (by, of, _) in due {
            self.give_strays(by, of, true);
        }
    }

    /// All that is kept here is known: answers who has asked about nodes that are gone.
    pub(in crate::node) fn give_all_early(&mut self) {
        let lives: BTreeSet<Life> = self.orphans.early.iter().map(|(_, life, _)| *life).collect();
        for life in lives {
            if !self.knows_alive(life) {
                self.give_early(life);
            }
        }
    }

    /// Sends what is kept for a node that is gone; `is_all`: there will be nothing else.
    fn give_strays(&mut self, to: NodeId, life: Life, is_all: bool) {
        let Life { node: of, incarnation } = life;
        let orphaned = self.orphans.nodes.get_mut(&of).filter(|orphaned| orphaned.incarnation == incarnation);
        let strays = orphaned.map(|orphaned| {
            if is_all {
                orphaned.given_to = Some(to);
            }
            orphaned.own().to_vec()
        });
        let strays = strays.unwrap_or_default();
        let mut pieces: Vec<Vec<Stray>> = strays.chunks(PER_MAIL).map(<[Stray]>::to_vec).collect();
        if pieces.is_empty() && is_all {
            pieces.push(Vec::new());
        }
        let count = pieces.len();
        for (at, strays) in pieces.into_iter().enumerate() {
            let mail = ReplicaMail::Strays { of, incarnation, last: is_all && at + 1 == count, strays };
            if let Some(peer) = self.peers.get_mut(&to) {
                peer.push_bulk(ControlTopic::Replica, mail.encode(), true);
            }
        }
        self.pump(to);
    }

    /// The sessions of a node that is gone are safe elsewhere, with everything that was for them.
    pub(in crate::node) fn taken_over(&mut self, of: NodeId, incarnation: Incarnation) {
        let life = Life { node: of, incarnation };
        if of == self.config.node {
            return self.was_taken_over(incarnation);
        }
        self.note_taken(life);
        let is_early = self.knows_alive(life) && self.orphans.is_asked_early(life, self.now.instant);
        if !is_early && self.orphaned_life(of) == Some(incarnation) {
            return self.end_orphan(of);
        }
        // This node does not know of the death yet. A death that it knows of may be an earlier one, declared by mistake.
        if self.orphans.taken.len() >= MAX_TAKEN {
            self.orphans.taken.pop_front();
        }
        self.orphans.taken.push_back((life, self.now.instant));
    }

    /// Which life of a node that is gone others take over.
    pub(in crate::node) fn orphaned_life(&self, node: NodeId) -> Option<Incarnation> {
        self.orphans.nodes.get(&node).map(|orphaned| orphaned.incarnation)
    }

    /// Notes the members that a shared subscription has at a node, as that node says, or as its absence implies. Sessions that another node takes
    /// over stay members, though not the first choice: messages that they are chosen for are kept with the rest.
    pub(in crate::node) fn members_at(&mut self, node: NodeId, group: TopicFilter, online: u32, mut offline: u32) {
        let orphaned = self.orphans.nodes.get_mut(&node).filter(|orphaned| orphaned.is_awaited && !orphaned.is_back);
        if let Some(orphaned) = orphaned {
            if (online, offline) == (0, 0) {
                orphaned.groups.insert(group.clone());
                offline = 1;
            } else {
                orphaned.groups.remove(&group);
            }
        }
        self.table.push(TableChange::Group { at: Location::Node(node), group, online, offline });
    }

    fn let_members_go(&mut self, node: NodeId, groups: BTreeSet<TopicFilter>) {
        for group in groups {
            self.table.push(TableChange::Group { at: Location::Node(node), group, online: 0, offline: 0 });
        }
    }

    /// Nothing is kept for this node any longer, and nobody waits.
    pub(in crate::node) fn end_orphan(&mut self, node: NodeId) {
        let Some(orphaned) = self.orphans.nodes.remove(&node) else { return };
        self.note_members_changed();
        if orphaned.is_awaited {
            self.tell_serving_to_guests();
        }
        self.let_members_go(node, orphaned.groups);
        self.let_orphan_go(node, &orphaned.filters);
        self.orphans.deadlines.cancel(&node);
        let accepted = &mut self.accepted;
        self.acks.found(node, |shard, ticket, reason| crate::node::dispatch::note(accepted, shard, ticket, reason));
    }

    fn let_orphan_go(&mut self, node: NodeId, filters: &BTreeSet<TopicFilter>) {
        for filter in self.orphans.let_go(node, filters) {
            self.table.push(TableChange::Remote { filter, wanted: false });
        }
    }

    /// Successors that are late, and nodes that have not come back.
    pub(in crate::node) fn orphans_due(&mut self) {
        while let Some(node) = self.orphans.deadlines.pop_due(self.now.instant) {
            if self.orphans.nodes.get(&node).is_some_and(|orphaned| orphaned.is_awaited) {
                self.event(true, format!("Nobody has taken over the sessions of node {node}"));
            }
            self.end_orphan(node);
        }
    }

    /// A node is gone: those whose sessions it was to take over may have nobody else.
    pub(in crate::node) fn orphans_without(&mut self) {
        let orphaned: Vec<NodeId> = self.orphans.nodes.keys().copied().collect();
        for node in orphaned {
            // A node that is a member again in the same life goes on with its sessions itself, and gets the kept messages as soon as it is linked.
            let is_back = self.membership.member(node).is_some_and(|member| {
                self.ring.contains(&node) && self.orphaned_life(node) == Some(member.incarnation)
            });
            match self.successor_of(node) {
                Some(successor) if successor != self.config.node => {}
                Some(_) if !is_back => self.take_over(node),
                Some(_) | None => self.nobody_takes_over(node),
            }
        }
    }

    /// All nodes that had copies of a node's sessions are gone, too: publishers wait no longer.
    fn nobody_takes_over(&mut self, node: NodeId) {
        let Some(orphaned) = self.orphans.nodes.get_mut(&node) else { return };
        if core::mem::take(&mut orphaned.is_awaited) {
            let groups = core::mem::take(&mut orphaned.groups);
            self.let_members_go(node, groups);
            self.tell_serving_to_guests();
            self.orphans.deadlines.set(node, self.now.instant + ABSENCE);
            let accepted = &mut self.accepted;
            self.acks.found(node, |shard, ticket, reason| crate::node::dispatch::note(accepted, shard, ticket, reason));
        }
    }
}
