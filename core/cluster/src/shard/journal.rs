//! The shard's part of its journal.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::BytesMut;
use sedge_base::{ClientId, ConnId, Duration, Incarnation, Instant, NodeId, Now, ShardId};
use sedge_broker::{Deliver, Input, Output, SessionState};
use sedge_mqtt::{Message, MessageId, QoS};

use super::{Choice, Shard};
use crate::journal::Seen;
use crate::mail::{HadAhead, Heard, Known, Life, Relinquish, ShardLife, ToNode};
use crate::wire::{Entry, write_broker_entry, write_entry};
use crate::{RestoredShard, ShardOutput};

/// How long a session that is wanted elsewhere may be held up: less than the other node waits for it.
const HELD_UP: Duration = Duration::from_secs(2);
/// Sessions that are held up, each with its client id; further ones leave at once, and their publications may come out of order.
const MAX_HELD_UP: usize = 10_000;
/// Publications that a session of the journal was given ahead of others, as its new owner is told; of further ones QoS 2 messages may come twice.
const MAX_ALONG: usize = 4_096;
/// Lives of this node whose publications may still be on their way.
const LIVES: usize = 64;
/// Shards of other nodes whose publications may still be on their way.
const SOURCES: usize = 4096;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct ShardJournal {
    seen: Seen,
    /// The part of it that is to be written.
    seen_changed: BTreeSet<(Incarnation, ShardId)>,
    /// All of it is to be written, for a checkpoint.
    seen_again: bool,
    /// Choices for shared subscriptions that are to be written.
    choices: Vec<(MessageId, Choice)>,
    /// How far publications of other shards have come, for copies.
    heard: Heard,
    /// How far they had come in the former life of this node: see [`Shard::was_heard`].
    heard_before: Arc<Heard>,
    /// The life of this node whose sessions the journal holds: a former one until clients are let in.
    life: Option<Incarnation>,
    /// It is to be written.
    life_changed: bool,
    /// Clients whose sessions the journal held and that have been here since.
    restored: BTreeSet<ClientId>,
    /// The last messages that these sessions were given before the restart.
    given: BTreeMap<ClientId, BTreeSet<MessageId>>,
    /// The publications that these sessions came with from other nodes before the restart, and had there.
    ahead: BTreeMap<ClientId, HadAhead>,
    /// The number of the last publication in both, for each shard that made some.
    had_until: Heard,
    /// The part of it that is to be written.
    heard_changed: BTreeSet<(NodeId, Incarnation, ShardId)>,
    /// Sessions that had more than that when they came, until all sessions have had as much: how far.
    had_before: BTreeMap<(NodeId, Incarnation, ShardId), BTreeMap<ClientId, u64>>,
    /// The part of it that is to be written.
    had_changed: BTreeSet<ClientId>,
}

impl ShardJournal {
    /// Notes which publications the sessions of the journal had.
    fn restore_had(&mut self, given: Vec<(ClientId, MessageId)>, ahead: BTreeMap<ClientId, HadAhead>) {
        let marks = ahead.values().flat_map(|ahead| {
            let ids = ahead.ids.iter().map(|id| ((id.node, id.incarnation, id.shard), id.seq));
            ids.chain(ahead.marks.iter().map(|(key, seq)| (*key, *seq)))
        });
        let of_given = given.iter().map(|(_, id)| ((id.node, id.incarnation, id.shard), id.seq));
        for (key, seq) in marks.chain(of_given) {
            let last = self.had_until.entry(key).or_default();
            *last = seq.max(*last);
        }
        for (client, ahead) in &ahead {
            for (key, seq) in &ahead.marks {
                self.had_before.entry(*key).or_default().insert(client.clone(), *seq);
            }
        }
        for (client, id) in given {
            self.given.entry(client).or_default().insert(id);
        }
        self.ahead = ahead;
    }

