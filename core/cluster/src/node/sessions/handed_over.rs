//! Sessions that this node has given away, until their new owners have them for good. See `shard/handover.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sedge_base::{ClientId, Deadlines, Duration, Instant, NodeId};
use sedge_mqtt::Message;

use crate::link::ControlTopic;
use crate::mail::{Handed, SessionStep, ToShard};
use crate::node::Node;
use crate::node::delivery::waiters::Waiter;
use crate::node::sessions::ahead;
use crate::node::sessions::claims::session_step;
use crate::reception::shard_of;
use crate::wire::{SessionMail, Writer, write_message};

/// How long a new owner may take to say that it gets everything itself, and once more to say that it has the session for good. It gives up
/// sooner.
pub(in crate::node) const PATIENCE: Duration = Duration::from_secs(10);

type Key = (ClientId, u64);

/// Sessions given away.
#[derive(Debug, Default)]
pub(in crate::node) struct HandedOver {
    sessions: BTreeMap<Key, HandedSession>,
    deadlines: Deadlines<Key>,
    /// When to look what was caught meanwhile.
    looks: Deadlines<Key>,
    /// Sessions that only wait for publications up to this entry of the acknowledgement table to arrive.
    unsettled: BTreeSet<(u64, Key)>,
}

#[derive(Debug)]
struct HandedSession {
    to: NodeId,
    /// Nodes that know where to send, as the new owner has said before it knew all nodes that send here.
    premature: Option<Vec<NodeId>>,
    /// Whether the new owner gets everything itself.
    is_released: bool,
    /// Whether the new owner was sent what was caught for it here until it got everything itself.
    is_complete: bool,
    /// Whether the session is as safe at the new owner as it has to be.
    is_safe: bool,
    /// The last entry of the acknowledgement table when the session left, if QoS 2 publications of its client were on their way.
    open: Option<u64>,
}

impl HandedOver {
    /// Sessions that a new owner may not have for good.
    pub(in crate::node) fn len(&self) -> usize {
        self.sessions.len()
    }

    /// When a new owner has had its time, or takes so long that it is worth sending something ahead.
    pub(in crate::node) fn timeout(&self) -> Option<Instant> {
        self.deadlines.next().into_iter().chain(self.looks.next()).min()
    }

    /// To whom a session was given that is not released.
    pub(in crate::node) fn waits(&self, client: &ClientId, epoch: u64) -> Option<NodeId> {
        let session = self.sessions.get(&(client.clone(), epoch))?;
        (!session.is_released).then_some(session.to)
    }

    /// Sessions given to a node that may not have them for good.
    pub(in crate::node) fn given_to(&self, node: NodeId) -> Vec<Key> {
        let given = self.sessions.iter().filter(|(_, session)| session.to == node);
        given.map(|(key, _)| key.clone()).collect()
    }

    /// Under which epoch the session of a client was given last to a node that may not have it for good.
    pub(in crate::node) fn kept(&self, client: &ClientId) -> Option<u64> {
        let given = self.sessions.range((client.clone(), 0)..=(client.clone(), u64::MAX));
        given.filter(|(_, session)| !session.is_safe).map(|((_, epoch), _)| *epoch).next_back()
    }

    /// To whom the session of a client was given last before `epoch`, if that node may not have it for good.
    fn last_given_to(&self, client: &ClientId, epoch: u64) -> Option<NodeId> {
        let given = self.sessions.range((client.clone(), 0)..(client.clone(), epoch));
        given.map(|(_, session)| session.to).next_back()
    }

    /// Whether the session of a client was given to a node that may not have it for good, after that node had it under this epoch.
    pub(in crate::node) fn is_given_since(&self, client: &ClientId, to: NodeId, epoch: u64) -> bool {
        let mut given = self.sessions.range((client.clone(), epoch + 1)..=(client.clone(), u64::MAX));
        given.any(|(_, session)| session.to == to)
    }

    /// All sessions given to nodes that may not have them for good, with these nodes.
    pub(in crate::node) fn all(&self) -> impl Iterator<Item = (ClientId, u64, NodeId)> {
        self.sessions.iter().map(|((client, epoch), session)| (client.clone(), *epoch, session.to))
    }

    /// A session is not kept any longer.
    pub(in crate::node) fn forget(&mut self, key: &Key) {
        if let Some(open) = self.sessions.remove(key).and_then(|session| session.open) {
            self.unsettled.remove(&(open, key.clone()));
        }
        self.deadlines.cancel(key);
        self.looks.cancel(key);
    }
}

