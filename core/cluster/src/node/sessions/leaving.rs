//! Sessions that leave this node: from the word of a home to the moment at which they are sent. The steps after that are in `handed_over.rs`.

use sedge_base::{ClientId, Incarnation, NodeId};
use sedge_mqtt::{MessageId, ReasonCode};

use crate::link::ControlTopic;
use crate::mail::{self, Known, Life, SessionStep, ToShard};
use crate::node::Node;
use crate::node::delivery::waiters::{Departure, Waiter};
use crate::node::sessions::claims::{Claims, Next, Session, Wanted, session_step};
use crate::node::sessions::epoch;
use crate::reception::shard_of;
use crate::wire::SessionMail;

/// A new owner of a session, in one life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::node) struct Recipient {
    node: NodeId,
    incarnation: Option<Incarnation>,
}

/// A session that a shard was told to give up.
#[derive(Clone, Copy, Debug)]
pub(in crate::node) struct Leaving {
    to: Recipient,
    /// How often the shard was told, and has not answered: a session that was taken back between two words leaves at the second one.
    words: u32,
}

impl Claims {
    /// Number of clients whose sessions leave, and were not sent yet.
    pub(in crate::node) fn leaving(&self) -> usize {
        self.leaving.len() + self.departing.len()
    }

    /// Clients whose sessions are about to be sent to this node, or will be as soon as they are here.
    pub(in crate::node) fn bound_for(&self, node: NodeId) -> Vec<ClientId> {
        let leaving = self.leaving.iter().map(|((client, _), leaving)| (client, &leaving.to));
        let departing = self.departing.iter().map(|(client, (_, to))| (client, to));
        let leaving = leaving.chain(departing).filter(|(_, to)| to.node == node).map(|(client, _)| client);
        let is_next = |wanted: &Wanted| wanted.next.is_some_and(|next| next.to.node == node && !next.clean_start);
        let coming = self.wanted.iter().filter(|(_, wanted)| is_next(wanted)).map(|(client, _)| client);
        leaving.chain(coming).cloned().collect()
    }

    /// The epoch and the new owner for the session of a client that leaves as soon as it is known where it goes on.
    pub(in crate::node) fn take_postponed(&mut self, client: &ClientId) -> Option<(u64, NodeId)> {
        self.postponed.remove(client)
    }

    /// Whether a shard was told to give the session of this client up, and has not done so.
    pub(in crate::node) fn is_leaving(&self, client: &ClientId) -> bool {
        let first = (client.clone(), 0);
        self.leaving.range(first..).next().is_some_and(|((other, _), _)| other == client)
    }

    /// Whether a session has left its shard for an owner that has come after `epoch`, and was not sent yet.
    pub(in crate::node) fn departs_after(&self, client: &ClientId, epoch: u64) -> bool {
        self.departing.get(client).is_some_and(|(later, _)| *later > epoch)
    }

    /// Whether a session is about to leave for this node, which was to have it before `epoch`.
    pub(in crate::node) fn leaves_for(&self, client: &ClientId, to: NodeId, epoch: u64) -> bool {
        let mut before = self.leaving.range((client.clone(), 0)..(client.clone(), epoch));
        before.any(|(_, leaving)| leaving.to.node == to)
    }
}