    /// The sessions of the journal that had this publication before the restart. Its publisher's node has started again, and sends it once more.
    fn had_by(&self, message: &Message) -> BTreeSet<ClientId> {
        let id = &message.id;
        let until = self.had_until.get(&(id.node, id.incarnation, id.shard));
        if message.qos < QoS::ExactlyOnce || until.is_none_or(|last| id.seq > *last) {
            return BTreeSet::new();
        }
        let given = self.given.iter().filter(|(_, given)| given.contains(id)).map(|(client, _)| client);
        let ahead = self.ahead.iter().filter(|(_, ahead)| ahead.has(id)).map(|(client, _)| client);
        given.chain(ahead).cloned().collect()
    }

    /// Whether the sessions that the journal held were those of this life, or of an earlier one.
    fn is_of(&self, life: Incarnation) -> bool {
        self.life.is_none_or(|known| known <= life)
    }

    /// The members that were chosen for a publication.
    pub(super) fn note_choice(&mut self, id: MessageId, choice: &Choice) {
        self.choices.push((id, choice.clone()));
    }
}

impl Shard {
    /// Begins to write down what changes.
    pub fn keep_journal(&mut self) {
        self.broker.keep_journal();
        self.journal = Some(Box::default());
        self.writes_journal = true;
    }

    /// Takes in what the journal has held, once, after [`Shard::keep_journal`] and before anything else. Publications that were on
    /// their way, and work that time has made due, wait until the node knows the cluster again.
    pub fn restore(&mut self, now: Now, restored: RestoredShard) {
        let RestoredShard { sessions, seen, heard, ahead, given, numbers, choices, life } = restored;
        let ahead = ahead.by_client().0;
        self.exacts.restore(choices);
        if let Some(journal) = &mut self.journal {
            (journal.seen, journal.seen_again) = (seen, numbers.is_none());
            (journal.life, journal.life_changed) = (life, numbers.is_none());
            journal.restored = sessions.iter().map(|session| session.state.client.clone()).collect();
            journal.restore_had(given, ahead);
            (journal.heard, journal.heard_before) = (heard.clone(), Arc::new(heard));
        }
        let with_will = sessions.iter().filter(|session| session.state.will.is_some());
        self.wills = with_will.map(|session| session.state.client.clone()).collect();
        (self.is_restoring, self.is_recovering) = (true, true);
        self.broker.restore(now, sessions, numbers);
        self.drain_broker(now);
        self.is_restoring = false;
        self.tell_node(ToNode::Restored);
    }

    /// The node knows the cluster again.
    pub(super) fn recovered(&mut self, now: Now) {
        self.is_recovering = false;
        self.wills = Vec::new();
        let leaves = self.held_up.iter().map(|(_, relinquish)| relinquish.client.clone()).collect();
        let mut held_back = core::mem::take(&mut self.held_back);
        // In the order in which they were published: other shards remember how far they have seen them.
        held_back.sort_by_key(|output| {
            let Output::Route { message, .. } = output else { return None };
            Some((message.id.incarnation, message.id.shard, message.id.seq))
        });
        for output in held_back {
            if let Output::Route { message, ticket, matched } = output {
                if self.was_not_copied(&message, &leaves) {
                    continue;
                }
                // Sessions that were here when it was published have had it.
                self.handovers.catch(&message, true, &mut self.broker);
                self.route(now, &message, ticket, matched);
            } else if let Output::Bounced { message, group, reason } = output {
                // A message that must not come twice may have been given to another member by a node that had a copy.
                if self.hold.is_none() || message.qos < QoS::ExactlyOnce {
                    self.on_bounced(now, message, group, reason);
                }
            }
        }
        self.broker.handle_timeout(now);
        self.drain_broker(now);
        for (_, relinquish) in core::mem::take(&mut self.held_up) {
            self.gives_up(now, relinquish);
        }
    }

    /// A session is wanted elsewhere while publications of its client wait for the node to know the cluster again: the client's next ones, which it
    /// sends there, must not overtake them. Returns what is to be done now.
    pub(super) fn hold_up(&mut self, now: Now, relinquish: Relinquish) -> Option<Relinquish> {
        let is_of_it = |output: &Output| {
            let Output::Route { message, .. } = output else { return false };
            message.publisher.as_ref() == Some(&relinquish.client)
        };
        let has_room = self.held_up.len() < MAX_HELD_UP;
        if !self.is_recovering || relinquish.clean_start || !has_room || !self.held_back.iter().any(is_of_it) {
            return Some(relinquish);
        }
        self.held_up.push_back((now.instant, relinquish));
        None
    }

