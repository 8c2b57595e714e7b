//! Messages that come for a session while it moves to another node: none is lost, and none comes twice.
//!
//! 1. The former owner's broker gives the session up, and keeps it ([`Broker::keep_for`]). Its shard withholds the withdrawal of the
//!    interest and catches what matches from then on, so that everybody still sends here. The session leaves the node behind everything
//!    that its shards had delivered before: none of that may be routed to the new owner, which could not tell it from something new.
//! 2. The new owner's node gets the session and advertises its interest. When every node routes there, its shard begins to catch,
//!    too, and the former owner is told so.
//! 3. When nothing is on its way any more to the former owner that was not sent to the new one, nor between its shards, the messages it has caught
//!    go to the new owner. It goes on to catch.
//! 4. When nothing that was sent to both can be on its way to the new owner any more, its shard puts all together: everything
//!    published was caught by one of them or by both; the message ids tell.
//! 5. When the session is with the new owner's backups, the former owner withdraws the interest and forgets the session. Until then it takes
//!    it back should the new owner die (`node/sessions/reclaim.rs`); and should the former owner die, its successor has all of it.
//!
//! A member of a shared subscription stays one all the time. A message that it is chosen for while it is at neither node is for another member,
//! or, if there is none, waits at the node until the move is over.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sedge_base::{ClientId, Seed};
use sedge_broker::{Broker, InflightPhase, InterestChange, InterestOp, SessionState, detach};
use sedge_mqtt::{Message, MessageId, QoS, SubscriptionTrie, TopicFilter};

use crate::mail::HadAhead;

/// Messages caught for one session; more are dropped and counted.
const MAX_MESSAGES: usize = 100_000;
/// Bytes caught for one session; more are dropped and counted.
const MAX_BYTES: usize = 64 * 1024 * 1024;

/// Sessions of this shard that are on their way.
#[derive(Debug)]
pub(super) struct Handovers {
    /// The client whose session the broker is giving up right now.
    leaving: Option<ClientId>,
    sessions: BTreeMap<ClientId, Catch>,
    filters: SubscriptionTrie<ClientId, ()>,
    /// Sessions among them that are members of a shared subscription.
    groups: BTreeMap<TopicFilter, BTreeSet<ClientId>>,
    /// Messages caught for shared subscriptions whose members have moved: other members have to be chosen for them.
    freed: Vec<Share>,
    dropped: u64,
}

/// A message for one member of a shared subscription.
pub(super) type Share = (Arc<Message>, TopicFilter);

#[derive(Debug, Default)]
struct Catch {
    /// Epoch of the new owner; 0 until the broker has given the session up.
    epoch: u64,
    /// Whether the session comes, and does not go.
    comes: bool,
    /// Of a session of the journal that this node started from, the publications that it alone had before. It has had all that came in the node's
    /// former life, too.
    restored: Option<HadAhead>,
    filters: Vec<TopicFilter>,
    messages: Vec<Arc<Message>>,
    /// The number of `messages` that this node has sent ahead to the new owner.
    looked: usize,
    shares: Vec<Share>,
    /// Of a session whose node is gone: messages that were on their way there.
    strays: Vec<Arc<Message>>,
    /// Messages that are caught, or will be, and that the session has had before.
    had: BTreeSet<MessageId>,
    bytes: usize,
    /// Withdrawals that the node was not told yet.
    withheld: Vec<InterestChange>,
    /// Shards whose mail is in.
    collected: u16,
}

impl Catch {
    /// Whether a session that goes has had a message before. `was_heard`: it had come before this node started again.
    fn has_had(&self, message: &Message, was_heard: bool) -> bool {
        let is_once = message.qos == QoS::ExactlyOnce;
        let before = |ahead: &HadAhead| was_heard || (is_once && ahead.has(&message.id));
        self.restored.as_ref().is_some_and(before) || self.had.contains(&message.id)
    }

