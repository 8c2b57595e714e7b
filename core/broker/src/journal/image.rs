//! Records played back.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use sedge_base::{ClientId, Duration, Timestamp};
use sedge_mqtt::{Message, MessageId, PacketId, QoS, ReasonCode, TopicFilter, Will};

use super::{QueuedRecord, Record, SessionFacts, SessionNumber};
use crate::detach::detach_own;
use crate::{InboundState, InflightPhase, InflightState, QueuedState, SessionState, SubscriptionState, WillState};

/// A session out of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoredSession {
    /// Its number in the journal.
    pub number: SessionNumber,
    /// State of the session.
    pub state: SessionState,
    /// Whether its client was connected.
    pub was_connected: bool,
    /// QoS 2 publications of its client that were on their way to their receivers, in the order in which they were made.
    pub transits: Vec<(PacketId, Arc<Message>)>,
}

impl RestoredSession {
    /// If the session has ended with its connection: returns the messages for other members of shared subscriptions (MQTT 5.0 section 4.8.2), and
    /// leaves only the will. QoS 2 messages that were sent go to nobody else.
    pub fn end(&mut self) -> Vec<(Arc<Message>, TopicFilter)> {
        if self.state.expiry_secs > 0 {
            return Vec::new();
        }
        let state = &mut self.state;
        let unacknowledged = state.inflight.drain(..).filter_map(|inflight| match inflight.phase {
            InflightPhase::Sent(queued) => Some(queued).filter(|queued| queued.qos == QoS::AtLeastOnce),
            InflightPhase::Released => None,
        });
        let shares = unacknowledged.chain(state.queue.drain(..));
        let shares = shares.filter_map(|queued| Some((queued.message, queued.group?))).collect();
        state.subscriptions.clear();
        state.inbound.clear();
        self.transits.clear();
        shares
    }
}

/// Puts publications of one client in the order in which they were made: the client may use any free packet identifiers (MQTT 5.0 section 4.6).
pub(super) fn in_order(transits: &mut [(PacketId, Arc<Message>)]) {
    transits.sort_by_key(|(_, message)| message.id);
}

#[derive(Debug)]
struct Held {
    client: ClientId,
    facts: Option<SessionFacts>,
    subscriptions: BTreeMap<TopicFilter, SubscriptionState>,
    inflight: VecDeque<(PacketId, Option<QueuedState>)>,
    queue: VecDeque<QueuedState>,
    inbound: BTreeMap<PacketId, (Option<ReasonCode>, Option<Arc<Message>>)>,
    will: Option<(Box<Will>, Option<Timestamp>)>,
}

/// The state that records lead to.
///
/// Records of sessions that are not known are of those that the checkpoint at the beginning of the journal had not come to;
/// they mean nothing.
#[derive(Debug, Default)]
pub struct Image {
    sessions: BTreeMap<SessionNumber, Held>,
    clients: BTreeMap<ClientId, SessionNumber>,
    messages: BTreeMap<MessageId, Arc<Message>>,
    /// Whether every session that there is is known, so that a message without a reference is not needed.
    is_whole: bool,
    last_session: SessionNumber,
    /// Earlier state of the session that a checkpoint writes again, until the checkpoint has written it.
    replaced: Option<Held>,
    missing: u64,
}