impl Node {
    /// A session was given to another node. `has_interest`: whether something may come for it here. `is_open`: whether QoS 2 publications of its client
    /// may be on their way.
    pub(in crate::node) fn handed_over(
        &mut self,
        client: &ClientId,
        epoch: u64,
        to: NodeId,
        has_interest: bool,
        is_open: bool,
    ) {
        let key = (client.clone(), epoch);
        self.handed.deadlines.set(key.clone(), self.now.instant + PATIENCE);
        if has_interest {
            self.handed.looks.set(key.clone(), self.now.instant + ahead::PERIOD);
        }
        self.forwards.note(self.now.instant, client, epoch, to);
        let session = HandedSession {
            to,
            premature: None,
            is_released: !has_interest,
            is_complete: !has_interest,
            // A node of the first version does not say it.
            is_safe: self.links.is_older(to),
            open: is_open.then(|| self.acks.last()),
        };
        self.handed.sessions.insert(key.clone(), session);
        self.end_handing(&key);
    }

    /// The member to which the session of a client is on its way, unless that is `to`, which has claimed the session under `epoch` since, or the client
    /// has another session here. A home that compares registrations (odd epochs) asks for what this node has.
    pub(in crate::node) fn is_on_its_way_to_other(&self, client: &ClientId, epoch: u64, to: NodeId) -> Option<NodeId> {
        if !epoch.is_multiple_of(2) {
            return None;
        }
        let owner = self.handed.last_given_to(client, epoch).filter(|owner| *owner != to && self.ring.contains(owner));
        owner.filter(|_| !self.claims.owns(client) && !self.claims.wants(client))
    }

    /// Whether a member knows what is wanted here.
    pub(in crate::node) fn is_known_to(&self, node: NodeId) -> bool {
        node == self.config.node || self.peers.get(&node).is_some_and(|peer| peer.overlay_synced)
    }

    /// Tells the former owner that it need not catch any longer.
    pub(in crate::node) fn send_release(&mut self, to: NodeId, client: &ClientId, epoch: u64) {
        let known_to = self.ring.iter().copied().filter(|node| self.is_known_to(*node));
        let known_to = (!self.links.is_older(to)).then(|| known_to.collect());
        let mail = SessionMail::Release { client: client.clone(), epoch, known_to };
        self.send_control(to, ControlTopic::Session, mail.encode());
    }

    /// Tells the former owner that it need not keep the session any longer.
    pub(in crate::node) fn send_safe(&mut self, to: NodeId, client: &ClientId, epoch: u64) {
        if !self.links.is_older(to) {
            let mail = SessionMail::Safe { client: client.clone(), epoch };
            self.send_control(to, ControlTopic::Session, mail.encode());
        }
    }

    /// The new owner gets everything itself that these nodes send. Others may not have found it yet, after a partition, and send here:
    /// then it says so again when it knows them, too.
    pub(in crate::node) fn release_for(&mut self, client: ClientId, epoch: u64, known_to: Option<Vec<NodeId>>) {
        let me = self.config.node;
        let Some(known_to) = known_to else { return self.release(&client, epoch) };
        if self.ring.iter().all(|node| *node == me || known_to.contains(node)) {
            return self.release(&client, epoch);
        }
        if let Some(session) = self.handed.sessions.get_mut(&(client, epoch)).filter(|session| !session.is_released) {
            session.premature = Some(known_to);
        }
    }

    /// A node is gone: it may have been the only one that did not know where to send.
    pub(in crate::node) fn releases_without(&mut self) {
        let premature = self.handed.sessions.iter_mut();
        let premature = premature.filter_map(|(key, session)| Some((key.clone(), session.premature.take()?)));
        for ((client, epoch), known_to) in premature.collect::<Vec<_>>() {
            self.release_for(client, epoch, Some(known_to));
        }
    }

    /// The new owner gets everything itself. Messages on their way here only will be in when all have answered.
    fn release(&mut self, client: &ClientId, epoch: u64) {
        let key = (client.clone(), epoch);
        let Some(session) = self.handed.sessions.get_mut(&key).filter(|session| !session.is_released) else { return };
        session.is_released = true;
        self.handed.deadlines.set(key.clone(), self.now.instant + PATIENCE);
        self.handed.looks.cancel(&key);
        let waiter = Waiter::Leftovers(Handed { client: client.clone(), epoch });
        self.change_and_wait_for_all(client, &[], waiter);
    }

    pub(in crate::node) fn releases_due(&mut self) {
        while let Some(key) = self.handed.deadlines.pop_due(self.now.instant) {
            let is_guest = self.is_guest();
            let Some(session) = self.handed.sessions.get_mut(&key) else { continue };
            if is_guest && !self.ring.contains(&session.to) {
                // The session is looked for when this node is a guest no longer.
                self.handed.deadlines.set(key, self.now.instant + PATIENCE);
                continue;
            }
            // A new owner that was released, and does not say that the session is safe, has had its time.
            session.is_safe |= session.is_released;
            if session.is_safe && session.is_complete {
                self.let_go_of(key);
            } else if session.is_released {
                self.end_handing(&key);
            } else {
                self.release(&key.0, key.1);
            }
        }
        while let Some((client, epoch)) = self.handed.looks.pop_due(self.now.instant) {
            self.handed.looks.set((client.clone(), epoch), self.now.instant + ahead::PERIOD);
            self.look_ahead(Handed { client, epoch });
        }
    }

