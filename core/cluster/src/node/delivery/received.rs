//! The publications that a session has had where it was before: a QoS 2 publication of a client whose node dies goes out once more, to all who may
//! not have had it (see `takeover.rs`), and the ids that a node remembers say nothing about sessions that have come to it since.
//!
//! The former owner says, ahead of the session, how far the publications of each shard of each node had come there. Publications of one shard come
//! in order, so that the session has had all up to that number. Publications beyond it that this node had seen when the session came are a gap. So
//! the node knows which messages are new to the session when another owner gives back a session of the same client. Of a session whose node is
//! gone the copy says how far it was.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sedge_base::{ClientId, Deadlines, Duration, Instant, NodeId, Now, ShardId};
use sedge_mqtt::{Message, MessageId, QoS};

use crate::lineage::Lineage;
use crate::link::ControlTopic;
use crate::mail::{Gap, Gaps, HadElsewhere, Heard, SessionStep, ShardLife, has_come_to, is_in};
use crate::node::Node;
use crate::node::delivery::contacts::Contacts;
use crate::node::delivery::copied::Source;
use crate::node::delivery::here::{Here, MAX_SHARDS};
use crate::node::delivery::moved::{Lacks, Moved, Parting};
use crate::reception::shard_of;
use crate::wire::SessionMail;

/// How long a publication may be on its way until its node is known to be gone and its client's session goes on elsewhere.
const WINDOW: Duration = Duration::from_secs(15);
/// How long nodes may be apart and know afterwards what they had before.
const APART: Duration = Duration::from_mins(10);
/// Sessions that are remembered; the one with the lowest client id is forgotten first.
const MAX_SESSIONS: usize = 10_000;
/// Shards, and gaps, that are named for one session; those of the highest nodes are left out.
pub(super) const MAX_MARKS: usize = 1_024;
/// Publications in the gaps of one session that have reached it all the same; with more than that, its gaps count as filled. As many are
/// known as owed to it, and as caught for it where it was; more of these may be lost with QoS 2, and come twice.
pub(super) const MAX_FILLS: usize = 4_096;

/// Publications that sessions have had and that may come later than they; those of the node with the lowest id are forgotten first.
const MAX_ALONG: usize = 65_536;

/// Sessions that may have missed a publication; with more of them it is for all sessions here.
const MAX_MISSING: usize = 1_000;

/// See the module.
#[derive(Debug, Default)]
pub(in crate::node) struct Had {
    /// The publications with QoS 1 or 2 that have come here.
    here: Here,
    /// The last one of each shard that came from its own node.
    first_hand: Heard,
    /// Since when each shard's own node could send here without a break.
    contacts: Contacts,
    /// The latest time in a stamp, in milliseconds: the clocks of this node's shards are not ahead of it, or of the wall clock.
    latest: u64,
    /// Sessions that have moved here.
    sessions: BTreeMap<ClientId, Moved>,
    /// When they are forgotten.
    deadlines: Deadlines<ClientId>,
    /// Sessions that had moved here and have left: publications are caught for them until their new owners have them.
    parted: BTreeMap<ClientId, Moved>,
    /// When they are forgotten.
    parted_until: Deadlines<ClientId>,
    /// Up to where publications of each shard may have come to those of them whose node is gone.
    inherited: Heard,
    /// Publications that sessions have had and that may come here later than the sessions: see [`Moved::along`].
    came_along: BTreeSet<MessageId>,
}

impl Had {
    /// Sessions of which is known what they have had.
    pub(in crate::node) fn len(&self) -> usize {
        self.sessions.len()
    }

    /// The latest stamp that a shard of this node may have given, in milliseconds.
    pub(in crate::node) fn latest_stamp(&self, now: Now) -> u64 {
        self.latest.max(now.wall.as_millis())
    }

    /// A publication has come, or was made here.
    pub(in crate::node) fn note(&mut self, now: Instant, message: &Message, is_first_hand: bool) {
        self.latest = self.latest.max(message.stamp.millis);
        if message.qos > QoS::AtMostOnce {
            let id = message.id;
            if is_first_hand {
                self.contacts.note(now, &id);
            }
            if is_first_hand && message.qos == QoS::ExactlyOnce {
                let last = self.first_hand.entry((id.node, id.incarnation, id.shard)).or_default();
                *last = id.seq.max(*last);
                if self.first_hand.len() > MAX_SHARDS {
                    self.first_hand.pop_first();
                }
            }
            self.here.note(now, &id);
        }
    }