    /// Lets sessions leave that have waited long enough.
    pub(super) fn let_held_up_leave(&mut self, now: Now) {
        while self.held_up_until().is_some_and(|until| until <= now.instant)
            && let Some((_, relinquish)) = self.held_up.pop_front()
        {
            self.gives_up(now, relinquish);
        }
    }

    /// Until when the session that has waited longest waits.
    pub(super) fn held_up_until(&self) -> Option<Instant> {
        self.held_up.front().map(|(since, _)| *since + HELD_UP)
    }

    /// Another node has taken over the sessions of an earlier life, from their copies. If the journal held them, the other node has published their
    /// wills, or will do so.
    pub(super) fn taken_over(&mut self, now: Now, life: Incarnation) {
        self.taken_over = self.taken_over.max(Some(life));
        if !self.journal.as_ref().is_none_or(|journal| journal.is_of(life)) {
            return;
        }
        self.former = Some(life);
        for client in core::mem::take(&mut self.wills) {
            self.broker.forget_will(&client);
        }
        self.drain_broker(now);
    }

    /// The session of a client goes on at another node, which has it as it was before this node started again.
    pub(super) fn discard(&mut self, now: Now, client: &ClientId) {
        if self.broker.discard(client) {
            self.is_restored_no_more(client);
            self.drain_broker(now);
        }
    }

    /// Clients are let in from now on: the sessions are those of this life.
    pub(super) fn begins_to_serve(&mut self) {
        let life = Some(self.place.incarnation);
        let writes = self.writes_journal;
        if let Some(journal) = self.journal.as_mut().filter(|journal| writes && journal.life != life) {
            (journal.life, journal.life_changed) = (life, true);
        }
    }

    /// Whether the publisher's session goes on elsewhere from a copy. That session answers for a publication that was on its way when the node
    /// died: the copy has it, or the publisher got no answer and sends it again. `leaves`: sessions that are about to go there.
    fn was_not_copied(&self, message: &Message, leaves: &BTreeSet<ClientId>) -> bool {
        let is_of_it = |life| message.id.node == self.place.node && message.id.incarnation <= life;
        let has_copies = self.former.is_some() || self.taken_over.is_some_and(is_of_it);
        let publisher = message.publisher.as_ref().filter(|_| has_copies);
        publisher.is_some_and(|publisher| self.broker.session(publisher).is_none() || leaves.contains(publisher))
    }

    /// The broker has given a session up: tells the node what its new owner has to know of it.
    pub(super) fn relinquished(&mut self, client: ClientId, epoch: u64, session: Option<Box<SessionState>>) {
        let restored = self.is_restored_no_more(&client);
        let left = self.handovers.given_up(&client, epoch, session.is_some());
        let mut along = self.leaves_with(&client, session.as_deref());
        self.withdraw(&client, left);
        let restored = restored.filter(|_| session.is_some());
        let former = restored.as_ref().and_then(|_| self.known_of_former_life(&client));
        if let Some((mut heard, ahead)) = restored {
            for (shard, seq) in &ahead.marks {
                if heard.get(shard).is_none_or(|last| last < seq) {
                    Arc::make_mut(&mut heard).insert(*shard, *seq);
                }
            }
            // Those that it was given ahead of others: its new owner may get them from an owner before this one.
            let is_ahead =
                |id: &&MessageId| heard.get(&(id.node, id.incarnation, id.shard)).is_none_or(|last| *last < id.seq);
            along.extend(ahead.ids.iter().filter(is_ahead).take(MAX_ALONG));
            self.handovers.note_restored(&client, ahead);
            self.tell_node(ToNode::HadBefore(Box::new((client.clone(), heard))));
        }
        if let Some(known) = self.inheritance.forget(&client).or(former) {
            self.tell_node(ToNode::Known(Box::new((epoch, known))));
        }
        // Publications of the session count as published wherever it goes: their receivers here have copies first.
        let waits = self.upstream.is_some();
        let left = ToNode::Relinquished { client, epoch, session, made: self.broker.last_made(), along };
        self.post(ShardOutput::ToNode(left), waits);
    }

