//! Sessions that were given to a node which is gone before it had them for good (MQ-11, FT-20): they go on at its successor if its copy
//! has them, or else here, where they were kept with all that has come since.
//!
//! Homes are told that this node has registered all it has when that is settled, so that nobody gets a new session meanwhile.

use std::collections::BTreeMap;

use sedge_base::{ClientId, Deadlines, Duration, Incarnation, Instant, NodeId};

use crate::link::ControlTopic;
use crate::mail::{Handed, Life, SessionStep};
use crate::node::Node;
use crate::node::sessions::claims::{Phase, session_step};
use crate::node::sessions::epoch;
use crate::reception::shard_of;
use crate::wire::ReplicaMail;

/// How long a successor may take to say whether it has a session, and remembers who keeps one that it does not have.
const PATIENCE: Duration = Duration::from_secs(3);
/// Keepers that are known; the one of the lowest client id is forgotten first.
const MAX_KEEPERS: usize = 4096;
/// Questions of others that this node cannot answer yet; the oldest is dropped first, and the node that has asked waits for [`PATIENCE`].
const MAX_EARLY: usize = 4096;

/// See the module.
#[derive(Debug, Default)]
pub(in crate::node) struct Reclaims {
    /// Sessions that were to leave for a node that is gone, and are not here yet, have not left their shard or are just about to be sent.
    /// Whether they are still wanted: their clients may have started clean elsewhere.
    held_up: BTreeMap<ClientId, bool>,
    /// Sessions of which a successor was asked whether it has them.
    pending: BTreeMap<ClientId, Pending>,
    deadlines: Deadlines<ClientId>,
    /// Nodes that have asked about sessions before this node knew of the death.
    early: Vec<(NodeId, Life, ClientId, u64)>,
    /// Nodes that have asked about sessions which are to come here over another node. That node has them, or asks this one for them.
    unclear: Vec<(NodeId, ClientId, u64)>,
    /// Keepers of sessions that this node was asked about and does not have: others may ask this node for them yet.
    keepers: BTreeMap<ClientId, NodeId>,
    /// When `keepers` are forgotten.
    keepers_until: Deadlines<ClientId>,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    /// Epoch under which the session was given away.
    epoch: u64,
    /// The node that is gone.
    of: NodeId,
    /// Which life of it.
    incarnation: Incarnation,
    /// The node that was asked.
    heir: NodeId,
}

impl Reclaims {
    /// Sessions of which it is not known where they go on.
    pub(in crate::node) fn len(&self) -> usize {
        self.pending.len() + self.held_up.len()
    }

    /// Questions that came before this node knew of the death.
    pub(in crate::node) fn asked_early(&self) -> usize {
        self.early.len() + self.unclear.len()
    }

    /// Keepers that are known.
    pub(in crate::node) fn kept_elsewhere(&self) -> usize {
        self.keepers.len()
    }

    /// Whether it is not known where the session of this client goes on.
    pub(in crate::node) fn is_pending(&self, client: &ClientId) -> bool {
        self.pending.contains_key(client) || self.held_up.contains_key(client)
    }

    /// Whether a session of this client was given to a node that is gone, and its heir was asked about it.
    pub(in crate::node) fn is_asked(&self, client: &ClientId) -> bool {
        self.pending.contains_key(client) && !self.held_up.contains_key(client)
    }

    /// Whether the session of this client was to leave for a node that is gone, and has not left.
    pub(in crate::node) fn holds_up(&self, client: &ClientId) -> bool {
        self.held_up.contains_key(client)
    }

    /// Whether this node may yet keep sessions that it has not asked a successor about.
    pub(in crate::node) fn is_held_up(&self) -> bool {
        !self.held_up.is_empty()
    }

    /// When a successor has had its time.
    pub(in crate::node) fn timeout(&self) -> Option<Instant> {
        self.deadlines.next()
    }

    fn is_kept_by(&mut self, now: Instant, client: &ClientId, keeper: NodeId) {
        self.forget_keepers(now);
        self.keepers_until.set(client.clone(), now + PATIENCE);
        self.keepers.insert(client.clone(), keeper);
        if self.keepers.len() > MAX_KEEPERS
            && let Some((first, _)) = self.keepers.pop_first()
        {
            self.keepers_until.cancel(&first);
        }
    }

