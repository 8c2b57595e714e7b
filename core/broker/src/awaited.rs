//! Publications whose acknowledgement waits until a session of the process has got rid of them: a bridge with `ack = "remote"` forgets a
//! message when its other end has it, and its publisher is acknowledged then.
//!
//! The broker that has the publisher keeps the acknowledgement back. Its owner asks whoever has the session which of
//! [`Broker::awaited`] are gone from it ([`Broker::gone_from`]), and says so with [`crate::Input::Arrived`]. An answer that is lost is asked for
//! again, so that no crash of another node leaves a publisher without an acknowledgement.
//!
//! Before somebody has such a session ([`Broker::stands`]) nobody could tell what it was never given from what is gone from it: until the owner
//! says that it stands, publications for it go nowhere and are not acknowledged.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sedge_base::ClientId;
use sedge_mqtt::{Message, MessageId, ReasonCode, TopicFilter, TopicName};
use smallvec::SmallVec;

use crate::access::is_inside;
use crate::session::Session;
use crate::{Broker, InterestChange, InterestOp, Output, QueueLimits, Ticket};

/// Publications that may wait; one more is refused for want of room.
const AWAITED_MAX: usize = 64 * 1024;

/// A session of the process that decides when publishers are acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Awaits {
    /// Its client id.
    pub session: ClientId,
    /// The session gets publications to these topics, and their publishers wait for it.
    pub filters: Vec<TopicFilter>,
}

/// A publication that waits.
#[derive(Debug)]
struct Waiting {
    ticket: Ticket,
    /// The publisher is told this reason in the end; `None`: fewer nodes hold the publication than have to.
    reason: Option<ReasonCode>,
    /// Places of the sessions that still have it, as far as is known.
    open: SmallVec<[u16; 2]>,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Awaited {
    waiting: BTreeMap<MessageId, Waiting>,
    tickets: BTreeMap<Ticket, MessageId>,
    /// Sessions that somebody has, as far as is known, with the filters that they had to have.
    standing: Vec<Awaits>,
}

/// The sessions that get publications to `topic`, but for those of the publisher itself.
fn places(awaits: &[Awaits], topic: &TopicName, publisher: Option<&ClientId>) -> SmallVec<[u16; 2]> {
    let gets = |awaits: &Awaits| {
        publisher != Some(&awaits.session) && awaits.filters.iter().any(|filter| filter.matches(topic))
    };
    (0_u16..).zip(awaits).filter(|(_, awaits)| gets(awaits)).map(|(place, _)| place).collect()
}

impl Awaited {
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    fn remove(&mut self, id: MessageId) -> Option<(Ticket, ReasonCode)> {
        let waiting = self.waiting.remove(&id)?;
        self.tickets.remove(&waiting.ticket);
        Some((waiting.ticket, waiting.reason.unwrap_or(ReasonCode::Success)))
    }

    /// The publication with this ticket was accepted; whether its publisher has to wait all the same.
    fn keeps_back(&mut self, ticket: Ticket, reason: ReasonCode) -> bool {
        let Some(&id) = self.tickets.get(&ticket) else { return false };
        let is_over = reason.is_error() || self.waiting.get(&id).is_none_or(|waiting| waiting.open.is_empty());
        if is_over {
            self.remove(id);
            return false;
        }
        if let Some(waiting) = self.waiting.get_mut(&id) {
            waiting.reason = Some(reason);
        }
        true
    }
}

impl Broker {
    /// Nobody is to be told of a publication any more.
    pub(crate) fn forget_awaited(&mut self, id: MessageId) {
        self.awaited.remove(id);
        self.counters.awaited = self.awaited.len() as u64;
    }

    /// Whether a publication to this topic would have to wait, and there is no room for one more that does.
    pub(crate) fn cannot_await(&self, topic: &TopicName) -> bool {
        self.awaited.len() >= AWAITED_MAX && !places(&self.config.awaits, topic, None).is_empty()
    }

    /// A publication of a client goes on its way: notes which sessions its acknowledgement waits for.
    pub(crate) fn note_awaited(&mut self, message: &Message, ticket: Ticket) {
        if self.config.awaits.is_empty() {
            return;
        }
        let open = places(&self.config.awaits, &message.topic, message.publisher.as_ref());
        if !open.is_empty() {
            self.awaited.tickets.insert(ticket, message.id);
            self.awaited.waiting.insert(message.id, Waiting { ticket, reason: None, open });
            self.counters.awaited = self.awaited.len() as u64;
        }
    }

    /// A publication was accepted; returns the reason code that its publisher is told now, if any.
    pub(crate) fn accepted_so_far(&mut self, ticket: Ticket, reason: ReasonCode) -> Option<ReasonCode> {
        // No session has it that could hand it on: it would be lost.
        let is_lost = reason == ReasonCode::NoMatchingSubscribers && self.awaited.tickets.contains_key(&ticket);
        let reason = if is_lost { ReasonCode::QuotaExceeded } else { reason };
        let keeps_back = self.awaited.keeps_back(ticket, reason);
        self.counters.awaited = self.awaited.len() as u64;
        (!keeps_back).then_some(reason)
    }