impl Node {
    /// The home says that `to` owns the client now.
    pub(in crate::node) fn relinquish(&mut self, client: ClientId, epoch: u64, clean_start: bool, to: NodeId) {
        let recipient = self.recipient(to);
        if let Some(wanted) = self.claims.wanted.get_mut(&client)
            && wanted.phase.epoch().is_some_and(|mine| mine < epoch)
        {
            wanted.next = Some(Next { epoch, clean_start, to: recipient });
            return;
        }
        let is_stale = |wanted: &Wanted| wanted.phase.epoch().is_some_and(|mine| mine > epoch);
        let is_inherited = self.claims.is_outdated(&client, epoch) && self.claims.owns(&client);
        if !clean_start && !is_inherited && self.claims.wanted.get(&client).is_some_and(is_stale) {
            // It went to that node, and is on its way back. What is taken over from a node that is gone has to go there first.
            return;
        }
        if !clean_start && self.keep(&client, epoch, self.life_of(to)) {
            return;
        }
        if !clean_start && self.claims.departing.get(&client).is_some_and(|(_, to)| !self.is_there(*to)) {
            // It comes back as soon as it is found that it cannot be sent: see `reclaim.rs`.
            self.claims.postponed.insert(client, (epoch, to));
            return;
        }
        if self.reclaims.is_pending(&client) {
            let is_back = self.claims.owns(&client) && self.reclaims.is_asked(&client);
            if clean_start || is_back {
                self.end_reclaim(&client);
            } else {
                self.claims.postponed.insert(client, (epoch, to));
                return;
            }
        }
        // After a partition a home may know an owner that this node takes for dead still. Nothing could be sent to it. And messages that another
        // owner has had for the session go with it.
        let is_away = !self.ring.contains(&to) && !self.has_died_claiming(&client, epoch, to);
        let waits = is_away || self.reunions.is_reuniting(&client);
        if !clean_start && self.claims.owns(&client) && waits {
            self.end_outdated_connection(&client);
            let postponed = self.claims.postponed.entry(client).or_insert((epoch, to));
            *postponed = (*postponed).max((epoch, to));
            return;
        }
        self.give_up(client, epoch, clean_start, recipient);
    }

    /// Whether a node has claimed a session under this epoch, and is gone before the home's word came here. The session leaves as for a node that
    /// lives: on its way it is found to have nowhere to go, and goes on at the node's successor or here (see `reclaim.rs`).
    fn has_died_claiming(&self, client: &ClientId, epoch: u64, by: NodeId) -> bool {
        let is_claim = |granted| epoch.is_multiple_of(2) && epoch >= epoch::next_claim(granted);
        self.orphaned_life(by).is_some() && self.claims.epoch_of(client).is_some_and(is_claim)
    }

    /// The client of a session that cannot be given up yet has gone to another node while this one stood still: nothing that it sent here
    /// before is to be read.
    fn end_outdated_connection(&mut self, client: &ClientId) {
        if self.is_beginning_anew() {
            self.end_connection(client);
        }
    }

    /// The client has gone to another node: its connection here ends.
    pub(in crate::node) fn end_connection(&mut self, client: &ClientId) {
        let reason = ReasonCode::SessionTakenOver;
        let kick = ToShard::Kick { client: client.clone(), reason, end_session: false };
        self.tell_shard(shard_of(client, self.config.shards), kick);
    }

    /// Gives up sessions that belong to nodes that are back, or that are complete now.
    pub(in crate::node) fn relinquish_postponed(&mut self) {
        let postponed = core::mem::take(&mut self.claims.postponed);
        for (client, (epoch, to)) in postponed {
            if self.claims.departing.contains_key(&client) || self.reclaims.is_pending(&client) {
                self.claims.postponed.insert(client, (epoch, to));
            } else if self.claims.owned.get(&client).is_some_and(|owned| owned.told < epoch) {
                self.relinquish(client, epoch, false, to);
            }
        }
    }

    /// Goes on with a session that a successor has taken over, since this node lives: the client is served here, and this node knows which messages
    /// it has had. Messages that came for it at the successor will be merged. False if another node has a better claim.
    pub(in crate::node) fn keep(&mut self, client: &ClientId, epoch: u64, successor: Life) -> bool {
        let Some(owned) = self.claims.owned.get_mut(client) else { return false };
        // A home that was asked twice has granted more than the shard was told.
        let succeeds = epoch::succeeds(epoch, owned.told) || epoch::succeeds(epoch, owned.granted);
        if !owned.is_claimed || !succeeds {
            return false;
        }
        let epoch = epoch::kept(epoch.max(owned.granted));
        (owned.granted, owned.told, owned.successor) = (epoch, epoch, Some(successor.node));
        self.tell_epoch(client, epoch);
        self.begin_reunion(client, successor.node, Some(successor));
        // The home says so, too, as soon as the successor and this node can both reach it.
        self.send_relinquish(successor.node, client, epoch, self.config.node);
        true
    }

    /// A session is here that another node has claimed meanwhile. That node may be gone by now: see [`Self::has_died_claiming`].
    pub(in crate::node) fn pass_on(&mut self, client: ClientId, next: Next) {
        let Next { epoch, clean_start, to } = next;
        if !clean_start && self.reclaims.holds_up(&client) {
            // The node may have started again, and knows nothing of what its former life has claimed.
            self.give_up(client, epoch, clean_start, to);
        } else {
            self.relinquish(client, epoch, clean_start, to.node);
        }
    }