    /// A shard of this node has made publications up to this one, of which the node did not hear if nobody elsewhere wanted them.
    fn note_made(&mut self, now: Instant, shard: ShardLife, last: u64) {
        if last > 0 {
            self.here.reaches(now, shard, last);
        }
    }

    /// The link to a node has begun anew: its last publications may be lost, and those that it has kept come first.
    pub(in crate::node) fn breaks(&mut self, now: Instant, node: NodeId) {
        self.contacts.breaks(now, node);
    }

    /// Whether a publication would have come here if this session had wanted it, which has been here since before.
    pub(in crate::node) fn was_not_wanted(&self, client: &ClientId, message: &Message) -> bool {
        let has_come = self.sessions.get(client).is_some_and(|moved| moved.has_come);
        !has_come && self.is_recent(message) && self.contacts.was_sent_all(&message.id)
    }

    /// Of a publication that comes from its own node, and should have come before others that have, the clients that may have missed it
    /// elsewhere: it was kept for nodes that were gone. Clients that were here then did not want it. `None`: it is for all.
    pub(in crate::node) fn who_missed(&self, now: Instant, message: &Message) -> Option<BTreeSet<ClientId>> {
        let was_unwanted = self.contacts.was_passed_over(now, &message.id) && self.is_recent(message);
        if !was_unwanted || self.sessions.len() > MAX_MISSING {
            return None;
        }
        let come = self.sessions.iter().filter(|(_, moved)| moved.has_come).map(|(client, _)| client);
        Some(come.filter(|client| !self.has(client, message, false, false)).cloned().collect())
    }

    /// Whether all sessions that have come since this was published are known.
    fn is_recent(&self, message: &Message) -> bool {
        Duration::from_millis(message.stamp.millis) + WINDOW > Duration::from_millis(self.latest)
    }

    /// Whether a publication that another node passes on is older than the last one that its own node has sent here. Then that node had nobody
    /// here to send it to, and it goes out once more because its node was taken for dead: it is nothing for sessions that have come since.
    fn is_past(&self, message: &Message) -> bool {
        let id = message.id;
        let last = self.first_hand.get(&(id.node, id.incarnation, id.shard));
        message.qos == QoS::ExactlyOnce && last.is_some_and(|last| id.seq < *last)
    }

    /// The publications that a leaving session has had. `goes_on`: whether a node still lives the life in which it made publications; those of others
    /// are forgotten. `comes`: whether another session of the client is on its way here; this node knows the publications of that one.
    fn leaves(
        &mut self,
        now: Instant,
        client: &ClientId,
        goes_on: impl Fn(&ShardLife) -> bool,
        comes: bool,
    ) -> Parting {
        self.here.retain(|at| now < at + APART, goes_on);
        let mut before = Moved::default();
        if !comes {
            self.deadlines.cancel(client);
            before = self.sessions.remove(client).filter(|moved| now < moved.until).unwrap_or_default();
            self.unpart(now, client);
        }
        let mut marks = self.here.marks();
        for (shard, last) in before.said.values().chain([&before.came_with]).flat_map(|marks| marks.iter()) {
            let known = marks.entry(*shard).or_default();
            *known = (*last).max(*known);
        }
        let marks = marks.into_iter().take(MAX_MARKS);
        let marks =
            marks.map(|((node, incarnation, shard), seq)| MessageId { node, incarnation, shard, seq }).collect();
        let (mut gaps, mut fills) = before.lacks();
        gaps.extend(before.awaits_from_others());
        fills.extend(before.along.iter().copied());
        if !before.said.is_empty() && self.parted.len() < MAX_SESSIONS {
            self.parted.insert(client.clone(), before);
            self.parted_until.set(client.clone(), now + WINDOW);
        }
        Parting { marks, gaps, fills }
    }

    /// Forgets what a session had that has left, and those that have left long ago.
    fn unpart(&mut self, now: Instant, client: &ClientId) {
        self.parted.remove(client);
        self.parted_until.cancel(client);
        while let Some(client) = self.parted_until.pop_due(now) {
            self.parted.remove(&client);
        }
    }