    fn note_unclear(&mut self, by: NodeId, client: ClientId, epoch: u64) {
        if self.unclear.len() >= MAX_EARLY {
            self.unclear.remove(0);
        }
        self.unclear.push((by, client, epoch));
    }

    /// The node that keeps the session of a client that this node was asked about and does not have.
    pub(in crate::node) fn keeper_of(&mut self, now: Instant, client: &ClientId) -> Option<NodeId> {
        self.forget_keepers(now);
        self.keepers.get(client).copied()
    }

    fn forget_keepers(&mut self, now: Instant) {
        while let Some(client) = self.keepers_until.pop_due(now) {
            self.keepers.remove(&client);
        }
    }

    fn remove(&mut self, client: &ClientId) -> Option<Pending> {
        self.deadlines.cancel(client);
        self.pending.remove(client)
    }
}

impl Node {
    /// A node is gone that was given sessions; `heir` goes on with what it had.
    pub(in crate::node) fn reclaim_from(&mut self, node: NodeId, heir: Option<NodeId>) {
        let held_up = self.claims.bound_for(node);
        self.reclaims.held_up.extend(held_up.into_iter().map(|client| (client, true)));
        // A guest may hear yet that the sessions of its journals are safe elsewhere.
        let given = if self.is_guest() { Vec::new() } else { self.handed.given_to(node) };
        for (client, epoch) in given {
            self.reclaim(client, epoch, node, heir);
        }
        let asked = self.reclaims.pending.iter().filter(|(_, pending)| pending.heir == node);
        for (client, Pending { epoch, of, .. }) in
            asked.map(|(client, pending)| (client.clone(), *pending)).collect::<Vec<_>>()
        {
            let heir = self.successor_of(of);
            self.reclaim(client, epoch, of, heir);
        }
    }

    /// The sessions of this node's journals are safe at another node, if they are those of this life or an earlier one: they are not needed any
    /// more. A foreign broker has to be asked for what it holds of a session.
    pub(in crate::node) fn discard_restored(&mut self, life: Incarnation) {
        if self.config.has_upstream || self.beginning.restored_life > Some(life) {
            return;
        }
        for (client, epoch, _) in self.handed.all().collect::<Vec<_>>() {
            self.let_go_of((client, epoch));
        }
        // A home that has heard of this node first has told the other one to send its session here.
        let stays = |client: &ClientId| self.claims.wants(client) || self.reunions.awaits(client);
        let restored = self.claims.restored().filter(|(client, _)| !stays(client));
        for (client, epoch) in restored.collect::<Vec<_>>() {
            self.claims.owned.remove(&client);
            self.directory.home.forget(&client, self.config.node, epoch);
            let shard = shard_of(&client, self.config.shards);
            self.tell_shard(shard, session_step(SessionStep::Discard(client)));
        }
    }

    /// The node is a guest no longer: looks for the sessions of its journals that it has given to nodes which died meanwhile.
    pub(in crate::node) fn reclaim_late(&mut self) {
        for (client, epoch, node) in self.handed.all().filter(|(.., to)| !self.ring.contains(to)).collect::<Vec<_>>() {
            let heir = self.successor_of(node);
            self.reclaim(client, epoch, node, heir);
        }
    }

    /// The session that was given to `of` under this epoch goes on at its heir, if that has it.
    pub(in crate::node) fn reclaim(&mut self, client: ClientId, epoch: u64, of: NodeId, heir: Option<NodeId>) {
        // Should the client have come back since, nothing of that session is needed.
        let asks = heir.filter(|heir| *heir != self.config.node && !self.links.is_older(*heir));
        let asks = asks.filter(|_| !self.claims.owns(&client));
        let (Some(heir), Some(incarnation)) = (asks, self.orphaned_life(of)) else {
            return self.take_back(client, epoch);
        };
        self.handed.forget(&(client.clone(), epoch));
        self.ask_heir(client, Pending { epoch, of, incarnation, heir });
    }

