//! Sessions begin, end, and move between owners (MQTT 5.0 section 4.1).

use std::sync::Arc;

use sedge_base::{ClientId, Duration};
use sedge_mqtt::{QoS, TopicFilter};

use crate::broker::Timer;
use crate::connection::Phase;
use crate::given::Given;
use crate::inflight::Slot;
use crate::outgoing::{Buffer, Ids, Outgoing};
use crate::room::Room;
use crate::session::{PendingWill, Session, SessionKey};
use crate::subscription::Subscription;
use crate::{
    BounceReason, Broker, InboundState, InflightPhase, InflightState, InterestChange, InterestOp, Output, QueuedState,
    SessionState, SubscriptionState, Ticket, WillState,
};

/// Numbers and whole filters of a session's shared subscriptions.
type Shares = Vec<(u32, TopicFilter)>;

impl Broker {
    /// A new session without anything.
    pub(crate) fn create_session(&mut self, client: ClientId) -> SessionKey {
        // One that was given away is not needed any more where the client is back.
        self.drop_given(&client);
        self.generation = self.generation.wrapping_add(1);
        let key = self.sessions.insert(Box::new(Session::new(client.clone(), self.generation)));
        self.clients.insert(client, key);
        self.counters.sessions += 1;
        self.note_session_count();
        self.counters.sessions_started += 1;
        key
    }

    /// Ends a session without connection: its will is due, its subscriptions go, shared messages go to others. `forgotten`:
    /// whether the directory is to forget the client too.
    pub(crate) fn end_session(&mut self, key: SessionKey, forgotten: bool) {
        let Some((mut session, groups)) = self.remove_session(key, false) else { return };
        self.bounce_all(&mut session, &groups);
        if let Some(will) = session.will.take() {
            self.publish_will(session.client.clone(), session.identity.as_deref(), *will.will);
        }
        if forgotten {
            self.outputs.push_back(Output::Ended { client: session.client, epoch: session.epoch });
        }
    }

    /// Takes a session out of all tables and withdraws its interest. Returns it with its shared subscriptions.
    fn remove_session(&mut self, key: SessionKey, leaves: bool) -> Option<(Box<Session>, Shares)> {
        let session = self.sessions.try_remove(key)?;
        if session.number != 0
            && let Some(journal) = &mut self.journal
        {
            if leaves {
                journal.leaves(&session);
            } else {
                journal.ended(&session);
            }
        }
        self.clients.remove(&session.client);
        self.set_owner(key, None);
        self.forget_merged(key);
        self.timers.cancel(&Timer::Session(key));
        self.counters.sessions -= 1;
        self.note_session_count();
        self.counters.inflight_bytes -= session.inflight.bytes() as u64;
        let groups = self.groups_of(&session);
        let mut changes = Vec::with_capacity(session.subscriptions.len());
        for subscription in session.subscriptions.iter() {
            self.withdraw(key, subscription);
            changes.push(InterestChange { filter: subscription.filter.clone(), op: InterestOp::Remove });
        }
        if !changes.is_empty() {
            let client = session.client.clone();
            self.outputs.push_back(Output::Interest { client, changes, ticket: None });
        }
        Some((session, groups))
    }

    /// Numbers and filters of the shared subscriptions of a session.
    pub(crate) fn groups_of(&self, session: &Session) -> Shares {
        let shared = session.subscriptions.iter().filter(|subscription| subscription.is_shared());
        shared.map(|shared| (self.groups.number(&shared.filter), shared.filter.clone())).collect()
    }

    /// Gives back what a session was chosen for and will not get (MQTT 5.0 section 4.8.2): everything not sent, and QoS 1 that was
    /// not acknowledged. QoS 2 that was sent goes to nobody else.
    fn bounce_all(&mut self, session: &mut Session, groups: &[(u32, TopicFilter)]) {
        let unacknowledged = session.inflight.messages().filter(|outgoing| outgoing.qos == QoS::AtLeastOnce);
        let mut bounced: Vec<Outgoing> = unacknowledged.filter(|outgoing| outgoing.group != 0).cloned().collect();
        for outgoing in session.queue.take(&mut self.counters) {
            if outgoing.group == 0 {
                self.counters.dropped.session_ended += 1;
            } else {
                bounced.push(outgoing);
            }
        }
        for outgoing in bounced {
            let Some((_, group)) = groups.iter().find(|(number, _)| *number == outgoing.group) else {
                self.counters.dropped.session_ended += 1;
                continue;
            };
            self.counters.bounced += 1;
            self.outputs.push_back(Output::Bounced {
                message: outgoing.message,
                group: group.clone(),
                reason: BounceReason::SessionEnded,
            });
        }
    }

    /// Drops a session that goes on elsewhere with everything that it has here, unless a client is connected. Its will is published there, and members
    /// of shared subscriptions were chosen there. Whether there was one.
    pub fn discard(&mut self, client: &ClientId) -> bool {
        let is_away = |key: &SessionKey| self.sessions.get(*key).is_some_and(|session| session.connection.is_none());
        let Some(key) = self.clients.get(client).copied().filter(is_away) else { return false };
        let Some((mut session, _)) = self.remove_session(key, false) else { return false };
        session.queue.take(&mut self.counters);
        true
    }

    /// Another owner has taken the client id.
    pub(crate) fn on_relinquish(&mut self, client: ClientId, epoch: u64, clean_start: bool) {
        let session = self.give_up(&client, epoch, clean_start).map(Box::new);
        self.outputs.push_back(Output::Relinquished { client, epoch, session });
    }