    /// A session comes, or has come, that has had these publications at another node.
    pub(in crate::node) fn arrives(
        &mut self,
        now: Instant,
        from: NodeId,
        client: ClientId,
        (marks, gaps, fills): (&[MessageId], &[(MessageId, u64)], Vec<MessageId>),
    ) {
        while let Some(client) = self.deadlines.pop_due(now) {
            self.sessions.remove(&client);
        }
        self.unpart(now, &client);
        let marks = marks.iter().take(MAX_MARKS).map(|id| ((id.node, id.incarnation, id.shard), id.seq)).collect();
        let mut lacks = Lacks { gaps: Gaps::new(), fills: fills.into_iter().take(MAX_FILLS).collect() };
        for (before, to) in gaps.iter().take(MAX_MARKS) {
            let shard = (before.node, before.incarnation, before.shard);
            lacks.gaps.entry(shard).or_default().push(Gap { after: before.seq, to: *to });
        }
        // A session's former owner tells both in one list: publications that fill a gap, and those that the session took along.
        let along: BTreeSet<MessageId> = lacks.fills.iter().filter(|id| !is_in(&lacks.gaps, id)).copied().collect();
        if self.sessions.is_empty() {
            self.came_along.clear();
        }
        self.came_along.extend(&along);
        while self.came_along.len() > MAX_ALONG {
            self.came_along.pop_first();
        }
        self.remember(now + WINDOW, client, |_, moved| {
            moved.said.insert(from, Arc::new(marks));
            moved.along_at.insert(from, along);
            if lacks.gaps.is_empty() {
                moved.lacks.remove(&from);
            } else {
                moved.lacks.insert(from, lacks);
            }
        });
    }

    /// Notes how far publications had come, before this node started again, for a session of its journal that is about to leave.
    pub(in crate::node) fn came_before(&mut self, now: Instant, client: ClientId, marks: Arc<Heard>) {
        self.remember(now + WINDOW, client, |here, moved| {
            let (gaps, came) = here.before(&marks);
            (moved.gaps, moved.fills, moved.came_with) = (Arc::new(gaps), came, marks);
        });
    }

    /// Sessions come whose node is gone, which had this there.
    fn note_inherited(&mut self, marks: &Heard) {
        if self.sessions.is_empty() {
            self.inherited.clear();
        }
        for (shard, last) in marks {
            let known = self.inherited.entry(*shard).or_default();
            *known = (*last).max(*known);
        }
        while self.inherited.len() > MAX_SHARDS {
            self.inherited.pop_first();
        }
    }

    fn remember(&mut self, until: Instant, client: ClientId, change: impl FnOnce(&Here, &mut Moved)) {
        let moved = self.sessions.entry(client.clone()).or_default();
        change(&self.here, moved);
        moved.until = moved.until.max(until);
        self.deadlines.set(client, moved.until);
        if self.sessions.len() > MAX_SESSIONS
            && let Some((first, _)) = self.sessions.pop_first()
        {
            self.deadlines.cancel(&first);
        }
    }

    /// A session goes on here that comes from this node. It had nothing of shards that the node has not named, if it has named all. `brings`:
    /// the messages that wait in it, which may be later than the node knew.
    pub(in crate::node) fn goes_on_here(
        &mut self,
        now: Now,
        from: NodeId,
        client: &ClientId,
        brings: impl Iterator<Item = MessageId>,
    ) {
        let began = self.latest_stamp(now);
        self.remember(now.instant + APART, client.clone(), |_, moved| moved.has_come = true);
        let Some(moved) = self.sessions.get_mut(client) else { return };
        let Some(marks) = moved.said.get(&from) else { return };
        let mut gaps = if marks.len() < MAX_MARKS { self.here.all_behind(marks) } else { self.here.behind(marks) };
        let none = Lacks::default();
        let lacks = moved.lacks.get(&from).unwrap_or(&none);
        moved.fills = brings.filter(|id| !has_come_to(marks, id) || is_in(&lacks.gaps, id)).take(MAX_FILLS).collect();
        moved.fills.extend(&lacks.fills);
        for (shard, more) in &lacks.gaps {
            gaps.entry(*shard).or_default().extend(more);
        }
        moved.gaps = Arc::new(gaps);
        moved.came_with = Arc::clone(marks);
        moved.along.extend(moved.along_at.remove(&from).unwrap_or_default());
        (moved.from, moved.older_at, moved.caught_behind) = (Some(from), None, None);
        moved.caught.clear();
        moved.began = began;
        moved.strays = Arc::default();
    }

    /// Node `at` goes on with a session from the copy of node `of`. If the session here came from node `of` itself, it is the newer one: what the client
    /// has subscribed to and withdrawn since is known here.
    pub(in crate::node) fn goes_on_beside(&mut self, client: &ClientId, of: NodeId, at: NodeId) {
        if let Some(moved) = self.sessions.get_mut(client).filter(|moved| moved.from == Some(of)) {
            moved.older_at = Some(at);
        }
    }