    /// Whether there is room for one more message, which is then taken for caught.
    fn takes(&mut self, message: &Message) -> bool {
        let size = message.payload.len() + message.topic.as_bytes().len() + 64;
        let has_room = self.messages.len() + self.shares.len() < MAX_MESSAGES && self.bytes + size <= MAX_BYTES;
        self.bytes += if has_room { size } else { 0 };
        has_room
    }
}

impl Handovers {
    pub(super) fn new(seed: Seed) -> Self {
        let filters = SubscriptionTrie::with_seed(seed);
        let (sessions, groups) = (BTreeMap::new(), BTreeMap::new());
        Self { leaving: None, sessions, filters, groups, freed: Vec::new(), dropped: 0 }
    }

    /// Messages that were not caught because a limit was reached.
    pub(super) const fn dropped(&self) -> u64 {
        self.dropped
    }

    /// The broker is about to give up the session of this client.
    pub(super) fn begin(&mut self, client: &ClientId) {
        self.leaving = Some(client.clone());
    }

    /// The broker withdraws interest: keeps back what belongs to the session that it gives up.
    pub(super) fn withhold(&mut self, client: &ClientId, changes: &mut Vec<InterestChange>) {
        if self.leaving.as_ref() != Some(client) {
            return;
        }
        let withheld: Vec<_> = changes.extract_if(.., |change| change.op == InterestOp::Remove).collect();
        if !withheld.is_empty() {
            let filters = withheld.iter().map(|change| change.filter.clone()).collect();
            self.insert(client, Catch { filters, withheld, ..Catch::default() });
        }
    }

    /// The broker has given the session up under the new owner's epoch. Returns withdrawals to be made at once because there is no
    /// session to be moved.
    pub(super) fn given_up(&mut self, client: &ClientId, epoch: u64, moved: bool) -> Vec<InterestChange> {
        if self.leaving.as_ref() != Some(client) {
            return Vec::new();
        }
        self.leaving = None;
        match self.sessions.get_mut(client) {
            Some(session) if moved => {
                session.epoch = epoch;
                Vec::new()
            }
            Some(session) if session.epoch == 0 => {
                self.remove(client).map(|session| session.withheld).unwrap_or_default()
            }
            // It was given up before, or never here: homes may say so twice, and catching goes on.
            Some(_) | None => Vec::new(),
        }
    }

    /// A session that leaves was in the journal that this node started from, and had these publications before other sessions of its shard.
    pub(super) fn note_restored(&mut self, client: &ClientId, ahead: HadAhead) {
        if let Some(session) = self.sessions.get_mut(client) {
            session.restored = Some(ahead);
        }
    }

    /// The new owner has the session for good: returns the withdrawals.
    pub(super) fn leave(&mut self, client: &ClientId, epoch: u64) -> Vec<InterestChange> {
        if self.sessions.get(client).is_none_or(|session| session.epoch != epoch || session.comes) {
            return Vec::new();
        }
        self.remove(client).map(|session| session.withheld).unwrap_or_default()
    }

    /// Messages that were caught for a session that goes, since the last call.
    pub(super) fn look(&mut self, client: &ClientId, epoch: u64) -> Vec<Arc<Message>> {
        let session = self.sessions.get_mut(client).filter(|session| session.epoch == epoch && !session.comes);
        let Some(session) = session else { return Vec::new() };
        let news = session.messages.get(session.looked..).unwrap_or_default().to_vec();
        session.looked = session.messages.len();
        news
    }

    /// One of `shards` shards has nothing more on its way to this one: says when that is true of all.
    pub(super) fn flush(&mut self, client: &ClientId, epoch: u64, shards: u16) -> bool {
        let Some(session) = self.sessions.get_mut(client).filter(|session| session.epoch == epoch) else {
            return false;
        };
        session.collected += 1;
        session.collected == shards
    }