impl Image {
    /// Takes the next record in.
    pub fn apply(&mut self, record: Record) {
        match record {
            Record::Message(message) => {
                // A checkpoint writes it again; references to it count for both.
                self.messages.entry(message.id).or_insert_with(|| detach_own(message));
            }
            Record::Begin { session, client } => self.begin(session, client),
            Record::Facts { session, facts } => self.with(session, |held| held.facts = Some(facts)),
            Record::Will { session, will } => self.with(session, |held| held.will = will),
            Record::Subscribed { session, subscription } => self.with(session, |held| {
                held.subscriptions.insert(subscription.filter.clone(), subscription);
            }),
            Record::Unsubscribed { session, filter } => self.with(session, |held| held.unsubscribed(&filter)),
            Record::Queued { session, item } => {
                if let Some(queued) = self.resolve(session, item) {
                    self.with(session, |held| held.queue.push_back(queued));
                }
            }
            Record::Sent { session, packet_id, item } => {
                if let Some(queued) = self.resolve(session, item) {
                    self.with(session, |held| held.inflight.push_back((packet_id, Some(queued))));
                }
            }
            Record::SentQueued { session, packet_id, message } => self.with(session, |held| {
                let queued = held.take_queued(message);
                held.inflight.extend(queued.map(|queued| (packet_id, Some(queued))));
            }),
            Record::Dropped { session, message } => {
                let dropped = self.sessions.get_mut(&session).and_then(|held| held.take_queued(message));
                self.forget(dropped.map(|queued| queued.message));
            }
            Record::Released { session, packet_id } => self.released(session, packet_id),
            Record::Completed { session, packet_id } => {
                let slot = self.sessions.get_mut(&session).and_then(|held| {
                    let at = held.inflight.iter().position(|(id, _)| *id == packet_id)?;
                    held.inflight.remove(at)
                });
                self.forget(slot.and_then(|(_, queued)| queued).map(|queued| queued.message));
            }
            Record::Received { session, packet_id, answer, message } => {
                let message = message.and_then(|id| self.messages.get(&id).cloned());
                self.with(session, |held| {
                    held.inbound.insert(packet_id, (answer, message));
                });
            }
            Record::Answered { session, packet_id, answer } => {
                let transit = self.sessions.get_mut(&session).and_then(|held| {
                    let exact = held.inbound.get_mut(&packet_id)?;
                    exact.0 = Some(answer);
                    exact.1.take()
                });
                self.forget(transit);
            }
            Record::Forgotten { session, packet_id } => {
                let exact = self.sessions.get_mut(&session).and_then(|held| held.inbound.remove(&packet_id));
                self.forget(exact.and_then(|(_, message)| message));
            }
            Record::Ended { session } => self.end(session),
            Record::Checkpointed => {
                self.release_replaced();
                self.is_whole = true;
                self.messages.retain(|_, message| Arc::strong_count(message) > 1);
            }
        }
    }

    /// Some records are lost before the next one: messages without a reference may be needed all the same.
    pub const fn note_hole(&mut self) {
        self.is_whole = false;
    }

    /// Whether all sessions that there are have been told.
    pub const fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// References to messages whose content was not found; those deliveries are lost.
    pub const fn missing(&self) -> u64 {
        self.missing
    }

    /// The client of a session.
    pub fn client(&self, session: SessionNumber) -> Option<&ClientId> {
        self.sessions.get(&session).map(|held| &held.client)
    }

    /// The highest number of a session so far.
    pub const fn last_session(&self) -> SessionNumber {
        self.last_session
    }

    /// The sessions, as a restart at `now` finds them: no client is connected.
    pub fn finish(self, now: Timestamp) -> Vec<RestoredSession> {
        let sessions = self.sessions.into_iter();
        sessions.filter_map(|(number, held)| held.restore(number, now)).collect()
    }

    fn with(&mut self, session: SessionNumber, change: impl FnOnce(&mut Held)) {
        if let Some(held) = self.sessions.get_mut(&session) {
            change(held);
        }
    }

    fn begin(&mut self, session: SessionNumber, client: ClientId) {
        self.release_replaced();
        self.replaced = self.sessions.remove(&session);
        if let Some(older) = self.clients.insert(client.clone(), session).filter(|older| *older != session) {
            self.end(older);
            self.clients.insert(client.clone(), session);
        }
        self.last_session = self.last_session.max(session);
        let held = Held {
            client,
            facts: None,
            subscriptions: BTreeMap::new(),
            inflight: VecDeque::new(),
            queue: VecDeque::new(),
            inbound: BTreeMap::new(),
            will: None,
        };
        self.sessions.insert(session, held);
    }

