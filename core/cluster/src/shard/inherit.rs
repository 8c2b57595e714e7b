//! Sessions of a node that is gone, until everything is here that was on its way to them. As with a session that moves (see
//! `handover.rs`), the shard catches what matches meanwhile; the former owner's part is played by all who were sending to it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use sedge_base::{ClientId, Duration, Instant, NodeId, Now, ShardId};
use sedge_broker::{InterestChange, InterestOp, RestoredSession, SubscriptionState};
use sedge_mqtt::{Message, MessageId, QoS, TopicFilter};

use super::Shard;
use super::handover::ids_of;
use crate::mail::{
    Arriving, HadAhead, HadElsewhere, Heard, Held, Inherit, Known, Life, Location, Merge, SessionStep, has_come_to,
};

/// Messages that inherited sessions came with and whose ids are remembered; those of the session with the lowest client id go first.
const MAX_KNOWN: usize = 1_000_000;
/// Owners that have brought subscriptions; those of the client with the lowest id are forgotten first, and messages seen here count as had.
const MAX_BROUGHT: usize = 1024;
/// Shards of nodes that are gone of which it is remembered what their sessions had had; the oldest ones are forgotten.
const MAX_HAD: usize = 256;
/// So long it is remembered: the successors of two nodes that die at once are done by then.
const HAD_FOR: Duration = Duration::from_mins(1);

/// Sessions that are coming.
#[derive(Debug, Default)]
pub(super) struct Inheritance {
    lives: BTreeMap<Life, Coming>,
    clients: BTreeMap<ClientId, Life>,
    /// Messages that sessions came with, should the node that they come from live after all.
    known: BTreeMap<ClientId, Known>,
    known_ids: usize,
    /// Messages that other owners had for clients: more than one of them may have had the same.
    merged: BTreeMap<ClientId, BTreeSet<MessageId>>,
    merged_ids: usize,
    /// Subscriptions that another owner has brought, until what it had for them is here.
    brought: BTreeMap<(ClientId, NodeId), Vec<TopicFilter>>,
    /// The publications that inherited sessions had had at the nodes that are gone.
    had: VecDeque<HadThere>,
}

/// The publications that the sessions of one shard of a node that is gone had had. The publisher's node may be gone, too: the successor of that node
/// delivers once more the publications that were on their way.
#[derive(Debug)]
struct HadThere {
    until: Instant,
    clients: BTreeSet<ClientId>,
    heard: Heard,
}

impl Known {
    const fn len(&self) -> usize {
        self.copied.len() + self.added.len()
    }
}

#[derive(Debug, Default)]
struct Coming {
    sessions: Vec<(ShardId, RestoredSession)>,
    /// Publications that the sessions had beyond those that all sessions of their shard had.
    ahead: BTreeMap<ClientId, HadAhead>,
    /// Filters of sessions whose client has a newer one here.
    outdated: Vec<(ClientId, Vec<TopicFilter>)>,
    strays: Arc<[Arc<Message>]>,
    heard: Arc<BTreeMap<ShardId, Heard>>,
    /// Shards whose mail is in.
    shards: u16,
    /// Further steps for the sessions, in order.
    deferred: Vec<SessionStep>,
}

impl Inheritance {
    /// Sessions have come that had had all these publications.
    fn note_had(&mut self, now: Instant, clients: BTreeSet<ClientId>, heard: &Heard) {
        if clients.is_empty() || heard.is_empty() {
            return;
        }
        self.had.retain(|there| now < there.until);
        self.had.push_back(HadThere { until: now + HAD_FOR, clients, heard: heard.clone() });
        if self.had.len() > MAX_HAD {
            self.had.pop_front();
        }
    }

    /// The inherited sessions that have had a publication of QoS 2 where they were.
    pub(super) fn had_by(&self, message: &Message) -> BTreeSet<ClientId> {
        let id = message.id;
        if message.qos < QoS::ExactlyOnce || self.had.is_empty() {
            return BTreeSet::new();
        }
        let has_it = |there: &&HadThere| has_come_to(&there.heard, &id);
        self.had.iter().filter(has_it).flat_map(|there| &there.clients).cloned().collect()
    }

    /// The session of a client is not here any more: a later one had other publications.
    pub(super) fn has_left(&mut self, client: &ClientId) {
        for there in &mut self.had {
            there.clients.remove(client);
        }
        self.had.retain(|there| !there.clients.is_empty());
    }