    /// Whether the session here came from this node.
    pub(in crate::node) fn came_from(&self, client: &ClientId, node: NodeId) -> bool {
        self.sessions.get(client).is_some_and(|moved| moved.from == Some(node))
    }

    /// Whether the session of a client at node `at` is an older state of the one here.
    pub(in crate::node) fn is_older(&self, client: &ClientId, at: NodeId) -> bool {
        self.sessions.get(client).is_some_and(|moved| moved.older_at == Some(at))
    }

    /// From here on, publications for a session that comes are caught here.
    pub(in crate::node) fn is_caught(&mut self, client: &ClientId) {
        if let Some(moved) = self.sessions.get_mut(client) {
            moved.caught_behind = Some(self.here.marks());
        }
    }

    /// The shard has begun to catch for the session. What it had made before did not come to the session from it; the node may hear of that later.
    fn is_caught_behind(&mut self, client: &ClientId, shard: ShardLife, made: u64) {
        let behind = self.sessions.get_mut(client).and_then(|moved| moved.caught_behind.as_mut());
        if let Some(behind) = behind.filter(|_| made > 0) {
            let last = behind.entry(shard).or_default();
            *last = made.max(*last);
        }
    }

    /// A session is here that was served without these, which were caught for it at the node that it came from. It has not had publications from
    /// before they were caught here, too, although they came here, and although the other node had heard of them when the session left.
    pub(in crate::node) fn owes<'a>(
        &mut self,
        client: &ClientId,
        from: NodeId,
        ids: impl Iterator<Item = &'a MessageId>,
    ) {
        let Some(moved) = self.sessions.get_mut(client).filter(|moved| moved.from == Some(from)) else { return };
        let Some(behind) = &moved.caught_behind else { return };
        let room = MAX_FILLS.saturating_sub(moved.owed.len());
        moved.owed.extend(ids.filter(|id| has_come_to(behind, id)).take(room));
    }

    /// The same for messages in the session that the other node gives up later: the node has gone on with it, and has added messages that came
    /// for it. The session has had everything that was in it when it came here first.
    pub(in crate::node) fn owes_rest(&mut self, client: &ClientId, from: NodeId, ids: impl Iterator<Item = MessageId>) {
        let Some(moved) = self.sessions.get(client) else { return };
        let is_rest = |id: &MessageId| !has_come_to(&moved.came_with, id) && !moved.fills.contains(id);
        let rest: Vec<_> = ids.filter(is_rest).collect();
        self.owes(client, from, rest.iter());
    }

    /// A session is served with this, which it had, or which was caught for it, where it was.
    pub(in crate::node) fn gets_caught(&mut self, client: &ClientId, ids: impl Iterator<Item = MessageId>) {
        if let Some(moved) = self.sessions.get_mut(client) {
            let room = MAX_FILLS.saturating_sub(moved.caught.len());
            moved.caught.extend(ids.take(room));
        }
    }

    /// A session comes, or has come, that had come to its former node from these owners.
    pub(in crate::node) fn came_before_from(&mut self, from: NodeId, client: &ClientId, came: Lineage) {
        if let Some(moved) = self.sessions.get_mut(client) {
            moved.came.insert(from, came);
        }
    }

    /// The owners from which a session coming from node `from` had come there.
    pub(in crate::node) fn lineage(&self, from: NodeId, client: &ClientId) -> Lineage {
        self.sessions.get(client).and_then(|moved| moved.came.get(&from)).cloned().unwrap_or_default()
    }

    /// The publications that a session coming from node `from` has had, as that node says.
    pub(in crate::node) fn had_elsewhere(&self, from: NodeId, client: &ClientId) -> HadElsewhere {
        let Some(moved) = self.sessions.get(client) else { return HadElsewhere::default() };
        let marks = moved.said.get(&from).cloned().unwrap_or_default();
        let (gaps, mut fills) =
            moved.lacks.get(&from).map(|lacks| (lacks.gaps.clone(), lacks.fills.clone())).unwrap_or_default();
        fills.extend(moved.along_at.get(&from).into_iter().flatten());
        HadElsewhere { marks, gaps, fills }
    }

    /// The number of the last publication of each shard that a session from node `from` has had, with all before it.
    pub(in crate::node) fn had_all(&self, from: NodeId, client: &ClientId) -> Heard {
        let Some(moved) = self.sessions.get(client) else { return Heard::new() };
        let mut marks = moved.said.get(&from).map(|said| Heard::clone(said)).unwrap_or_default();
        for (shard, gaps) in moved.lacks.get(&from).iter().flat_map(|lacks| &lacks.gaps) {
            let Some(last) = marks.get_mut(shard) else { continue };
            *last = gaps.iter().map(|gap| gap.after).fold(*last, u64::min);
        }
        marks
    }

    /// A session begins here while other nodes, which may have one of the same client, are away: it has had none of the publications that were
    /// here before.
    pub(in crate::node) fn begins(&mut self, now: Now, client: &ClientId) {
        let (began, until) = (self.latest_stamp(now), now.instant + APART);
        self.remember(until, client.clone(), |here, moved| {
            *moved =
                Moved { began, has_come: true, gaps: Arc::new(here.all_behind(&BTreeMap::new())), ..Moved::default() };
        });
    }

    /// Sessions go on here whose node is gone, and that had this there.
    pub(in crate::node) fn inherits<'a>(
        &mut self,
        now: Instant,
        clients: impl Iterator<Item = &'a ClientId>,
        marks: Heard,
    ) {
        self.note_inherited(&marks);
        let (gaps, marks) = (Arc::new(self.here.behind(&marks)), Arc::new(marks));
        for client in clients {
            if self.sessions.len() >= MAX_SESSIONS && !self.sessions.contains_key(client) {
                return;
            }
            self.unpart(now, client);
            let (came_with, gaps) = (Arc::clone(&marks), Arc::clone(&gaps));
            self.deadlines.set(client.clone(), now + APART);
            self.sessions.insert(
                client.clone(),
                Moved { until: now + APART, has_come: true, came_with, gaps, ..Moved::default() },
            );
        }
    }

    /// Others had kept this for sessions whose node is gone, and they get it.
    pub(in crate::node) fn get_strays<'a>(
        &mut self,
        clients: impl Iterator<Item = &'a ClientId>,
        strays: BTreeSet<MessageId>,
    ) {
        let strays = Arc::new(strays);
        for client in clients {
            if let Some(moved) = self.sessions.get_mut(client) {
                moved.strays = Arc::clone(&strays);
            }
        }
    }

    /// A session gets this from where it was.
    pub(in crate::node) fn gets(&mut self, client: &ClientId, id: MessageId) {
        let Some(moved) = self.sessions.get_mut(client) else { return };
        moved.held_back.remove(&id);
        moved.brings_along(id);
        if !moved.owed.remove(&id) && !moved.is_in_gap(&id) {
            return;
        }
        moved.fills.insert(id);
        if moved.fills.len() > MAX_FILLS {
            moved.gaps = Arc::default();
            moved.fills.clear();
        }
    }

    /// Whether a session has had a publication, here or where it was. `is_own`: whether a client of this node published it; `is_seen`:
    /// whether it came here.
    pub(in crate::node) fn has(&self, client: &ClientId, message: &Message, is_own: bool, is_seen: bool) -> bool {
        let (moved, id) = (self.sessions.get(client), &message.id);
        let Some(moved) = moved.filter(|moved| moved.has_come) else { return is_own || is_seen };
        let has_got = moved.has_got(id);
        if has_got || moved.is_in_gap(id) || moved.owed.contains(id) {
            return has_got;
        }
        is_seen || (is_own && message.stamp.millis >= moved.began) || has_come_to(&moved.came_with, id)
    }

    /// Whether a session had had a publication when it left a former node.
    pub(in crate::node) fn had_there(&self, from: NodeId, client: &ClientId, id: &MessageId) -> bool {
        let Some(moved) = self.sessions.get(client) else { return false };
        let brought = moved.along_at.get(&from).or_else(|| (moved.from == Some(from)).then_some(&moved.along));
        let is_along = brought.is_some_and(|along| along.contains(id));
        is_along || moved.said.get(&from).is_some_and(|marks| moved.has_had_at(from, marks, id))
    }

    /// Sessions that had this publication before they came here. From the node that made it only those are looked for that were taken over
    /// from a node that is gone: publications that others have missed, and those that the node has kept for this one, may be the same.
    /// Notes for each of them that the publication is held back from it.
    fn who(&mut self, id: &MessageId, is_first_hand: bool) -> Vec<ClientId> {
        let came_along = self.came_along.contains(id);
        if is_first_hand && !came_along && !has_come_to(&self.inherited, id) {
            return Vec::new();
        }
        let had = |moved: &Moved| {
            if came_along && moved.is_along(id) {
                true
            } else if is_first_hand {
                moved.said.is_empty() && has_come_to(&moved.came_with, id)
            } else {
                moved.caught.contains(id) || moved.said.iter().any(|(node, marks)| moved.has_had_at(*node, marks, id))
            }
        };
        let all = self.sessions.iter_mut().chain(&mut self.parted).filter(|(_, moved)| had(moved));
        let all = all.map(|(client, moved)| {
            if moved.held_back.len() < MAX_FILLS {
                moved.held_back.insert(*id);
            }
            client.clone()
        });
        all.collect()
    }

    /// Whether a publication was held back from a session only because `from`, another owner, said that its session had it.
    pub(in crate::node) fn is_held_back_for(&self, from: NodeId, client: &ClientId, id: &MessageId) -> bool {
        let Some(moved) = self.sessions.get(client).filter(|moved| moved.held_back.contains(id)) else { return false };
        let mut others = moved.said.iter().filter(|(node, _)| **node != from);
        moved.from != Some(from)
            && !moved.has_brought(id)
            && !others.any(|(node, marks)| moved.has_had_at(*node, marks, id))
    }
}

