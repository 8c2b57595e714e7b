//! Report of the API about a broker behind the node.

use std::sync::atomic::Ordering;

use sedge_bridge::{MirrorStatus, SniffStatus};
use sedge_cluster::Shard;
use sedge_sidecar::{DifferenceKind, SidecarCounters};

use super::ask::ask_all;
use super::error::ApiError;
use super::metrics::{Exposition, Kind};
use super::model::{Mirror, MirrorDifference, Sniff, UpstreamStatus};
use super::server::Api;
use crate::runtime::WorkerStats;

/// The broker behind the node, or beside it, if there is one.
pub(super) async fn status(api: &Api) -> Result<Option<UpstreamStatus>, ApiError> {
    let found = found(api).await?;
    Ok(found.map(|status| UpstreamStatus { version: status.version.or_else(|| api.shared.make.clone()), ..status }))
}

async fn found(api: &Api) -> Result<Option<UpstreamStatus>, ApiError> {
    if let Some(mirror) = api.shared.mirror.get().and_then(std::sync::Weak::upgrade) {
        let address = api.facts.mirrored.clone().unwrap_or_default();
        return Ok(Some(beside(address, &mirror.status())));
    }
    if let Some(sniff) = api.shared.sniff.get().and_then(std::sync::Weak::upgrade) {
        let address = api.facts.mirrored.clone().unwrap_or_default();
        return Ok(Some(read_along(address, &sniff.status())));
    }
    let Some(address) = api.facts.upstream.clone() else { return Ok(None) };
    let clock = api.shared.clock.clone();
    let found = ask_all(&api.shared, move |view| describe(view.shard, &address, clock.now().instant)).await?;
    Ok(found.into_iter().flatten().next())
}

/// A broker beside which the node stands.
fn beside(address: String, status: &MirrorStatus) -> UpstreamStatus {
    let counters = status.counters;
    let kinds = DifferenceKind::ALL.iter().zip(counters.differences);
    let lines = status.last.iter().map(|line| MirrorDifference {
        kind: line.kind.to_owned(),
        seconds: line.seconds,
        filter: line.filter.clone(),
        topic: line.topic.clone(),
        detail: line.detail.clone(),
    });
    let mirror = Mirror {
        alike: counters.alike,
        differences: kinds.map(|(kind, count)| (kind.name().to_owned(), count)).collect(),
        uncompared: counters.uncompared,
        begun: counters.begun,
        last: lines.collect(),
    };
    UpstreamStatus {
        address,
        mode: "mirror".to_owned(),
        up: status.up,
        since_seconds: status.since_seconds,
        protocol: if status.only_311 { "3.1.1" } else { "5.0" }.to_owned(),
        last_error: status.last_error.clone(),
        mirror: Some(mirror),
        ..UpstreamStatus::default()
    }
}

/// A broker whose traffic the node reads.
fn read_along(address: String, status: &SniffStatus) -> UpstreamStatus {
    let sniff = Sniff {
        followed: status.followed,
        filters: status.filters,
        replayed: status.replayed,
        dropped: status.dropped,
        kernel_bytes: status.kernel_bytes,
        counted: status.counters.named().iter().map(|(name, count)| ((*name).to_owned(), *count)).collect(),
    };
    UpstreamStatus {
        address,
        mode: "sniff".to_owned(),
        up: status.up,
        since_seconds: status.since_seconds,
        protocol: if status.only_311 { "3.1.1" } else { "5.0" }.to_owned(),
        last_error: status.last_error.clone(),
        sniff: Some(sniff),
        ..UpstreamStatus::default()
    }
}

/// Metrics of what was read off the wire.
pub(super) fn write_sniff(out: &mut Exposition, sniff: &Sniff) {
    use Kind::{Counter, Gauge};
    out.single("sniff_followed", Gauge, "Connections with the broker that are followed.", sniff.followed as u64);
    out.single("sniff_filters", Gauge, "Filters that the broker's clients want.", sniff.filters as u64);
    out.single("sniff_kernel_bytes", Gauge, "Room in the kernel for captured packets.", sniff.kernel_bytes as u64);
    out.single("sniff_replayed_total", Counter, "Publications of other nodes given to the broker.", sniff.replayed);
    out.single("sniff_dropped_total", Counter, "Publications that did not go to other nodes.", sniff.dropped);
    for (name, count) in &sniff.counted {
        out.single(&format!("sniff_{name}_total"), Counter, "Read off the wire: see docs/own-broker.md.", *count);
    }
}