    /// Keeps back steps of a session that is coming.
    pub(super) fn defer(&mut self, client: &ClientId, step: SessionStep) -> Option<SessionStep> {
        if self.clients.is_empty() {
            return Some(step);
        }
        let Some(coming) = self.clients.get(client).and_then(|life| self.lives.get_mut(life)) else {
            return Some(step);
        };
        coming.deferred.push(step);
        None
    }

    pub(super) fn remember(&mut self, known: Known) {
        self.forget(&known.client);
        self.known_ids += known.len();
        self.known.insert(known.client.clone(), known);
        while self.known_ids > MAX_KNOWN
            && let Some((_, known)) = self.known.pop_first()
        {
            self.known_ids -= known.len();
        }
    }

    /// Another owner had this for a client. Whether that is news.
    fn note_merged(&mut self, client: &ClientId, id: MessageId) -> bool {
        let is_new = self.merged.entry(client.clone()).or_default().insert(id);
        self.merged_ids += usize::from(is_new);
        while self.merged_ids > MAX_KNOWN
            && let Some((_, merged)) = self.merged.pop_first()
        {
            self.merged_ids -= merged.len();
        }
        is_new
    }

    /// Another owner of a session brings these subscriptions.
    fn brings(&mut self, client: &ClientId, from: NodeId, filters: Vec<TopicFilter>) {
        if filters.is_empty() {
            return;
        }
        self.brought.insert((client.clone(), from), filters);
        if self.brought.len() > MAX_BROUGHT {
            self.brought.pop_first();
        }
    }

    /// Forgets the messages that the session of a client came with, unless it came from `from`.
    pub(super) fn forget_others(&mut self, client: &ClientId, from: Life) {
        if self.known.get(client).is_some_and(|known| known.from != from) {
            self.forget(client);
        }
    }

    /// The inheritance of a client's session.
    pub(super) fn forget(&mut self, client: &ClientId) -> Option<Known> {
        let known = self.known.remove(client)?;
        self.known_ids -= known.len();
        Some(known)
    }
}

impl Shard {
    /// Sessions are about to come.
    pub(super) fn inherit(&mut self, inherit: Inherit) {
        let Inherit { of, sessions, ahead } = inherit;
        let coming = self.inheritance.lives.entry(of).or_default();
        coming.ahead = ahead;
        let mut filters: Vec<(ClientId, u64, Vec<TopicFilter>)> = Vec::new();
        for (shard, session) in sessions {
            let state = &session.state;
            if self.broker.session(&state.client).is_some_and(|known| known.epoch >= state.epoch) {
                let filters = state.subscriptions.iter().map(|subscription| subscription.filter.clone());
                coming.outdated.push((state.client.clone(), filters.collect()));
                continue;
            }
            let wanted = state.subscriptions.iter().map(|subscription| subscription.filter.clone());
            filters.push((state.client.clone(), state.epoch, wanted.collect()));
            self.inheritance.clients.insert(state.client.clone(), of);
            coming.sessions.push((shard, session));
        }
        for (client, epoch, filters) in filters {
            let left = self.handovers.adopt(&client, epoch, filters);
            self.withdraw(&client, left);
        }
    }

    /// The node has advertised what a former session of the client wanted.
    fn withdraw_outdated(&mut self, client: &ClientId, filters: Vec<TopicFilter>) {
        let wanted: BTreeSet<String> = self
            .broker
            .session(client)
            .map(|session| session.subscriptions.iter().map(|one| one.filter.to_string()).collect())
            .unwrap_or_default();
        let unwanted = filters.into_iter().filter(|filter| !wanted.contains(filter.as_str()));
        let changes = unwanted.map(|filter| InterestChange { filter, op: InterestOp::Remove }).collect();
        self.withdraw(client, changes);
    }

    /// All other messages for the sessions are here.
    pub(super) fn arriving(&mut self, arriving: Arriving) {
        if let Some(coming) = self.inheritance.lives.get_mut(&arriving.of) {
            (coming.strays, coming.heard) = (arriving.strays, arriving.heard);
        }
    }