    /// As [`Handovers::flush`]: returns what was caught when that is true of all, and nothing if the session has moved again since. Catching
    /// goes on.
    pub(super) fn collect(&mut self, client: &ClientId, epoch: u64, shards: u16) -> Option<Vec<Arc<Message>>> {
        if self.sessions.get(client).is_none_or(|session| session.epoch != epoch || session.comes) {
            return Some(Vec::new());
        }
        let all = self.flush(client, epoch, shards);
        let session = self.sessions.get_mut(client).filter(|_| all)?;
        // The new owner may be told once more, if it was sent the session twice.
        session.collected = 0;
        Some(session.messages.clone())
    }

    /// Begins to catch for a session that comes, or goes on to: it may come from a successor of who was to send it, too. Returns what a
    /// former move has left to be withdrawn.
    pub(super) fn adopt(&mut self, client: &ClientId, epoch: u64, filters: Vec<TopicFilter>) -> Vec<InterestChange> {
        let mut known = self.take(client).unwrap_or_default();
        known.withheld.retain(|change| !filters.contains(&change.filter));
        let left = core::mem::take(&mut known.withheld);
        if known.comes {
            self.insert(client, Catch { epoch, filters, collected: 0, ..known });
        } else {
            self.freed.append(&mut known.shares);
            self.insert(client, Catch { epoch, comes: true, filters, ..Catch::default() });
        }
        left
    }

    /// A session is about to be announced here that has these shared subscriptions.
    pub(super) fn expect(&mut self, client: &ClientId, epoch: u64, groups: Vec<TopicFilter>) {
        let Some(session) = self.sessions.get_mut(client) else {
            return self.insert(client, Catch { epoch, comes: true, filters: groups, ..Catch::default() });
        };
        session.comes = true;
        for group in groups {
            if !session.filters.contains(&group) {
                self.groups.entry(group.clone()).or_default().insert(client.clone());
                session.filters.push(group);
            }
        }
    }

    /// Whether a member of this shared subscription is about to be here.
    pub(super) fn awaits_member(&self, group: &TopicFilter) -> bool {
        let members = self.groups.get(group).into_iter().flatten();
        members.into_iter().any(|client| self.sessions.get(client).is_some_and(|session| session.comes))
    }

    /// A message for a shared subscription that has no member just now. False if it has none on the move either.
    pub(super) fn catch_share(&mut self, message: &Arc<Message>, group: &TopicFilter, broker: &mut Broker) -> bool {
        let Some(client) = self.groups.get(group).and_then(BTreeSet::first) else { return false };
        let Some(session) = self.sessions.get_mut(client) else { return false };
        if session.takes(message) {
            let message = detach(message);
            if !session.comes {
                broker.keep_share_for(client, &message, group);
            }
            session.shares.push((message, group.clone()));
        } else {
            self.dropped += 1;
        }
        true
    }

    /// Messages that were caught for shared subscriptions and for which members have to be chosen again.
    pub(super) fn take_freed(&mut self) -> Vec<Share> {
        core::mem::take(&mut self.freed)
    }

    /// A session that was given away goes on here, with the messages caught for it as a member of shared subscriptions.
    pub(super) fn keep_shares(&mut self, client: &ClientId) {
        if let Some(session) = self.sessions.get_mut(client) {
            session.shares.clear();
        }
    }