    /// Says of a session of the journal from which life of this node it is, if another node has taken that life's sessions over. The new owner
    /// adds nothing of it to a session that goes on from the copy, which had as much.
    fn known_of_former_life(&self, client: &ClientId) -> Option<Known> {
        let from = Life { node: self.place.node, incarnation: self.former? };
        Some(Known { client: client.clone(), from, copied: Vec::new(), added: Vec::new(), filters: None })
    }

    /// Appends the records that have to be written since the last call; none without a journal. The records belong together: all are to be written
    /// or none.
    pub fn write_records(&mut self, out: &mut BytesMut) {
        if !self.writes_journal {
            return;
        }
        if self.hold.is_some() {
            // Changes since the last turn are in the next batch.
            out.extend_from_slice(&core::mem::take(&mut self.sealed));
        } else {
            self.seal(out);
        }
    }

    /// Appends the changes.
    pub(super) fn seal(&mut self, out: &mut BytesMut) {
        let Some(journal) = &mut self.journal else { return };
        let before = out.len();
        let (changed, all) = (core::mem::take(&mut journal.seen_changed), core::mem::take(&mut journal.seen_again));
        if all {
            let open = self.exacts.choices().map(|(id, choice)| (*id, choice.clone()));
            journal.choices = open.collect();
        }
        for (id, choice) in journal.choices.drain(..) {
            write_entry(out, &Entry::Chosen { id, choice });
        }
        for (&(incarnation, shard), &seq) in journal.seen.iter().filter(|(key, _)| all || changed.contains(*key)) {
            write_entry(out, &Entry::Seen { incarnation, shard, seq });
        }
        for key in core::mem::take(&mut journal.heard_changed) {
            if let Some(&seq) = journal.heard.get(&key) {
                let (node, incarnation, shard) = key;
                write_entry(out, &Entry::Heard { node, incarnation, shard, seq });
            }
        }
        for (key, clients) in &journal.had_before {
            for (client, &seq) in clients.iter().filter(|(client, _)| journal.had_changed.contains(*client)) {
                let (node, incarnation, shard) = *key;
                write_entry(
                    out,
                    &Entry::Had { client: client.clone(), last: MessageId { node, incarnation, shard, seq } },
                );
            }
        }
        journal.had_changed.clear();
        for record in self.broker.take_records() {
            write_broker_entry(out, &record);
        }
        // The sessions are those of the former life until something of them changes.
        if let Some(life) = journal.life.filter(|_| journal.life_changed && out.len() > before) {
            journal.life_changed = false;
            write_entry(out, &Entry::Life(life));
        }
    }

    /// About as many bytes as everything that is alive takes in the journal.
    pub fn live_bytes(&self) -> u64 {
        self.broker.live_bytes()
    }

    /// Whether QoS 1 and 2 publications of clients are refused because there is no room to keep them.
    pub const fn set_full(&mut self, full: bool) {
        self.broker.set_full(full);
    }

    /// Whether a connection was given something to write since the last call that has to wait for the journal; see
    /// [`sedge_broker::Broker::take_dependence`].
    pub fn take_dependence(&mut self, conn: ConnId) -> bool {
        self.broker.take_dependence(conn)
    }

    /// Begins to write everything once more; see [`sedge_broker::Broker::begin_checkpoint`].
    pub fn begin_checkpoint(&mut self) {
        self.broker.begin_checkpoint();
        if let Some(journal) = &mut self.journal {
            (journal.seen_again, journal.life_changed) = (true, true);
        }
        self.write_all_heard();
    }

    /// Writes a part of a checkpoint, about `budget` bytes. True when it is done or there is none.
    pub fn checkpoint(&mut self, budget: u64) -> bool {
        self.broker.checkpoint(budget)
    }

