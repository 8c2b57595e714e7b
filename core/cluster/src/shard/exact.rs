//! QoS 2 publications on their way to other shards of this node, with a journal.
//!
//! They are in the journal of the shard that a client sent them to until every shard that gets them says that they are in its own: so
//! there is no moment at which a crash finds them in none. After a restart they go the same way once more, under their old
//! names and to the members of shared subscriptions that were chosen before, so that every shard can tell whether it had them.

use std::collections::BTreeMap;

use sedge_base::ShardId;
use sedge_broker::{Deliver, Ticket};
use sedge_mqtt::{Message, MessageId, QoS, ReasonCode, TopicFilter};

use super::Shard;
use super::table::Matched;
use crate::mail::Location;

/// Which places were chosen for the shared subscriptions of one publication.
pub(crate) type Choice = Vec<(TopicFilter, Location)>;

/// A publication for other shards, each of which answers with [`crate::mail::ToShard::Kept`].
#[derive(Debug)]
pub struct Exact {
    /// The message, and its receivers.
    pub deliver: Deliver,
    /// The shard that waits for the answer.
    pub from: ShardId,
    /// The number of the request, which the answer repeats.
    pub number: u64,
}

/// A publication that other shards have yet to keep.
#[derive(Debug)]
struct Open {
    id: MessageId,
    ticket: Ticket,
    /// Shards that have not answered.
    missing: usize,
    /// The reason code for the publisher, once it is known.
    reason: Option<ReasonCode>,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Exacts {
    last: u64,
    open: BTreeMap<u64, Open>,
    by_ticket: BTreeMap<Ticket, u64>,
    /// The members that were chosen for publications that are on their way.
    choices: BTreeMap<MessageId, Choice>,
}

impl Exacts {
    fn open(&mut self, id: MessageId, ticket: Ticket, missing: usize) -> u64 {
        self.last += 1;
        self.open.insert(self.last, Open { id, ticket, missing, reason: None });
        self.by_ticket.insert(ticket, self.last);
        self.last
    }

    /// The choices, for a journal that begins anew.
    pub(super) fn choices(&self) -> impl Iterator<Item = (&MessageId, &Choice)> {
        self.choices.iter()
    }

    /// The choices that a journal held.
    pub(super) fn restore(&mut self, choices: BTreeMap<MessageId, Choice>) {
        self.choices = choices;
    }

    /// The node, or nobody, has said what the publisher is to be told: returns it unless shards have yet to answer.
    pub(super) fn judged(&mut self, ticket: Ticket, reason: ReasonCode) -> Option<(Ticket, ReasonCode)> {
        let open = self.by_ticket.get(&ticket).and_then(|number| self.open.get_mut(number));
        let Some(open) = open else { return Some((ticket, reason)) };
        open.reason = Some(reason);
        self.close(ticket)
    }

    /// A shard has it in its journal: returns what the publisher is told if that was the last thing to wait for.
    pub(super) fn kept(&mut self, number: u64) -> Option<(Ticket, ReasonCode)> {
        let open = self.open.get_mut(&number)?;
        open.missing = open.missing.saturating_sub(1);
        let ticket = open.ticket;
        self.close(ticket)
    }

    /// A publication counts as not read: nobody waits for shards to answer.
    pub(super) fn forget(&mut self, ticket: Ticket) {
        if let Some(open) = self.by_ticket.remove(&ticket).and_then(|number| self.open.remove(&number)) {
            self.choices.remove(&open.id);
        }
    }

    fn close(&mut self, ticket: Ticket) -> Option<(Ticket, ReasonCode)> {
        let number = self.by_ticket.get(&ticket).copied()?;
        let open = self.open.get(&number).filter(|open| open.missing == 0)?;
        let (id, reason) = (open.id, open.reason?);
        self.open.remove(&number);
        self.by_ticket.remove(&ticket);
        self.choices.remove(&id);
        Some((ticket, reason))
    }
}

impl Shard {
    /// Sends a QoS 2 publication to those who were chosen for it before a restart, or notes whom it goes to. Returns the number that
    /// other shards have to answer with, if there are any.
    pub(super) fn note_exact(&mut self, message: &Message, ticket: Option<Ticket>, found: &mut Matched) -> Option<u64> {
        let (Some(ticket), Some(journal)) = (ticket, self.journal.as_mut()) else { return None };
        if message.qos != QoS::ExactlyOnce {
            return None;
        }
        let me = self.place.shard;
        if let Some(choice) = self.exacts.choices.get(&message.id) {
            found.choose_again(choice, me);
        } else {
            let choice = found.choice();
            if !choice.is_empty() {
                journal.note_choice(message.id, &choice);
                self.exacts.choices.insert(message.id, choice);
            }
        }
        let others = found.shards.iter().filter(|(shard, _)| *shard != me).count();
        // A choice that only others than shards were part of is needed as long as the node has not answered.
        let wanted = others > 0 || self.exacts.choices.contains_key(&message.id);
        wanted.then(|| self.exacts.open(message.id, ticket, others))
    }

    /// A QoS 2 publication of another shard.
    pub(super) fn deliver_exact(&mut self, now: sedge_base::Now, exact: Exact) {
        let Exact { deliver, from, number } = exact;
        if !self.has_seen(&deliver.message) {
            if deliver.plain {
                let was_heard = self.was_heard(&deliver.message);
                self.handovers.catch(&deliver.message, was_heard, &mut self.broker);
            }
            self.note_heard(&deliver.message);
            self.deliver_here(now, deliver);
        }
        self.keeps(from, number);
    }
}