    fn give_up(&mut self, client: ClientId, epoch: u64, clean_start: bool, to: Recipient) {
        let shard = shard_of(&client, self.config.shards);
        self.claims.postponed.remove(&client);
        let known = self.claims.leaving.get(&(client.clone(), epoch)).map_or(0, |leaving| leaving.words);
        self.claims.leaving.insert((client.clone(), epoch), Leaving { to, words: known + 1 });
        self.tell_shard(shard, session_step(SessionStep::Relinquish(mail::Relinquish { client, epoch, clean_start })));
    }

    /// A shard gives an inherited session up.
    pub(in crate::node) fn known_leaves(&mut self, epoch: u64, known: &Known) {
        if let Some(to) = self.claims.leaving.get(&(known.client.clone(), epoch)).map(|leaving| leaving.to.node) {
            let mut known = known.clone();
            if self.links.is_older(to) {
                known.filters = None;
            }
            self.send_control(to, ControlTopic::Session, SessionMail::Known(known).encode());
        }
    }

    /// A shard has given the session up.
    pub(in crate::node) fn relinquished(
        &mut self,
        client: &ClientId,
        epoch: u64,
        session: Session,
        along: Vec<MessageId>,
    ) {
        let key = (client.clone(), epoch);
        let owned = self.claims.owned.get(client);
        let is_back = session.is_none() && owned.is_some_and(|owned| owned.told < epoch);
        if let Some(leaving) = self.claims.leaving.get_mut(&key).filter(|leaving| is_back && leaving.words > 1) {
            leaving.words -= 1;
            return;
        }
        let (granted, came) =
            (owned.map_or(0, |owned| owned.granted), owned.map(|owned| owned.came.clone()).unwrap_or_default());
        if self.claims.owned.get(client).is_some_and(|owned| owned.told < epoch) {
            self.claims.owned.remove(client);
        }
        let Some(Leaving { to, .. }) = self.claims.leaving.remove(&key) else { return };
        if session.is_some() {
            self.claims.departing.insert(client.clone(), (epoch, to));
        }
        // Without a session, too: the answer to a second request must not overtake the first one's.
        let departure = Departure { client: client.clone(), epoch, to, session, along, granted, came };
        self.wait(Waiter::Departure(departure), false);
    }

    /// A new owner, as it is now.
    fn recipient(&self, node: NodeId) -> Recipient {
        Recipient { node, incarnation: self.membership.member(node).map(|member| member.incarnation) }
    }

    /// Whether a new owner has not died since.
    fn is_there(&self, to: Recipient) -> bool {
        self.ring.contains(&to.node) && self.recipient(to.node) == to
    }

    /// All that the shards had published before the session was given up is on its way, ahead of the session.
    pub(in crate::node) fn departs(&mut self, departure: Departure) {
        let Departure { client, epoch, to: recipient, session, along, granted, came } = departure;
        let to = recipient.node;
        if session.is_some() {
            self.claims.departing.remove(&client);
        }
        if !self.is_there(recipient) {
            return self.was_held_up(client, epoch, to, session.is_some());
        }
        self.is_held_up_no_more(&client);
        if session.is_none() && self.reclaims.is_pending(&client) {
            self.claims.postponed.insert(client, (epoch, to));
            return;
        }
        if let Some(session) = &session {
            let is_open = session.inbound.iter().any(|exact| exact.answer.is_none());
            self.handed_over(&client, epoch, to, !session.subscriptions.is_empty(), is_open);
            self.forwards.note_came(&client, came.clone());
            self.send_had(to, &client, along, came);
        } else if let Some(owner) = self.is_on_its_way_to_other(&client, epoch, to) {
            // That node has the session, or knows where it is. This one cannot say that there is none.
            self.forwards.refuse(&client, epoch.max(granted));
            self.send_relinquish(owner, &client, epoch, to);
            return self.look_at_early(&client);
        } else if !self.claims.owns(&client) {
            // It has left before, and is wanted elsewhere by now: so is what others still send here.
            self.forwards.note(self.now.instant, &client, epoch, to);
        }
        self.send_session(to, &client, epoch, session.as_deref());
        if granted > epoch {
            self.forwards.refuse(&client, granted);
        }
        self.look_at_early(&client);
    }
}