    /// A node is back in a life that was taken for over, and knows itself which of the sessions it has that it was given.
    pub(in crate::node) fn ask_who_is_back(&mut self, life: Life) {
        if self.links.is_older(life.node) {
            return;
        }
        let asked = self.reclaims.pending.iter();
        let asked = asked.filter(|(_, pending)| (pending.of, pending.incarnation) == (life.node, life.incarnation));
        for (client, pending) in asked.map(|(client, pending)| (client.clone(), *pending)).collect::<Vec<_>>() {
            self.ask_heir(client, Pending { heir: life.node, ..pending });
        }
    }

    fn ask_heir(&mut self, client: ClientId, pending: Pending) {
        let Pending { epoch, of, incarnation, heir } = pending;
        self.reclaims.pending.insert(client.clone(), pending);
        self.reclaims.deadlines.set(client.clone(), self.now.instant + PATIENCE);
        let keeps = ReplicaMail::Keeps { of, incarnation, client, epoch };
        self.send_control(heir, ControlTopic::Replica, keeps.encode());
    }

    /// A session that was to leave for a node which is gone is here to be kept, or there is none.
    pub(in crate::node) fn was_held_up(&mut self, client: ClientId, epoch: u64, of: NodeId, is_there: bool) {
        let is_wanted = self.reclaims.held_up.remove(&client).unwrap_or(true);
        if is_there && is_wanted && self.is_guest() {
            // As with one that has left: see [`Self::reclaim_late`].
            self.handed_over(&client, epoch, of, true, false);
            self.relinquish_postponed();
            self.reclaim_is_settled();
        } else if is_there && is_wanted {
            let heir = self.successor_of(of);
            self.reclaim(client, epoch, of, heir);
        } else {
            if is_there {
                self.let_go_of((client, epoch));
            }
            self.relinquish_postponed();
            self.reclaim_is_settled();
        }
    }

    /// The node to which a session was to leave is back in the same life.
    pub(in crate::node) fn is_held_up_no_more(&mut self, client: &ClientId) {
        if self.reclaims.held_up.remove(client).is_some() {
            self.reclaim_is_settled();
        }
    }

    /// A session that was given away goes on here, unless the client has a newer one here.
    fn take_back(&mut self, client: ClientId, epoch: u64) {
        self.handed.forget(&(client.clone(), epoch));
        self.reclaims.remove(&client);
        if self.claims.owns(&client) {
            self.let_go_of((client, epoch));
        } else {
            let own = epoch::inherited(epoch);
            self.claims.restore(client.clone(), own, None);
            self.forwards.forget(&client);
            self.tell_take_back(&client, epoch, own);
            self.register_one(&client, own);
        }
        self.relinquish_postponed();
        self.reclaim_is_settled();
    }

    /// A client is served here of which nobody has a session, as its home says, and this node has given it to a node that has not said that it has it
    /// for good: that node has started again since. The session goes on here. False if this node keeps none.
    pub(in crate::node) fn takes_back_for(&mut self, client: &ClientId, epoch: u64) -> bool {
        let Some(given) = self.handed.kept(client) else { return false };
        self.handed.forget(&(client.clone(), given));
        self.tell_take_back(client, given, epoch);
        true
    }

    /// The shard goes on under `epoch` with a session that was given away under `given`.
    fn tell_take_back(&mut self, client: &ClientId, given: u64, epoch: u64) {
        self.counters.sessions_taken_back += 1;
        let step = SessionStep::TakeBack(Handed { client: client.clone(), epoch: given }, epoch);
        self.tell_shard(shard_of(client, self.config.shards), session_step(step));
    }

