//! Nodes that find each other again: sessions that a successor had taken over, although their node lives, become one again, in order.
//!
//! 1. As soon as a node is back, sessions get nothing for a moment: messages for them wait. Nodes that were lost
//!    together with it come back, too, and all say which sessions they own, so that homes can name the owners.
//! 2. The node goes on with its sessions ([`Node::keep`]), and the successor gives its ones up, and catches what still comes for them.
//! 3. When all know what is wanted here, the successor is told that it need not catch any longer, and sends what it has caught.
//! 4. When nothing that was sent to both can be on its way here, all is put together in the order of publication, and goes out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sedge_base::{ClientId, Deadlines, Duration, Incarnation, Instant, NodeId};
use sedge_broker::{InterestChange, SessionState};
use sedge_mqtt::{Message, PacketId, TopicFilter};
use sedge_overlay::{Input, Neighbour};

use crate::lineage::Given;
use crate::mail::{self, Life, SessionStep};
use crate::node::Node;
use crate::node::delivery::waiters::Waiter;
use crate::node::sessions::claims::session_step;
use crate::node::sessions::contents::{is_plain, messages_of};
use crate::node::sessions::epoch;
use crate::reception::shard_of;

/// How long after the last link has come up homes may take to find double owners.
const SETTLE: Duration = Duration::from_millis(100);
/// How long they may take at the longest.
const PATIENCE: Duration = Duration::from_secs(2);
/// Nodes that are lost within this time are likely to have been lost together.
const TOGETHER: Duration = Duration::from_secs(3);
/// How long a session may be held back.
const HOLD: Duration = Duration::from_secs(3);
/// Nodes that are gone and are remembered; the one with the lowest id is forgotten first, and comes back like a new one.
const MAX_DEPARTED: usize = 1024;

/// Answers of other owners that are remembered; the one with the lowest client id is forgotten first, and a home's late word on it holds the
/// session back for nothing.
const MAX_ANSWERED: usize = 1024;

/// See the module.
#[derive(Debug, Default)]
pub(in crate::node) struct Reunions {
    /// Nodes that were declared dead here.
    departed: BTreeMap<NodeId, (Incarnation, Instant)>,
    /// Nodes among them that may come back any moment.
    awaited: BTreeSet<NodeId>,
    /// Whether all sessions are held back.
    held: Option<Held>,
    /// By client and successor: one after the other may have taken the session over.
    sessions: BTreeMap<(ClientId, NodeId), Reunion>,
    deadlines: Deadlines<(ClientId, NodeId)>,
    /// Other owners who were told to give their sessions up, and until when the ones here are held back for that.
    awaited_owners: Deadlines<(ClientId, NodeId)>,
    /// Under which epoch other owners of sessions that go on here have given theirs up, or said that they have none, since nodes have found
    /// each other last.
    answered: BTreeMap<(ClientId, NodeId), u64>,
}

/// For how long all sessions are held back.
#[derive(Clone, Copy, Debug)]
struct Held {
    /// When to look whether all is said.
    next: Instant,
    /// Whether it was so before, and homes have had the time since.
    is_said: bool,
    /// When it ends, whatever is said.
    latest: Instant,
}

#[derive(Debug, Default)]
struct Reunion {
    /// Under which epoch it gives the session up; `None` until it has.
    given_up: Option<u64>,
    /// Whether all neighbours have answered since: one that had taken this node for dead has met it anew, or is not known to know.
    is_answered: bool,
    is_released: bool,
    /// Whether what it has caught is here.
    is_caught: bool,
    messages: Vec<(Arc<Message>, Option<TopicFilter>)>,
    /// How many of them were in its session; the others were caught for that since.
    in_session: usize,
    /// QoS 2 publications that the client was in the middle of there.
    received: Vec<PacketId>,
    /// Identifier of the last message that was on its way to the client there.
    sent: Option<PacketId>,
    /// Under which epoch the client can have left it at the earliest.
    next: u64,
    /// The life of the successor that has ended, if the copy speaks in its place: the node may live another one.
    ended: Option<Life>,
}