    /// The session of this client is here: adds the messages that came for it meanwhile. Those that only the former owner has caught were published
    /// before anybody knew the new one, and so come first, unless an older one of the same shard was caught here: then they were lost on their way
    /// here (QoS 0). The former owner may have caught others later, without those in between, if other clients of its node wanted them: of messages
    /// that both have caught the order here counts. Returns the withdrawals of interest that a former move has left.
    pub(super) fn arrive(
        &mut self,
        client: &ClientId,
        session: Option<&mut SessionState>,
        leftovers: Vec<Arc<Message>>,
    ) -> Vec<InterestChange> {
        let mut caught = self.remove(client).unwrap_or_default();
        if let Some(session) = session {
            let wants = |filter: &TopicFilter| session.subscriptions.iter().any(|wanted| wanted.filter == *filter);
            caught.withheld.retain(|change| !wants(&change.filter));
            let mut known = ids_of(session);
            // Messages that the former owner has caught had not come to its node before, whatever it has said of how far publications had.
            for message in &leftovers {
                caught.had.remove(&message.id);
            }
            known.append(&mut caught.had);
            for message in in_order(leftovers, caught.messages) {
                if known.insert(message.id) {
                    let queued = session.queued(message);
                    session.queue.extend(queued);
                }
            }
            // If a session has come twice, some messages were caught here before those that it has come with were caught there.
            session.restore_order();
        }
        caught.withheld
    }

    /// As [`Handovers::arrive`], for a session whose node is gone. `had`: whether the session has had a publication there.
    pub(super) fn arrive_inherited(
        &mut self,
        state: &mut SessionState,
        had: impl Fn(&Message) -> bool,
    ) -> Vec<InterestChange> {
        let Some(session) = self.sessions.get_mut(&state.client) else { return Vec::new() };
        session.messages.retain(|message| !had(message));
        let mut strays = core::mem::take(&mut session.strays);
        strays.retain(|message| !had(message));
        let client = state.client.clone();
        self.arrive(&client, Some(state), strays)
    }

    /// The session that comes has had this publication before it was given up.
    pub(super) fn has_had(&mut self, client: &ClientId, id: MessageId) {
        if let Some(session) = self.sessions.get_mut(client) {
            session.had.insert(id);
        }
    }

    /// The session of this client is about to be here. Messages that were published here before, and have yet to leave, are not caught any more
    /// when they do.
    pub(super) fn catch_early<'a>(&mut self, client: &ClientId, messages: impl Iterator<Item = &'a Arc<Message>>) {
        let Some(session) = self.sessions.get_mut(client) else { return };
        let Catch { filters, .. } = session;
        let filters = filters.iter().filter(|filter| filter.share_group().is_none()).cloned().collect::<Vec<_>>();
        for message in messages.filter(|message| filters.iter().any(|filter| filter.matches(&message.topic))) {
            if session.takes(message) {
                session.messages.push(detach(message));
            } else {
                self.dropped += 1;
            }
        }
    }

    /// A publication that was on its way to a node that is gone, for the sessions of these clients.
    pub(super) fn catch_stray(&mut self, message: &Arc<Message>, of: &BTreeSet<ClientId>) {
        let sessions = &mut self.sessions;
        self.filters.matches(&message.topic, |client, ()| {
            let Some(session) = sessions.get_mut(client).filter(|_| of.contains(client)) else { return };
            if session.strays.last().is_none_or(|known| known.id != message.id) {
                session.strays.push(Arc::clone(message));
            }
        });
    }

    /// A message for the ordinary subscriptions of this shard. The broker keeps it for sessions that leave. `was_heard`: it had come before
    /// this node started again.
    pub(super) fn catch(&mut self, message: &Arc<Message>, was_heard: bool, broker: &mut Broker) {
        if self.sessions.is_empty() {
            return;
        }
        let (sessions, dropped, mut kept) = (&mut self.sessions, &mut self.dropped, None);
        self.filters.matches(&message.topic, |client, ()| {
            let Some(session) = sessions.get_mut(client) else { return };
            // Filters of one session that overlap.
            if session.messages.last().is_some_and(|known| known.id == message.id) {
                return;
            }
            if !session.comes && session.has_had(message, was_heard) {
                return;
            }
            if !session.takes(message) {
                *dropped += 1;
                return;
            }
            let message = kept.get_or_insert_with(|| detach(message));
            session.messages.push(Arc::clone(message));
            if !session.comes {
                broker.keep_for(client, message);
            }
        });
    }

    fn insert(&mut self, client: &ClientId, session: Catch) {
        self.remove(client);
        for filter in &session.filters {
            if filter.share_group().is_some() {
                self.groups.entry(filter.clone()).or_default().insert(client.clone());
            } else {
                self.filters.insert(filter, client.clone(), ());
            }
        }
        self.sessions.insert(client.clone(), session);
    }

    fn remove(&mut self, client: &ClientId) -> Option<Catch> {
        let mut session = self.take(client)?;
        self.freed.append(&mut session.shares);
        Some(session)
    }

    fn take(&mut self, client: &ClientId) -> Option<Catch> {
        let session = self.sessions.remove(client)?;
        for filter in &session.filters {
            if let Some(members) = self.groups.get_mut(filter) {
                members.remove(client);
                if members.is_empty() {
                    self.groups.remove(filter);
                }
            } else {
                self.filters.remove(filter, client);
            }
        }
        Some(session)
    }
}