    /// Nothing that was sent twice is on its way from one of the shards.
    pub(super) fn arrive(&mut self, now: Now, life: Life) {
        let Some(coming) = self.inheritance.lives.get_mut(&life) else { return };
        coming.shards += 1;
        if coming.shards < self.place.shards {
            return;
        }
        let Some(coming) = self.inheritance.lives.remove(&life) else { return };
        let Coming { sessions, ahead, outdated, strays, heard, deferred, .. } = coming;
        // Another node's sessions may be coming at the same time, with strays of their own.
        let of: BTreeSet<ClientId> = sessions.iter().map(|(_, session)| session.state.client.clone()).collect();
        for stray in strays.iter() {
            self.handovers.catch_stray(stray, &of);
        }
        let mut restored = Vec::with_capacity(sessions.len());
        for (shard, heard) in heard.iter() {
            let of = sessions.iter().filter(|(at, _)| at == shard).map(|(_, session)| session.state.client.clone());
            self.inheritance.note_had(now.instant, of.collect(), heard);
        }
        for (shard, mut session) in sessions {
            self.inheritance.clients.remove(&session.state.client);
            let (heard, ahead) = (heard.get(&shard), ahead.get(&session.state.client));
            let marks = heard.into_iter().flatten().chain(ahead.into_iter().flat_map(|ahead| &ahead.marks));
            let marks: Vec<_> = marks.map(|(key, seq)| (*key, *seq)).collect();
            let had = |message: &Message| {
                let id = message.id;
                if ahead.is_some_and(|ahead| ahead.has(&id)) {
                    return true;
                }
                let last = heard.and_then(|heard| heard.get(&(id.node, id.incarnation, id.shard)));
                // A node of an earlier version does not say how far its own publications had come.
                let own = (id.node, id.incarnation, id.shard) == (life.node, life.incarnation, shard);
                last.map_or(own, |last| id.seq <= *last)
            };
            let copied = ids_of(&session.state);
            self.catch_leaving(&session.state.client);
            let left = self.handovers.arrive_inherited(&mut session.state, had);
            let client = session.state.client.clone();
            let added = ids_of(&session.state).difference(&copied).copied().collect();
            let copied = copied.into_iter().collect();
            let filters = session.state.subscriptions.iter().map(|subscription| subscription.filter.clone()).collect();
            let known = Known { client: client.clone(), from: life, copied, added, filters: Some(filters) };
            self.inheritance.remember(known);
            self.note_had_before(&client);
            self.comes_with(&client, marks);
            self.withdraw(&client, left);
            restored.push(session);
        }
        for (client, filters) in outdated {
            self.withdraw_outdated(&client, filters);
        }
        self.broker.restore(now, restored, None);
        self.drain_broker(now);
        for step in deferred {
            self.session_step(now, step);
            self.drain_broker(now);
        }
        self.has_inherited(life);
    }

    /// Subscriptions that the client has made at another owner of its session, `from`, since one of the two succeeded the other are in force here,
    /// too. A subscription that the client has ended here stays ended if the client had left that owner before (`next`); one that it has ended
    /// there may hold again. Where both succeeded a third one, or each has begun its own, all subscriptions count.
    pub(super) fn resubscribe(
        &mut self,
        now: Now,
        client: &ClientId,
        (from, next): (NodeId, u64),
        subscriptions: Vec<SubscriptionState>,
    ) -> Vec<InterestChange> {
        let me = self.place.node;
        let known =
            self.inheritance.known.get(client).and_then(|known| Some((known.from.node, known.filters.as_ref()?)));
        let is_new = |filter: &TopicFilter| {
            known.is_none_or(|(of, copied)| ![me, from].contains(&of) || !copied.contains(filter))
        };
        let changes = self.broker.resubscribe(now, client, next, subscriptions, is_new);
        let brought = changes.iter().map(|change| change.filter.clone()).collect();
        self.inheritance.brings(client, from, brought);
        changes
    }

    /// Tells of a publication that has come to this node whether a session has had it: not if it matches nothing but filters that another owner has
    /// brought.
    fn matched_by(&self, client: &ClientId, brought: Vec<TopicFilter>) -> impl Fn(&Message) -> bool + use<> {
        let session = self.broker.session(client).filter(|_| !brought.is_empty());
        let all = session.into_iter().flat_map(|session| session.subscriptions).map(|subscription| subscription.filter);
        let own: Vec<_> = all.filter(|filter| !brought.contains(filter)).collect();
        move |message| {
            let matches = |filter: &TopicFilter| filter.matches(&message.topic);
            !brought.iter().any(matches) || own.iter().any(matches)
        }
    }

