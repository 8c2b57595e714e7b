//! Two owners of one client find each other after a partition: one session goes on, and gets what only the other one had.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use sedge_base::{ClientId, Now};
use sedge_mqtt::{Message, MessageId, QoS, SubscriptionOptions, TopicFilter};

use crate::inflight::Slot;
use crate::journal::kept;
use crate::send::Link;
use crate::session::SessionKey;
use crate::subscription::Subscription;
use crate::{Broker, InterestChange, InterestOp, SubscriptionState};

/// Messages that are remembered as merged; the oldest are forgotten first.
const MAX_MERGED: usize = 65_536;

/// What sessions have got from other owners. A node that comes back later may give the same once more.
#[derive(Debug, Default)]
pub(crate) struct Merged {
    ids: BTreeSet<(SessionKey, MessageId)>,
    order: VecDeque<(SessionKey, MessageId)>,
}

impl Merged {
    fn note(&mut self, session: SessionKey, id: MessageId) {
        if self.ids.insert((session, id)) {
            self.order.push_back((session, id));
        }
        if self.order.len() > MAX_MERGED
            && let Some(oldest) = self.order.pop_front()
        {
            self.ids.remove(&oldest);
        }
    }

    /// Whether a session has got this message by a merge.
    pub(crate) fn has(&self, session: SessionKey, id: MessageId) -> bool {
        !self.ids.is_empty() && self.ids.contains(&(session, id))
    }
}

impl Broker {
    /// The session of this client gets these messages with QoS 1 and 2, as far as its subscriptions match and it does not have them.
    /// What it holds of `taken` the client has had from the other owner: it is not sent again, unless it is on its way over the present
    /// connection. Messages of a client that is not known here are dropped and counted.
    pub fn merge(&mut self, now: Now, client: &ClientId, messages: &[Arc<Message>], taken: &BTreeSet<MessageId>) {
        self.now = now;
        let Some(key) = self.clients.get(client).copied() else {
            self.counters.dropped.session_ended += messages.len() as u64;
            return;
        };
        if !taken.is_empty() {
            self.forget_taken(key, taken);
        }
        let Some(session) = self.sessions.get(key) else { return };
        let inflight = session.inflight.messages().map(|outgoing| outgoing.message.id);
        let mut known: BTreeSet<MessageId> =
            inflight.chain(session.queue.iter().map(|outgoing| outgoing.message.id)).collect();
        for message in messages {
            if message.qos > QoS::AtMostOnce && known.insert(message.id) {
                self.fan_out_to(key, message);
                self.merged.note(key, message.id);
            }
        }
        if let Some(session) = self.sessions.get_mut(key) {
            session.queue.restore_order();
        }
    }

    /// What the session of a client has to deliver with QoS 1 and 2, oldest first, but for what it was chosen for by shared subscriptions.
    pub fn waiting(&self, client: &ClientId) -> impl Iterator<Item = Arc<Message>> {
        let session = self.clients.get(client).and_then(|key| self.sessions.get(*key));
        let outgoing = session.into_iter().flat_map(|session| session.inflight.messages().chain(session.queue.iter()));
        let plain = outgoing.filter(|outgoing| outgoing.qos > QoS::AtMostOnce && outgoing.group == 0);
        plain.map(|outgoing| Arc::clone(&outgoing.message))
    }

    /// The client has subscribed to this at another owner of its session. What `is_new` there is in force here, too. What it has
    /// subscribed to at both stays as it is here, with the higher QoS of the two: nobody knows which one it asked for last, and this
    /// way nothing is lost. Returns what changes for the cluster.
    pub fn resubscribe(
        &mut self,
        now: Now,
        client: &ClientId,
        subscribed: Vec<SubscriptionState>,
        is_new: impl Fn(&TopicFilter) -> bool,
    ) -> Vec<InterestChange> {
        self.now = now;
        let mut changes = Vec::new();
        let Some(key) = self.clients.get(client).copied() else { return changes };
        for SubscriptionState { filter, options, id } in subscribed {
            let Some(session) = self.sessions.get(key) else { break };
            if let Some(known) = session.subscriptions.get(&filter) {
                if known.options.qos < options.qos {
                    let options = SubscriptionOptions { qos: options.qos, ..known.options };
                    self.subscribe(key, Subscription { options, ..known.clone() });
                }
            } else if is_new(&filter) && session.subscriptions.len() < self.config.max_subscriptions {
                let op = InterestOp::Add { retained: false, online: session.connection.is_some() };
                changes.push(InterestChange { filter: filter.clone(), op });
                self.subscribe(key, Subscription { filter, options, id: id.unwrap_or(0), checked: false });
            }
        }
        changes
    }

    /// The client has had this message where its session was before: it does not get it again.
    pub fn has_had(&mut self, client: &ClientId, id: MessageId) {
        if let Some(key) = self.clients.get(client).copied() {
            self.merged.note(key, id);
        }
    }

    /// The client gets nothing until [`Broker::let_go`]: what comes for it waits in its queue, by the rules of the queue.
    pub fn hold(&mut self, client: &ClientId) {
        if let Some(session) = self.clients.get(client).and_then(|key| self.sessions.get_mut(*key)) {
            session.is_held = true;
        }
    }

    /// As [`Broker::hold`], for all sessions that there are.
    pub fn hold_all(&mut self) {
        self.sessions.iter_mut().for_each(|(_, session)| session.is_held = true);
    }

    /// What has waited since [`Broker::hold`] goes out, in the order of publication.
    pub fn let_go(&mut self, now: Now, client: &ClientId) {
        self.now = now;
        if let Some(key) = self.clients.get(client).copied() {
            self.let_go_of(key);
        }
    }

    /// As [`Broker::let_go`], for all sessions but some.
    pub fn let_go_all(&mut self, now: Now, but: impl Fn(&ClientId) -> bool) {
        self.now = now;
        let held = self.sessions.iter().filter(|(_, session)| session.is_held && !but(&session.client));
        for key in held.map(|(key, _)| key).collect::<Vec<_>>() {
            self.let_go_of(key);
        }
    }

    fn let_go_of(&mut self, key: SessionKey) {
        let Some(mut link) = self.link(key) else { return };
        link.session.is_held = false;
        link.session.queue.restore_order();
        link.pump();
    }

    fn forget_taken(&mut self, key: SessionKey, taken: &BTreeSet<MessageId>) {
        let Some(Link { session, connection, mut env }) = self.link(key) else { return };
        let number = session.number;
        let mut journal = kept(env.journal.as_deref_mut(), session).map(|(journal, _)| journal);
        session.queue.retain(env.counters, |outgoing| {
            let stays = !taken.contains(&outgoing.message.id);
            if let Some(journal) = journal.as_mut().filter(|_| !stays) {
                journal.dropped(number, outgoing);
            }
            stays
        });
        if connection.is_some() {
            return;
        }
        let is_taken = |slot: &Slot| matches!(slot, Slot::Sent(outgoing) if taken.contains(&outgoing.message.id));
        let done: Vec<_> = session.inflight.iter().filter(|(_, slot)| is_taken(slot)).map(|(id, _)| id).collect();
        for id in done {
            env.complete(session, id);
        }
    }
}
