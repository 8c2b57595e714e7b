//! Which changes of a session are written, and whole sessions for checkpoints.

use sedge_base::Timestamp;
use sedge_mqtt::{QoS, TopicFilter};

use super::writer::item;
use super::{Journal, Record, SessionFacts, SessionNumber};
use crate::Broker;
use crate::inflight::Slot;
use crate::outgoing::Outgoing;
use crate::session::{Session, SessionKey};
use crate::subscription::Subscription;

/// The journal and the session's number, if its subscriptions and messages are kept.
pub(crate) fn kept<'a>(
    journal: Option<&'a mut Journal>,
    session: &Session,
) -> Option<(&'a mut Journal, SessionNumber)> {
    journal.filter(|_| session.is_kept).map(|journal| (journal, session.number))
}

impl Broker {
    /// Begins to write down what changes, after what there is.
    pub fn keep_journal(&mut self) {
        let mut journal = Journal::new(self.seed);
        journal.push(Record::Checkpointed);
        self.journal = Some(Box::new(journal));
        for key in 0..self.sessions.capacity() {
            self.note_facts(key);
        }
        if let Some(journal) = &mut self.journal {
            for given in self.given.values_mut() {
                given.number = journal.next_session();
                journal.given(given.number, &given.state, self.now, true);
            }
        }
    }

    /// Writes down nothing more.
    pub fn drop_journal(&mut self) {
        self.journal = None;
        for (_, session) in &mut self.sessions {
            (session.number, session.is_kept) = (0, false);
        }
        self.given.values_mut().for_each(|given| given.number = 0);
    }

    /// Takes the records of everything since the last call. They belong together: all are to be written or none.
    pub fn take_records(&mut self) -> impl Iterator<Item = Record> {
        self.journal.as_mut().into_iter().flat_map(|journal| journal.take())
    }

    /// About as many bytes as everything that is alive takes in the journal.
    pub fn live_bytes(&self) -> u64 {
        let sessions = self.counters.sessions * 256 + self.counters.subscription_bytes;
        // A subscription takes less there than in memory.
        let sessions = sessions - self.counters.subscriptions * 160;
        self.journal.as_ref().map_or(0, |journal| journal.live_bytes() + sessions)
    }

    /// Whether QoS 1 and 2 publications of clients are refused (0x97) because there is no room to keep them.
    pub const fn set_full(&mut self, full: bool) {
        self.full = full;
    }

    /// Begins to write everything that is alive once more. All records from this call on are needed until the next checkpoint is
    /// done; those before it, until this one is.
    pub fn begin_checkpoint(&mut self) {
        if let Some(journal) = &mut self.journal {
            journal.begin_round();
        }
    }

    /// Writes a part of a checkpoint, about `budget` bytes. True when it is done or there is none.
    pub fn checkpoint(&mut self, budget: u64) -> bool {
        let Some(mut cursor) = self.journal.as_mut().and_then(|journal| journal.cursor.take()) else { return true };
        let begin = self.journal.as_ref().map_or(0, |journal| journal.written);
        let over = |broker: &Self| broker.journal.as_ref().is_some_and(|journal| journal.written - begin >= budget);
        while cursor.session < self.sessions.capacity() {
            if self.sessions.get(cursor.session).is_some_and(|session| session.number != 0) {
                while self.write_message_ahead(&mut cursor) {
                    if over(self) {
                        self.set_cursor(cursor);
                        return false;
                    }
                }
                self.write_session(cursor.session, false);
            }
            cursor = super::writer::Cursor { session: cursor.session + 1, messages: 0 };
            if over(self) {
                self.set_cursor(cursor);
                return false;
            }
        }
        if let Some(journal) = &mut self.journal {
            for given in self.given.values().filter(|given| given.number != 0) {
                journal.given(given.number, &given.state, self.now, false);
            }
            journal.push(Record::Checkpointed);
        }
        true
    }

    fn set_cursor(&mut self, cursor: super::writer::Cursor) {
        if let Some(journal) = &mut self.journal {
            journal.cursor = Some(cursor);
        }
    }

    /// Writes the content of one message of a long queue, so that the session itself is written in one go. False if there are no more.
    fn write_message_ahead(&mut self, cursor: &mut super::writer::Cursor) -> bool {
        let Some(session) = self.sessions.get(cursor.session).filter(|session| session.is_kept) else { return false };
        let Some(journal) = &mut self.journal else { return false };
        while let Some(outgoing) = session.queue.get(cursor.messages) {
            cursor.messages += 1;
            if let Some(outgoing) = outgoing.as_ref().filter(|outgoing| outgoing.qos > QoS::AtMostOnce) {
                journal.refresh(&outgoing.message);
                return true;
            }
        }
        false
    }