    /// Whether a QoS 2 publication of another node had come to this shard before the node started again. The publications of one shard come in
    /// order, so that sessions which were here then have had it.
    pub(super) fn was_heard(&self, message: &Message) -> bool {
        let id = message.id;
        let before =
            self.journal.as_ref().and_then(|journal| journal.heard_before.get(&(id.node, id.incarnation, id.shard)));
        message.qos == QoS::ExactlyOnce && id.node != self.place.node && before.is_some_and(|last| id.seq <= *last)
    }

    /// Delivers a publication that had come before the node started again: to sessions that were not here then.
    pub(super) fn deliver_again(&mut self, now: Now, message: &Arc<Message>) {
        let Some(journal) = &self.journal else { return };
        self.broker.deliver_to_others(now, message, &journal.restored);
    }

    /// The sessions that have had a QoS 2 publication before this node started again, or at the node that they are inherited from.
    pub(super) fn had_by(&self, message: &Message) -> BTreeSet<ClientId> {
        let mut had = self.inheritance.had_by(message);
        had.extend(self.journal.iter().flat_map(|journal| journal.had_by(message)));
        had
    }

    /// Delivers a publication to those sessions here that have not had it, before this node started again or at the node that they are inherited from.
    pub(super) fn deliver_here(&mut self, now: Now, deliver: Deliver) {
        let had = if deliver.plain { self.had_by(&deliver.message) } else { BTreeSet::new() };
        if had.is_empty() {
            return self.broker.handle(now, Input::Deliver(deliver));
        }
        self.broker.deliver_to_others(now, &deliver.message, &had);
        if !deliver.groups.is_empty() {
            self.broker.handle(now, Input::Deliver(Deliver { plain: false, ..deliver }));
        }
    }

    /// The session of a client has left. If it was in the journal that this node started from, returns the publications that it had had by then:
    /// those of all sessions of the journal, and those that only this one had.
    fn is_restored_no_more(&mut self, client: &ClientId) -> Option<(Arc<Heard>, HadAhead)> {
        self.inheritance.has_left(client);
        let journal = self.journal.as_mut()?;
        journal.had_before.retain(|_, clients| clients.remove(client).is_none() || !clients.is_empty());
        let given = journal.given.remove(client);
        let mut ahead = journal.ahead.remove(client).unwrap_or_default();
        ahead.ids.extend(given.into_iter().flatten());
        journal.restored.remove(client).then(|| (Arc::clone(&journal.heard_before), ahead))
    }

    /// Whether a session of the journal was given this message before the restart, or gets it from this node. A former owner that has not given the
    /// session up for good brings it once more.
    pub(super) fn was_given(&self, client: &ClientId, id: &MessageId) -> bool {
        let Some(journal) = &self.journal else { return false };
        // What was on its way at the restart goes out again, here to the sessions of the journal that have not had it. A second owner's message
        // that only its own subscriptions wanted is dropped with these.
        let is_of_former_life = id.node == self.place.node && id.incarnation != self.place.incarnation;
        (is_of_former_life && journal.restored.contains(client))
            || journal.given.get(client).is_some_and(|given| given.contains(id))
    }

    /// Notes, for copies and for the node's next life, that a publication has come, or was made here for sessions of this shard.
    pub(super) fn note_heard(&mut self, message: &Message) {
        if message.qos == QoS::AtMostOnce {
            return;
        }
        // Before a foreign broker it has come when that has delivered it, and all that came before.
        if self.is_delivered_later(message.id) {
            self.has_come(MessageId { seq: 0, ..message.id });
        } else {
            self.has_come(message.id);
        }
    }

    /// A session has come, and has had the publications of these shards up to these.
    pub(super) fn has_had_before(&mut self, client: &ClientId, marks: impl IntoIterator<Item = (ShardLife, u64)>) {
        let is_needed = self.hold.is_some() || self.writes_journal;
        let Some(journal) = self.journal.as_mut().filter(|_| is_needed) else { return };
        for (key, seq) in marks {
            if journal.heard.get(&key).is_none_or(|last| *last < seq) {
                journal.had_before.entry(key).or_default().insert(client.clone(), seq);
                journal.had_changed.insert(client.clone());
            }
        }
        while journal.had_before.len() > SOURCES {
            journal.had_before.pop_first();
        }
    }

