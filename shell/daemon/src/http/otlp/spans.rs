//! Spans of OpenTelemetry, made of the notes of a trace: one for a publication at each node, and below it one for each client that it is for.
//!
//! Trace and spans are named by hashes of the publication's name, so that nodes which know nothing of each other make parts of one trace. A
//! publication with a `traceparent` (W3C Trace Context) belongs to the trace of its publisher.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use opentelemetry::trace::{Event, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use sha2::{Digest, Sha256};

use super::super::model::TraceNote;

/// A publication of which nothing was noted for so long is told of.
const QUIET: Duration = Duration::from_secs(2);
/// It is told of after this time even if there is always more.
const LONGEST: Duration = Duration::from_secs(30);
/// Its trace is remembered for so long after the last note.
const REMEMBERED: Duration = Duration::from_mins(2);
/// Publications that are waited for, or remembered; notes of more are dropped.
const PUBLICATIONS_MAX: usize = 4_096;
/// Notes of one publication; more are dropped.
const NOTES_MAX: usize = 256;
/// Bytes of all notes, about; more are dropped.
const BYTES_MAX: usize = 16 * 1024 * 1024;

/// Notes of publications that are not told of.
#[derive(Default)]
pub(super) struct Gathering {
    publications: BTreeMap<String, Gathered>,
    bytes: usize,
    dropped: u64,
}

struct Gathered {
    parent: Option<(TraceId, SpanId)>,
    notes: Vec<TraceNote>,
    first: Instant,
    last: Instant,
}

impl Gathering {
    /// Takes a note in.
    pub(super) fn note(&mut self, now: Instant, note: TraceNote) {
        let bytes = footprint(&note);
        let is_new = !self.publications.contains_key(&note.publication);
        if (is_new && self.publications.len() >= PUBLICATIONS_MAX) || self.bytes + bytes > BYTES_MAX {
            self.dropped += 1;
            return;
        }
        let new = || Gathered { parent: None, notes: Vec::new(), first: now, last: now };
        let gathered = self.publications.entry(note.publication.clone()).or_insert_with(new);
        if gathered.notes.is_empty() {
            gathered.first = now;
        }
        gathered.last = now;
        gathered.parent = gathered.parent.or_else(|| note.parent.as_deref().and_then(parent));
        if gathered.notes.len() < NOTES_MAX {
            gathered.notes.push(note);
            self.bytes += bytes;
        } else {
            self.dropped += 1;
        }
    }

    /// Spans of the publications that nothing more is expected of; of all with `at_once`.
    pub(super) fn ready(&mut self, now: Instant, at_once: bool) -> Vec<SpanData> {
        let mut spans = Vec::new();
        for (publication, gathered) in &mut self.publications {
            let quiet = now.duration_since(gathered.last) >= QUIET;
            let late = now.duration_since(gathered.first) >= LONGEST;
            if !gathered.notes.is_empty() && (quiet || late || at_once) {
                let (names, notes) = (Names::new(publication, gathered.parent), std::mem::take(&mut gathered.notes));
                self.bytes -= notes.iter().map(footprint).sum::<usize>();
                spans.extend(names.spans(&notes));
            }
        }
        self.publications.retain(|_, known| !known.notes.is_empty() || now.duration_since(known.last) < REMEMBERED);
        spans
    }

    /// Notes that are not told of.
    pub(super) fn len(&self) -> usize {
        self.publications.values().map(|gathered| gathered.notes.len()).sum()
    }

    /// Notes that had no room so far.
    pub(super) const fn dropped(&self) -> u64 {
        self.dropped
    }
}

/// Bytes that a note takes, about.
fn footprint(note: &TraceNote) -> usize {
    let texts = [&note.client, &note.outcome, &note.cause, &note.detail, &note.filter, &note.parent];
    let more: usize = texts.into_iter().flatten().chain(&note.nodes).map(String::len).sum();
    size_of::<TraceNote>() + note.publication.len() + note.topic.len() + note.node.len() + note.name.len() + more
}