/// Metrics of the comparison with a broker.
pub(super) fn write_mirror(out: &mut Exposition, mirror: &Mirror) {
    use Kind::Counter;
    out.single(
        "mirror_alike_total",
        Counter,
        "Deliveries of the broker that the node has made likewise.",
        mirror.alike,
    );
    out.single("mirror_uncompared_total", Counter, "Deliveries that could not be compared.", mirror.uncompared);
    out.single("mirror_begun_total", Counter, "How often the comparison has begun.", mirror.begun);
    for (kind, count) in &mirror.differences {
        let name = format!("mirror_{kind}_total");
        out.single(&name, Counter, "Differences of this kind between the broker and the node.", *count);
    }
}

fn describe(shard: &Shard, address: &str, now: sedge_base::Instant) -> Option<UpstreamStatus> {
    let (broker, counters) = shard.upstream()?;
    let (mut conversations, mut unacknowledged, mut expected) = (0, 0, 0);
    for conversation in shard.conversations() {
        conversations += usize::from(conversation.is_open);
        unacknowledged += conversation.unanswered + conversation.waiting;
        expected += conversation.expected;
    }
    Some(UpstreamStatus {
        address: address.to_owned(),
        mode: "proxy".to_owned(),
        up: broker.is_up,
        since_seconds: now.since(broker.since).as_secs(),
        version: broker.version.clone(),
        protocol: if broker.only_311 { "3.1.1" } else { "5.0" }.to_owned(),
        last_error: broker.last_error.clone(),
        conversations,
        unacknowledged,
        expected,
        published: counters.published,
        refused: counters.refused,
        dropped: counters.dropped,
        delivered: counters.matched,
        foreign: counters.foreign,
        covered: counters.covered,
        withheld: counters.withheld,
        mirror: None,
        sniff: None,
    })
}

/// Why clients cannot be served because of the broker behind the node.
pub(super) async fn not_ready(api: &Api) -> Option<String> {
    let upstream = status(api).await.ok().flatten().filter(|upstream| !upstream.up)?;
    let place = if upstream.mode == "proxy" { "behind" } else { "beside" };
    let why = upstream.last_error.map_or_else(String::new, |why| format!(" ({why})"));
    let stopping = api.shared.stopping.load(Ordering::Acquire);
    (!stopping).then(|| format!("the broker {place} the node, {}, is away{why}", upstream.address))
}

/// Its metrics.
pub(super) fn write(out: &mut Exposition, upstream: &UpstreamStatus, counters: SidecarCounters, stats: &WorkerStats) {
    use Kind::{Counter, Gauge};
    let gauges = [
        ("upstream_up", "Whether the broker behind the node takes connections.", u64::from(upstream.up)),
        ("upstream_conversations", "Conversations with it.", upstream.conversations as u64),
        ("upstream_unacknowledged", "Publications it has not acknowledged.", upstream.unacknowledged as u64),
        ("upstream_expected", "Deliveries it has not made yet.", upstream.expected as u64),
        ("upstream_crowded", "Connections that wait for room in its backlog.", stats.crowded as u64),
    ];
    for (name, help, value) in gauges {
        out.single(name, Gauge, help, value);
    }
    let counters = [
        ("upstream_connections_total", "Connections made to it.", counters.connections),
        ("upstream_failures_total", "Connections lost or not made.", counters.failures),
        ("upstream_published_total", "Publications given to it.", counters.published),
        ("upstream_refused_total", "Publications it refused.", counters.refused),
        ("upstream_dropped_total", "Publications without room while it was away.", counters.dropped),
        ("upstream_delivered_total", "Deliveries of what the node gave to it.", counters.matched),
        ("upstream_foreign_total", "Deliveries of what came from elsewhere.", counters.foreign),
        ("upstream_repeated_total", "Deliveries of what the session has had.", counters.repeated),
        ("upstream_covered_total", "Deliveries from the node's copy in its stead.", counters.covered),
        ("upstream_withheld_total", "Deliveries it never made although it was there.", counters.withheld),
        ("upstream_holds_total", "Times it was not read for a client that was behind.", counters.holds),
        ("upstream_pauses_total", "Pauses of the node so that reads bring several packets.", stats.pauses),
        ("upstream_lingers_total", "Times that the node looked for its answer without sleeping.", stats.lingers),
    ];
    for (name, help, value) in counters {
        out.single(name, Counter, help, value);
    }
}
