//! A session that has come from its former owner, until the client is served with it. See `shard/handover.rs`.

use std::sync::Arc;

use sedge_base::{ClientId, NodeId};
use sedge_broker::SessionState;
use sedge_mqtt::{Message, TopicFilter};

use crate::lineage::Given;
use crate::mail::{self, Handed, SessionStep};
use crate::node::Node;
use crate::node::delivery::waiters::Waiter;
use crate::node::sessions::claims::{Claims, Phase, session_step};
use crate::node::sessions::contents::{interest_of, is_plain, messages_of};
use crate::node::sessions::{ahead, forwards};

impl Claims {
    /// Whether the session of a client has come from this owner, and the messages that it has caught since have not.
    pub(in crate::node) fn awaits_leftovers(&self, client: &ClientId, former: Given) -> bool {
        let phase = self.wanted.get(client).map(|wanted| &wanted.phase);
        matches!(phase, Some(Phase::Adopting { given, .. } | Phase::Leftovers { given, .. }) if *given == former)
    }

    /// Whether a session that has come, and is not with its shard yet, has this subscription.
    pub(in crate::node) fn awaits(&self, client: &ClientId, filter: &TopicFilter) -> bool {
        let Some(wanted) = self.wanted.get(client) else { return false };
        let session = match &wanted.phase {
            Phase::Adopting { session, .. } | Phase::Leftovers { session, .. } | Phase::Flushing { session, .. } => {
                Some(session)
            }
            Phase::Asked { .. } | Phase::Session { .. } => wanted.spare.as_ref(),
        };
        session.is_some_and(|session| session.subscriptions.iter().any(|wanted| wanted.filter == *filter))
    }

    /// Whether the session of a client has come, and all that its former owner has caught since.
    pub(in crate::node) fn has_rest(&self, client: &ClientId) -> bool {
        self.wanted.get(client).is_some_and(|wanted| matches!(wanted.phase, Phase::Flushing { .. }))
    }
}

impl Node {
    /// The session is here: everybody is told to send its messages here, too, before the former owner stops to catch them.
    pub(in crate::node) fn adopt(&mut self, given: Given, client: &ClientId, epoch: u64, session: Box<SessionState>) {
        let changes = interest_of(&session, false);
        let is_beside = self.claims.owns(client);
        if !is_beside {
            let brings = messages_of(&session).map(|queued| queued.message.id);
            self.had.goes_on_here(self.now, given.from, client, brings);
        }
        self.keep_spare(client);
        self.answer_unclear(client, true);
        let before = self.had.lineage(given.from, client);
        let Some(wanted) = self.claims.wanted.get_mut(client) else { return };
        wanted.before = before;
        wanted.beside = is_beside.then(|| Box::new(self.had.had_elsewhere(given.from, client)));
        (wanted.given, wanted.spare) = (Some(given), None);
        let shared = session.subscriptions.iter().filter(|subscription| !is_plain(subscription));
        let filters: Vec<_> = shared.map(|subscription| subscription.filter.clone()).collect();
        let shard = wanted.shard;
        wanted.phase = Phase::Adopting { epoch, given, session };
        if !filters.is_empty() {
            let expect = mail::Adopt { client: client.clone(), epoch, filters };
            self.tell_shard(shard, session_step(SessionStep::Expect(expect)));
        }
        self.set_claim_deadline(client);
        let handed = Handed { client: client.clone(), epoch };
        self.change_and_wait_for_all(client, &changes, Waiter::Adoption(handed));
    }

    /// A session comes in place of the one that has come from an owner that was gone. Where that owner is back, it knows of more than the copy of its
    /// successor may: both are put together when the client is served.
    fn keep_spare(&mut self, client: &ClientId) {
        let Some(wanted) = self.claims.wanted.get_mut(client) else { return };
        let Some((epoch, _, former)) = wanted.phase.waits_for() else { return };
        if let Some(spare) = wanted.spare.take().filter(|_| self.ring.contains(&former)) {
            self.keep_early(former, client, epoch, Some(spare), false);
        }
    }

    /// The node is gone whose session has come, and whose messages caught since have not: its successor has both. False if there is none, or
    /// nothing is missing.
    pub(in crate::node) fn await_rest(&mut self, client: &ClientId, former: NodeId) -> bool {
        let heir = self.successor_of(former).filter(|heir| *heir != self.config.node || self.claims.owns(client));
        let Some(wanted) = self.claims.wanted.get_mut(client).filter(|_| heir.is_some()) else { return false };
        let home = self.config.node;
        match core::mem::replace(&mut wanted.phase, Phase::Asked { home }) {
            Phase::Adopting { epoch, session, .. } | Phase::Leftovers { epoch, session, .. } => {
                wanted.phase = Phase::Session { epoch, from: former, of: former };
                (wanted.spare, wanted.has_lost_former) = (Some(session), true);
                self.await_successor(client, epoch, former)
            }
            phase @ (Phase::Asked { .. } | Phase::Session { .. } | Phase::Flushing { .. }) => {
                wanted.phase = phase;
                false
            }
        }
    }