    /// There are other parts of the process now: nobody waits for a session that is none of theirs any more.
    pub(crate) fn on_inside(&mut self, queues: BTreeMap<Box<str>, QueueLimits>, awaits: Arc<[Awaits]>) {
        self.config.inside_queues = queues;
        let before = core::mem::replace(&mut self.config.awaits, awaits);
        let awaits = Arc::clone(&self.config.awaits);
        let place_of = |session: &ClientId| (0_u16..).zip(&*awaits).find(|(_, new)| new.session == *session);
        let places: Vec<Option<u16>> =
            before.iter().map(|old| place_of(&old.session).map(|(place, _)| place)).collect();
        let new_place = |old: &u16| places.get(usize::from(*old)).copied().flatten();
        let mut over = Vec::new();
        for (id, waiting) in &mut self.awaited.waiting {
            waiting.open = waiting.open.iter().filter_map(new_place).collect();
            if waiting.open.is_empty() && waiting.reason.is_some() {
                over.push(*id);
            }
        }
        for id in over {
            if let Some((ticket, reason)) = self.awaited.remove(id) {
                self.answer(ticket, reason);
            }
        }
        self.counters.awaited = self.awaited.len() as u64;
        self.awaited.standing.retain(|standing| awaits.contains(standing));
        self.note_sessionless();
        self.silence_strays();
    }

    /// Sees to it that publications wait while nobody has a session that their publishers wait for.
    pub(crate) fn note_sessionless(&mut self) {
        let lacking = self.config.awaits.iter().filter(|awaits| !self.awaited.standing.contains(awaits));
        self.set_sessionless(lacking.flat_map(|awaits| awaits.filters.iter().cloned()).collect());
    }

    /// Whether the owner has said that somebody has this session, or nobody waits for it.
    pub fn knows_of(&self, session: &ClientId) -> bool {
        let mut awaits = self.config.awaits.iter().filter(|awaits| awaits.session == *session);
        awaits.all(|awaits| self.awaited.standing.contains(awaits))
    }

    /// Whether this broker has the session, and every node routes to it what its publishers wait for.
    pub fn stands(&self, client: &ClientId) -> bool {
        let Some(session) = self.clients.get(client).and_then(|key| self.sessions.get(*key)) else { return false };
        let connection = session.connection.and_then(|key| self.connections.get(key));
        let asks = connection.is_some_and(|connection| !connection.requests.is_empty());
        let mut awaits = self.config.awaits.iter().filter(|awaits| awaits.session == *client);
        let gets = |filter| session.subscriptions.get(filter).is_some();
        !session.is_held && !asks && awaits.all(|awaits| awaits.filters.iter().all(gets))
    }

    /// Sessions of removed parts of the process get nothing new. Messages that wait in those sessions stay, in case the part comes back.
    pub(crate) fn silence_strays(&mut self) {
        let is_stray = |session: &Session| {
            is_inside(&session.client) && !self.config.inside_queues.contains_key(session.client.as_str())
        };
        let strays = self.sessions.iter().filter(|(_, session)| is_stray(session));
        for key in strays.map(|(key, _)| key).collect::<Vec<_>>() {
            let Some(session) = self.sessions.get(key) else { continue };
            let client = session.client.clone();
            let filters: Vec<_> = session.subscriptions.iter().map(|found| found.filter.clone()).collect();
            let mut changes = Vec::new();
            for filter in filters {
                let Some(session) = self.sessions.get_mut(key) else { continue };
                let Some(gone) = session.subscriptions.remove(&filter) else { continue };
                self.withdraw(key, &gone);
                self.note_unsubscribed(key, &filter);
                changes.push(InterestChange { filter, op: InterestOp::Remove });
            }
            if !changes.is_empty() {
                self.outputs.push_back(Output::Interest { client, changes, ticket: None });
            }
        }
    }

    /// Somebody has this session, and these publications are gone from it: their publishers are acknowledged if they wait for no other one.
    pub(crate) fn on_arrived(&mut self, session: &ClientId, ids: &[MessageId]) {
        let awaits = Arc::clone(&self.config.awaits);
        let Some((place, found)) = (0_u16..).zip(&*awaits).find(|(_, awaits)| awaits.session == *session) else {
            return;
        };
        if !self.awaited.standing.contains(found) {
            self.awaited.standing.push(found.clone());
            self.note_sessionless();
        }
        for id in ids {
            let Some(waiting) = self.awaited.waiting.get_mut(id) else { continue };
            waiting.open.retain(|open| *open != place);
            if waiting.open.is_empty()
                && waiting.reason.is_some()
                && let Some((ticket, reason)) = self.awaited.remove(*id)
            {
                self.answer(ticket, reason);
            }
        }
        self.counters.awaited = self.awaited.len() as u64;
    }

    /// Publications that as many nodes hold as have to, and whose publishers wait for this session: at most `most`, the oldest first.
    pub fn awaited(&self, session: &ClientId, most: usize) -> Vec<MessageId> {
        let place = (0_u16..).zip(&*self.config.awaits).find(|(_, awaits)| awaits.session == *session);
        let Some((place, _)) = place else { return Vec::new() };
        let waits = |waiting: &Waiting| waiting.reason.is_some() && waiting.open.contains(&place);
        self.awaited.waiting.iter().filter(|(_, waiting)| waits(waiting)).map(|(id, _)| *id).take(most).collect()
    }

    /// Which of these publications, all of which this client's session was given, it no longer has. `None`: the session is not here, or
    /// may get more from where it was before.
    pub fn gone_from(&self, client: &ClientId, ids: &[MessageId]) -> Option<Vec<MessageId>> {
        let session = self.clients.get(client).and_then(|key| self.sessions.get(*key));
        let session = session.filter(|session| !session.is_held && session.subscriptions.len() > 0)?;
        let mut gone: BTreeSet<MessageId> = ids.iter().copied().collect();
        for outgoing in session.inflight.messages().chain(session.queue.iter()) {
            if gone.is_empty() {
                break;
            }
            gone.remove(&outgoing.message.id);
        }
        Some(gone.into_iter().collect())
    }
}