    fn end(&mut self, session: SessionNumber) {
        let Some(held) = self.sessions.remove(&session) else { return };
        if self.clients.get(&held.client) == Some(&session) {
            self.clients.remove(&held.client);
        }
        self.forget_all(held);
    }

    fn release_replaced(&mut self) {
        if let Some(held) = self.replaced.take() {
            self.forget_all(held);
        }
    }

    fn forget_all(&mut self, held: Held) {
        let Held { inflight, queue, inbound, .. } = held;
        for (_, queued) in inflight {
            self.forget(queued.map(|queued| queued.message));
        }
        for queued in queue {
            self.forget(Some(queued.message));
        }
        for (_, message) in inbound.into_values() {
            self.forget(message);
        }
    }

    fn released(&mut self, session: SessionNumber, packet_id: PacketId) {
        let Some(held) = self.sessions.get_mut(&session) else { return };
        if let Some((_, queued)) = held.inflight.iter_mut().find(|(id, _)| *id == packet_id) {
            let message = queued.take().map(|queued| queued.message);
            self.forget(message);
        } else {
            held.inflight.push_back((packet_id, None));
        }
    }

    /// A reference is gone: if it was the last one, so is the message.
    fn forget(&mut self, message: Option<Arc<Message>>) {
        let Some(message) = message.filter(|message| self.is_whole && Arc::strong_count(message) == 2) else { return };
        self.messages.remove(&message.id);
    }

    fn resolve(&mut self, session: SessionNumber, item: QueuedRecord) -> Option<QueuedState> {
        if !self.sessions.contains_key(&session) {
            return None;
        }
        let QueuedRecord { message, qos, retain, subscription_ids, group } = item;
        let Some(message) = self.messages.get(&message).cloned() else {
            self.missing += 1;
            return None;
        };
        Some(QueuedState { message, qos, retain, subscription_ids, group })
    }
}

impl Held {
    /// Messages that were chosen for the session by a shared subscription are its own from then on: nobody else can get them.
    fn unsubscribed(&mut self, filter: &TopicFilter) {
        self.subscriptions.remove(filter);
        let inflight = self.inflight.iter_mut().filter_map(|(_, queued)| queued.as_mut());
        for queued in inflight.chain(&mut self.queue) {
            queued.group.take_if(|group| group == filter);
        }
    }

    fn take_queued(&mut self, message: MessageId) -> Option<QueuedState> {
        let at = self.queue.iter().position(|queued| queued.message.id == message)?;
        self.queue.remove(at)
    }

    fn restore(self, number: SessionNumber, now: Timestamp) -> Option<RestoredSession> {
        let facts = self.facts?;
        let will = self.will.map(|(will, due)| {
            let delay = Duration::from_secs(u64::from(will.properties.delay.unwrap_or(0)));
            let remaining = due.map_or(delay, |due| due.since(now));
            WillState { will, remaining }
        });
        let phase = |queued: Option<QueuedState>| queued.map_or(InflightPhase::Released, InflightPhase::Sent);
        let inflight = self.inflight.into_iter();
        let mut transits = Vec::new();
        let mut inbound = Vec::new();
        for (packet_id, (answer, message)) in self.inbound {
            match (answer, message) {
                (None, Some(message)) => transits.push((packet_id, message)),
                // A publication that was refused is new when it comes again.
                (Some(answer), _) if answer.is_error() => {}
                (answer, _) => inbound.push(InboundState { packet_id, answer }),
            }
        }
        in_order(&mut transits);
        let state = SessionState {
            client: self.client,
            epoch: facts.epoch,
            version: facts.version,
            expiry_secs: facts.expiry_secs,
            disconnected_at: facts.disconnected_at.unwrap_or(now),
            subscriptions: self.subscriptions.into_values().collect(),
            inflight: inflight.map(|(packet_id, queued)| InflightState { packet_id, phase: phase(queued) }).collect(),
            queue: self.queue.into(),
            inbound,
            will,
        };
        Some(RestoredSession { number, state, was_connected: facts.disconnected_at.is_none(), transits })
    }
}
