//! Two owners of one client find each other after a partition: one session goes on, and gets what only the other one had.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use sedge_base::{ClientId, Incarnation, NodeId, Now, ShardId};
use sedge_mqtt::{Message, MessageId, Packet, PacketId, QoS, ReasonCode, SubscriptionOptions, TopicFilter};

use crate::connection::ConnKey;
use crate::inflight::Slot;
use crate::journal::kept;
use crate::send::Link;
use crate::session::SessionKey;
use crate::subscription::Subscription;
use crate::{Broker, InterestChange, InterestOp, Record, SubscriptionState};

/// Messages that are remembered as merged; the oldest are forgotten first.
const MAX_MERGED: usize = 65_536;
/// The id that comes before all others.
const FIRST: MessageId =
    MessageId { node: NodeId::new(0), incarnation: Incarnation::new(0), shard: ShardId(0), seq: 0 };

/// Sessions whose owners meet, and messages that sessions have got from other owners: a node that comes back later may give these once more.
#[derive(Debug, Default)]
pub(crate) struct Merged {
    /// Whether sessions that come from elsewhere are held back: see [`Broker::hold_all`].
    pub(crate) holds_all: bool,
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

    fn forget(&mut self, session: SessionKey, id: MessageId) {
        if self.ids.remove(&(session, id)) {
            self.order.retain(|known| *known != (session, id));
        }
    }

    /// The session is gone: another one may get its key.
    fn forget_session(&mut self, session: SessionKey) {
        let before = self.ids.len();
        while let Some(&(key, id)) = self.ids.range((session, FIRST)..).next()
            && key == session
        {
            self.ids.remove(&(key, id));
        }
        if self.ids.len() < before {
            self.order.retain(|(key, _)| *key != session);
        }
    }

    /// Whether a session has got this message by a merge.
    pub(crate) fn has(&self, session: SessionKey, id: MessageId) -> bool {
        !self.ids.is_empty() && self.ids.contains(&(session, id))
    }
}