impl Reunions {
    pub(in crate::node) fn timeout(&self) -> Option<Instant> {
        let held = self.held.map(|held| held.next);
        [held, self.deadlines.next(), self.awaited_owners.next()].into_iter().flatten().min()
    }

    /// Sessions that are held back.
    pub(in crate::node) fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Whether nodes are away that may live.
    pub(in crate::node) fn may_return(&self) -> bool {
        !self.departed.is_empty()
    }

    /// Whether more may come for a session from another owner.
    pub(in crate::node) fn is_reuniting(&self, client: &ClientId) -> bool {
        let first = (client.clone(), NodeId::new(0));
        self.sessions.range(first..).next().is_some_and(|((other, _), _)| other == client)
    }

    /// Whether another owner gives its session up to the one here, or was told to.
    pub(in crate::node) fn awaits(&self, client: &ClientId) -> bool {
        let first = (client.clone(), NodeId::new(0));
        let mut owners = self.awaited_owners.keys_from(&first);
        self.is_reuniting(client) || owners.next().is_some_and(|(other, _)| other == client)
    }

    /// Another owner of a session that goes on here has given its own up, or has none.
    fn note_answer(&mut self, owner: (ClientId, NodeId), epoch: u64) {
        self.answered.insert(owner, epoch);
        if self.answered.len() > MAX_ANSWERED {
            self.answered.pop_first();
        }
    }

    /// A node is gone as this one sees it.
    pub(in crate::node) fn departs(&mut self, now: Instant, node: NodeId, incarnation: Option<Incarnation>) {
        self.awaited.remove(&node);
        let Some(incarnation) = incarnation else { return };
        self.departed.insert(node, (incarnation, now));
        if self.departed.len() > MAX_DEPARTED {
            self.departed.pop_first();
        }
    }

    /// A node is back. Those that were lost at about the same time are likely to come back, too. Returns which life of it was lost.
    fn returns(&mut self, node: NodeId) -> Option<Incarnation> {
        self.awaited.remove(&node);
        let (incarnation, lost) = self.departed.remove(&node)?;
        let same = |at: Instant| at.since(lost) < TOGETHER && lost.since(at) < TOGETHER;
        self.awaited.extend(self.departed.iter().filter(|(_, (_, at))| same(*at)).map(|(node, _)| *node));
        Some(incarnation)
    }
}

impl Node {
    /// A link has begun anew. `knew`: which life of that node this one had a link to before.
    pub(in crate::node) fn meets(&mut self, neighbour: Neighbour, knew: Option<Incarnation>) {
        let departed = self.reunions.returns(neighbour.node);
        if let Some(peer) = self.peers.get_mut(&neighbour.node) {
            peer.former = departed.or(knew).filter(|life| *life != neighbour.incarnation).or(peer.former);
        }
        if departed.or(knew) == Some(neighbour.incarnation) {
            let now = self.now.instant;
            let held = self.reunions.held;
            if held.is_none() {
                self.reunions.answered.clear();
                self.tell_all_shards(|| session_step(SessionStep::HoldAll));
            }
            let latest = held.map_or(now + PATIENCE, |held| held.latest);
            self.reunions.held = Some(Held { next: latest.min(now + SETTLE), is_said: false, latest });
            self.end_stale_backup(neighbour.node);
        }
        self.overlay.handle(self.now, Input::NeighbourUp(neighbour));
    }

    pub(in crate::node) fn reunions_due(&mut self) {
        let now = self.now.instant;
        if let Some(held) = self.reunions.held.filter(|held| held.next <= now) {
            let is_said = self.reunions.awaited.is_empty() && self.is_registered();
            if now >= held.latest || (is_said && held.is_said) {
                self.let_go_all();
            } else {
                let next = held.latest.min(held.next + SETTLE);
                self.reunions.held = Some(Held { next, is_said, ..held });
            }
        }
        while let Some((client, from)) = self.reunions.deadlines.pop_due(now) {
            self.reunited(client, from);
        }
        while let Some((client, _)) = self.reunions.awaited_owners.pop_due(now) {
            self.let_go_if_complete(&client);
        }
    }