    fn give_up(&mut self, client: &ClientId, epoch: u64, clean_start: bool) -> Option<SessionState> {
        let held = self.clients.get(client).copied()?;
        if self.sessions.get(held)?.epoch >= epoch {
            return None;
        }
        let older = self
            .connection_of(client)
            .filter(|&key| self.connections.get(key).is_some_and(|connection| connection.phase != Phase::Claiming));
        let live = self.sessions.get(held)?.connection;
        if let Some(older) = older.or(live) {
            self.take_over(older);
        }
        // It may have ended with its connection.
        let key = self.clients.get(client).copied()?;
        if clean_start {
            self.end_session(key, false);
            return None;
        }
        let (mut session, groups) = self.remove_session(key, true)?;
        let state = self.export(&session, &groups);
        session.queue.take(&mut self.counters);
        let number = if session.is_kept { session.number } else { 0 };
        self.given.insert(client.clone(), Given { epoch, number, state: state.clone() });
        Some(state)
    }

    /// A session as plain data.
    pub(crate) fn export(&self, session: &Session, groups: &[(u32, TopicFilter)]) -> SessionState {
        let queued = |outgoing: &Outgoing| QueuedState {
            message: Arc::clone(&outgoing.message),
            qos: outgoing.qos,
            retain: outgoing.retain,
            subscription_ids: outgoing.ids.as_slice().to_vec(),
            group: groups.iter().find(|(number, _)| *number == outgoing.group).map(|(_, filter)| filter.clone()),
        };
        let phase = |slot: &Slot| match slot {
            Slot::Sent(outgoing) => InflightPhase::Sent(queued(outgoing)),
            Slot::Released | Slot::Done => InflightPhase::Released,
        };
        let inbound = session.inbound.iter().flat_map(|inbound| inbound.exact());
        let now = self.now.instant;
        SessionState {
            client: session.client.clone(),
            epoch: session.epoch,
            version: session.version,
            expiry_secs: session.expiry_secs,
            disconnected_at: session.disconnected_at,
            subscriptions: session.subscriptions.iter().map(Subscription::state).collect(),
            inflight: session
                .inflight
                .iter()
                .map(|(packet_id, slot)| InflightState { packet_id, phase: phase(slot) })
                .collect(),
            inbound: inbound.map(|exact| InboundState { packet_id: exact.packet_id, answer: exact.reason }).collect(),
            will: session.will.as_ref().map(|will| {
                let remaining = will.due.map_or(Duration::ZERO, |due| due.since(now));
                WillState { will: will.will.clone(), remaining }
            }),
            queue: session.queue.iter().map(queued).collect(),
        }
    }

    /// Takes a session over from its former owner, without connection. It replaces what is here of the client.
    pub(crate) fn install(&mut self, state: SessionState, resuming: bool) -> SessionKey {
        if let Some(&old) = self.clients.get(&state.client) {
            if let Some(connection) = self.sessions.get(old).and_then(|session| session.connection) {
                self.take_over(connection);
            }
            if let Some(session) = self.sessions.get_mut(old) {
                session.will = None;
            }
            self.end_session(old, false);
        }
        let key = self.create_session(state.client.clone());
        for SubscriptionState { filter, options, id } in state.subscriptions {
            self.subscribe(key, Subscription { filter, options, id: id.unwrap_or(0), checked: false });
        }
        let now = self.now;
        let Some(session) = self.sessions.get_mut(key) else { return key };
        session.begun = true;
        session.is_held = self.merged.holds_all;
        (session.epoch, session.resumed) = (state.epoch, state.epoch);
        session.version = state.version;
        session.expiry_secs = state.expiry_secs;
        session.disconnected_at = state.disconnected_at;
        for InflightState { packet_id, phase } in state.inflight {
            let slot = match phase {
                InflightPhase::Sent(queued) => Slot::Sent(outgoing(queued, &self.groups)),
                InflightPhase::Released => Slot::Released,
            };
            session.inflight.restore(packet_id, slot);
        }
        session.inflight.begin_at(state.epoch);
        self.counters.inflight_bytes += session.inflight.bytes() as u64;
        for queued in state.queue {
            let outgoing = outgoing(queued, &self.groups);
            session.queue.push(
                outgoing,
                now.wall,
                Room::whole(&self.config, Some(&session.client)),
                &mut self.counters,
                |_| {},
            );
        }
        for InboundState { packet_id, answer } in state.inbound {
            session.inbound.get_or_insert_default().restore(packet_id, answer);
        }
        if !resuming {
            session.will = state.will.map(|WillState { will, remaining }| {
                Box::new(PendingWill { will, due: Some(now.instant + remaining) })
            });
            let away = now.wall.since(state.disconnected_at);
            let left = Duration::from_secs(u64::from(state.expiry_secs)).saturating_sub(away);
            session.expires_in(now.instant, left);
        }
        key
    }

    /// Announces all subscriptions of a session from elsewhere.
    pub(crate) fn announce_all(&mut self, key: SessionKey, online: bool, ticket: Option<Ticket>) {
        let Some(session) = self.sessions.get(key) else { return };
        let op = InterestOp::Add { retained: false, online };
        let changes: Vec<_> = session
            .subscriptions
            .iter()
            .map(|subscription| InterestChange { filter: subscription.filter.clone(), op })
            .collect();
        if !changes.is_empty() {
            let client = session.client.clone();
            self.outputs.push_back(Output::Interest { client, changes, ticket });
        }
    }
}

/// A message of a session from elsewhere.
fn outgoing(queued: QueuedState, groups: &crate::group::Groups) -> Outgoing {
    let QueuedState { message, qos, retain, subscription_ids, group } = queued;
    let group = group.map_or(0, |filter| groups.number(&filter));
    let ids = Ids::from(&subscription_ids[..]);
    let mut outgoing = Outgoing { message, ids, group, qos, retain, buffer: Buffer::Read };
    // It came in the buffer of a link together with many others.
    outgoing.keep();
    outgoing
}
