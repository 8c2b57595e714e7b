//! Sessions that this node has given away, until nothing comes for them here any more. See `shard/handover.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sedge_base::{ClientId, Deadlines, Duration, Instant, NodeId};
use sedge_broker::InterestChange;
use sedge_mqtt::{Message, TopicFilter};

use super::claims::Session;
use super::settle::Waiter;
use super::{Node, ahead, epoch};
use crate::link::ControlTopic;
use crate::mail::{Handed, SessionStep, ToShard};
use crate::reception::shard_of;
use crate::wire::{SessionMail, Writer, write_message};

/// How long a new owner may take to say that it gets everything itself. It gives up sooner.
const PATIENCE: Duration = Duration::from_secs(10);

type Key = (ClientId, u64);

/// Sessions given away and not released.
#[derive(Debug, Default)]
pub(super) struct HandedOver {
    to: BTreeMap<Key, NodeId>,
    /// Filters that are withdrawn elsewhere, while what is still on its way is delivered.
    withdrawn: BTreeMap<Key, Vec<TopicFilter>>,
    /// What new owners have said that do not know all nodes that send here: which ones know where to send.
    premature: BTreeMap<Key, Vec<NodeId>>,
    /// Those of which the new owner gets everything itself.
    released: BTreeSet<Key>,
    deadlines: Deadlines<Key>,
    /// When to look what was caught meanwhile.
    looks: Deadlines<Key>,
}

impl HandedOver {
    /// Sessions that a new owner may not have completely.
    pub(super) fn len(&self) -> usize {
        self.to.len()
    }

    /// When a new owner has had its time, or takes so long that it is worth sending something ahead.
    pub(super) fn timeout(&self) -> Option<Instant> {
        self.deadlines.next().into_iter().chain(self.looks.next()).min()
    }

    /// To whom a session was given that is not released.
    pub(super) fn waits(&self, client: &ClientId, epoch: u64) -> Option<NodeId> {
        let key = (client.clone(), epoch);
        self.to.get(&key).copied().filter(|_| !self.released.contains(&key))
    }
}

impl Node {
    /// A session with interest was given to another node.
    pub(super) fn handed_over(&mut self, client: &ClientId, epoch: u64, to: NodeId) {
        let key = (client.clone(), epoch);
        self.handed.deadlines.set(key.clone(), self.now.instant + PATIENCE);
        self.handed.looks.set(key.clone(), self.now.instant + ahead::PERIOD);
        self.handed.to.insert(key, to);
        self.forwards.note(self.now.instant, client, epoch, to);
    }

    /// The new owner of a session has gone before the session was sent to it. Who has asked for it meanwhile gets it.
    pub(super) fn take_back(&mut self, client: &ClientId, epoch: u64, session: Session) {
        if session.is_none() {
            return;
        }
        let epoch = epoch::inherited(epoch);
        self.claims.restore(client.clone(), epoch, None);
        self.tell_epoch(client, epoch, session);
        self.relinquish_postponed();
    }

    /// Tells the former owner that it need not catch any longer.
    pub(super) fn send_release(&mut self, to: NodeId, client: &ClientId, epoch: u64) {
        let is_synced = |node: &NodeId| self.peers.get(node).is_some_and(|peer| peer.overlay_synced);
        let me = self.config.node;
        let known_to = self.ring.iter().copied().filter(|node| *node == me || is_synced(node));
        let known_to = (!self.links.is_older(to)).then(|| known_to.collect());
        let mail = SessionMail::Release { client: client.clone(), epoch, known_to };
        self.send_control(to, ControlTopic::Session, mail.encode());
    }

    /// The new owner gets everything itself that these nodes send. Others may not have found it yet, after a partition, and send here:
    /// then it says so again when it knows them, too.
    pub(super) fn release_for(&mut self, client: ClientId, epoch: u64, known_to: Option<Vec<NodeId>>) {
        let me = self.config.node;
        let Some(known_to) = known_to else { return self.release(client, epoch) };
        if self.ring.iter().all(|node| *node == me || known_to.contains(node)) {
            return self.release(client, epoch);
        }
        let key = (client, epoch);
        if self.handed.to.contains_key(&key) && !self.handed.released.contains(&key) {
            self.handed.premature.insert(key, known_to);
        }
    }

