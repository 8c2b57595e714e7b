//! Traces: the ways of chosen publications, step by step (OP-07). Each shard, and the node, notes what it does with them; the reader puts
//! the notes of all nodes together. Which publications are chosen follows from what they are, so that all nodes choose the same.

mod notes;
mod parent;
mod step;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use sedge_base::{ClientId, Now, mix};
use sedge_mqtt::{Message, MessageId, TopicFilter, TopicName};

pub use self::parent::TraceParent;
pub use self::step::{TraceEvent, TraceStep};
use crate::Ticket;

/// Traces that may run at the same time.
pub const TRACES_MAX: usize = 8;
/// Notes that a shard, or a node, keeps for all traces; one more takes the place of the oldest.
pub const TRACE_EVENTS_MAX: usize = 4_096;
/// Bytes of them, about.
pub const TRACE_BYTES_MAX: usize = 1024 * 1024;
/// Sessions of a shard whose part in one publication is noted.
const SESSIONS_MAX: usize = 32;
/// Publications whose acknowledgement, or copy, is waited for; of more it is not noted.
const OPEN_MAX: usize = 1_024;

/// Which publications a trace follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceSpec {
    /// Number of the trace, the same at all nodes.
    pub id: u64,
    /// Only steps of this client: its own publications, and its part in the publications to the topics.
    pub client: Option<ClientId>,
    /// Topics. None: only what the client publishes.
    pub filters: Vec<TopicFilter>,
    /// One publication of so many is followed; 0 and 1: all.
    pub one_in: u32,
}

impl TraceSpec {
    fn chooses(&self, message: &Message) -> bool {
        let id = message.id;
        let place = mix(id.seq ^ (id.node.get() << 8) ^ u64::from(id.shard.0));
        if self.one_in > 1 && !place.is_multiple_of(u64::from(self.one_in)) {
            return false;
        }
        self.is_about(message.publisher.as_ref(), &message.topic)
    }

    fn is_about(&self, publisher: Option<&ClientId>, topic: &TopicName) -> bool {
        let published = self.client.is_some() && self.client.as_ref() == publisher;
        published || self.filters.iter().any(|filter| filter.matches(topic))
    }
}

/// Traces that something is for: one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceSet(u8);

impl TraceSet {
    /// Whether it is for none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// A publication whose acknowledgement the trace waits for.
#[derive(Clone, Debug)]
struct Open {
    traces: TraceSet,
    message: MessageId,
    topic: TopicName,
}

/// The notes of one shard, or of a node, and the traces that they are for.
#[derive(Debug, Default)]
pub struct Tracer {
    specs: Vec<Arc<TraceSpec>>,
    events: VecDeque<(TraceSet, TraceEvent)>,
    bytes: usize,
    /// Number of the last note.
    last: u64,
    dropped: u64,
    /// Publications that their publishers have no answer for.
    unanswered: BTreeMap<Ticket, Open>,
    /// Publications that are not copied: the batch that they are in, as soon as there is one.
    uncopied: VecDeque<(Option<u64>, Open)>,
}

impl Tracer {
    /// These traces run from now on; the notes of others are forgotten.
    pub fn set(&mut self, specs: &[Arc<TraceSpec>]) {
        let before = core::mem::take(&mut self.specs);
        self.specs = specs.iter().take(TRACES_MAX).cloned().collect();
        let now: Vec<Option<usize>> =
            before.iter().map(|spec| self.specs.iter().position(|known| known.id == spec.id)).collect();
        for (traces, _) in &mut self.events {
            let kept = now.iter().enumerate().filter(|(old, _)| traces.0 & (1 << old) != 0);
            *traces = TraceSet(kept.filter_map(|(_, new)| *new).fold(0, |set, new| set | (1 << new)));
        }
        self.events.retain(|(traces, _)| !traces.is_empty());
        self.bytes = self.events.iter().map(|(_, event)| event.footprint()).sum();
        self.unanswered.clear();
        self.uncopied.clear();
    }

    /// Whether no trace runs.
    pub fn is_idle(&self) -> bool {
        self.specs.is_empty()
    }

