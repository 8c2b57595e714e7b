//! Metrics of the stores for the operators who watch the node: events, lines of the log, traces and history.

use std::sync::atomic::Ordering;

use sedge_broker::WatchedKept;

use super::super::server::Api;
use super::super::{history, scale};
use super::exposition::{Exposition, Kind};
use crate::logging::{self, LineStats};
use crate::runtime::{EventStats, View};

pub(super) fn write(out: &mut Exposition, api: &Api) {
    let EventStats { kept, bytes, noted, dropped } = api.shared.events.stats();
    out.single("events_total", Kind::Counter, "Events of clients, nodes and operators.", noted);
    out.single("events_dropped_total", Kind::Counter, "Events beyond 100 a second of a kind.", dropped);
    out.single("events_kept", Kind::Gauge, "Events that are kept, at most 1,000.", kept as u64);
    out.single("events_kept_bytes", Kind::Gauge, "Bytes of them, at most 256 KiB.", bytes as u64);
    let LineStats { kept, bytes, forgotten } = logging::line_stats();
    out.single("log_lines_kept", Kind::Gauge, "Lines of the log that are kept, at most 1,000.", kept as u64);
    out.single("log_lines_kept_bytes", Kind::Gauge, "Bytes of them, at most 128 KiB.", bytes as u64);
    out.single("log_lines_forgotten_total", Kind::Counter, "Lines that made room for others.", forgotten);
    let streams = api.streams.load(Ordering::Relaxed) as u64;
    out.single("event_streams", Kind::Gauge, "Streams of events that are open, at most 16.", streams);
    out.single("traces", Kind::Gauge, "Traces that run, at most 8.", api.shared.traces.running().len() as u64);
    let (exported, dropped, waiting) = api.shared.traces.exported();
    let help = "Spans of traces that a collector of OpenTelemetry has taken (otlp.endpoint).";
    out.single("otlp_spans_exported_total", Kind::Counter, help, exported);
    let help = "Steps that had no room on their way to it: 4,096 publications, 256 steps of each, 16 MiB.";
    out.single("otlp_dropped_total", Kind::Counter, help, dropped);
    out.single("otlp_waiting", Kind::Gauge, "Steps and spans that wait for it.", waiting);
    out.single("traces_refused_total", Kind::Counter, "Traces beyond that.", api.shared.traces.refused());
    let told = scale::kept(&api.told) as u64;
    out.single("scale_report_bytes", Kind::Gauge, "Bytes of the last report of a controller, at most 60 KiB.", told);
    let refused = api.shared.desk.turned_away();
    out.single("inquiries_refused_total", Kind::Counter, "Questions of other nodes beyond 64 that waited.", refused);
    let (samples, bytes) = {
        let ring = history::lock(&api.history);
        (ring.len() as u64, ring.bytes() as u64)
    };
    out.single("history_samples", Kind::Gauge, "Samples of the last 24 hours.", samples);
    out.single("history_bytes", Kind::Gauge, "Bytes of them, at most 512 KiB.", bytes);
}

/// A thread's traces, and its counts of the busiest topics.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Traced {
    notes: u64,
    bytes: u64,
    dropped: u64,
    /// Of the counts of topics.
    topic_bytes: u64,
    topics_too_long: u64,
    watched: WatchedKept,
}

impl Traced {
    pub(super) fn of(view: &View<'_>) -> Self {
        let (topic_bytes, topics_too_long) = view.shard.broker().hot_topics_kept();
        let watched = view.shard.broker().watched_kept();
        let start = Self { topic_bytes: topic_bytes as u64, topics_too_long, watched, ..Self::default() };
        let tracers = view.shard.broker().tracer().into_iter().chain(view.node.and_then(sedge_cluster::Node::tracer));
        tracers.fold(start, |sum, tracer| {
            let (notes, bytes) = tracer.kept();
            Self {
                notes: sum.notes + notes as u64,
                bytes: sum.bytes + bytes as u64,
                dropped: sum.dropped + tracer.dropped(),
                ..sum
            }
        })
    }
}

pub(super) fn write_traced<'a>(out: &mut Exposition, all: impl Iterator<Item = &'a Traced>) {
    let sum = all.fold(Traced::default(), |sum, traced| Traced {
        notes: sum.notes + traced.notes,
        bytes: sum.bytes + traced.bytes,
        dropped: sum.dropped + traced.dropped,
        topic_bytes: sum.topic_bytes + traced.topic_bytes,
        topics_too_long: sum.topics_too_long + traced.topics_too_long,
        watched: WatchedKept {
            topics: sum.watched.topics + traced.watched.topics,
            bytes: sum.watched.bytes + traced.watched.bytes,
            left_out: sum.watched.left_out + traced.watched.left_out,
        },
    });
    out.single("trace_notes", Kind::Gauge, "Steps that are kept for traces, at most 4,096 of each thread.", sum.notes);
    out.single("trace_notes_bytes", Kind::Gauge, "Bytes of them, at most 1 MiB of each thread.", sum.bytes);
    let help = "Steps that made room for others since the first of the traces that run began.";
    out.single("trace_notes_dropped", Kind::Gauge, help, sum.dropped);
    let help = "Bytes of the counts of the busiest topics while somebody looks at them: 256 topics of each thread.";
    out.single("hot_topics_bytes", Kind::Gauge, help, sum.topic_bytes);
    let help = "Publications whose topic is too long to be counted among the busiest, since somebody began to look.";
    out.single("hot_topics_too_long", Kind::Gauge, help, sum.topics_too_long);
    let WatchedKept { topics, bytes, left_out } = sum.watched;
    let help = "Topics whose rates and last values are kept while somebody looks at the tree of topics.";
    out.single("watched_topics", Kind::Gauge, help, topics as u64);
    out.single("watched_topics_bytes", Kind::Gauge, "Bytes of them, at most 16 MiB of each thread.", bytes as u64);
    let help = "Publications whose topic found no room there, or is longer than 1 KiB, since somebody began to look.";
    out.single("watched_topics_left_out", Kind::Gauge, help, left_out);
}