    /// Tells the shard of a session something as often as there are shards: each passes it on behind all it has sent there.
    pub(in crate::node) fn tell_behind_all(&mut self, handed: &Handed, step: fn(Handed) -> SessionStep) {
        let home = shard_of(&handed.client, self.config.shards);
        for shard in (0..self.config.shards).map(sedge_base::ShardId) {
            let told = ToShard::Session(Box::new(step(handed.clone())));
            let mail = if shard == home { told } else { ToShard::PassOn(home, Box::new(told)) };
            self.tell_shard(shard, mail);
        }
    }

    /// The shard gives what it has caught.
    pub(in crate::node) fn leftovers(&mut self, handed: Handed, messages: &[Arc<Message>]) {
        let Handed { client, epoch } = handed;
        let key = (client.clone(), epoch);
        let Some(session) = self.handed.sessions.get_mut(&key).filter(|session| !session.is_complete) else { return };
        session.is_complete = true;
        let to = session.to;
        if self.ring.contains(&to) {
            self.send_leftovers(to, &client, epoch, messages);
        }
        self.end_handing(&key);
    }

    /// The new owner has the session for good.
    pub(in crate::node) fn is_safe(&mut self, from: NodeId, client: ClientId, epoch: u64) {
        let key = (client, epoch);
        if let Some(session) = self.handed.sessions.get_mut(&key).filter(|session| session.to == from) {
            session.is_safe = true;
            self.end_handing(&key);
        }
    }

    /// Nothing of a session is needed here any longer when the new owner has it for good, and the messages caught for it. Publications of its
    /// client that are on their way over other nodes have to arrive first: should this node die, only its copy of the session has them.
    fn end_handing(&mut self, key: &Key) {
        let session = self.handed.sessions.get(key).filter(|session| session.is_safe && session.is_complete);
        let Some(session) = session else { return };
        match session.open.filter(|open| !self.acks.relayed_have_arrived(*open)) {
            None => self.let_go_of(key.clone()),
            Some(open) => {
                self.handed.deadlines.set(key.clone(), self.now.instant + PATIENCE);
                self.handed.unsettled.insert((open, key.clone()));
            }
        }
    }

    /// Publications may have arrived that were on their way over other nodes.
    pub(in crate::node) fn let_settled_go(&mut self) {
        while self.handed.unsettled.first().is_some_and(|(made, _)| self.acks.relayed_have_arrived(*made))
            && let Some((_, key)) = self.handed.unsettled.pop_first()
        {
            self.end_handing(&key);
        }
    }

    /// Nothing of a session is needed here any longer.
    pub(in crate::node) fn let_go_of(&mut self, key: Key) {
        self.handed.forget(&key);
        let (client, epoch) = key;
        let shard = shard_of(&client, self.config.shards);
        self.tell_shard(shard, session_step(SessionStep::Left(Handed { client, epoch })));
    }

    /// Sends what has come for a session to where it is now.
    pub(in crate::node) fn send_leftovers(
        &mut self,
        to: NodeId,
        client: &ClientId,
        epoch: u64,
        messages: &[Arc<Message>],
    ) {
        let mut out = Writer::default();
        out.list(messages, |out, message| write_message(out, message));
        self.send_parts(to, client, epoch, true, out.finish());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FT-21, MQ-11
    #[test]
    fn the_last_owner_before_a_claim_is_known_until_it_has_the_session_for_good() {
        let (mut handed, client) = (HandedOver::default(), ClientId::new("a"));
        for (epoch, to) in [(20, 1), (40, 2)] {
            let to = NodeId::new(to);
            let session = HandedSession {
                to,
                premature: None,
                is_released: false,
                is_complete: false,
                is_safe: false,
                open: None,
            };
            handed.sessions.insert((client.clone(), epoch), session);
        }
        assert_eq!(handed.last_given_to(&client, 60), Some(NodeId::new(2)));
        assert_eq!(
            handed.last_given_to(&client, 40),
            Some(NodeId::new(1)),
            "the claim was granted before the session left"
        );
        assert_eq!(handed.last_given_to(&client, 20), None);
        assert_eq!(handed.last_given_to(&ClientId::new("b"), 60), None);
        handed.forget(&(client.clone(), 40));
        assert_eq!(handed.last_given_to(&client, 60), Some(NodeId::new(1)));
    }
}