    /// The traces that a publication is chosen for.
    pub fn chosen(&self, message: &Message) -> TraceSet {
        self.those(|spec| spec.chooses(message))
    }

    /// The traces of these that look at this client's part.
    fn watching(&self, traces: TraceSet, client: &ClientId) -> TraceSet {
        let watching = self.those(|spec| spec.client.as_ref().is_none_or(|watched| watched == client));
        TraceSet(traces.0 & watching.0)
    }

    fn those(&self, wanted: impl Fn(&TraceSpec) -> bool) -> TraceSet {
        let set = self.specs.iter().enumerate().filter(|(_, spec)| wanted(spec));
        TraceSet(set.fold(0, |set, (at, _)| set | (1 << at)))
    }

    /// The clients that traces look at in particular.
    fn clients(&self) -> impl Iterator<Item = &ClientId> {
        self.specs.iter().filter_map(|spec| spec.client.as_ref())
    }

    /// Notes a step of a publication.
    pub fn note(&mut self, now: Now, traces: TraceSet, message: &Message, step: TraceStep) {
        self.push(now, traces, (message.id, message.topic.clone()), step);
    }

    fn push(&mut self, now: Now, traces: TraceSet, (message, topic): (MessageId, TopicName), step: TraceStep) {
        if traces.is_empty() {
            return;
        }
        self.last += 1;
        let event = TraceEvent { number: self.last, at: now, message, topic: topic.detached(), step };
        self.bytes += event.footprint();
        self.events.push_back((traces, event));
        while self.events.len() > TRACE_EVENTS_MAX || self.bytes > TRACE_BYTES_MAX {
            let Some((_, oldest)) = self.events.pop_front() else { return };
            self.bytes -= oldest.footprint();
            self.dropped += 1;
        }
    }

    /// At most `limit` notes of a trace behind the one with the number `after`, and how many notes have made room for others so far.
    pub fn events(&self, id: u64, after: u64, limit: usize) -> Vec<&TraceEvent> {
        let traces = self.those(|spec| spec.id == id);
        let from = self.events.partition_point(|(_, event)| event.number <= after);
        let behind = self.events.iter().skip(from).filter(|(set, _)| set.0 & traces.0 != 0);
        behind.map(|(_, event)| event).take(limit).collect()
    }

    /// Number of the last note.
    pub const fn last(&self) -> u64 {
        self.last
    }

    /// Notes that have made room for others.
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Notes that are kept, and their bytes.
    pub fn kept(&self) -> (usize, usize) {
        (self.events.len(), self.bytes)
    }

    fn await_answer(&mut self, ticket: Ticket, traces: TraceSet, message: &Message) {
        if self.unanswered.len() < OPEN_MAX {
            let open = Open { traces, message: message.id, topic: message.topic.clone() };
            self.unanswered.insert(ticket, open);
        } else {
            self.dropped += 1;
        }
    }

    /// A session keeps something of a publication, and other nodes are to copy it.
    fn await_copy(&mut self, traces: TraceSet, message: &Message) {
        let id = message.id;
        if traces.is_empty() || self.uncopied.iter().any(|(sealed, open)| sealed.is_none() && open.message == id) {
            return;
        }
        self.uncopied.push_back((None, Open { traces, message: id, topic: message.topic.clone() }));
        if self.uncopied.len() > OPEN_MAX {
            self.uncopied.pop_front();
        }
    }

    /// This batch has all changes whose steps were noted so far.
    pub fn sealed(&mut self, batch: u64) {
        for (sealed, _) in self.uncopied.iter_mut().rev().take_while(|(sealed, _)| sealed.is_none()) {
            *sealed = Some(batch);
        }
    }

    /// The steps noted so far have changed nothing that other nodes copy.
    pub fn sealed_without_batch(&mut self) {
        self.uncopied.retain(|(sealed, _)| sealed.is_some());
    }

    /// Batches up to this one are where they have to be.
    pub fn copied(&mut self, now: Now, batch: u64) {
        while let Some((_, open)) =
            self.uncopied.pop_front_if(|(sealed, _)| sealed.is_some_and(|sealed| sealed <= batch))
        {
            self.push(now, open.traces, (open.message, open.topic), TraceStep::Copied);
        }
    }
}