    /// A session has come, and has had the publications of these shards up to these where it was. Publishers' nodes that start again together with
    /// this one send those once more that were on their way.
    pub(super) fn comes_with(&mut self, client: &ClientId, marks: impl IntoIterator<Item = (ShardLife, u64)>) {
        if self.writes_journal && self.upstream.is_none() {
            self.has_had_before(client, marks);
        }
    }

    /// All sessions here have had the publications up to this one.
    pub(super) fn has_come(&mut self, id: MessageId) {
        let is_needed = self.hold.is_some() || (self.writes_journal && id.node != self.place.node);
        let Some(journal) = self.journal.as_mut().filter(|_| is_needed) else { return };
        let key = (id.node, id.incarnation, id.shard);
        let known = journal.heard.get(&key).copied();
        if known.is_none_or(|last| id.seq > last) {
            journal.heard.insert(key, id.seq);
            journal.heard_changed.insert(key);
            if let Some(clients) = journal.had_before.get_mut(&key) {
                clients.retain(|_, seq| *seq > id.seq);
                if clients.is_empty() {
                    journal.had_before.remove(&key);
                }
            }
        }
        while journal.heard.len() > SOURCES {
            journal.heard.pop_first();
        }
    }

    pub(super) fn write_all_heard(&mut self) {
        if let Some(last) = self.own_come() {
            self.has_come(last);
        }
        if let Some(journal) = &mut self.journal {
            journal.heard_changed = journal.heard.keys().copied().collect();
            journal.had_changed = journal.had_before.values().flat_map(|clients| clients.keys().cloned()).collect();
        }
    }