    /// A node is gone: it may have been the only one that did not know where to send.
    pub(super) fn releases_without(&mut self) {
        for ((client, epoch), known_to) in core::mem::take(&mut self.handed.premature) {
            self.release_for(client, epoch, Some(known_to));
        }
    }

    /// The new owner gets everything itself.
    fn release(&mut self, client: ClientId, epoch: u64) {
        let key = (client.clone(), epoch);
        if !self.handed.to.contains_key(&key) || !self.handed.released.insert(key.clone()) {
            return;
        }
        self.handed.deadlines.cancel(&key);
        self.handed.looks.cancel(&key);
        self.handed.premature.remove(&key);
        let shard = shard_of(&client, self.config.shards);
        self.tell_shard(shard, ToShard::Session(Box::new(SessionStep::Release(Handed { client, epoch }))));
    }

    /// New owners that are gone release nothing themselves.
    pub(super) fn release_all_of(&mut self, node: NodeId) {
        let of_node = self.handed.to.iter().filter(|(_, to)| **to == node);
        for (client, epoch) in of_node.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            self.release(client, epoch);
        }
    }

    pub(super) fn releases_due(&mut self) {
        while let Some((client, epoch)) = self.handed.deadlines.pop_due(self.now.instant) {
            self.release(client, epoch);
        }
        while let Some((client, epoch)) = self.handed.looks.pop_due(self.now.instant) {
            self.handed.looks.set((client.clone(), epoch), self.now.instant + ahead::PERIOD);
            self.look_ahead(Handed { client, epoch });
        }
    }

    /// The shard names the interest that is to be withdrawn: from the other nodes first, here when nothing can be on its way any
    /// more.
    pub(super) fn withdraw(&mut self, handed: Handed, changes: &[InterestChange]) {
        let client = handed.client.clone();
        let shard = shard_of(&client, self.config.shards);
        let plain = changes.iter().filter(|change| change.filter.share_group().is_none());
        let filters: Vec<_> = plain.map(|change| change.filter.clone()).collect();
        for filter in &filters {
            let effect = self.interest.hold(shard, filter);
            self.table.extend(effect.table);
        }
        self.handed.withdrawn.insert((client.clone(), handed.epoch), filters);
        self.change_and_wait(&client, changes, Waiter::Withdrawal(handed));
    }

    /// Nobody sends here any more. What is between the shards is in when each has passed mail on behind it.
    pub(super) fn withdrawal_settled(&mut self, handed: &Handed) {
        let home = shard_of(&handed.client, self.config.shards);
        let key = (handed.client.clone(), handed.epoch);
        for filter in self.handed.withdrawn.remove(&key).unwrap_or_default() {
            let effect = self.interest.let_go(home, &filter);
            self.table.extend(effect.table);
        }
        self.tell_behind_all(handed, SessionStep::Collect);
    }

    /// Tells the shard of a session something as often as there are shards: each passes it on behind all it has sent there.
    pub(super) fn tell_behind_all(&mut self, handed: &Handed, step: fn(Handed) -> SessionStep) {
        let home = shard_of(&handed.client, self.config.shards);
        for shard in (0..self.config.shards).map(sedge_base::ShardId) {
            let told = ToShard::Session(Box::new(step(handed.clone())));
            let mail = if shard == home { told } else { ToShard::PassOn(home, Box::new(told)) };
            self.tell_shard(shard, mail);
        }
    }

    /// The shard gives what it has caught.
    pub(super) fn leftovers(&mut self, handed: Handed, messages: &[Arc<Message>]) {
        let Handed { client, epoch } = handed;
        let key = (client.clone(), epoch);
        self.handed.released.remove(&key);
        let Some(to) = self.handed.to.remove(&key) else { return };
        if !self.ring.contains(&to) {
            self.counters.leftovers_discarded += messages.len() as u64;
            return;
        }
        self.send_leftovers(to, &client, epoch, messages);
    }

    /// Sends what has come for a session to where it is now.
    pub(super) fn send_leftovers(&mut self, to: NodeId, client: &ClientId, epoch: u64, messages: &[Arc<Message>]) {
        let mut out = Writer::default();
        out.list(messages, |out, message| write_message(out, message));
        self.send_parts(to, client, epoch, true, out.finish());
    }
}