impl Node {
    /// A session is about to be sent to its new owner. `along`: publications of this node that it has, and that leave later.
    pub(in crate::node) fn send_had(&mut self, to: NodeId, client: &ClientId, along: Vec<MessageId>, came: Lineage) {
        let (me, peers) = ((self.config.node, self.config.incarnation), &self.peers);
        let goes_on = |(node, incarnation, _): &ShardLife| {
            (*node, *incarnation) == me || peers.get(node).is_some_and(|peer| peer.incarnation == Some(*incarnation))
        };
        let comes = self.claims.wants(client);
        let Parting { marks, gaps, mut fills } = self.had.leaves(self.now.instant, client, goes_on, comes);
        fills.extend(along);
        let mail = SessionMail::Had { client: client.clone(), marks, gaps, fills, came };
        self.send_control(to, ControlTopic::Session, mail.encode());
    }

    /// A publication is about to be given to the shards. Sessions that have moved here may have had it: another node may pass it on, or its
    /// own may have kept it for this node. False if nobody is to get it.
    pub(in crate::node) fn note_had(&mut self, from: Source, message: &Message) -> bool {
        let is_first_hand = self.is_first_hand(from, message);
        if !is_first_hand && self.had.is_past(message) {
            self.counters.publications_repeated += 1;
            return false;
        }
        self.had.note(self.now.instant, message, is_first_hand);
        if message.qos == QoS::ExactlyOnce {
            for client in self.had.who(&message.id, is_first_hand) {
                self.tell_had(&client, [message.id]);
            }
        }
        true
    }

