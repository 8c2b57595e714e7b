//! Notes of a broker about publications that a trace follows.

use std::sync::Arc;

use sedge_mqtt::{Message, MessageId, QoS, ReasonCode, TopicFilter, TopicName};

use super::{SESSIONS_MAX, TraceParent, TraceSpec, TraceStep, Tracer};
use crate::session::{Session, SessionKey};
use crate::{Broker, Cause, Explanation, Outcome, Ticket};

impl Broker {
    /// These traces run from now on, at most [`super::TRACES_MAX`] of them.
    pub fn set_traces(&mut self, specs: &[Arc<TraceSpec>]) {
        if specs.is_empty() {
            self.tracer = None;
        } else {
            self.tracer.get_or_insert_default().set(specs);
        }
    }

    /// The notes, if a trace runs.
    pub fn tracer(&self) -> Option<&Tracer> {
        self.tracer.as_deref()
    }

    /// The same, to note more.
    pub fn tracer_mut(&mut self) -> Option<&mut Tracer> {
        self.tracer.as_deref_mut()
    }

    /// A publication has come from its publisher, who waits for this acknowledgement.
    pub(crate) fn trace_received(&mut self, message: &Message, ticket: Option<Ticket>) {
        let Some(tracer) = &mut self.tracer else { return };
        let traces = tracer.chosen(message);
        if traces.is_empty() {
            return;
        }
        let Message { qos, retain, .. } = *message;
        let (publisher, bytes) = (message.publisher.clone(), message.payload.len());
        let parent = TraceParent::of(message);
        tracer.note(self.now, traces, message, TraceStep::Received { publisher, qos, bytes, retain, parent });
        if let Some(ticket) = ticket {
            tracer.await_answer(ticket, traces, message);
        }
    }

    /// A publication is not taken.
    pub(crate) fn trace_refused(&mut self, session: SessionKey, topic: &TopicName, reason: ReasonCode, detail: &str) {
        let Some(publisher) = self.sessions.get(session).map(|session| session.client.clone()) else { return };
        let Some(tracer) = &self.tracer else { return };
        let traces = tracer.those(|spec| spec.is_about(Some(&publisher), topic));
        if traces.is_empty() {
            return;
        }
        // With the line of the rules that decides.
        let detail = self.explain_publisher(&publisher, topic).map_or_else(|| detail.to_owned(), |told| told.detail);
        let Some(tracer) = &mut self.tracer else { return };
        let seq = u64::MAX - tracer.last();
        let id = MessageId { node: self.place.node, incarnation: self.place.incarnation, shard: self.place.shard, seq };
        let step = TraceStep::Refused { publisher, reason, detail };
        tracer.push(self.now, traces, (id, topic.clone()), step);
    }

    /// The publisher has its acknowledgement.
    pub(crate) fn trace_answered(&mut self, ticket: Ticket, session: SessionKey, reason: ReasonCode) {
        let Some(tracer) = &mut self.tracer else { return };
        let Some(open) = tracer.unanswered.remove(&ticket) else { return };
        let Some(publisher) = self.sessions.get(session).map(|session| session.client.clone()) else { return };
        tracer.push(self.now, open.traces, (open.message, open.topic), TraceStep::Answered { publisher, reason });
    }

    /// A publication is about to be delivered to the ordinary subscriptions here.
    pub(crate) fn trace_fan_out(&mut self, message: &Message) {
        if self.trace_sessions(message)
            && let Some(tracer) = &mut self.tracer
        {
            tracer.await_copy(tracer.chosen(message), message);
        }
    }

    /// This session gets a publication of which the sessions were noted before.
    pub(crate) fn trace_kept(&mut self, key: SessionKey, message: &Message, qos: QoS) {
        let Some(tracer) = &mut self.tracer else { return };
        if qos > QoS::AtMostOnce && self.sessions.get(key).is_some_and(|session| session.is_kept) {
            tracer.await_copy(tracer.chosen(message), message);
        }
    }