/// The messages that were caught at two places, once each: those of the first only go before later ones of the second of the same shard.
fn in_order(there: Vec<Arc<Message>>, here: Vec<Arc<Message>>) -> Vec<Arc<Message>> {
    let known: BTreeSet<MessageId> = here.iter().map(|message| message.id).collect();
    let source = |id: &MessageId| (id.node, id.incarnation, id.shard);
    let mut places: BTreeMap<_, Vec<(u64, usize)>> = BTreeMap::new();
    for (at, message) in here.iter().enumerate() {
        places.entry(source(&message.id)).or_default().push((message.id.seq, at));
    }
    let end = here.len();
    let place = |id: &MessageId| {
        let known = places.get(&source(id))?;
        let older = known.partition_point(|(seq, _)| *seq < id.seq);
        (older > 0).then(|| known.get(older).map_or(end, |(_, at)| *at))
    };
    let only_there = there.into_iter().filter(|message| !known.contains(&message.id));
    let mut placed: Vec<(usize, Arc<Message>)> =
        only_there.map(|message| (place(&message.id).unwrap_or(0), message)).collect();
    // A message that is caught here stands behind those that were put at its place.
    placed.extend(here.into_iter().enumerate());
    placed.sort_by_key(|(at, _)| *at);
    placed.into_iter().map(|(_, message)| message).collect()
}

/// Messages that a session has to deliver.
pub(super) fn ids_of(session: &SessionState) -> BTreeSet<MessageId> {
    let inflight = session.inflight.iter().filter_map(|inflight| match &inflight.phase {
        InflightPhase::Sent(queued) => Some(queued.message.id),
        InflightPhase::Released => None,
    });
    inflight.chain(session.queue.iter().map(|queued| queued.message.id)).collect()
}

#[cfg(test)]
mod tests {
    use sedge_base::{Incarnation, NodeId, ShardId};
    use sedge_mqtt::QoS;

    use super::*;

    fn message(node: u64, seq: u64) -> Arc<Message> {
        let (incarnation, shard) = (Incarnation::new(1), ShardId(0));
        crate::testing::message(MessageId { node: NodeId::new(node), incarnation, shard, seq }, QoS::AtMostOnce)
    }

    /// MQ-13
    #[test]
    fn what_only_the_former_owner_has_comes_first_but_not_ahead_of_older_publications() {
        let there = [(1, 1), (1, 4), (2, 7), (3, 9), (3, 11)];
        let here = [(1, 2), (3, 8), (3, 10), (1, 3), (1, 5), (3, 11)];
        let all = |list: &[(u64, u64)]| list.iter().map(|(node, seq)| message(*node, *seq)).collect::<Vec<_>>();
        let found = in_order(all(&there), all(&here));
        let found: Vec<(u64, u64)> = found.iter().map(|message| (message.id.node.get(), message.id.seq)).collect();
        assert_eq!(found, [(1, 1), (2, 7), (1, 2), (3, 8), (3, 9), (3, 10), (1, 3), (1, 4), (1, 5), (3, 11)]);
    }
}
