//! Sessions out of a journal, at the start.

use std::sync::Arc;

use sedge_base::Now;
use sedge_mqtt::{Message, PacketId, QoS, ReasonCode};

use super::image::in_order;
use super::{Record, RestoredSession, SessionNumber};
use crate::api::TicketKind;
use crate::session::{Session, SessionKey};
use crate::will::delay_of;
use crate::{BounceReason, Broker, InflightPhase, Output};

impl Broker {
    /// Takes in what a journal has held: nobody is connected. `numbers` is the highest number of a session in the journal that this
    /// broker goes on with; `None`: it begins a new one, and everything is written to it. Call it once, after
    /// [`Broker::keep_journal`] and before anything else.
    pub fn restore(&mut self, now: Now, sessions: Vec<RestoredSession>, numbers: Option<SessionNumber>) {
        self.now = now;
        if let (Some(numbers), Some(journal)) = (numbers, &mut self.journal) {
            // The journal is not new: it has its mark already.
            journal.take();
            journal.skip_to(numbers);
        }
        for session in sessions {
            self.restore_session(session, numbers.is_some());
        }
        // Parts of the process that were taken out of the configuration while it was down.
        self.silence_strays();
    }

    /// The sessions that a restart at `now` has to find in the journal, by number of the session.
    pub fn kept_sessions(&self, now: Now) -> Vec<RestoredSession> {
        let journaled = self.sessions.iter().filter(|(_, session)| session.number != 0);
        let mut found: Vec<_> = journaled.map(|(_, session)| self.kept_session(session, now)).collect();
        found.sort_by_key(|session| session.number);
        found
    }

    fn kept_session(&self, session: &Session, now: Now) -> RestoredSession {
        let number = session.number;
        let mut state = self.export(session, &self.groups_of(session));
        if session.connection.is_some() {
            state.disconnected_at = now.wall;
        }
        if let (Some(will), Some(pending)) = (&mut state.will, &session.will) {
            will.remaining = pending.due.map_or_else(|| delay_of(&will.will), |due| due.since(now.instant));
        }
        let mut transits = Vec::new();
        let journal = self.journal.as_ref().filter(|_| session.is_kept);
        state.inbound.retain(|exact| {
            let message = journal.and_then(|journal| journal.transit(number, exact.packet_id));
            let on_its_way = exact.answer.is_none() && message.is_some();
            transits.extend(message.filter(|_| on_its_way).map(|message| (exact.packet_id, message)));
            !on_its_way && !exact.answer.is_some_and(ReasonCode::is_error)
        });
        in_order(&mut transits);
        state.queue.retain(|queued| queued.qos > QoS::AtMostOnce);
        if !session.is_kept {
            state.subscriptions.clear();
            state.inflight.clear();
            state.queue.clear();
            state.inbound.clear();
        }
        RestoredSession { number, state, was_connected: session.connection.is_some(), transits }
    }

    fn restore_session(&mut self, mut restored: RestoredSession, is_written: bool) {
        let has_ended = restored.state.expiry_secs == 0;
        for (message, group) in restored.end() {
            self.counters.bounced += 1;
            self.outputs.push_back(Output::Bounced { message, group, reason: BounceReason::SessionEnded });
        }
        if has_ended && restored.state.will.is_none() {
            if let Some(journal) = self.journal.as_mut().filter(|_| is_written) {
                journal.push(Record::Ended { session: restored.number });
            }
            return;
        }
        let RestoredSession { number, state, was_connected, transits } = restored;
        let is_kept = state.expiry_secs > 0;
        let messages: Vec<_> = state
            .inflight
            .iter()
            .filter_map(|inflight| match &inflight.phase {
                InflightPhase::Sent(queued) => Some(&queued.message),
                InflightPhase::Released => None,
            })
            .chain(state.queue.iter().map(|queued| &queued.message))
            .chain(transits.iter().map(|(_, message)| message))
            .map(Arc::clone)
            .collect();
        let key = self.install(state, false);
        let Some(session) = self.sessions.get_mut(key) else { return };
        // A merge is written behind what had come before it, and is not always there to its end.
        let is_reordered = session.queue.restore_order();
        let mut routes = Vec::new();
        for (packet_id, message) in &transits {
            let ticket = session.inbound.get_or_insert_default().resume(*packet_id);
            routes.push((Arc::clone(message), session.ticket(key, TicketKind::Publish, ticket)));
        }
        if let Some(journal) = self.journal.as_mut().filter(|_| is_written) {
            (session.number, session.is_kept) = (number, is_kept);
            if is_kept {
                for message in &messages {
                    journal.adopt(message);
                }
                for (packet_id, message) in &transits {
                    journal.receive_again(number, *packet_id, message);
                }
            }
        }
        if !is_written {
            self.begin_in_new_journal(key, &transits);
        } else if has_ended {
            // Only its will is left.
            self.write_session(key, true);
        } else if is_kept && is_reordered {
            self.write_session(key, false);
        } else if was_connected {
            // It has lost its connection just now, also for the next restart.
            self.note_facts(key);
        }
        self.announce_all(key, false, None);
        // The ordinary subscriptions here have had their part with the record that it had come.
        for (message, ticket) in routes {
            self.note_awaited(&message, ticket);
            self.outputs.push_back(Output::Route { message, ticket: Some(ticket), matched: true });
        }
        self.set_session_timer(key);
    }

    fn begin_in_new_journal(&mut self, key: SessionKey, transits: &[(PacketId, Arc<Message>)]) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        let Some(journal) = &mut self.journal else { return };
        session.is_kept = session.expiry_secs > 0;
        session.number = journal.next_session();
        for (packet_id, message) in transits.iter().filter(|_| session.is_kept) {
            journal.refer(message);
            journal.receive_again(session.number, *packet_id, message);
        }
        self.write_session(key, true);
    }
}
