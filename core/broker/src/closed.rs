//! Topics that are closed: a keeper of their QoS 1 and 2 publications has no room, such as a bridge whose full buffer refuses.
//!
//! 5.0 has a word for it, `QuotaExceeded` (0x97). 3.1.1 has none: its publications wait here, unanswered, until their topics are open. So do
//! those of all versions while nobody has the session that their publishers wait for ([`crate::Awaits`]).

use std::collections::VecDeque;
use std::sync::Arc;

use sedge_mqtt::{PacketId, Publish, TopicFilter, TopicName};

use crate::session::session_of;
use crate::{Awaits, Broker, Ticket};

/// Publications of all clients that wait at most; the client of one more is disconnected, as where there is no room at all.
const WAITING_MAX: usize = 16 * 1024;
/// The same in bytes of topics and payloads.
const WAITING_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Topics that are closed, and publications that wait until they are open.
#[derive(Debug, Default)]
pub(crate) struct Closed {
    filters: Arc<[TopicFilter]>,
    /// Topics of sessions that publishers wait for, and that nobody is known to have.
    sessionless: Vec<TopicFilter>,
    waiting: VecDeque<Waiting>,
    bytes: usize,
}

/// A publication that was not routed yet.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) topic: TopicName,
    pub(crate) publish: Publish,
    pub(crate) ticket: Ticket,
    /// Its identifier, if it has QoS 2.
    pub(crate) exact: Option<PacketId>,
}

impl Waiting {
    fn size(&self) -> usize {
        self.topic.as_bytes().len() + self.publish.payload.len()
    }
}

impl Closed {
    /// Nobody has any of these sessions.
    pub(crate) fn new(awaits: &[Awaits]) -> Self {
        let sessionless = awaits.iter().flat_map(|awaits| awaits.filters.iter().cloned()).collect();
        Self { sessionless, ..Self::default() }
    }

    /// Whether a publication of this version and size, which is not `exempt`, does not go its way now; and whether it may wait instead of
    /// being refused.
    pub(crate) fn look(&self, topic: &TopicName, (v5, size): (bool, usize), exempt: bool) -> (bool, bool) {
        let lacks = !exempt && self.lacks_session(topic);
        let closed = !exempt && self.has(topic);
        (lacks || closed, (lacks || closed && !v5) && self.has_room(size))
    }

    /// Whether publications to this topic are refused.
    fn has(&self, topic: &TopicName) -> bool {
        self.filters.iter().any(|filter| filter.matches(topic))
    }

    /// Whether publications to this topic wait until somebody has a session.
    fn lacks_session(&self, topic: &TopicName) -> bool {
        self.sessionless.iter().any(|filter| filter.matches(topic))
    }

    /// Whether `bytes` more may wait.
    fn has_room(&self, bytes: usize) -> bool {
        self.waiting.len() < WAITING_MAX && self.bytes + bytes <= WAITING_BYTES_MAX
    }

    pub(crate) fn wait(&mut self, waiting: Waiting) {
        self.bytes += waiting.size();
        self.waiting.push_back(waiting);
    }

    /// Takes what waits for nothing any more, in order.
    fn take_open(&mut self) -> Vec<Waiting> {
        let all = core::mem::take(&mut self.waiting);
        let stays = |waiting: &Waiting| self.has(&waiting.topic) || self.lacks_session(&waiting.topic);
        let (stay, go) = all.into_iter().partition(stays);
        self.waiting = stay;
        self.bytes = self.waiting.iter().map(Waiting::size).sum();
        Vec::from(go)
    }
}

impl Broker {
    /// These topics are closed from now on, and no others.
    pub(crate) fn on_closed_topics(&mut self, filters: Arc<[TopicFilter]>) {
        self.closed.filters = filters;
        self.route_open();
    }

    /// Publications to these topics wait until somebody has a session, and those to no others.
    pub(crate) fn set_sessionless(&mut self, filters: Vec<TopicFilter>) {
        self.closed.sessionless = filters;
        self.route_open();
    }

    /// Publications that wait for nothing any more go their way.
    fn route_open(&mut self) {
        for Waiting { topic, publish, ticket, exact } in self.closed.take_open() {
            // Of a session that has ended meanwhile nothing was acknowledged.
            let Some((key, generation)) = session_of(ticket) else { continue };
            if self.sessions.get(key).is_some_and(|session| session.generation == generation) {
                self.route(key, topic, publish, Some((ticket, exact)));
            }
        }
    }

    /// Bytes that may be held beside those that are; see [`crate::BrokerConfig::total_limit_bytes`].
    pub fn free_bytes(&self) -> usize {
        crate::room::free(&self.config, &self.counters)
    }
}