fn parent(text: &str) -> Option<(TraceId, SpanId)> {
    let (trace, span) = text.split_once('-')?;
    Some((TraceId::from_hex(trace).ok()?, SpanId::from_hex(span).ok()?))
}

/// The ids of a publication's trace and of the spans in it.
struct Names<'a> {
    publication: &'a str,
    trace: TraceId,
    parent: Option<SpanId>,
}

impl<'a> Names<'a> {
    fn new(publication: &'a str, parent: Option<(TraceId, SpanId)>) -> Self {
        let mut own = [0; 16];
        own.copy_from_slice(&hash(&[publication])[..16]);
        let trace = parent.map_or_else(|| TraceId::from_bytes(own), |(trace, _)| trace);
        Self { publication, trace, parent: parent.map(|(_, span)| span) }
    }

    fn span(&self, what: &[&str]) -> SpanId {
        let all: Vec<&str> = [self.publication].iter().chain(what).copied().collect();
        let mut id = [0; 8];
        id.copy_from_slice(&hash(&all)[..8]);
        SpanId::from_bytes(id)
    }

    /// The node where the publication came from its publisher.
    fn entry(&self) -> &str {
        self.publication.split('/').next().unwrap_or_default()
    }

    /// The spans of what one node has noted.
    fn spans(&self, notes: &[TraceNote]) -> Vec<SpanData> {
        let mut of_node: Vec<&TraceNote> = Vec::new();
        let mut of_clients: BTreeMap<&str, Vec<&TraceNote>> = BTreeMap::new();
        for note in notes {
            match (note.step.as_str(), note.client.as_deref()) {
                ("session" | "sent" | "acknowledged" | "dropped", Some(client)) => {
                    of_clients.entry(client).or_default().push(note);
                }
                _ => of_node.push(note),
            }
        }
        let Some(first) = notes.first() else { return Vec::new() };
        let node = self.span(&["at", &first.node]);
        let end = notes.iter().map(|note| note.at_us).max().unwrap_or_default();
        let mut spans = Vec::with_capacity(1 + of_clients.len());
        spans.extend(self.of_node(node, &of_node, end));
        spans.extend(of_clients.into_iter().filter_map(|(client, notes)| self.of_client(node, client, &notes)));
        spans
    }

    /// The publication at a node: from its coming on until nothing more happens there.
    fn of_node(&self, node: SpanId, notes: &[&TraceNote], end: u64) -> Option<SpanData> {
        let first = notes.iter().min_by_key(|note| note.at_us)?;
        let begins = |note: &&&TraceNote| matches!(note.step.as_str(), "received" | "refused" | "came" | "came_again");
        let (entry, beginning) = (first.node == self.entry(), notes.iter().find(begins));
        let (id, parent, is_remote, verb) = match (beginning, entry) {
            // The rest has been told of.
            (None, _) => (self.span(&["later", &first.node, &first.at_us.to_string()]), Some(node), false, "continue"),
            (Some(_), true) => (node, self.parent, true, "publish"),
            (Some(_), false) => (node, Some(self.span(&["at", self.entry()])), true, "forward"),
        };
        let mut attributes = self.attributes(first);
        if let Some(note) = beginning.filter(|_| entry) {
            attributes.extend(note.client.clone().map(|client| KeyValue::new("messaging.client.id", client)));
            attributes.extend(note.bytes.map(|bytes| KeyValue::new("messaging.message.body.size", whole(bytes))));
            attributes.extend(note.qos.map(|qos| KeyValue::new("mqtt.qos", i64::from(qos))));
        }
        let refused = notes.iter().find(|note| note.step == "refused");
        let status = refused.map_or(Status::Unset, |note| Status::error(note.detail.clone().unwrap_or_default()));
        let events = notes.iter().filter(|note| beginning != Some(note)).map(|note| event(note)).collect();
        let times = (first.at_us, end.max(first.at_us));
        let span = self.data(id, parent, format!("{verb} {}", first.topic), times);
        Some(SpanData {
            parent_span_is_remote: is_remote,
            span_kind: SpanKind::Server,
            attributes,
            events: with_events(events),
            status,
            ..span
        })
    }