    /// Everybody sends here: the shard begins to catch.
    pub(in crate::node) fn adoption_settled(&mut self, handed: Handed) {
        let Handed { client, epoch } = handed;
        let Some(wanted) = self.claims.wanted.get(&client) else { return };
        let Phase::Adopting { epoch: mine, session, .. } = &wanted.phase else { return };
        if *mine == epoch {
            let filters = session.subscriptions.iter().map(|subscription| subscription.filter.clone()).collect();
            let shard = wanted.shard;
            self.had.is_caught(&client);
            self.tell_shard(shard, session_step(SessionStep::Adopt(mail::Adopt { client, epoch, filters })));
        }
    }

    /// The shard catches: the former owner need not do so any longer.
    pub(in crate::node) fn adopted(&mut self, handed: &Handed) {
        let Some(wanted) = self.claims.wanted.get_mut(&handed.client) else { return };
        if matches!(wanted.phase, Phase::Flushing { epoch, .. } if epoch == handed.epoch) {
            return self.serve_flushed(&handed.client);
        }
        if !matches!(wanted.phase, Phase::Adopting { epoch, .. } if epoch == handed.epoch) {
            return;
        }
        let home = self.config.node;
        let before = core::mem::replace(&mut wanted.phase, Phase::Asked { home });
        let Phase::Adopting { epoch, given, session } = before else { return };
        wanted.phase = Phase::Leftovers { epoch, given, session };
        if self.ring.contains(&given.from) {
            self.set_claim_deadline(&handed.client);
            self.send_release(given.from, &handed.client, given.epoch);
        } else if !self.await_rest(&handed.client, given.from) {
            self.serve_as_is(&handed.client);
        }
    }

    /// The former owner has sent what came since it gave the session up. Some of it may still be on its way here, too: another round
    /// through all nodes, now that the session is as good as connected, is behind all that.
    pub(in crate::node) fn leftovers_arrived(
        &mut self,
        from: NodeId,
        client: &ClientId,
        epoch: u64,
        mut messages: Vec<Arc<Message>>,
    ) {
        if let Some(left) = forwards::passed_on(epoch) {
            return self.passed_on(from, client, left, &messages);
        }
        if let Some(given) = ahead::sent_ahead(epoch) {
            return self.comes_ahead(from, client, given, &messages);
        }
        if self.caught_elsewhere(from, client, epoch, &messages) {
            return;
        }
        let given = Given { from, epoch };
        let home = self.config.node;
        let Some(wanted) = self.claims.wanted.get_mut(client) else {
            // The client is at another node now, or the session has moved again since.
            return self.send_late(client, &messages);
        };
        match &wanted.phase {
            Phase::Leftovers { given: awaited, .. } if *awaited == given => {}
            Phase::Adopting { given: awaited, .. } if *awaited == given => {
                return self.keep_rest(client, &messages);
            }
            phase if phase.epoch() == Some(epoch) => return,
            Phase::Asked { .. }
            | Phase::Session { .. }
            | Phase::Adopting { .. }
            | Phase::Leftovers { .. }
            | Phase::Flushing { .. } => return self.send_late(client, &messages),
        }
        let before = core::mem::replace(&mut wanted.phase, Phase::Asked { home });
        let Phase::Leftovers { epoch, session, .. } = before else { return };
        messages.extend(self.claims.ahead.take(client));
        for message in &messages {
            self.had.gets(client, message.id);
        }
        self.had.gets_caught(client, messages.iter().map(|message| message.id));
        let Some(wanted) = self.claims.wanted.get_mut(client) else { return };
        let changes = interest_of(&session, true);
        wanted.phase = Phase::Flushing { epoch, session, leftovers: messages };
        self.set_claim_deadline(client);
        let handed = Handed { client: client.clone(), epoch };
        self.change_and_wait_for_all(client, &changes, Waiter::Flush(handed));
    }

    fn serve_flushed(&mut self, client: &ClientId) {
        let Some(wanted) = self.claims.wanted.get_mut(client) else { return };
        if wanted.has_lost_former || wanted.given.is_some_and(|given| !self.ring.contains(&given.from)) {
            // Not all that was sent here, too, has come: messages that its former node has caught may come once more.
            return self.serve_as_is(client);
        }
        let home = self.config.node;
        wanted.came = wanted.given.map(|given| wanted.before.then(given)).unwrap_or_default();
        if let Phase::Flushing { epoch, session, leftovers } =
            core::mem::replace(&mut wanted.phase, Phase::Asked { home })
        {
            self.claimed_late(client, epoch, Some(session), leftovers);
        }
    }
}