impl Broker {
    /// The session of this client gets these messages with QoS 1 and 2, as far as its subscriptions match and it does not have them.
    /// The client has had the messages in `taken` from the other owner: the session does not send them again, unless they are on their way over the
    /// present connection. Messages of a client that is not known here are dropped and counted.
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
                self.trace_fan_out(message);
                self.fan_out_to(client, message);
                self.merged.note(key, message.id);
            }
        }
        if let Some(session) = self.sessions.get_mut(key) {
            session.queue.restore_order();
        }
    }

    /// The client is in the middle of these QoS 2 publications, which the other owner has taken: its packets about them here mean those
    /// (MQTT 5.0 section 4.3.3). `next`: under this epoch or a later one the client has left that owner. Where the client has repeated here since
    /// the flows that it had begun, before the session was held back, the identifiers may mean something else by now.
    pub fn merge_received(&mut self, client: &ClientId, next: u64, received: &[PacketId]) {
        let Some(key) = self.clients.get(client).copied() else { return };
        let Some(session) = self.sessions.get_mut(key) else { return };
        let is_open = !session.is_held && session.connection.is_some();
        if received.is_empty() || is_open || session.resumed >= next {
            return;
        }
        for &packet_id in received.iter().filter(|id| !self.released.contains(&(key, **id))) {
            let is_new = session.inbound.get_or_insert_default().restore(packet_id, None);
            if is_new && let Some((journal, session)) = kept(self.journal.as_deref_mut(), session) {
                let answer = Some(ReasonCode::Success);
                journal.push(Record::Received { session, packet_id, answer, message: None });
            }
        }
    }

    /// The other owner has sent something with this identifier, and does not know yet that the client has done with it: identifiers here go on
    /// behind it.
    pub fn merge_sent(&mut self, client: &ClientId, last: PacketId) {
        if let Some(session) = self.clients.get(client).and_then(|key| self.sessions.get_mut(*key)) {
            session.inflight.go_on_behind(last);
        }
    }

    /// Whether a packet goes on with a QoS 2 publication of which nothing is known here, while another owner of the session may know it.
    pub(crate) fn waits_for_merge(&self, session: SessionKey, packet: &Packet) -> bool {
        let id = if let Packet::Publish(publish) = packet {
            publish.packet_id.filter(|_| publish.dup && publish.qos == QoS::ExactlyOnce)
        } else if let Packet::PubRel(ack) = packet {
            Some(ack.packet_id)
        } else {
            None
        };
        let Some(id) = id else { return false };
        let session = self.sessions.get(session).filter(|session| session.is_held);
        session.is_some_and(|session| session.inbound.as_ref().is_none_or(|inbound| !inbound.is_exact(id)))
    }

    /// The client is not read until [`Broker::let_go`].
    pub(crate) fn park(&mut self, key: ConnKey, packet: Packet) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.hold(&mut self.outputs);
        self.counters.packets_parked += 1;
        self.parked.insert(key, packet);
    }

    pub(crate) fn unpark(&mut self, session: SessionKey) {
        if self.stands_still {
            return;
        }
        let Some(key) = self.sessions.get(session).and_then(|session| session.connection) else { return };
        let Some(packet) = self.parked.remove(&key) else { return };
        let Some(connection) = self.connections.get_mut(key) else { return };
        // The broker has not looked at what the client has sent meanwhile.
        connection.last_seen = self.now.instant;
        match self.on_packet(key, session, packet) {
            Ok(()) => self.release_if_calm(key, session),
            Err(fault) => self.on_fault(key, fault),
        }
    }

    /// The messages that the session of a client has to deliver with QoS 1 and 2, oldest first, except those of shared subscriptions.
    pub fn waiting(&self, client: &ClientId) -> impl Iterator<Item = Arc<Message>> {
        let session = self.clients.get(client).and_then(|key| self.sessions.get(*key));
        let outgoing = session.into_iter().flat_map(|session| session.inflight.messages().chain(session.queue.iter()));
        let plain = outgoing.filter(|outgoing| outgoing.qos > QoS::AtMostOnce && outgoing.group == 0);
        plain.map(|outgoing| Arc::clone(&outgoing.message))
    }

    /// The client has made these subscriptions at another owner of its session. Those that are new (`is_new`), and that the client has not ended
    /// here under the epoch `next` or a later one, are in force here, too. Subscriptions made at both owners keep the options they have here, with
    /// the higher QoS of the two: nobody knows which one the client asked for last, and this way nothing is lost. Returns the changes of interest
    /// for the cluster.
    pub fn resubscribe(
        &mut self,
        now: Now,
        client: &ClientId,
        next: u64,
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
            } else if is_new(&filter)
                && !self.withdrawn.has_since(key, &filter, next)
                && session.subscriptions.len() < self.config.max_subscriptions
            {
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

    /// The client has not had this message where its session was before, after all: see [`Broker::has_had`].
    pub fn owes(&mut self, client: &ClientId, id: MessageId) {
        if let Some(key) = self.clients.get(client).copied() {
            self.merged.forget(key, id);
        }
    }

    /// The client gets nothing until [`Broker::let_go`]: messages for it wait in its queue, by the rules of the queue.
    pub fn hold(&mut self, client: &ClientId) {
        if let Some(key) = self.clients.get(client).copied() {
            self.hold_back(key);
        }
    }

    /// As [`Broker::hold`], for all sessions that there are, and those that come from elsewhere until [`Broker::let_go_all`].
    pub fn hold_all(&mut self) {
        self.merged.holds_all = true;
        for key in self.sessions.iter().map(|(key, _)| key).collect::<Vec<_>>() {
            self.hold_back(key);
        }
    }

    fn hold_back(&mut self, key: SessionKey) {
        let Some(session) = self.sessions.get_mut(key).filter(|session| !session.is_held) else { return };
        session.is_held = true;
        let connection = session.connection.and_then(|conn| self.connections.get(conn));
        if connection.is_some_and(|connection| connection.peer.has_repeated) {
            session.resumed = session.epoch;
        }
        self.forget_released(key);
    }

    /// The session is gone: nothing that is known of it is true of the next one with its key.
    pub(crate) fn forget_merged(&mut self, key: SessionKey) {
        self.merged.forget_session(key);
        self.withdrawn.forget_session(key);
        self.forget_released(key);
    }

    fn forget_released(&mut self, key: SessionKey) {
        while let Some(&(session, id)) = self.released.range((key, PacketId::MIN)..).next()
            && session == key
        {
            self.released.remove(&(session, id));
        }
    }

    /// Sends the messages that have waited since [`Broker::hold`], in the order of publication.
    pub fn let_go(&mut self, now: Now, client: &ClientId) {
        self.now = now;
        if let Some(key) = self.clients.get(client).copied() {
            self.let_go_of(key);
        }
    }

    /// As [`Broker::let_go`], for all sessions but some.
    pub fn let_go_all(&mut self, now: Now, but: impl Fn(&ClientId) -> bool) {
        self.now = now;
        self.merged.holds_all = false;
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
        self.forget_released(key);
        self.unpark(key);
    }

    /// A session does not deliver what it holds of `taken`, unless it is on its way over the present connection.
    pub(crate) fn forget_taken(&mut self, key: SessionKey, taken: &BTreeSet<MessageId>) {
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