    /// Notes what becomes of a publication in each session; says whether one of them keeps it, and is copied to other nodes where there are copies.
    pub(crate) fn trace_sessions(&mut self, message: &Message) -> bool {
        let Some(tracer) = &self.tracer else { return false };
        let traces = tracer.chosen(message);
        if traces.is_empty() {
            return false;
        }
        let mut found: Vec<SessionKey> = Vec::new();
        self.subscriptions.matches(&message.topic, |key, _| {
            if !found.contains(key) && found.len() <= SESSIONS_MAX * 8 {
                found.push(*key);
            }
        });
        let named: Vec<SessionKey> = tracer.clients().filter_map(|client| self.clients.get(client).copied()).collect();
        found.sort_by_key(|key| !named.contains(key));
        found.extend(named.into_iter().filter(|key| !found.contains(key)).collect::<Vec<_>>());
        let (mut noted, mut left_out, mut has_copy) = (Vec::new(), 0, false);
        for key in found {
            let Some(session) = self.sessions.get(key) else { continue };
            let watching = tracer.watching(traces, &session.client);
            if watching.is_empty() {
                continue;
            }
            if noted.len() == SESSIONS_MAX {
                left_out += 1;
            } else if let Some(explanation) = self.explain_delivery(session, message) {
                has_copy |= is_copied(session, &explanation);
                noted.push((watching, TraceStep::Session { client: session.client.clone(), explanation }));
            }
        }
        let Some(tracer) = &mut self.tracer else { return false };
        for (watching, step) in noted {
            tracer.note(self.now, watching, message, step);
        }
        if left_out > 0 {
            tracer.note(self.now, traces, message, TraceStep::More { sessions: left_out });
        }
        has_copy
    }

    /// A publication is about to be delivered to this member of a shared subscription.
    pub(crate) fn trace_group(&mut self, message: &Message, filter: &TopicFilter, member: SessionKey) {
        let Some(tracer) = &self.tracer else { return };
        let traces = tracer.chosen(message);
        let Some(chosen) = self.sessions.get(member).filter(|_| !traces.is_empty()) else { return };
        let (mut noted, mut has_copy) = (Vec::new(), false);
        if let Some(explanation) = self.explain_share(chosen, filter, message) {
            has_copy = is_copied(chosen, &explanation);
            // A trace of another member of the group notes this, too.
            noted.push((traces, TraceStep::Session { client: chosen.client.clone(), explanation }));
        }
        let others = tracer.clients().filter(|client| **client != chosen.client).filter_map(|client| {
            let session = self.sessions.get(*self.clients.get(client)?)?;
            session.subscriptions.iter().any(|subscription| subscription.filter == *filter).then_some(session)
        });
        for other in others {
            let detail = format!(
                "one member of the shared subscription gets it; it was the turn of {:?}",
                chosen.client.as_str()
            );
            let explanation = Explanation {
                outcome: Outcome::Not,
                cause: Cause::SharedElsewhere,
                qos: QoS::AtMostOnce,
                filter: Some(filter.clone()),
                detail,
            };
            let client = other.client.clone();
            noted.push((tracer.watching(traces, &client), TraceStep::Session { client, explanation }));
        }
        let Some(tracer) = &mut self.tracer else { return };
        for (watching, step) in noted {
            tracer.note(self.now, watching, message, step);
        }
        if has_copy {
            tracer.await_copy(traces, message);
        }
    }
}

/// Whether a session keeps the publication, and is copied to other nodes where there are copies.
fn is_copied(session: &Session, explanation: &Explanation) -> bool {
    explanation.outcome != Outcome::Not && explanation.qos > QoS::AtMostOnce && session.is_kept
}

impl Tracer {
    /// A step of a publication that concerns one session.
    pub(crate) fn note_of(
        &mut self,
        now: sedge_base::Now,
        message: &Message,
        session: &Session,
        step: impl FnOnce(sedge_base::ClientId) -> TraceStep,
    ) {
        let watching = self.watching(self.chosen(message), &session.client);
        if !watching.is_empty() {
            self.note(now, watching, message, step(session.client.clone()));
        }
    }
}