    /// The part of a client in it, at the node of its session.
    fn of_client(&self, node: SpanId, client: &str, notes: &[&TraceNote]) -> Option<SpanData> {
        let (first, last) = (notes.iter().min_by_key(|note| note.at_us)?, notes.iter().max_by_key(|note| note.at_us)?);
        let id = self.span(&["to", client, &first.at_us.to_string()]);
        let mut attributes = self.attributes(first);
        attributes.push(KeyValue::new("messaging.client.id", client.to_owned()));
        let said = |of: fn(&TraceNote) -> Option<String>| notes.iter().find_map(|note| of(note));
        for (key, value) in [
            ("mqtt.filter", said(|note| note.filter.clone())),
            ("sedge.outcome", said(|note| note.outcome.clone())),
            ("sedge.cause", said(|note| note.cause.clone())),
            ("sedge.detail", said(|note| note.detail.clone())),
        ] {
            attributes.extend(value.map(|value| KeyValue::new(key, value)));
        }
        let qos = notes.iter().find_map(|note| note.qos);
        attributes.extend(qos.map(|qos| KeyValue::new("mqtt.qos", i64::from(qos))));
        let dropped = notes.iter().find(|note| note.step == "dropped");
        let status = dropped.map_or(Status::Unset, |note| Status::error(note.cause.clone().unwrap_or_default()));
        let events = notes.iter().map(|note| event(note)).collect();
        let span = self.data(id, Some(node), format!("deliver {}", first.topic), (first.at_us, last.at_us));
        Some(SpanData { span_kind: SpanKind::Producer, attributes, events: with_events(events), status, ..span })
    }

    fn attributes(&self, note: &TraceNote) -> Vec<KeyValue> {
        vec![
            KeyValue::new("messaging.system", "mqtt"),
            KeyValue::new("messaging.destination.name", note.topic.clone()),
            KeyValue::new("messaging.message.id", self.publication.to_owned()),
            KeyValue::new("sedge.node", note.name.clone()),
        ]
    }

    fn data(&self, id: SpanId, parent: Option<SpanId>, name: String, (start, end): (u64, u64)) -> SpanData {
        SpanData {
            span_context: SpanContext::new(self.trace, id, TraceFlags::SAMPLED, false, TraceState::default()),
            parent_span_id: parent.unwrap_or(SpanId::INVALID),
            parent_span_is_remote: false,
            span_kind: SpanKind::Internal,
            name: Cow::Owned(name),
            start_time: at(start),
            end_time: at(end),
            attributes: Vec::new(),
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: InstrumentationScope::builder("sedge")
                .with_version(env!("CARGO_PKG_VERSION"))
                .build(),
        }
    }
}

fn event(note: &TraceNote) -> Event {
    let mut attributes = Vec::new();
    attributes.extend(note.detail.clone().map(|detail| KeyValue::new("sedge.detail", detail)));
    if !note.nodes.is_empty() {
        attributes.push(KeyValue::new("sedge.nodes", note.nodes.join(", ")));
    }
    Event::new(note.step.clone(), at(note.at_us), attributes, 0)
}

fn with_events(list: Vec<Event>) -> SpanEvents {
    let mut events = SpanEvents::default();
    events.events = list;
    events
}

fn at(micros: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(micros)
}