    /// The client came or went: writes what is so, or the whole session if it is not in the journal yet.
    pub(crate) fn note_facts(&mut self, key: SessionKey) {
        let Some(session) = self.sessions.get_mut(key).filter(|session| session.begun) else { return };
        let Some(journal) = &mut self.journal else { return };
        if session.number == 0 {
            // Of a session that ends with its connection only the will is kept, unless others get what it was chosen for.
            session.is_kept = session.expiry_secs > 0 || session.shares();
            if session.is_kept || session.will.is_some() {
                session.number = journal.next_session();
                self.write_session(key, true);
            }
            return;
        }
        let facts = facts_of(session);
        journal.push(Record::Facts { session: session.number, facts });
        self.note_will(key);
    }

    /// The will was set, became due, or is gone.
    pub(crate) fn note_will(&mut self, key: SessionKey) {
        let now = self.now;
        let Some(session) = self.sessions.get(key).filter(|session| session.number != 0) else { return };
        let Some(journal) = &mut self.journal else { return };
        let due = |due: sedge_base::Instant| -> Timestamp { now.wall + due.since(now.instant) };
        let will = session.will.as_ref().map(|will| (will.will.clone(), will.due.map(due)));
        journal.push(Record::Will { session: session.number, will });
    }

    pub(crate) fn note_subscribed(&mut self, key: SessionKey, filter: &TopicFilter) {
        if filter.share_group().is_some() && self.keep_from_now_on(key) {
            return;
        }
        let Some(session) = self.sessions.get(key) else { return };
        let Some((journal, number)) = kept(self.journal.as_deref_mut(), session) else { return };
        if let Some(subscription) = session.subscriptions.get(filter) {
            journal.push(Record::Subscribed { session: number, subscription: subscription.state() });
        }
    }

    /// A session that ends with its connection shares a subscription. False if it is kept already, or nothing is.
    fn keep_from_now_on(&mut self, key: SessionKey) -> bool {
        let session = self.sessions.get_mut(key).filter(|session| session.begun && !session.is_kept);
        let (Some(session), Some(journal)) = (session, &mut self.journal) else { return false };
        session.is_kept = true;
        if session.number == 0 {
            session.number = journal.next_session();
        }
        self.write_session(key, true);
        true
    }

    pub(crate) fn note_unsubscribed(&mut self, key: SessionKey, filter: &TopicFilter) {
        let Some(session) = self.sessions.get(key) else { return };
        if let Some((journal, number)) = kept(self.journal.as_deref_mut(), session) {
            journal.push(Record::Unsubscribed { session: number, filter: filter.clone() });
        }
    }

    /// Writes a session with everything. `fresh`: nothing of it is in the journal, so that its messages get references.
    pub(crate) fn write_session(&mut self, key: SessionKey, fresh: bool) {
        let Some(session) = self.sessions.get(key) else { return };
        let groups = self.groups_of(session);
        let Some(journal) = &mut self.journal else { return };
        let number = session.number;
        let (client, facts) = (session.client.clone(), facts_of(session));
        journal.push(Record::Begin { session: number, client });
        journal.push(Record::Facts { session: number, facts });
        if session.is_kept {
            for subscription in session.subscriptions.iter() {
                let subscription = Subscription::state(subscription);
                journal.push(Record::Subscribed { session: number, subscription });
            }
            let group = |outgoing: &Outgoing| -> Option<&TopicFilter> {
                groups.iter().find(|(number, _)| *number == outgoing.group).map(|(_, filter)| filter)
            };
            let write = |journal: &mut Journal, outgoing: &Outgoing| {
                if fresh { journal.refer(&outgoing.message) } else { journal.refresh(&outgoing.message) }
            };
            for (packet_id, slot) in session.inflight.iter() {
                match slot {
                    Slot::Sent(outgoing) => {
                        write(journal, outgoing);
                        let item = item(outgoing, group(outgoing));
                        journal.push(Record::Sent { session: number, packet_id, item });
                    }
                    Slot::Released | Slot::Done => journal.push(Record::Released { session: number, packet_id }),
                }
            }
            for outgoing in session.queue.iter().filter(|outgoing| outgoing.qos > QoS::AtMostOnce) {
                write(journal, outgoing);
                journal.push(Record::Queued { session: number, item: item(outgoing, group(outgoing)) });
            }
            write_inbound(journal, session);
        }
        self.note_will(key);
    }
}

/// Writes the QoS 2 publications of the client.
fn write_inbound(journal: &mut Journal, session: &Session) {
    let number = session.number;
    for exact in session.inbound.iter().flat_map(|inbound| inbound.exact()) {
        let packet_id = exact.packet_id;
        if journal.is_arriving(number, packet_id) {
            continue;
        }
        let message = journal.transit(number, packet_id);
        if let Some(message) = &message {
            journal.refresh(message);
        }
        let message = message.map(|message| message.id);
        journal.push(Record::Received { session: number, packet_id, answer: exact.reason, message });
    }
}

fn facts_of(session: &Session) -> SessionFacts {
    SessionFacts {
        epoch: session.epoch,
        version: session.version,
        expiry_secs: session.expiry_secs,
        disconnected_at: session.connection.is_none().then_some(session.disconnected_at),
    }
}