    /// The node from which a session was inherited lives after all, or two sides of a partition have each had one of their own: this session
    /// gets the messages that only the other one had. Messages that it came with and the other lacks by now the client has had there.
    pub(super) fn merge(&mut self, now: Now, merge: Merge) {
        let Merge { client, from, messages, received, sent, next, is_late } = merge;
        if is_late {
            return self.merge_late(now, &client, messages);
        }
        let known = self.inheritance.forget(&client);
        if let Some(known) = known.as_ref().filter(|known| known.from.node == from.node && known.from != from) {
            // A later life of the node brings what its journal held. The copy was as good, and has gone on since.
            let is_new = |held: &Held| {
                let id = &held.message.id;
                held.is_caught && !known.copied.contains(id) && !known.added.contains(id)
            };
            return self.merge_late(now, &client, messages.into_iter().filter(is_new).collect());
        }
        let known = known.filter(|known| known.from == from);
        let (copied, added) = known.map(|known| (known.copied, known.added)).unwrap_or_default();
        let (copied, added) = (BTreeSet::from_iter(copied), BTreeSet::from_iter(added));
        let brought = self.inheritance.brought.remove(&(client.clone(), from.node)).unwrap_or_default();
        let has_matched = self.matched_by(&client, brought);
        let there: BTreeSet<MessageId> = messages.iter().map(|held| held.message.id).collect();
        let taken = copied.difference(&there).copied().collect();
        let mut plain = Vec::with_capacity(messages.len());
        for Held { message, group, seen, is_owed, is_caught: _ } in messages {
            if is_owed {
                self.broker.owes(&client, message.id);
            }
            match group {
                // A message that has come to this node has come to the session, or to the copy that it goes on from.
                _ if (seen && has_matched(&message)) || copied.contains(&message.id) || added.contains(&message.id) => {
                }
                _ if self.was_given(&client, &message.id) || !self.inheritance.note_merged(&client, message.id) => {}
                Some(group) => self.choose_again(now, (message, group), Some(Location::Node(from.node)), 0),
                None => plain.push(message),
            }
        }
        self.broker.merge_received(&client, next, &received);
        if let Some(last) = sent {
            self.broker.merge_sent(&client, last);
        }
        self.broker.merge(now, &client, &plain, &taken);
        self.drain_broker(now);
    }

    /// The messages that the session here has to deliver and that another one of the same client, which has had `had`, has not had.
    pub(super) fn only_here(&self, client: &ClientId, had: &HadElsewhere) -> Vec<Arc<Message>> {
        self.broker.waiting(client).filter(|message| !had.has(&message.id)).collect()
    }

    /// Something has come late, at a node where the session was before.
    fn merge_late(&mut self, now: Now, client: &ClientId, messages: Vec<Held>) {
        // The node that the session was inherited from may live after all, and its session have been passed on to here.
        let known = self.inheritance.known.get(client).into_iter();
        let came_with: BTreeSet<_> = known.flat_map(|known| known.copied.iter().chain(&known.added).copied()).collect();
        let is_had = |id: &MessageId| came_with.contains(id) || self.was_given(client, id);
        let is_new = |held: &Held| !held.seen && !is_had(&held.message.id);
        let mut news: Vec<_> = messages.into_iter().filter(is_new).map(|held| held.message).collect();
        news.retain(|message| self.inheritance.note_merged(client, message.id));
        self.broker.merge(now, client, &news, &BTreeSet::new());
        self.drain_broker(now);
    }
}

#[cfg(test)]
mod tests {
    use sedge_base::Incarnation;

    use super::*;
    use crate::testing::message;

    /// FT-21: the node of a publisher dies just after the node of a subscriber, and one node takes over from both.
    #[test]
    fn what_inherited_sessions_have_had_is_known_for_a_while() {
        let (now, node, incarnation, shard) = (Instant::ZERO, NodeId::new(2), Incarnation::new(1), ShardId(0));
        let had = |seq: u64| Heard::from([((node, incarnation, shard), seq)]);
        let [a, b, c] = ["a", "b", "c"].map(ClientId::new);
        let mut inheritance = Inheritance::default();
        inheritance.note_had(now, BTreeSet::from([a.clone(), b.clone()]), &had(7));
        inheritance.note_had(now, BTreeSet::from([c.clone()]), &had(5));
        let by = |inheritance: &Inheritance, seq: u64| {
            let id = MessageId { node, incarnation, shard, seq };
            assert!(inheritance.had_by(&message(id, QoS::AtLeastOnce)).is_empty(), "QoS 1 may come again");
            inheritance.had_by(&message(id, QoS::ExactlyOnce)).into_iter().collect::<Vec<_>>()
        };
        assert_eq!(by(&inheritance, 5), [a.clone(), b.clone(), c.clone()]);
        assert_eq!(by(&inheritance, 6), [a.clone(), b.clone()]);
        assert!(by(&inheritance, 8).is_empty());
        inheritance.has_left(&a);
        assert_eq!(by(&inheritance, 7), [b]);
        inheritance.note_had(now + HAD_FOR, BTreeSet::from([a.clone()]), &had(1));
        assert_eq!(by(&inheritance, 1), [a]);
    }
}
