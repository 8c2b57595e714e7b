//! The broker's side of its journal: the records to write, and the messages that are written already.

use std::collections::BTreeMap;
use std::sync::Arc;

use sedge_base::{LookupMap, Now, Seed};
use sedge_mqtt::{Message, MessageId, PacketId, QoS, ReasonCode, TopicFilter};

use super::{QueuedRecord, Record, SessionFacts, SessionNumber};
use crate::inflight::Slot;
use crate::outgoing::Outgoing;
use crate::session::Session;
use crate::{InboundState, InflightPhase, InflightState, QueuedState, SessionState};

/// Bytes that a record takes beside texts and content, for estimates.
const RECORD_BYTES: u64 = 64;

/// Room for so many records is kept from turn to turn.
const RECORDS_KEPT: usize = 1024;

/// Where a message that is sent comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Origin<'a> {
    /// From a publication just now; for a shared subscription with its filter.
    Fresh(Option<&'a TopicFilter>),
    /// From the session's queue.
    Queue,
}

/// A message whose content is in the journal.
#[derive(Clone, Copy, Debug)]
struct Written {
    references: u32,
    /// The checkpoint during or after which it was written last.
    round: u32,
}

/// A QoS 2 publication without an answer.
#[derive(Debug)]
struct Transit {
    message: Arc<Message>,
    answer: Option<ReasonCode>,
    is_written: bool,
}

/// How far a checkpoint has come.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cursor {
    /// The session that is next.
    pub(crate) session: usize,
    /// Messages of its queue that are written ahead of it.
    pub(crate) messages: usize,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Journal {
    records: Vec<Record>,
    messages: LookupMap<MessageId, Written>,
    message_bytes: u64,
    references: u64,
    round: u32,
    last_session: SessionNumber,
    transits: BTreeMap<(SessionNumber, PacketId), Transit>,
    /// Records of this turn.
    arrivals: Vec<(SessionNumber, PacketId)>,
    pub(crate) cursor: Option<Cursor>,
    /// Bytes written since the last look, about.
    pub(crate) written: u64,
}

impl Journal {
    pub(crate) fn new(seed: Seed) -> Self {
        Self {
            records: Vec::new(),
            messages: LookupMap::new(seed),
            message_bytes: 0,
            references: 0,
            round: 0,
            last_session: 0,
            transits: BTreeMap::new(),
            arrivals: Vec::new(),
            cursor: None,
            written: 0,
        }
    }

    /// About as many bytes as a checkpoint takes for messages.
    pub(crate) const fn live_bytes(&self) -> u64 {
        self.message_bytes + self.references * RECORD_BYTES
    }

    pub(crate) const fn next_session(&mut self) -> SessionNumber {
        self.last_session += 1;
        self.last_session
    }

    /// Numbers up to this one are in use.
    pub(crate) fn skip_to(&mut self, number: SessionNumber) {
        self.last_session = self.last_session.max(number);
    }

    pub(crate) fn push(&mut self, record: Record) {
        self.written += RECORD_BYTES;
        self.records.push(record);
    }