    /// Another node keeps a session that it has given to one that is gone. Whether this node has it from the copy, or knows who has it.
    pub(in crate::node) fn keeps(&mut self, by: NodeId, of: Life, client: ClientId, epoch: u64) {
        if self.knows_alive(of) {
            if self.reclaims.early.len() >= MAX_EARLY {
                self.reclaims.early.remove(0);
            }
            self.reclaims.early.push((by, of, client, epoch));
            return;
        }
        let me = self.config.node;
        let phase = self.claims.wanted.get(&client).map(|wanted| &wanted.phase);
        let waits = phase.and_then(Phase::waits_for).filter(|(_, from, _)| *from == me).map(|(epoch, ..)| epoch);
        let is_newer = phase.and_then(Phase::epoch).is_some_and(|wanted| wanted > epoch) && waits.is_none();
        let has_had = self.claims.has_since(&client, epoch) || self.has_left(&client, epoch);
        let comes = phase.and_then(Phase::waits_for).is_some() && is_newer && !has_had;
        let is_asked = comes && self.takeovers.is_asked_early(&client);
        if comes && !is_asked {
            self.reclaims.note_unclear(by, client, epoch);
            return;
        }
        let has = has_had || (is_newer && !is_asked);
        self.answer_keeper(by, &client, epoch, has);
        if has {
            return;
        }
        if let Some(epoch) = waits {
            self.await_keeper(&client, by);
            self.send_relinquish(by, &client, epoch, me);
        }
        for (to, epoch) in self.take_early(&client) {
            if to == by {
                // It has it itself.
                self.relinquish(client.clone(), epoch, false, to);
            } else {
                self.send_relinquish(by, &client, epoch, to);
            }
        }
    }

    fn answer_keeper(&mut self, by: NodeId, client: &ClientId, epoch: u64, has: bool) {
        let answer = ReplicaMail::Has { client: client.clone(), epoch, has };
        self.send_control(by, ControlTopic::Replica, answer.encode());
        if !has {
            self.reclaims.is_kept_by(self.now.instant, client, by);
        }
    }

    /// The session of a client has come, or the node over which it was to come does not have it: answers who keeps it.
    pub(in crate::node) fn answer_unclear(&mut self, client: &ClientId, has: bool) {
        let of_client = self.reclaims.unclear.extract_if(.., |(_, wanted, _)| wanted == client);
        for (by, _, epoch) in of_client.collect::<Vec<_>>() {
            self.answer_keeper(by, client, epoch, has);
        }
    }

    /// A node is gone: answers who has asked before about sessions that it was given.
    pub(in crate::node) fn answer_keepers(&mut self) {
        let early = core::mem::take(&mut self.reclaims.early);
        for (by, of, client, epoch) in early {
            self.keeps(by, of, client, epoch);
        }
    }

    /// A successor says whether it has a session that is kept here.
    pub(in crate::node) fn has_answered(&mut self, heir: NodeId, client: &ClientId, epoch: u64, has: bool) {
        let is_asked = |pending: &Pending| (pending.heir, pending.epoch) == (heir, epoch);
        if !self.reclaims.pending.get(client).is_some_and(is_asked) {
            return;
        }
        if !has {
            return self.take_back(client.clone(), epoch);
        }
        self.reclaims.remove(client);
        self.let_go_of((client.clone(), epoch));
        if let Some((epoch, to)) = self.claims.take_postponed(client) {
            self.send_relinquish(heir, client, epoch, to);
        }
        self.reclaim_is_settled();
    }

    /// A client starts clean elsewhere, or has a newer session here: the kept session is not needed.
    pub(in crate::node) fn end_reclaim(&mut self, client: &ClientId) {
        if let Some(is_wanted) = self.reclaims.held_up.get_mut(client) {
            *is_wanted = false;
        }
        if let Some(Pending { epoch, .. }) = self.reclaims.remove(client) {
            self.let_go_of((client.clone(), epoch));
            self.reclaim_is_settled();
        }
    }

    fn reclaim_is_settled(&mut self) {
        if self.reclaims.len() == 0 {
            self.all_is_registered();
        }
        if !self.reclaims.is_held_up() {
            self.give_all_early();
        }
    }

    /// Successors that do not answer.
    pub(in crate::node) fn reclaims_due(&mut self) {
        while let Some(client) = self.reclaims.deadlines.pop_due(self.now.instant) {
            if let Some(Pending { epoch, .. }) = self.reclaims.remove(&client) {
                self.take_back(client, epoch);
            }
        }
    }
}
