//! Export of traces to a collector of OpenTelemetry: OTLP over HTTP, as protobuf (`[otlp]`; feature `otlp`).
//!
//! Each node follows the same share of all publications and tells of its own part; the collector puts the parts together.

mod client;
mod spans;

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use opentelemetry::KeyValue;
use opentelemetry_otlp::{SpanExporter as Otlp, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use sedge_broker::TraceSpec;
use sedge_mqtt::TopicFilter;
use tokio::sync::watch;
use tokio::time::sleep;

use self::client::{Client, LastStatus};
use self::spans::Gathering;
use super::server::{Api, Facts};
use super::traces;
use crate::StartError;
use crate::config::OtlpConfig;
use crate::identity;

/// How often notes are gathered.
const EVERY: Duration = Duration::from_millis(500);
/// Spans of one request.
const BATCH: usize = 512;
/// Longest time between two attempts while the collector does not answer.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// The way of this node's traces to the collector.
pub(crate) struct Export {
    otlp: Otlp,
    last: LastStatus,
    spec: TraceSpec,
    endpoint: String,
}

impl Export {
    /// The export that this section asks for; `None` without `otlp.endpoint`.
    pub(crate) fn new(config: &OtlpConfig, facts: &Facts) -> Result<Option<Self>, StartError> {
        if config.endpoint.is_empty() {
            return Ok(None);
        }
        let wrong = |key: &'static str| move |what: String| StartError::Setting { key, what };
        let headers = config.header_file.as_deref().map_or_else(|| Ok(BTreeMap::new()), headers);
        let client = Client::new(config.ca_file.as_deref()).map_err(wrong("otlp.ca_file"))?;
        let last = client.last_status();
        let built = Otlp::builder()
            .with_http()
            .with_http_client(client)
            .with_endpoint(config.traces_url())
            .with_headers(headers.map_err(wrong("otlp.header_file"))?.into_iter().collect())
            .build();
        let mut otlp = built.map_err(|error| wrong("otlp.endpoint")(error.to_string()))?;
        otlp.set_resource(&resource(facts));
        let id = identity::random_u64()? >> traces::ID_SHIFT;
        let filters = config.topics.iter().filter_map(|filter| TopicFilter::new(filter).ok()).collect();
        let spec = TraceSpec { id, client: None, filters, one_in: config.one_in };
        Ok(Some(Self { otlp, last, spec, endpoint: config.endpoint.clone() }))
    }

    /// Runs until the node stops; steps gathered until then are sent, if the collector answers in time. Steps of the last moments are missing.
    pub(super) async fn run(self, api: Api, mut stopping: watch::Receiver<bool>) {
        let (mut gathering, mut after) = (Gathering::default(), Vec::new());
        let mut outgoing = Outgoing::default();
        loop {
            // Somebody may have ended it.
            if !api.shared.traces.running().iter().any(|spec| spec.id == self.spec.id) {
                api.shared.start_trace(self.spec.clone());
            }
            let stops = tokio::select! {
                () = sleep(EVERY) => false,
                _ = stopping.wait_for(|stops| *stops) => true,
            };
            if let Ok((notes, last)) = traces::own(&api, self.spec.id, after.clone()).await {
                after = last;
                for note in notes {
                    gathering.note(Instant::now(), note);
                }
            }
            // While the collector takes nothing, all waits as notes, whose bytes are bounded.
            if outgoing.spans.is_empty() {
                outgoing.spans.extend(gathering.ready(Instant::now(), stops));
            }
            outgoing.send(&self).await;
            let waiting = gathering.len() + outgoing.spans.len();
            api.shared.traces.note_export(outgoing.exported, gathering.dropped() + outgoing.refused, waiting as u64);
            if stops {
                return;
            }
        }
    }
}

/// Spans on their way to the collector.
#[derive(Default)]
struct Outgoing {
    spans: VecDeque<SpanData>,
    exported: u64,
    /// Spans that the collector has refused for good.
    refused: u64,
    /// Attempts that have failed since the last one that did not, and when the next one is due.
    failed: u32,
    next: Option<Instant>,
}

impl Outgoing {
    async fn send(&mut self, export: &Export) {
        if self.next.is_some_and(|next| Instant::now() < next) {
            return;
        }
        while !self.spans.is_empty() {
            let batch: Vec<SpanData> = self.spans.iter().take(BATCH).cloned().collect();
            let count = batch.len();
            if let Err(error) = export.otlp.export(batch).await {
                if self.failed == 0 {
                    tracing::warn!(endpoint = export.endpoint, %error, "traces do not get to the collector (otlp.endpoint)");
                }
                self.failed += 1;
                if export.last.is_final() {
                    self.spans.drain(..count);
                    self.refused += count as u64;
                    continue;
                }
                let pause = EVERY * 2_u32.saturating_pow((self.failed - 1).min(10));
                self.next = Some(Instant::now() + pause.min(PAUSE_MAX));
                return;
            }
            if self.failed > 0 {
                tracing::info!(endpoint = export.endpoint, "traces get to the collector again");
            }
            (self.failed, self.next) = (0, None);
            self.spans.drain(..count);
            self.exported += count as u64;
        }
    }
}

fn resource(facts: &Facts) -> Resource {
    Resource::builder_empty()
        .with_attributes([
            KeyValue::new("service.name", "sedge"),
            KeyValue::new("service.namespace", facts.cluster.clone()),
            KeyValue::new("service.instance.id", facts.node.clone()),
            KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
            KeyValue::new("host.name", facts.name.clone()),
        ])
        .build()
}

/// `Name: value` on each line.
fn headers(file: &Path) -> Result<BTreeMap<String, String>, String> {
    let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let pairs = lines.map(|(number, line)| {
        let pair = line.split_once(':').map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()));
        pair.ok_or_else(|| format!("{}, line {}: write Name: value", file.display(), number + 1))
    });
    pairs.collect()
}