    fn let_go_all(&mut self) {
        self.reunions.held = None;
        self.reunions.awaited.clear();
        let awaited = self.reunions.awaited_owners.keys();
        let but = self.reunions.sessions.keys().chain(awaited).map(|(client, _)| client);
        let but: Arc<BTreeSet<ClientId>> = Arc::new(but.chain(self.awaiting_merges()).cloned().collect());
        self.tell_all_shards(|| session_step(SessionStep::LetGoAll { but: Arc::clone(&but) }));
    }

    /// This node goes on with a session that a successor has taken over. `afresh`: only messages that come from now on are merged, from this life of
    /// the successor.
    pub(in crate::node) fn begin_reunion(&mut self, client: &ClientId, from: NodeId, afresh: Option<Life>) {
        let key = (client.clone(), from);
        self.reunions.deadlines.set(key.clone(), self.now.instant + HOLD);
        // One that has given up already under an earlier epoch is waiting for the word to end.
        self.reunions.sessions.entry(key).or_default();
        let hold = SessionStep::Hold { client: client.clone(), afresh };
        self.tell_shard(shard_of(client, self.config.shards), session_step(hold));
    }

    /// A client is served before its former owner has sent what it has caught: what comes meanwhile waits, so that it does not overtake that.
    pub(in crate::node) fn hold_for_leftovers(&mut self, client: &ClientId, given: Given) {
        if !self.claims.owns(client) || self.claims.is_leaving(client) || !self.ring.contains(&given.from) {
            return;
        }
        self.begin_reunion(client, given.from, None);
        if let Some(reunion) = self.reunions.sessions.get_mut(&(client.clone(), given.from)) {
            (reunion.given_up, reunion.is_answered, reunion.is_released) = (Some(given.epoch), true, true);
        }
    }

    /// A home has found that another node owns the client, too, and has told that one to give its session up under this epoch: it is held
    /// back here until it comes. A successor's own is not: the node that it succeeds may go on.
    pub(in crate::node) fn await_other(&mut self, client: &ClientId, other: NodeId, epoch: u64) {
        let key = (client.clone(), other);
        let is_claimed = self.claims.owned.get(client).is_some_and(|owned| owned.is_claimed) && epoch.is_multiple_of(2);
        let has_answered = self.reunions.answered.get(&key) == Some(&epoch);
        if is_claimed && !has_answered && self.ring.contains(&other) {
            self.reunions.awaited_owners.set(key, self.now.instant + HOLD);
            let hold = SessionStep::Hold { client: client.clone(), afresh: None };
            self.tell_shard(shard_of(client, self.config.shards), session_step(hold));
        }
    }

    /// Another owner has answered under this epoch, and the messages that it has sent are taken care of.
    pub(in crate::node) fn other_has_answered(&mut self, client: &ClientId, other: NodeId, epoch: u64) {
        let key = (client.clone(), other);
        if self.claims.owns(client) {
            self.reunions.note_answer(key.clone(), epoch);
        }
        if self.reunions.awaited_owners.cancel(&key) {
            self.let_go_if_complete(client);
        }
    }

    /// Sends the messages that have waited for a session, if nothing more is to come from other owners.
    pub(in crate::node) fn let_go_if_complete(&mut self, client: &ClientId) {
        if self.has_merges(client) {
            return;
        }
        let first = (client.clone(), NodeId::new(0));
        let is_awaited =
            self.reunions.awaited_owners.keys_from(&first).next().is_some_and(|(other, _)| other == client);
        if self.reunions.held.is_none() && !is_awaited && !self.reunions.is_reuniting(client) {
            let shard = shard_of(client, self.config.shards);
            self.tell_shard(shard, session_step(SessionStep::LetGo(client.clone())));
        }
    }