fn whole(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn hash(parts: &[&str]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part);
        hash.update([0]);
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(node: &str, step: &str, client: &str, at_us: u64) -> TraceNote {
        TraceNote {
            publication: "a/1/0/7".to_owned(),
            topic: "t".to_owned(),
            at_us,
            node: node.to_owned(),
            step: step.to_owned(),
            client: (!client.is_empty()).then(|| client.to_owned()),
            ..TraceNote::default()
        }
    }

    fn spans(notes: Vec<TraceNote>) -> Vec<SpanData> {
        let (mut gathering, now) = (Gathering::default(), Instant::now());
        for note in notes {
            gathering.note(now, note);
        }
        assert!(gathering.ready(now, false).is_empty(), "there may be more");
        gathering.ready(now + QUIET, false)
    }

    /// OP-07: two nodes that do not know each other make parts of one trace.
    #[test]
    fn the_spans_of_all_nodes_are_one_tree() {
        let here =
            spans(vec![note("a", "received", "p", 10), note("a", "routed", "", 11), note("a", "answered", "p", 30)]);
        let there =
            spans(vec![note("b", "came", "", 15), note("b", "session", "s", 16), note("b", "acknowledged", "s", 21)]);
        let ([publish], [forward, deliver]) = (here.as_slice(), there.as_slice()) else { panic!("{here:?} {there:?}") };
        let names = [publish, forward, deliver].map(|span| span.name.as_ref());
        assert_eq!(names, ["publish t", "forward t", "deliver t"]);
        assert_eq!(publish.parent_span_id, SpanId::INVALID);
        assert_eq!(forward.parent_span_id, publish.span_context.span_id());
        assert_eq!(deliver.parent_span_id, forward.span_context.span_id());
        assert!([forward, deliver].iter().all(|span| span.span_context.trace_id() == publish.span_context.trace_id()));
        assert_eq!((publish.start_time, publish.end_time), (at(10), at(30)));
        assert_eq!((deliver.start_time, deliver.end_time), (at(16), at(21)));
    }

    /// OP-07
    #[test]
    fn the_trace_of_the_publisher_goes_on() {
        let (trace, span) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
        let received = TraceNote { parent: Some(format!("{trace}-{span}")), ..note("a", "received", "p", 10) };
        let spans = spans(vec![received, note("a", "session", "s", 12)]);
        assert!(spans.iter().all(|span| span.span_context.trace_id().to_string() == trace));
        assert_eq!(spans[0].parent_span_id.to_string(), span);
        assert!(spans[0].parent_span_is_remote);
    }

    #[test]
    fn what_comes_late_belongs_to_the_same_trace_and_what_is_dropped_is_an_error() {
        let (mut gathering, now) = (Gathering::default(), Instant::now());
        let parent = Some("4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7".to_owned());
        gathering.note(now, TraceNote { parent, ..note("a", "received", "p", 10) });
        gathering.note(now, note("a", "session", "s", 11));
        let first = gathering.ready(now + QUIET, false);
        gathering.note(now + QUIET, TraceNote { cause: Some("expired".to_owned()), ..note("a", "dropped", "s", 90) });
        let later = gathering.ready(now + QUIET * 2, false);
        let [dropped] = later.as_slice() else { panic!("{later:?}") };
        assert_eq!(dropped.status, Status::error("expired"));
        assert_eq!(dropped.span_context.trace_id(), first[0].span_context.trace_id());
        assert_ne!(dropped.span_context.span_id(), first[1].span_context.span_id());
        assert!(gathering.ready(now + QUIET * 2 + REMEMBERED, false).is_empty() && gathering.publications.is_empty());
    }

    #[test]
    fn more_than_there_is_room_for_is_counted() {
        let (mut gathering, now) = (Gathering::default(), Instant::now());
        for number in 0..=PUBLICATIONS_MAX {
            gathering.note(now, TraceNote { publication: number.to_string(), ..note("a", "received", "p", 1) });
        }
        for _ in 0..NOTES_MAX {
            gathering.note(now, TraceNote { publication: "0".to_owned(), ..note("a", "sent", "s", 2) });
        }
        assert_eq!(gathering.dropped(), 2);
        let long = TraceNote { publication: "1".to_owned(), topic: "t".repeat(BYTES_MAX), ..note("a", "sent", "s", 2) };
        gathering.note(now, long);
        assert_eq!(gathering.dropped(), 3);
        gathering.ready(now, true);
        assert_eq!((gathering.len(), gathering.bytes), (0, 0));
    }
}