    /// Whether a publication of another shard of this node has come before the last restart: then it has had its effect here. The
    /// mail of one shard comes in the order of its publications.
    pub(super) fn has_seen(&mut self, message: &Message) -> bool {
        let Some(journal) = self.journal.as_mut().filter(|_| message.qos == QoS::ExactlyOnce) else { return false };
        let id = message.id;
        if id.node != self.place.node || id.shard == self.place.shard {
            return false;
        }
        let key = (id.incarnation, id.shard);
        let last = journal.seen.entry(key).or_default();
        if id.incarnation != self.place.incarnation && id.seq <= *last {
            return true;
        }
        *last = id.seq.max(*last);
        journal.seen_changed.insert(key);
        while journal.seen.len() > LIVES.max(usize::from(self.place.shards)) {
            journal.seen.pop_first();
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use sedge_base::Rng;
    use sedge_broker::{Place, SubscriptionState};
    use sedge_mqtt::{SubscriptionOptions, TopicFilter, Version};

    use super::*;
    use crate::mail::{Claimed, Handed, SessionStep, ToShard};
    use crate::reception::shard_of;
    use crate::testing::message;
    use crate::{Recovery, ShardConfig, ShardInput};

    /// Shard 1 of this life of node 1, with what these batches hold.
    fn started(life: u64, batches: &[Bytes]) -> Shard {
        let (node, incarnation) = (NodeId::new(1), Incarnation::new(life));
        let mut shards = [Recovery::default(), Recovery::default()];
        for batch in batches {
            shards[1].apply(batch.clone()).unwrap();
        }
        let (mut restored, _) = Recovery::deal(shards.into(), Now::default().wall, 2);
        let place = Place { node, incarnation, shard: ShardId(1), shards: 2 };
        let mut shard = Shard::new(ShardConfig::default(), place, Rng::new(1));
        shard.keep_journal();
        shard.restore(Now::default(), restored.remove(1));
        shard
    }

    /// A publication with QoS 2 that shard 0 of this life has made.
    fn made(life: u64, seq: u64) -> Arc<Message> {
        let (node, incarnation) = (NodeId::new(1), Incarnation::new(life));
        message(MessageId { node, incarnation, shard: ShardId(0), seq }, QoS::ExactlyOnce)
    }

    fn written(shard: &mut Shard) -> Bytes {
        let mut batch = BytesMut::new();
        shard.write_records(&mut batch);
        batch.freeze()
    }

    /// MQ-05: the other shard routes what it had made in a former life once more after each restart, until it knows that this shard has kept that.
    #[test]
    fn a_publication_of_a_former_life_is_known_after_the_next_restart() {
        let mut second = started(2, &[]);
        assert!(!second.has_seen(&made(1, 7)), "it comes for the first time");
        let batch = written(&mut second);
        let mut third = started(3, &[batch]);
        assert!(third.has_seen(&made(1, 7)));
        assert!(!third.has_seen(&made(1, 8)));
    }

    /// A client of shard 1.
    fn client() -> ClientId {
        let mut all = ["a", "b", "c", "d"].map(ClientId::new).into_iter();
        all.find(|client| shard_of(client, 2) == ShardId(1)).unwrap()
    }

    /// Its session, with a subscription to everything.
    fn session() -> SessionState {
        let options = SubscriptionOptions { qos: QoS::ExactlyOnce, ..SubscriptionOptions::default() };
        let subscription = SubscriptionState { filter: TopicFilter::new("#").unwrap(), options, id: None };
        SessionState {
            client: client(),
            epoch: 16,
            version: Version::V5,
            expiry_secs: 3_600,
            disconnected_at: Now::default().wall,
            subscriptions: vec![subscription],
            inflight: Vec::new(),
            queue: Vec::new(),
            inbound: Vec::new(),
            will: None,
        }
    }

    fn takes(shard: &mut Shard, mail: ToShard) {
        shard.handle(Now::default(), ShardInput::Mail(mail));
        while shard.poll_output().is_some() {}
    }

    /// MQ-05: a session comes from another node with a publication that shard 0 made. After a restart shard 0 sends it once more, and to this shard
    /// for the first time.
    #[test]
    fn a_session_that_came_with_a_publication_does_not_get_it_once_more_after_a_restart() {
        let mut second = started(2, &[]);
        let claimed = Claimed {
            had: Heard::new(),
            client: client(),
            conn: None,
            epoch: 32,
            session: Some(Box::new(session())),
            leftovers: vec![made(1, 7)],
            beside: None,
            given: None,
        };
        takes(&mut second, ToShard::Session(Box::new(SessionStep::Claimed(claimed))));
        assert_eq!(waiting(&second), [7]);
        let batch = written(&mut second);
        let mut third = started(3, &[batch]);
        assert_eq!(waiting(&third), [7]);
        takes(&mut third, ToShard::Plain(made(1, 7)));
        takes(&mut third, ToShard::Plain(made(1, 8)));
        assert_eq!(waiting(&third), [7, 8]);
    }

    /// The numbers of the messages that the session has to deliver.
    fn waiting(shard: &Shard) -> Vec<u64> {
        shard.broker().waiting(&client()).map(|one| one.id.seq).collect()
    }

    fn comes(shard: &mut Shard, session: SessionState, had: Heard) {
        let (client, epoch) = (client(), session.epoch);
        let session = Some(Box::new(session));
        let claimed =
            Claimed { client, conn: None, epoch, session, leftovers: Vec::new(), beside: None, given: None, had };
        takes(shard, ToShard::Session(Box::new(SessionStep::Claimed(claimed))));
    }

    /// MQ-05: a session has delivered a publication at the node where it was before. After a power cut the publisher's node sends it once more.
    #[test]
    fn a_session_that_had_a_publication_elsewhere_does_not_get_it_after_a_restart() {
        let elsewhere = |seq| {
            let (node, incarnation) = (NodeId::new(2), Incarnation::new(9));
            message(MessageId { node, incarnation, shard: ShardId(0), seq }, QoS::ExactlyOnce)
        };
        let key = (NodeId::new(2), Incarnation::new(9), ShardId(0));
        let mut second = started(2, &[]);
        comes(&mut second, session(), Heard::from([(key, 5)]));
        let batch = written(&mut second);
        let mut third = started(3, &[batch]);
        for seq in 4..=6 {
            takes(&mut third, ToShard::Plain(elsewhere(seq)));
        }
        assert_eq!(waiting(&third), [6]);
    }

    /// MQ-05: the same session leaves the node that has started again just before the publisher's node sends the publication once more.
    #[test]
    fn what_a_session_had_elsewhere_before_a_restart_does_not_follow_it_to_its_next_owner() {
        let key = (NodeId::new(2), Incarnation::new(9), ShardId(0));
        let mut second = started(2, &[]);
        comes(&mut second, session(), Heard::from([(key, 5)]));
        let mut third = started(3, &[written(&mut second)]);
        let gives_up = Relinquish { client: client(), epoch: 32, clean_start: false };
        third.handle(Now::default(), ShardInput::Mail(ToShard::Session(Box::new(SessionStep::Relinquish(gives_up)))));
        for seq in 4..=6 {
            let id = MessageId { node: key.0, incarnation: key.1, shard: key.2, seq };
            third.handle(Now::default(), ShardInput::Mail(ToShard::Plain(message(id, QoS::ExactlyOnce))));
        }
        for _ in 0..2 {
            let collect = SessionStep::Collect(Handed { client: client(), epoch: 32 });
            third.handle(Now::default(), ShardInput::Mail(ToShard::Session(Box::new(collect))));
        }
        let (mut had, mut caught) = (None, Vec::new());
        while let Some(output) = third.poll_output() {
            if let ShardOutput::ToNode(ToNode::HadBefore(before)) = output {
                had = before.1.get(&key).copied();
            } else if let ShardOutput::ToNode(ToNode::Leftovers(left)) = output {
                caught.extend(left.1.iter().map(|one| one.id.seq));
            }
        }
        assert_eq!((had, caught), (Some(5), vec![6]));
    }

    /// FT-20: the sessions of a journal are those of the node's former life until something of them changes.
    #[test]
    fn a_journal_names_the_life_whose_sessions_it_holds() {
        let life_of = |batches: &[Bytes]| {
            let mut recovery = Recovery::default();
            for batch in batches {
                recovery.apply(batch.clone()).unwrap();
            }
            Recovery::deal(vec![recovery], Now::default().wall, 1).1.life
        };
        let mut second = started(2, &[]);
        takes(&mut second, ToShard::Open);
        assert!(written(&mut second).is_empty(), "nothing has changed");
        comes(&mut second, session(), Heard::new());
        let mut batches = vec![written(&mut second)];
        assert_eq!(life_of(&batches), Some(Incarnation::new(2)));
        let mut third = started(3, &batches);
        comes(&mut third, SessionState { epoch: 32, ..session() }, Heard::new());
        batches.push(written(&mut third));
        assert_eq!(life_of(&batches), Some(Incarnation::new(2)), "no client was let in");
        third.begin_checkpoint();
        while !third.checkpoint(1 << 20) {}
        let checkpoint = written(&mut third);
        assert_eq!(life_of(&[checkpoint]), Some(Incarnation::new(2)));
        takes(&mut third, ToShard::Open);
        comes(&mut third, SessionState { epoch: 48, ..session() }, Heard::new());
        batches.push(written(&mut third));
        assert_eq!(life_of(&batches), Some(Incarnation::new(3)));
    }

    /// FT-20, MQ-11: nothing is left of a session that is safe at another node, also after the next restart.
    #[test]
    fn a_session_that_is_safe_elsewhere_is_dropped() {
        let mut second = started(2, &[]);
        comes(&mut second, session(), Heard::new());
        let mut batches = vec![written(&mut second)];
        let mut third = started(3, &batches);
        assert!(third.broker().session(&client()).is_some());
        takes(&mut third, ToShard::Session(Box::new(SessionStep::Discard(client()))));
        assert!(third.broker().session(&client()).is_none());
        batches.push(written(&mut third));
        assert!(started(4, &batches).broker().session(&client()).is_none());
    }
}