    /// Takes what has to be written, in order.
    pub(crate) fn take(&mut self) -> std::vec::Drain<'_, Record> {
        for key in core::mem::take(&mut self.arrivals) {
            let Some(transit) = self.transits.get_mut(&key).filter(|transit| !transit.is_written) else { continue };
            let ((session, packet_id), answer) = (key, transit.answer);
            let message = if answer.is_some() {
                self.transits.remove(&key);
                None
            } else {
                transit.is_written = true;
                let message = Arc::clone(&transit.message);
                self.refer(&message);
                Some(message.id)
            };
            self.push(Record::Received { session, packet_id, answer, message });
        }
        // Room that a burst has taken is given back by and by.
        if self.records.capacity() > RECORDS_KEPT && self.records.len() < self.records.capacity() / 4 {
            self.records.shrink_to(self.records.len().max(RECORDS_KEPT));
        }
        self.records.drain(..)
    }

    pub(crate) fn begin_round(&mut self) {
        self.round += 1;
        self.cursor = Some(Cursor::default());
    }

    /// Counts a reference to a message; writes its content if it is not written.
    pub(crate) fn refer(&mut self, message: &Arc<Message>) {
        let round = self.round;
        let written = self.messages.get_or_insert_with(message.id, || Written { references: 0, round });
        let (is_new, is_old) = (written.references == 0, written.round < round);
        written.references += 1;
        written.round = round;
        self.references += 1;
        if is_new {
            self.message_bytes += size_of(message);
        }
        if is_new || is_old {
            self.content(message);
        }
    }

    /// Counts a reference to a message that is in the journal.
    pub(crate) fn adopt(&mut self, message: &Arc<Message>) {
        self.references += 1;
        if let Some(written) = self.messages.get_mut(&message.id) {
            written.references += 1;
        } else {
            self.messages.insert(message.id, Written { references: 1, round: self.round });
            self.message_bytes += size_of(message);
        }
    }

    /// Writes the content of a message that is referred to, if that was last done before the present checkpoint.
    pub(crate) fn refresh(&mut self, message: &Arc<Message>) {
        let round = self.round;
        if let Some(written) = self.messages.get_mut(&message.id)
            && written.round < round
        {
            written.round = round;
            self.content(message);
        }
    }

    fn content(&mut self, message: &Arc<Message>) {
        self.written += size_of(message);
        self.push(Record::Message(Arc::clone(message)));
    }

    fn forget(&mut self, message: &Message) {
        let references = &mut self.references;
        let gone = self.messages.remove_if(message.id, |written| {
            *references -= 1;
            written.references -= 1;
            written.references == 0
        });
        if gone.is_some() {
            self.message_bytes -= size_of(message);
        }
    }

    pub(crate) fn queued(&mut self, session: SessionNumber, outgoing: &Outgoing, group: Option<&TopicFilter>) {
        self.refer(&outgoing.message);
        self.push(Record::Queued { session, item: item(outgoing, group) });
    }

    pub(crate) fn sent(
        &mut self,
        session: SessionNumber,
        packet_id: PacketId,
        outgoing: &Outgoing,
        origin: Origin<'_>,
    ) {
        match origin {
            Origin::Fresh(group) => {
                self.refer(&outgoing.message);
                self.push(Record::Sent { session, packet_id, item: item(outgoing, group) });
            }
            Origin::Queue => self.push(Record::SentQueued { session, packet_id, message: outgoing.message.id }),
        }
    }

    /// A message of the queue will not be sent.
    pub(crate) fn dropped(&mut self, session: SessionNumber, outgoing: &Outgoing) {
        if outgoing.qos > QoS::AtMostOnce {
            self.forget(&outgoing.message);
            self.push(Record::Dropped { session, message: outgoing.message.id });
        }
    }

    pub(crate) fn released(&mut self, session: SessionNumber, packet_id: PacketId, slot: &Slot) {
        if let Slot::Sent(outgoing) = slot {
            self.forget(&outgoing.message);
            self.push(Record::Released { session, packet_id });
        }
    }

    pub(crate) fn completed(&mut self, session: SessionNumber, packet_id: PacketId, slot: &Slot) {
        if let Slot::Sent(outgoing) = slot {
            self.forget(&outgoing.message);
        }
        self.push(Record::Completed { session, packet_id });
    }

    /// The client published with QoS 2. If the answer comes in the same turn, the content need not be written.
    pub(crate) fn received(&mut self, session: SessionNumber, packet_id: PacketId, message: &Arc<Message>) {
        let key = (session, packet_id);
        self.transits.insert(key, Transit { message: Arc::clone(message), answer: None, is_written: false });
        self.arrivals.push(key);
    }

    /// The same after a restart.
    pub(crate) fn receive_again(&mut self, session: SessionNumber, packet_id: PacketId, message: &Arc<Message>) {
        let transit = Transit { message: Arc::clone(message), answer: None, is_written: true };
        self.transits.insert((session, packet_id), transit);
    }

    pub(crate) fn answered(&mut self, session: SessionNumber, packet_id: PacketId, answer: ReasonCode) {
        let key = (session, packet_id);
        match self.transits.get_mut(&key) {
            Some(transit) if !transit.is_written => transit.answer = Some(answer),
            Some(_) => {
                self.end_transit(key);
                self.push(Record::Answered { session, packet_id, answer });
            }
            // It came before the session, or anything, was kept.
            None => self.push(Record::Answered { session, packet_id, answer }),
        }
    }

    pub(crate) fn forgotten(&mut self, session: SessionNumber, packet_id: PacketId) {
        if self.end_transit((session, packet_id)) != Some(false) {
            self.push(Record::Forgotten { session, packet_id });
        }
    }

    /// The publication of this identifier that is on its way, if its content has to be written with its session.
    pub(crate) fn transit(&self, session: SessionNumber, packet_id: PacketId) -> Option<Arc<Message>> {
        let transit = self.transits.get(&(session, packet_id))?;
        transit.is_written.then(|| Arc::clone(&transit.message))
    }

    /// Whether the publication is new in this turn, and so written at its end.
    pub(crate) fn is_arriving(&self, session: SessionNumber, packet_id: PacketId) -> bool {
        self.transits.get(&(session, packet_id)).is_some_and(|transit| !transit.is_written)
    }

    /// Returns whether it was written, if there was one.
    fn end_transit(&mut self, key: (SessionNumber, PacketId)) -> Option<bool> {
        let transit = self.transits.remove(&key)?;
        if transit.is_written {
            self.forget(&transit.message);
        }
        Some(transit.is_written)
    }

    /// The session is gone.
    pub(crate) fn ended(&mut self, session: &Session) {
        if session.is_kept {
            session.inflight.messages().for_each(|outgoing| self.forget(&outgoing.message));
            let waiting = session.queue.iter().filter(|outgoing| outgoing.qos > QoS::AtMostOnce);
            waiting.for_each(|outgoing| self.forget(&outgoing.message));
            self.end_transits(session.number);
        }
        self.push(Record::Ended { session: session.number });
    }

    /// The session goes to another owner, who may not have it yet: until [`Journal::left`] a restart finds it here.
    pub(crate) fn leaves(&mut self, session: &Session) {
        if session.is_kept {
            self.end_transits(session.number);
        } else {
            self.push(Record::Ended { session: session.number });
        }
    }

    fn end_transits(&mut self, number: SessionNumber) {
        let first = (number, PacketId::MIN);
        let of_session = self.transits.range(first..).take_while(|((session, _), _)| *session == number);
        for key in of_session.map(|(key, _)| *key).collect::<Vec<_>>() {
            self.end_transit(key);
        }
    }

    /// Something has come for a session that was given away.
    pub(crate) fn kept_for(&mut self, session: SessionNumber, queued: &QueuedState) {
        if queued.qos > QoS::AtMostOnce {
            self.refer(&queued.message);
            self.push(Record::Queued { session, item: item_of(queued) });
        }
    }

    /// A session that was given away is not needed here any more.
    pub(crate) fn left(&mut self, number: SessionNumber, state: &SessionState) {
        for queued in kept_of(state) {
            self.forget(&queued.message);
        }
        self.push(Record::Ended { session: number });
    }

    /// Writes a session that was given away, with everything. `fresh`: nothing of it is in the journal, so that its messages get
    /// references.
    pub(crate) fn given(&mut self, session: SessionNumber, state: &SessionState, now: Now, fresh: bool) {
        self.push(Record::Begin { session, client: state.client.clone() });
        let SessionState { epoch, version, expiry_secs, .. } = *state;
        let facts = SessionFacts { epoch, version, expiry_secs, disconnected_at: Some(state.disconnected_at) };
        self.push(Record::Facts { session, facts });
        for subscription in &state.subscriptions {
            self.push(Record::Subscribed { session, subscription: subscription.clone() });
        }
        for queued in kept_of(state) {
            if fresh { self.refer(&queued.message) } else { self.refresh(&queued.message) }
        }
        for InflightState { packet_id, phase } in &state.inflight {
            let packet_id = *packet_id;
            self.push(match phase {
                InflightPhase::Sent(queued) => Record::Sent { session, packet_id, item: item_of(queued) },
                InflightPhase::Released => Record::Released { session, packet_id },
            });
        }
        for queued in state.queue.iter().filter(|queued| queued.qos > QoS::AtMostOnce) {
            self.push(Record::Queued { session, item: item_of(queued) });
        }
        for InboundState { packet_id, answer } in state.inbound.iter().copied() {
            self.push(Record::Received { session, packet_id, answer, message: None });
        }
        let will = state.will.as_ref().map(|will| (will.will.clone(), Some(now.wall + will.remaining)));
        self.push(Record::Will { session, will });
    }
}

/// The messages that a session has to deliver with QoS 1 and 2.
fn kept_of(state: &SessionState) -> impl Iterator<Item = &QueuedState> {
    let inflight = state.inflight.iter().filter_map(|inflight| match &inflight.phase {
        InflightPhase::Sent(queued) => Some(queued),
        InflightPhase::Released => None,
    });
    inflight.chain(state.queue.iter().filter(|queued| queued.qos > QoS::AtMostOnce))
}

/// About how many bytes a message's content takes.
fn size_of(message: &Message) -> u64 {
    (message.payload.len() + message.topic.as_bytes().len()) as u64 + 2 * RECORD_BYTES
}

fn item_of(queued: &QueuedState) -> QueuedRecord {
    let QueuedState { message, qos, retain, subscription_ids, group } = queued.clone();
    QueuedRecord { message: message.id, qos, retain, subscription_ids, group }
}

pub(crate) fn item(outgoing: &Outgoing, group: Option<&TopicFilter>) -> QueuedRecord {
    QueuedRecord {
        message: outgoing.message.id,
        qos: outgoing.qos,
        retain: outgoing.retain,
        subscription_ids: outgoing.ids.as_slice().to_vec(),
        group: group.cloned(),
    }
}