    /// The successor has given its session up. False if nobody waits for that.
    pub(in crate::node) fn given_back(
        &mut self,
        from: NodeId,
        client: &ClientId,
        epoch: u64,
        session: Option<&SessionState>,
    ) -> bool {
        let Some(reunion) = self.reunions.sessions.get_mut(&(client.clone(), from)) else { return false };
        // It may have taken its session back since it gave it up, and gone on with it.
        if reunion.given_up.is_some_and(|given_up| session.is_none() || epoch <= given_up) {
            return session.is_none();
        }
        let Some(session) = session else {
            self.reunited(client.clone(), from);
            return true;
        };
        self.had.owes_rest(client, from, messages_of(session).map(|queued| queued.message.id));
        (reunion.given_up, reunion.is_answered) = (Some(epoch), false);
        (reunion.is_released, reunion.is_caught) = (false, false);
        let taken = session.inbound.iter().filter(|inbound| inbound.answer.is_none_or(|answer| !answer.is_error()));
        reunion.received = taken.map(|inbound| inbound.packet_id).collect();
        reunion.sent = session.inflight.last().map(|inflight| inflight.packet_id);
        reunion.next = epoch::outdated_from(session.epoch);
        reunion.messages.extend(messages_of(session).map(|queued| (Arc::clone(&queued.message), queued.group.clone())));
        reunion.in_session = reunion.messages.len();
        if session.subscriptions.iter().any(is_plain) {
            // The client may have withdrawn since what an older state of its session has subscribed to.
            let is_older = self.had.is_older(client, from);
            let subscriptions = if is_older { Vec::new() } else { session.subscriptions.clone() };
            let next = epoch::outdated_from(session.epoch);
            let resubscribe = SessionStep::Resubscribe { client: client.clone(), from, next, subscriptions };
            self.tell_shard(shard_of(client, self.config.shards), session_step(resubscribe));
        } else {
            reunion.is_caught = true;
            self.flush_reunion(client, from);
        }
        true
    }

    /// The shard knows what is wanted now: so will all neighbours.
    pub(in crate::node) fn resubscribed(&mut self, client: &ClientId, from: NodeId, changes: &[InterestChange]) {
        self.change_and_wait_for_all(client, changes, Waiter::Release(client.clone(), from));
    }

    /// All neighbours that knew this node have answered.
    pub(in crate::node) fn reunion_is_answered(&mut self, client: ClientId, from: NodeId) {
        if let Some(reunion) = self.reunions.sessions.get_mut(&(client, from)) {
            reunion.is_answered = true;
            self.release_reunions();
        }
    }

    /// Tells successors to send what they have caught, if all know what is wanted here.
    pub(in crate::node) fn release_reunions(&mut self) {
        if self.reunions.sessions.is_empty() || !self.ring.iter().all(|node| self.is_known_to(*node)) {
            return;
        }
        let mut due = Vec::new();
        for ((client, from), reunion) in &mut self.reunions.sessions {
            // Said again when more nodes are known: see [`Node::release_for`].
            if let Some(epoch) = reunion.given_up.filter(|_| reunion.is_answered && !reunion.is_caught) {
                reunion.is_released = true;
                due.push((*from, client.clone(), epoch));
            }
        }
        for (from, client, epoch) in due {
            self.send_release(from, &client, epoch);
        }
    }

    /// Another owner has sent what it had caught, in time or late. False if the client is not served here yet.
    pub(in crate::node) fn caught_elsewhere(
        &mut self,
        from: NodeId,
        client: &ClientId,
        epoch: u64,
        messages: &[Arc<Message>],
    ) -> bool {
        self.had.owes(client, from, messages.iter().map(|message| &message.id));
        let key = (client.clone(), from);
        let is_awaited = self.reunions.sessions.get(&key).is_some_and(|reunion| reunion.given_up == Some(epoch));
        if !is_awaited && (!self.claims.owns(client) || self.claims.wants(client)) {
            return false;
        }
        let reunion = self.reunions.sessions.entry(key.clone()).or_insert_with(|| Reunion {
            given_up: Some(epoch),
            is_released: true,
            is_caught: true,
            ..Reunion::default()
        });
        if reunion.given_up != Some(epoch) {
            // It has given up once more since, which is not complete.
            reunion.messages.extend(messages.iter().map(|message| (Arc::clone(message), None)));
            return true;
        }
        self.reunions.deadlines.set(key, self.now.instant + HOLD);
        (reunion.is_released, reunion.is_caught) = (true, true);
        reunion.messages.extend(messages.iter().map(|message| (Arc::clone(message), None)));
        self.flush_reunion(client, from);
        true
    }

