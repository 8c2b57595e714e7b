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

use crate::link::ControlTopic;
use crate::mail::{Heard, SessionStep, ShardLife};
use crate::node::Node;
use crate::node::delivery::contacts::Contacts;
use crate::node::delivery::copied::Source;
use crate::node::delivery::here::{Gap, Gaps, Here, MAX_SHARDS, is_in};
use crate::node::delivery::moved::{Lacks, Moved, Parting, has_come_to};
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
        fills.extend(before.along);
        Parting { marks, gaps, fills }
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
            moved.along.extend(&along);
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
        self.remember(now.instant + WINDOW, client.clone(), |_, moved| moved.has_come = true);
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

    /// The publications that a session coming from node `from` has had: of each shard up to a number, before a gap at the end.
    pub(in crate::node) fn said(&self, from: NodeId, client: &ClientId) -> Arc<Heard> {
        let Some(moved) = self.sessions.get(client) else { return Arc::default() };
        let Some(said) = moved.said.get(&from) else { return Arc::default() };
        let Some(lacks) = moved.lacks.get(&from) else { return Arc::clone(said) };
        let mut marks = Heard::clone(said);
        for (shard, gaps) in &lacks.gaps {
            let Some(last) = marks.get_mut(shard) else { continue };
            let at_end = gaps.iter().filter(|gap| gap.to >= *last).map(|gap| gap.after).min();
            *last = at_end.unwrap_or(*last).min(*last);
        }
        Arc::new(marks)
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
            let (came_with, gaps) = (Arc::clone(&marks), Arc::clone(&gaps));
            self.deadlines.set(client.clone(), now + WINDOW);
            self.sessions.insert(
                client.clone(),
                Moved { until: now + WINDOW, has_come: true, came_with, gaps, ..Moved::default() },
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

    /// Sessions that had this publication before they came here. From the node that made it only those are looked for that were taken over
    /// from a node that is gone: publications that others have missed, and those that the node has kept for this one, may be the same.
    /// Notes for each of them that the publication is held back from it.
    fn who(&mut self, id: &MessageId, is_first_hand: bool) -> Vec<ClientId> {
        let came_along = self.came_along.contains(id);
        if is_first_hand && !came_along && !has_come_to(&self.inherited, id) {
            return Vec::new();
        }
        let had = |moved: &Moved| {
            if came_along && moved.along.contains(id) {
                true
            } else if is_first_hand {
                moved.said.is_empty() && has_come_to(&moved.came_with, id)
            } else {
                moved.caught.contains(id) || moved.said.iter().any(|(node, marks)| moved.has_had_at(*node, marks, id))
            }
        };
        let all = self.sessions.iter_mut().filter(|(_, moved)| had(moved));
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
    pub(in crate::node) fn send_had(&mut self, to: NodeId, client: &ClientId, along: Vec<MessageId>) {
        let (me, peers) = ((self.config.node, self.config.incarnation), &self.peers);
        let goes_on = |(node, incarnation, _): &ShardLife| {
            (*node, *incarnation) == me || peers.get(node).is_some_and(|peer| peer.incarnation == Some(*incarnation))
        };
        let comes = self.claims.wants(client);
        let Parting { marks, gaps, mut fills } = self.had.leaves(self.now.instant, client, goes_on, comes);
        fills.extend(along);
        let mail = SessionMail::Had { client: client.clone(), marks, gaps, fills };
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
mod tests {
    use std::sync::Arc;

    use sedge_base::{Incarnation, Timestamp};
    use sedge_mqtt::Stamp;

    use super::*;

    fn now(millis: u64) -> Now {
        Now { instant: Instant::from_millis(millis), wall: Timestamp::from_millis(millis) }
    }

    fn id(node: u64, seq: u64) -> MessageId {
        MessageId { node: NodeId::new(node), incarnation: Incarnation::new(1), shard: ShardId(0), seq }
    }

    /// FT-21
    #[test]
    fn a_session_takes_along_what_it_had_at_all_its_nodes() {
        let (mut had, client) = (Had::default(), ClientId::new("c"));
        let at = Instant::from_millis;
        let (former, never) = (NodeId::new(9), |_: &ShardLife| false);
        had.arrives(at(0), former, client.clone(), (&[id(1, 5), id(2, 9)], &[], Vec::new()));
        had.here.note(at(1), &id(2, 4));
        had.here.note(at(1), &id(3, 7));
        assert_eq!(had.who(&id(1, 5), false), core::slice::from_ref(&client));
        assert!(had.who(&id(1, 6), false).is_empty() && had.who(&id(3, 7), false).is_empty());
        assert_eq!(had.leaves(at(2), &client, never, false).marks, [id(1, 5), id(2, 9), id(3, 7)]);
        assert!(had.who(&id(1, 5), false).is_empty());
        had.arrives(at(3), former, client.clone(), (&[id(1, 5)], &[], Vec::new()));
        had.leaves(at(3), &client, |_| true, true);
        assert_eq!(had.who(&id(1, 5), false), core::slice::from_ref(&client), "an older one leaves while it comes");
        assert_eq!(
            had.leaves(at(3) + WINDOW, &client, never, false).marks,
            [id(2, 4), id(3, 7)],
            "only what came here is known still"
        );
        assert!(had.leaves(at(3) + APART, &client, never, false).marks.is_empty());
    }

    /// MQ-06: a publication of its own clients that nobody elsewhere wants is not heard of by the node.
    #[test]
    fn a_session_takes_along_that_it_had_what_only_clients_of_its_node_wanted() {
        let (mut had, client, at) = (Had::default(), ClientId::new("c"), Instant::from_millis(0));
        let own = (NodeId::new(1), Incarnation::new(1), ShardId(0));
        had.note_made(at, own, 0);
        assert!(had.leaves(at, &client, |_| true, false).marks.is_empty(), "nothing was made");
        had.note(at, &message(id(1, 4)), false);
        had.note_made(at, own, 7);
        had.note_made(at, own, 6);
        assert_eq!(had.leaves(at, &client, |_| true, false).marks, [id(1, 7)]);
    }

    /// MQ-11: publications that the former owner had heard of when the session had left its shard, and caught for it.
    #[test]
    fn what_a_session_was_served_without_is_new_to_it() {
        let (mut had, client) = (Had::default(), ClientId::new("c"));
        let (former, at) = (NodeId::new(9), Instant::from_millis(0));
        had.arrives(at, former, client.clone(), (&[id(2, 7)], &[], Vec::new()));
        had.goes_on_here(now(0), former, &client, core::iter::empty());
        had.note(at, &message(id(2, 6)), true);
        had.is_caught(&client);
        had.note(at, &message(id(2, 7)), true);
        let has = |had: &Had, id| had.has(&client, &message(id), false, true);
        assert!(has(&had, id(2, 6)));
        let caught = [id(2, 6), id(2, 7)];
        had.owes(&client, NodeId::new(8), caught.iter());
        assert!(has(&had, id(2, 6)), "it comes from elsewhere");
        had.owes(&client, former, caught.iter());
        assert!(!has(&had, id(2, 6)));
        assert!(has(&had, id(2, 7)), "this was caught here, too");
        had.gets(&client, id(2, 6));
        assert!(has(&had, id(2, 6)));
    }

    /// MQ-11: a client of this node has published, and the publication waits for copies when its shard begins to catch for the session.
    #[test]
    fn what_a_shard_had_made_before_it_caught_for_a_session_is_new_to_it() {
        let (mut had, client) = (Had::default(), ClientId::new("c"));
        let (former, own) = (NodeId::new(9), (NodeId::new(1), Incarnation::new(1), ShardId(0)));
        had.arrives(Instant::from_millis(0), former, client.clone(), (&[], &[], Vec::new()));
        had.goes_on_here(now(0), former, &client, core::iter::empty());
        had.is_caught(&client);
        had.is_caught_behind(&client, own, 7);
        had.owes(&client, former, [id(1, 7), id(1, 8)].iter());
        let has = |seq| had.has(&client, &message(id(1, seq)), true, false);
        assert!(!has(7) && has(8));
    }

    /// FT-31: an older state of the session, from a copy at another node, says nothing of what the client has withdrawn since.
    #[test]
    fn a_copy_of_a_session_from_before_it_came_is_older() {
        let (mut had, client) = (Had::default(), ClientId::new("c"));
        let (former, successor) = (NodeId::new(9), NodeId::new(8));
        had.arrives(Instant::from_millis(0), former, client.clone(), (&[], &[], Vec::new()));
        had.goes_on_here(now(0), former, &client, core::iter::empty());
        had.goes_on_beside(&client, NodeId::new(7), successor);
        assert!(!had.is_older(&client, successor), "it did not come from there");
        had.goes_on_beside(&client, former, successor);
        assert!(had.is_older(&client, successor) && !had.is_older(&client, former));
    }

    /// MQ-11, FT-31: the former owner goes on with the session, since it does not see the new one any more, and gives all of it up later.
    #[test]
    fn what_the_former_owner_has_added_to_a_session_is_new_to_it() {
        let (mut had, client) = (Had::default(), ClientId::new("c"));
        let (former, at) = (NodeId::new(9), Instant::from_millis(0));
        had.arrives(at, former, client.clone(), (&[id(2, 4)], &[], Vec::new()));
        had.goes_on_here(now(0), former, &client, core::iter::once(id(2, 5)));
        had.note(at, &message(id(2, 6)), true);
        had.is_caught(&client);
        had.note(at, &message(id(2, 7)), true);
        had.owes_rest(&client, former, [4, 5, 6, 7].map(|number| id(2, number)).into_iter());
        let has = |number| had.has(&client, &message(id(2, number)), false, true);
        assert!(has(4) && has(5), "it has come with these");
        assert!(!has(6), "this came here when nobody caught it for the session");
        assert!(has(7));
    }

    /// FT-31
    #[test]
    fn what_was_here_before_a_session_is_new_to_it() {
        let (mut had, client) = (Had::default(), ClientId::new("c"));
        let (former, other, at) = (NodeId::new(9), NodeId::new(8), Instant::from_millis(0));
        had.note(at, &message(id(2, 7)), true);
        had.note(at, &message(id(3, 7)), true);
        had.arrives(at, former, client.clone(), (&[id(2, 4)], &[], Vec::new()));
        had.arrives(at, other, client.clone(), (&[id(2, 1)], &[], Vec::new()));
        had.goes_on_here(now(0), former, &client, core::iter::once(id(2, 6)));
        let has = |had: &Had, id| had.has(&client, &message(id), false, true);
        assert!(has(&had, id(2, 4)) && !has(&had, id(2, 5)) && !has(&had, id(2, 7)));
        assert!(has(&had, id(2, 6)), "it has brought this along");
        assert!(!has(&had, id(3, 7)), "the former owner has not heard of that shard");
        assert!(had.has(&client, &message(id(2, 3)), false, false), "it has had this where it was");
        had.gets(&client, id(2, 5));
        assert!(has(&had, id(2, 5)));
        let stays = |_: &ShardLife| true;
        let moved = &had.sessions[&client];
        assert_eq!(moved.until, at + WINDOW);
        had.note(at, &message(id(2, 8)), true);
        assert!(has(&had, id(2, 8)), "it was there when this came");
        let Parting { marks, gaps, fills } = had.leaves(at, &client, stays, false);
        assert_eq!(marks, [id(2, 8), id(3, 7)]);
        assert_eq!(gaps, [(id(2, 4), 7), (id(3, 0), 7)]);
        assert_eq!(fills, [id(2, 5), id(2, 6)]);
        let mut next = Had::default();
        next.note(at, &message(id(2, 9)), true);
        next.arrives(at, former, client.clone(), (&marks, &gaps, fills));
        assert!(next.who(&id(2, 7), false).is_empty(), "it is new to the session still");
        assert_eq!(next.who(&id(2, 6), false), core::slice::from_ref(&client));
        next.goes_on_here(now(0), former, &client, core::iter::empty());
        assert!(next.who(&id(2, 7), false).is_empty(), "also when it goes on here");
        let has = |id| next.has(&client, &message(id), false, true);
        assert!(has(id(2, 4)) && has(id(2, 5)) && has(id(2, 6)) && !has(id(2, 7)) && has(id(2, 8)) && !has(id(2, 9)));
        assert!(!has(id(3, 7)) && has(id(3, 8)));
    }

    fn message(id: MessageId) -> Arc<Message> {
        crate::testing::message(id, QoS::ExactlyOnce)
    }

    /// FT-31
    #[test]
    fn what_was_here_before_a_session_began_is_new_to_it() {
        let (mut had, client) = (Had::default(), ClientId::new("c"));
        let has = |had: &Had, number| had.has(&client, &message(id(2, number)), false, true);
        had.note(Instant::from_millis(5), &message(id(2, 7)), true);
        assert!(has(&had, 7), "of a session of which nothing is known");
        had.begins(now(5), &client);
        had.note(Instant::from_millis(6), &message(id(2, 8)), true);
        assert!(!has(&had, 7) && has(&had, 8));
        let own = |millis| {
            Arc::new(Message { stamp: Stamp { millis, ..message(id(1, 1)).stamp }, ..(*message(id(1, 1))).clone() })
        };
        assert!(!had.has(&client, &own(4), true, false) && had.has(&client, &own(5), true, false));
    }

    /// FT-22, FT-31
    #[test]
    fn of_what_was_here_before_a_session_was_taken_over_it_has_what_was_kept() {
        let (mut had, client) = (Had::default(), ClientId::new("c"));
        let at = Instant::from_millis;
        had.note(at(0), &message(id(2, 7)), true);
        let heard = BTreeMap::from([((NodeId::new(2), Incarnation::new(1), ShardId(0)), 4)]);
        had.inherits(at(0), core::iter::once(&client), heard);
        assert!(
            had.has(&client, &message(id(2, 4)), false, false) && !had.has(&client, &message(id(2, 5)), false, true)
        );
        had.get_strays(core::iter::once(&client), BTreeSet::from([id(2, 6)]));
        assert!(
            had.has(&client, &message(id(2, 6)), false, true) && !had.has(&client, &message(id(2, 7)), false, true)
        );
        let Parting { marks, gaps, fills } = had.leaves(at(1), &client, |_| true, false);
        assert_eq!((marks, gaps, fills), (vec![id(2, 7)], vec![(id(2, 4), 7)], vec![id(2, 6)]));
        assert!(had.has(&client, &message(id(2, 7)), false, true), "it has left, and nothing more is known");
    }

    /// FT-31
    #[test]
    fn who_was_here_while_its_node_could_send_did_not_want_what_did_not_come() {
        let (mut had, client, at) = (Had::default(), ClientId::new("c"), Instant::from_millis);
        let unwanted = |had: &Had, number| had.was_not_wanted(&client, &message(id(2, number)));
        had.note(at(0), &message(id(2, 3)), true);
        had.note(at(1_000), &message(id(2, 6)), true);
        had.note(at(1_001), &message(id(2, 9)), true);
        assert!(unwanted(&had, 7) && !unwanted(&had, 10) && !unwanted(&had, 5), "it had just come to know that node");
        had.breaks(at(2_000), NodeId::new(2));
        assert!(!unwanted(&had, 7));
        had.note(at(2_001), &message(id(2, 12)), true);
        had.note(at(3_000), &message(id(2, 15)), true);
        had.note(at(3_001), &message(id(2, 18)), true);
        assert!(unwanted(&had, 16) && !unwanted(&had, 14) && !unwanted(&had, 7), "12 may have been kept");
        had.latest += 15_000;
        assert!(!unwanted(&had, 16), "too long ago");
        had.latest -= 15_000;
        had.breaks(at(3_001), NodeId::new(2));
        let missed = |had: &Had, number| had.who_missed(at(3_002), &message(id(2, number)));
        assert_eq!((missed(&had, 16), missed(&had, 19)), (Some(BTreeSet::new()), None));
        had.begins(now(3_001), &client);
        assert!(!unwanted(&had, 16), "it is new here");
        assert_eq!(missed(&had, 16), Some(BTreeSet::from([client.clone()])));
        had.latest += 15_000;
        assert_eq!(missed(&had, 16), None, "nobody knows who has come since");
    }

    /// FT-22
    #[test]
    fn what_its_own_node_kept_for_this_one_may_have_come_to_a_session_whose_node_is_gone() {
        let (mut had, client) = (Had::default(), ClientId::new("c"));
        let heard = BTreeMap::from([((NodeId::new(2), Incarnation::new(1), ShardId(0)), 4)]);
        had.inherits(Instant::from_millis(0), core::iter::once(&client), heard);
        assert_eq!(had.who(&id(2, 4), true), core::slice::from_ref(&client));
        assert!(had.who(&id(2, 5), true).is_empty() && had.who(&id(2, 4), false).is_empty());
        let other = ClientId::new("d");
        had.arrives(Instant::from_millis(0), NodeId::new(9), other.clone(), (&[id(2, 9)], &[], Vec::new()));
        assert!(had.who(&id(2, 5), true).is_empty(), "another owner lives, and has what was kept itself");
        assert_eq!(had.who(&id(2, 5), false), [other]);
    }

    /// FT-31
    #[test]
    fn what_a_node_has_gone_beyond_is_past() {
        let (mut had, at) = (Had::default(), Instant::from_millis(0));
        had.note(at, &message(id(2, 8)), false);
        assert!(!had.is_past(&message(id(2, 7))), "only passed on so far");
        had.note(at, &message(id(2, 5)), true);
        assert!(had.is_past(&message(id(2, 4))));
        assert!(!had.is_past(&message(id(2, 6))), "it died before it had sent this");
        assert!(!had.is_past(&message(id(1, 4))), "of another node");
    }
}
