//! Claims that a home or a former owner does not answer: it is slow, or gone (MQ-11).

use sedge_base::{ClientId, NodeId};

use crate::lineage::Given;
use crate::node::Node;
use crate::node::sessions::claims::{Phase, Silence, Wanted};
use crate::node::sessions::contents::messages_of;
use crate::node::sessions::epoch;
use crate::wire::DirectoryMail;

impl Node {
    /// Claims that have waited long enough are served with what is here: the home, or the former owner, does not answer.
    pub(in crate::node) fn claims_due(&mut self) {
        while let Some(client) = self.claims.deadlines.pop_due(self.now.instant) {
            if let Some((epoch, from)) = self.is_given(&client) {
                // Nobody else asks: the word of a home to the former owner may be lost.
                self.send_relinquish(from, &client, epoch, self.config.node);
                self.set_claim_deadline(&client);
                continue;
            }
            if self.waits_for_suspect(&client) {
                self.set_claim_deadline(&client);
                continue;
            }
            self.counters.claims_timed_out += 1;
            let asked = self.claims.wanted.get(&client).and_then(|wanted| wanted.phase.waits_for());
            if !asked.is_some_and(|(epoch, ..)| self.takes_early(&client, epoch)) {
                self.serve_as_is(&client);
            }
        }
    }

    /// Whether an answer may be missing because a member is suspected to be dead. It may be the node that was asked: if that is dead, its successor
    /// has the session, and says so. It may be a backup of that node, which gives nothing away that its backups do not have.
    fn waits_for_suspect(&self, client: &ClientId) -> bool {
        let awaits_answer = self.claims.wanted.get(client).is_some_and(|wanted| match wanted.phase {
            Phase::Asked { .. } | Phase::Session { .. } => true,
            Phase::Adopting { .. } | Phase::Leftovers { .. } | Phase::Flushing { .. } => false,
        });
        awaits_answer && self.membership.has_suspects()
    }

    /// Of a session that is on its way, and for which nobody waits: under which epoch, and from whom it comes.
    fn is_given(&self, client: &ClientId) -> Option<(u64, NodeId)> {
        let wanted = self.claims.wanted.get(client)?;
        let Phase::Session { epoch, from, .. } = wanted.phase else { return None };
        let is_given = wanted.conn.is_none() && wanted.later.is_none() && self.ring.contains(&from);
        is_given.then_some((epoch, from))
    }

    /// Serves a client with what has come of its session.
    pub(in crate::node) fn serve_as_is(&mut self, client: &ClientId) {
        let Some(wanted) = self.claims.wanted.get_mut(client) else { return };
        let home = self.config.node;
        let (mut caught, mut late) = (Vec::new(), None);
        let (epoch, session) = match core::mem::replace(&mut wanted.phase, Phase::Asked { home }) {
            Phase::Asked { .. } => {
                let known = self.claims.owned.get(client).map_or(0, |owned| owned.granted.max(owned.told));
                (epoch::claimed(known, self.now.wall.as_millis()), None)
            }
            Phase::Session { epoch, .. } => {
                let spare = wanted.spare.take();
                caught = self.serve_ahead(client);
                (epoch, spare)
            }
            Phase::Adopting { epoch, given, session } => {
                self.send_release(given.from, client, given.epoch);
                late = Some(given);
                caught = self.serve_ahead(client);
                (epoch, Some(session))
            }
            Phase::Leftovers { epoch, given, session } => {
                late = Some(given);
                caught = self.serve_ahead(client);
                (epoch, Some(session))
            }
            Phase::Flushing { epoch, session, leftovers } => {
                caught = leftovers;
                (epoch, Some(session))
            }
        };
        let of_session =
            session.iter().flat_map(|session| messages_of(session)).filter(|queued| queued.group.is_none());
        let messages = of_session.map(|queued| &queued.message).chain(&caught);
        let ids: Vec<_> = messages.map(|message| message.id).collect();
        self.claimed_late(client, epoch, session, caught);
        if let Some(given) = late {
            self.hold_for_leftovers(client, given);
        }
        // Messages that were sent here, too, may still be on their way.
        self.tell_had(client, ids);
    }

    /// More nodes know where to send: former owners that still catch may have waited for that.
    pub(in crate::node) fn release_again(&mut self) {
        let leftovers = |wanted: &Wanted| match wanted.phase {
            Phase::Leftovers { given, .. } => Some(given),
            Phase::Asked { .. } | Phase::Session { .. } | Phase::Adopting { .. } | Phase::Flushing { .. } => None,
        };
        let wanted = self.claims.wanted.iter();
        let waits: Vec<_> = wanted.filter_map(|(client, wanted)| Some((client.clone(), leftovers(wanted)?))).collect();
        for (client, Given { from, epoch }) in waits {
            self.send_release(from, &client, epoch);
        }
        self.release_behind_again();
    }

    /// Claims that wait for a node which does not answer them look elsewhere.
    pub(in crate::node) fn claims_without(&mut self, node: NodeId, why: Silence) {
        let gone = why != Silence::Forgotten;
        let (mut ask_again, mut serve) = (Vec::new(), Vec::new());
        for (client, wanted) in &self.claims.wanted {
            match wanted.phase {
                Phase::Asked { home } if home == node => ask_again.push(client.clone()),
                Phase::Session { from, .. }
                | Phase::Adopting { given: Given { from, .. }, .. }
                | Phase::Leftovers { given: Given { from, .. }, .. }
                    if from == node && gone =>
                {
                    serve.push(client.clone());
                }
                Phase::Asked { .. }
                | Phase::Session { .. }
                | Phase::Adopting { .. }
                | Phase::Leftovers { .. }
                | Phase::Flushing { .. } => {}
            }
        }
        for client in serve {
            if self.await_rest(&client, node) {
                continue;
            }
            let asked = self.claims.wanted.get(&client).and_then(|wanted| wanted.phase.waits_for());
            let asked = asked.map(|(epoch, from, of)| (epoch, if self.orphans.has(of) { of } else { from }));
            // A successor that dies, too, may have taken nothing over: then the next one has the session.
            if asked.is_some_and(|(epoch, former)| self.await_successor(&client, epoch, former)) {
                continue;
            }
            if why == Silence::Unmet && asked.is_some() {
                // A node that takes over says so at the home, which asks it for the session then.
                continue;
            }
            self.counters.sessions_lost += 1;
            self.serve_as_is(&client);
        }
        for client in ask_again {
            let home = self.home_of(&client);
            let Some(wanted) = self.claims.wanted.get_mut(&client) else { continue };
            wanted.phase = Phase::Asked { home };
            let clean_start = wanted.clean_start;
            self.send_directory(home, DirectoryMail::Claim { client, clean_start });
        }
        if gone {
            self.releases_without();
        }
    }
}