    /// Another owner sends something of what it catches ahead.
    pub(in crate::node) fn reunion_gets(
        &mut self,
        from: NodeId,
        client: &ClientId,
        epoch: u64,
        messages: &[Arc<Message>],
    ) {
        let reunion = self.reunions.sessions.get_mut(&(client.clone(), from));
        if let Some(reunion) = reunion.filter(|reunion| reunion.given_up == Some(epoch)) {
            reunion.messages.extend(messages.iter().map(|message| (Arc::clone(message), None)));
        }
    }

    /// Waits until everything is here that was sent to both.
    fn flush_reunion(&mut self, client: &ClientId, from: NodeId) {
        self.change_and_wait_for_all(client, &[], Waiter::Reunion(client.clone(), from));
    }

    /// Puts together what there is.
    pub(in crate::node) fn reunited(&mut self, client: ClientId, from: NodeId) {
        let key = (client, from);
        let Some(reunion) = self.reunions.sessions.remove(&key) else { return };
        self.reunions.deadlines.cancel(&key);
        let (client, _) = key;
        if let Some(epoch) = reunion.given_up {
            if !reunion.is_released {
                self.send_release(from, &client, epoch);
            }
            self.send_safe(from, &client, epoch);
        }
        let held = reunion.messages.iter().enumerate().map(|(at, (message, group))| mail::Held {
            is_caught: at >= reunion.in_session,
            ..self.held(from, &client, message, group.clone())
        });
        let messages = held.collect();
        let Reunion { received, sent, next, ended, .. } = reunion;
        let from = ended.unwrap_or_else(|| self.life_of(from));
        self.merge(mail::Merge { client: client.clone(), from, messages, received, sent, next, is_late: false });
        if self.reunions.is_reuniting(&client) {
            return;
        }
        self.let_go_if_complete(&client);
        self.relinquish_postponed();
    }

    /// A successor is gone, and this node takes its sessions over. Whether this is one that this node has gone on with: messages that only the copy
    /// has are for the session here, which is not to be replaced by it.
    pub(in crate::node) fn goes_on_beside(&mut self, client: &ClientId, epoch: u64, successor: Life) -> bool {
        if self.keep(client, epoch, successor) {
            return true;
        }
        if !self.claims.outlives(client, epoch) {
            return false;
        }
        self.begin_reunion(client, successor.node, Some(successor));
        true
    }

    /// The copy of a session says in a successor's place what it had, and all others what they have kept for it.
    pub(in crate::node) fn copy_gives_back(&mut self, of: Life, session: &SessionState, kept: &[Arc<Message>]) {
        let client = &session.client;
        self.given_back(of.node, client, session.epoch, Some(session));
        let Some(reunion) = self.reunions.sessions.get_mut(&(client.clone(), of.node)) else { return };
        let plain = || session.subscriptions.iter().filter(|subscription| is_plain(subscription));
        let wanted = |message: &Message| plain().any(|subscription| subscription.filter.matches(&message.topic));
        let kept = kept.iter().filter(|message| wanted(message));
        reunion.messages.extend(kept.map(|message| (Arc::clone(message), None)));
        (reunion.is_released, reunion.ended) = (true, Some(of));
        self.reunited(client.clone(), of.node);
    }

    /// A node is gone: it sends nothing any more.
    pub(in crate::node) fn reunions_without(&mut self, node: NodeId) {
        let takeovers = &self.takeovers;
        let of_node = self.reunions.sessions.keys();
        let of_node = of_node.filter(|(client, from)| *from == node && !takeovers.is_beside(client, node));
        for (client, from) in of_node.cloned().collect::<Vec<_>>() {
            self.reunited(client, from);
        }
        let awaited = self.reunions.awaited_owners.keys().filter(|(_, other)| *other == node);
        for key in awaited.cloned().collect::<Vec<_>>() {
            self.reunions.awaited_owners.cancel(&key);
            self.let_go_if_complete(&key.0);
        }
        self.release_reunions();
    }
}