    /// A shard of this node has made publications up to this one.
    pub(in crate::node) fn note_made(&mut self, shard: ShardId, last: u64) {
        self.had.note_made(self.now.instant, (self.config.node, self.config.incarnation, shard), last);
    }

    /// A shard of this node has begun to catch publications for a session that comes, and had made publications up to this one; none if it had begun
    /// before.
    pub(in crate::node) fn is_caught_behind(&mut self, shard: ShardId, client: &ClientId, made: Option<u64>) {
        if let Some(made) = made {
            self.had.is_caught_behind(client, (self.config.node, self.config.incarnation, shard), made);
        }
    }

    /// Clients that are to get a publication that has just come for the first time, if not everybody: see [`Had::who_missed`].
    pub(in crate::node) fn who_missed(&self, from: Source, message: &Message) -> Option<BTreeSet<ClientId>> {
        if self.is_first_hand(from, message) { self.had.who_missed(self.now.instant, message) } else { None }
    }

    /// Whether it comes from the node that made it, in the life in which it made it.
    fn is_first_hand(&self, from: Source, message: &Message) -> bool {
        let (Source::Link(sender) | Source::Stream(sender)) = from;
        sender == message.id.node && self.life_of(sender).incarnation == message.id.incarnation
    }

    /// A session that is here, or on its way from here, has had these: it does not get them once more.
    pub(in crate::node) fn tell_had(&mut self, client: &ClientId, ids: impl IntoIterator<Item = MessageId>) {
        let shard = shard_of(client, self.config.shards);
        for id in ids {
            let had = SessionStep::Had { client: client.clone(), id };
            self.tell_shard(shard, crate::node::sessions::claims::session_step(had));
        }
    }
}

#[cfg(test)]
mod tests;
