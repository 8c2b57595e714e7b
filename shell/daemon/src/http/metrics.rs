//! `/metrics`: the Prometheus text or protobuf format, written from the counters of all threads at the moment of asking.

mod bridges;
mod discovery;
mod exposition;
mod latency;
mod model;
mod protobuf;
mod rules;
mod text;
mod watch;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use sedge_broker::{Counters, Latencies, SharedBuffers};
use sedge_cluster::{LinkStatus, MemberStatus, NodeStatus, ShardBacklog, ShardCounters};

pub(super) use self::exposition::{Exposition, Kind};
use self::protobuf::{PROTOBUF_FORMAT, is_preferred};
use super::ask::{ask_all, ask_node};
use super::error::ApiError;
use super::model::RecoveryReport;
use super::process;
use super::server::Api;
use crate::runtime::{AddressTable, KeeperStats, LineKind, WorkerStats};
use crate::transport::{Listener, Reason};

const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";
const QOS: [&str; 3] = ["0", "1", "2"];

/// Metrics in the Prometheus text format; in its protobuf format, with native histograms, for scrapers that prefer that.
#[utoipa::path(get, path = "/metrics", tag = "health", responses((status = 200, body = String, content_type = "text/plain")))]
pub(super) async fn metrics(State(api): State<Api>, headers: HeaderMap) -> Result<Response, ApiError> {
    let node = ask_node(&api.shared, sedge_cluster::Node::status).await?;
    let now = api.shared.clock.now();
    let parts = ask_all(&api.shared, move |view| Part {
        broker: view.shard.broker().counters().clone(),
        latencies: view.shard.broker().latencies().clone(),
        buffers: view.shard.broker().shared_buffers(),
        shard: view.shard.counters(),
        backlog: view.shard.backlog(),
        stats: view.stats.clone(),
        queue_age: view.shard.broker().queue_age(now.wall),
        traced: watch::Traced::of(view),
        journal: view.journal.clone(),
        upstream: view.shard.upstream().map(|(_, counters)| counters),
    });
    let parts = parts.await?;
    let mut out = Exposition::default();
    process_metrics(&mut out, &api);
    client_metrics(&mut out, &parts, api.shared.connections.load(Ordering::Relaxed));
    limit_metrics(&mut out, &api, &parts);
    access_metrics(&mut out, &api, &parts);
    message_metrics(&mut out, &parts);
    latency::write(&mut out, parts.iter().map(|part| &part.latencies));
    runtime_metrics(&mut out, &api, &parts);
    listener_metrics(&mut out, &api, &parts);
    node_metrics(&mut out, &node);
    discovery::write(&mut out, &api.shared.discovered);
    bridges::write(&mut out, &api.shared);
    rules::write(&mut out, &api.shared);
    watch::write(&mut out, &api);
    watch::write_traced(&mut out, parts.iter().map(|part| &part.traced));
    if let Some(recovery) = &api.facts.recovery {
        journal_metrics(&mut out, &parts, recovery);
    }
    link_metrics(&mut out, &node.members);
    let counters = parts.iter().find_map(|part| Some((part.upstream?, &part.stats)));
    let upstream = super::upstream::status(&api).await?;
    if let Some(mirror) = upstream.as_ref().and_then(|upstream| upstream.mirror.as_ref()) {
        super::upstream::write_mirror(&mut out, mirror);
    }
    if let Some(sniff) = upstream.as_ref().and_then(|upstream| upstream.sniff.as_ref()) {
        super::upstream::write_sniff(&mut out, sniff);
    }
    if let (Some(upstream), Some((counters, stats))) = (upstream, counters) {
        super::upstream::write(&mut out, &upstream, counters, stats);
    }
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    Ok(if is_preferred(accept) {
        ([(CONTENT_TYPE, PROTOBUF_FORMAT)], out.protobuf()).into_response()
    } else {
        ([(CONTENT_TYPE, TEXT_FORMAT)], out.text()).into_response()
    })
}

/// Reads one number.
type Read<T> = fn(&T) -> u64;
/// Name, kind, help and where the number is.
type Row<'a, T> = (&'a str, Kind, &'a str, Read<T>);

/// Counts of one thread.
struct Part {
    broker: Counters,
    latencies: Latencies,
    buffers: SharedBuffers,
    shard: ShardCounters,
    backlog: ShardBacklog,
    stats: WorkerStats,
    /// How long the oldest message waits for a client that is there.
    queue_age: Duration,
    traced: watch::Traced,
    journal: Option<KeeperStats>,
    upstream: Option<sedge_sidecar::SidecarCounters>,
}

fn sum(parts: &[Part], field: impl Fn(&Part) -> u64) -> u64 {
    parts.iter().map(field).sum()
}

fn process_metrics(out: &mut Exposition, api: &Api) {
    let labels = [("version", env!("CARGO_PKG_VERSION")), ("node", &api.facts.node), ("name", &api.facts.name)];
    out.family("build_info", Kind::Gauge, "Who this is; always 1.").labelled(&labels, 1);
    out.single("uptime_seconds", Kind::Gauge, "Seconds since the start.", api.shared.clock.uptime().as_secs());
    if let Some(bytes) = process::resident_bytes() {
        out.single("process_resident_memory_bytes", Kind::Gauge, "Resident memory of the process.", bytes);
    }
    if let Some(count) = process::open_descriptors() {
        out.single("process_open_fds", Kind::Gauge, "Open file descriptors of the process.", count);
    }
    if let Some(seconds) = process::cpu_seconds() {
        out.float("process_cpu_seconds_total", Kind::Counter, "User and system time of the process.", seconds);
    }
}

fn client_metrics(out: &mut Exposition, parts: &[Part], connections: usize) {
    use Kind::{Counter, Gauge};
    let sum = |field: fn(&Counters) -> u64| sum(parts, |part| field(&part.broker));
    out.single("connections", Gauge, "Connections of clients.", connections as u64);
    out.single("sessions", Gauge, "Sessions, with and without a connection.", sum(|c| c.sessions));
    out.single("subscriptions", Gauge, "Subscriptions of these sessions.", sum(|c| c.subscriptions));
    out.single("connections_opened_total", Counter, "Connections opened.", sum(|c| c.connections_opened));
    out.single("connections_closed_total", Counter, "Connections ended.", sum(|c| c.connections_closed));
    let refused = sum(|c| c.connections_refused);
    out.single("connections_refused_total", Counter, "Connections closed before they were accepted.", refused);
    out.single(
        "takeovers_total",
        Counter,
        "Connections closed for a newer one of the same client.",
        sum(|c| c.takeovers),
    );
    let silent = sum(|c| c.keep_alive_timeouts);
    out.single("keep_alive_timeouts_total", Counter, "Connections closed because the client was silent.", silent);
    out.single("malformed_packets_total", Counter, "Packets against the protocol.", sum(|c| c.malformed));
    out.single("sessions_started_total", Counter, "Sessions that began.", sum(|c| c.sessions_started));
    out.single("sessions_resumed_total", Counter, "Sessions that a client found again.", sum(|c| c.sessions_resumed));
    out.single("sessions_expired_total", Counter, "Sessions that expired.", sum(|c| c.sessions_expired));
    out.single("wills_total", Counter, "Wills published.", sum(|c| c.wills));
}

fn access_metrics(out: &mut Exposition, api: &Api, parts: &[Part]) {
    use Kind::{Counter, Gauge};
    let sum = |field: fn(&Counters) -> u64| sum(parts, |part| field(&part.broker));
    let gate = &api.shared.gate;
    let mut family = out.family("authentications_total", Counter, "Passwords and tokens by how they were judged.");
    family.labelled(&[("way", "cached")], gate.counts.cached.load(Ordering::Relaxed));
    family.labelled(&[("way", "asked")], gate.counts.asked.load(Ordering::Relaxed));
    family.labelled(&[("way", "busy")], gate.counts.busy.load(Ordering::Relaxed));
    out.single(
        "authentications_waiting",
        Gauge,
        "Clients that wait for a thread: auth.max_waiting.",
        gate.waiting() as u64,
    );
    let refused = sum(|c| c.authentications_refused);
    out.single("authentications_refused_total", Counter, "Clients that did not prove who they are.", refused);
    let expired = sum(|c| c.expired_admissions);
    out.single("authentications_expired_total", Counter, "Clients disconnected when their token had expired.", expired);
    let refused = sum(|c| c.refused_publications);
    out.single("refused_publications_total", Counter, "Publications and wills against access rules.", refused);
    let refused = sum(|c| c.refused_subscriptions);
    out.single("refused_subscriptions_total", Counter, "Subscriptions against access rules.", refused);
}

fn limit_metrics(out: &mut Exposition, api: &Api, parts: &[Part]) {
    use Kind::{Counter, Gauge};
    let sum = |field: fn(&Counters) -> u64| sum(parts, |part| field(&part.broker));
    out.single("subscription_bytes", Gauge, "Bytes of the subscriptions of clients.", sum(|c| c.subscription_bytes));
    let help = "Subscriptions refused: limits.max_subscriptions and their bytes.";
    out.single("subscriptions_over_quota_total", Counter, help, sum(|c| c.refused_over_quota));
    let help = "Clients refused: limits.max_sessions, max_sessions_per_user, max_client_id_bytes.";
    out.single("sessions_over_quota_total", Counter, help, sum(|c| c.refused_sessions));
    let help = "Publications whose acknowledgement waits for the other end of a bridge.";
    out.single("awaited_publications", Gauge, help, sum(|c| c.awaited));
    let help = "Publications refused because the buffer of a bridge is full.";
    out.single("bridge_buffer_refused_total", Counter, help, sum(|c| c.refused_closed));
    out.single("buffered_bytes", Gauge, "Bytes held for all clients.", sum(Counters::buffered_bytes));
    let limit = api.shared.buffered_max as u64;
    out.single("buffered_bytes_limit", Gauge, "The most there may be: limits.max_buffered_bytes.", limit);
    out.single("inflight_bytes", Gauge, "Those of unacknowledged messages.", sum(|c| c.inflight_bytes));
    out.single("outbox_bytes", Gauge, "Those on their way to clients.", sum(|c| c.outbox_bytes));
    let shared = parts.iter().map(|part| part.buffers.count as u64).sum();
    out.single("shared_buffers", Gauge, "Buffers of 8 KiB that unacknowledged messages share.", shared);
    let refused = parts.iter().map(|part| part.buffers.refused).sum();
    out.single("shared_buffers_full_total", Counter, "Messages that found no room in 1,024 of them.", refused);
    let parked = sum(|c| c.packets_parked);
    out.single(
        "packets_parked_total",
        Counter,
        "QoS 2 packets that waited for another owner of their session.",
        parked,
    );
    let pauses = sum(|c| c.publish_pauses);
    out.single("publish_pauses_total", Counter, "Times a client was not read: limits.max_publish_rate.", pauses);
    let micros = sum(|c| c.publish_pause_micros);
    out.single("publish_pause_microseconds_total", Counter, "Time of these pauses.", micros);
    let addresses = api.shared.addresses.as_deref();
    let (number, rate) = addresses
        .map_or((0, 0), |table| (table.over_limit.load(Ordering::Relaxed), table.over_rate.load(Ordering::Relaxed)));
    let help = "Connections closed: limits.max_connections_per_address.";
    out.single("address_over_limit_total", Counter, help, number);
    out.single("address_over_rate_total", Counter, "Connections closed: limits.max_connect_rate_per_address.", rate);
    let known = addresses.map_or(0, AddressTable::known) as u64;
    out.single("known_addresses", Gauge, "Addresses whose connections are counted.", known);
    let users = api.shared.users.as_deref().map_or(0, |users| users.over_limit.load(Ordering::Relaxed));
    out.single("user_over_limit_total", Counter, "Clients refused: limits.max_connections_per_user.", users);
}

fn message_metrics(out: &mut Exposition, parts: &[Part]) {
    use Kind::{Counter, Gauge};
    let sum = |field: fn(&Counters) -> u64| sum(parts, |part| field(&part.broker));
    out.single("received_bytes_total", Counter, "Bytes from clients.", sum(|c| c.bytes_in));
    out.single("sent_bytes_total", Counter, "Bytes to clients.", sum(|c| c.bytes_out));
    out.single("received_packets_total", Counter, "Packets from clients.", sum(|c| c.packets_in));
    out.single("sent_packets_total", Counter, "Packets to clients.", sum(|c| c.packets_out));
    let by_qos = |field: fn(&Counters) -> [u64; 3]| {
        parts.iter().fold([0; 3], |sums: [u64; 3], part| {
            let more = field(&part.broker);
            [sums[0] + more[0], sums[1] + more[1], sums[2] + more[2]]
        })
    };
    let mut family = out.family("publishes_received_total", Counter, "PUBLISH packets from clients.");
    for (qos, count) in QOS.iter().zip(by_qos(|c| c.publishes_in)) {
        family.labelled(&[("qos", qos)], count);
    }
    let mut family = out.family("publishes_sent_total", Counter, "PUBLISH packets to clients.");
    for (qos, count) in QOS.iter().zip(by_qos(|c| c.publishes_out)) {
        family.labelled(&[("qos", qos)], count);
    }
    out.single(
        "deadlines_first_total",
        Counter,
        "Messages that left a queue before older ones, for the sake of a deadline.",
        sum(|c| c.deadlines_first),
    );
    out.single(
        "deadlines_missed_total",
        Counter,
        "Messages that waited in a queue beyond their deadline.",
        sum(|c| c.deadlines_missed),
    );
    out.single("redeliveries_total", Counter, "PUBLISH packets sent again.", sum(|c| c.redeliveries));
    out.single(
        "refused_topics_total",
        Counter,
        "Publications to topics of the broker, and with QoS 1 or 2 to topics with too many levels.",
        sum(|c| c.refused_topics),
    );
    let mut family = out.family("dropped_messages_total", Counter, "Messages that a session did not get.");
    let causes: [(&str, Read<Counters>); 8] = [
        ("queue_full_qos0", |c| c.dropped.queue_full_qos0),
        ("queue_full", |c| c.dropped.queue_full),
        ("buffers_full", |c| c.dropped.buffers_full),
        ("offline_qos0", |c| c.dropped.offline_qos0),
        ("expired", |c| c.dropped.expired),
        ("too_large", |c| c.dropped.too_large),
        ("not_authorized", |c| c.dropped.not_authorized),
        ("session_ended", |c| c.dropped.session_ended),
    ];
    for (cause, field) in causes {
        family.labelled(&[("cause", cause)], sum(field));
    }
    out.single("queued_messages", Gauge, "Messages that wait for sessions.", sum(|c| c.queued_messages));
    out.single("queued_bytes", Gauge, "Bytes that wait for sessions.", sum(|c| c.queued_bytes));
    let age = parts.iter().map(|part| part.queue_age).max().unwrap_or_default();
    let help = "Age of the oldest message that waits for a connected client.";
    out.float("queue_age_seconds", Gauge, help, age.as_secs_f64());
}

/// Figures of each shard's own tables.
fn shard_metrics(out: &mut Exposition, parts: &[Part]) {
    use Kind::{Counter, Gauge};
    let rows: [Row<'_, Part>; 5] = [
        ("shard_publications_crossed_total", Counter, "Publications for other shards.", |part| part.shard.to_shards),
        (
            "shard_group_messages_dropped_total",
            Counter,
            "Messages for shared subscriptions without any member.",
            |part| part.shard.groups_dropped,
        ),
        ("shard_handover_messages_dropped_total", Counter, "Messages for moving sessions over their limits.", |part| {
            part.shard.handover_dropped
        }),
        ("shard_sessions_held_up", Gauge, "Sessions that leave when publications of the journal are out.", |part| {
            part.backlog.held_up as u64
        }),
        (
            "shard_publications_not_copied",
            Gauge,
            "QoS 2 publications that the node's backups do not have yet.",
            |part| part.backlog.reads as u64,
        ),
    ];
    by_shard(out, parts, rows);
}

fn by_shard<const N: usize>(out: &mut Exposition, parts: &[Part], rows: [Row<'_, Part>; N]) {
    for (name, kind, help, field) in rows {
        let mut family = out.family(name, kind, help);
        for (shard, part) in parts.iter().enumerate() {
            family.labelled(&[("shard", &shard.to_string())], field(part));
        }
    }
}

fn runtime_metrics(out: &mut Exposition, api: &Api, parts: &[Part]) {
    use Kind::{Counter, Gauge};
    let per_shard: [Row<'_, Part>; 9] = [
        ("shard_connections", Gauge, "Connections of each shard.", |part| part.stats.connections as u64),
        ("shard_turns_total", Counter, "Turns of each event loop.", |part| part.stats.turns),
        ("shard_reads_total", Counter, "Reads from sockets.", |part| part.stats.reads),
        ("shard_writes_total", Counter, "Vectored writes to sockets.", |part| part.stats.writes),
        ("shard_writes_blocked_total", Counter, "Writes that a socket did not take.", |part| part.stats.writes_blocked),
        ("shard_writes_put_off", Gauge, "Connections that are written to in a later turn.", |part| {
            part.stats.put_off as u64
        }),
        ("shard_letters_total", Counter, "Letters to other threads.", |part| part.stats.letters),
        ("shard_batches_total", Counter, "Batches of letters.", |part| part.stats.batches),
        ("shard_mailbox_full_total", Counter, "Times that a full mailbox stopped reading.", |part| {
            part.stats.mailbox_full
        }),
    ];
    by_shard(out, parts, per_shard);
    shard_metrics(out, parts);
    let now = api.shared.clock.now().instant;
    let lag = parts.iter().map(|part| part.stats.lag.longest(now)).max().unwrap_or_default();
    out.float("loop_lag_seconds", Gauge, "The longest turn of an event loop in the last 5 to 10 s.", lag.as_secs_f64());
    let mut family = out.family("shard_mailbox_letters", Gauge, "Letters that wait for each shard.");
    for (shard, mailbox) in api.shared.boxes.iter().enumerate() {
        family.labelled(&[("shard", &shard.to_string())], mailbox.len() as u64);
    }
    let sum = |field: fn(&WorkerStats) -> u64| sum(parts, |part| field(&part.stats));
    out.single("accepted_total", Counter, "Connections accepted.", sum(|s| s.accepted));
    out.single(
        "accept_over_limit_total",
        Counter,
        "Connections closed: limits.max_connections.",
        sum(|s| s.over_limit),
    );
    let visits = &api.shared.http_visits;
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    out.single("http_connections", Gauge, "Connections to the HTTP port.", visits.count() as u64);
    let help = "Times that there were http.max_connections, or as many as the limit of open files leaves.";
    out.single("http_over_limit_total", Counter, help, count(&visits.over_limit));
    let help = "HTTP connections closed: http.request_timeout, http.idle_timeout.";
    out.single("http_timeouts_total", Counter, help, count(&visits.late));
    out.single("http_starved_total", Counter, "Pauses of HTTP for want of file descriptors.", count(&visits.starved));
    out.single("accept_starved_total", Counter, "Pauses for want of file descriptors.", sum(|s| s.no_descriptors));
    out.single(
        "connect_timeouts_total",
        Counter,
        "Connections without a CONNECT in time.",
        sum(|s| s.connect_timeouts),
    );
    out.single("handovers_total", Counter, "Connections handed to another shard.", sum(|s| s.handovers));
    let mut family = out.family("log_lines_suppressed_total", Counter, "Lines beyond log.lines_per_second.");
    for kind in LineKind::ALL {
        let count = parts.iter().map(|part| part.stats.log_suppressed[kind as usize]).sum();
        family.labelled(&[("kind", kind.name())], count);
    }
    out.single("datagrams_received_total", Counter, "Datagrams from nodes.", sum(|s| s.datagrams_in));
    out.single("datagrams_sent_total", Counter, "Datagrams to nodes.", sum(|s| s.datagrams_out));
    out.single("datagrams_refused_total", Counter, "Datagrams without the right seal.", sum(|s| s.datagrams_refused));
    out.single("datagrams_lost_total", Counter, "Datagrams that could not be sent.", sum(|s| s.datagrams_lost));
}

fn listener_metrics(out: &mut Exposition, api: &Api, parts: &[Part]) {
    use Kind::{Counter, Gauge};
    let fields: [Row<'_, Listener>; 4] = [
        ("listener_connections", Gauge, "Connections of each listener.", |listener| {
            listener.connections.load(Ordering::Relaxed) as u64
        }),
        ("listener_accepted_total", Counter, "Connections accepted by each listener.", |listener| {
            listener.accepted.load(Ordering::Relaxed)
        }),
        ("listener_over_limit_total", Counter, "Connections closed: listener.NAME.max_connections.", |listener| {
            listener.over_limit.load(Ordering::Relaxed)
        }),
        ("listener_over_rate_total", Counter, "Connections closed: max_connect_rate.", |listener| {
            listener.over_rate.load(Ordering::Relaxed)
        }),
    ];
    for (name, kind, help, field) in fields {
        let mut family = out.family(name, kind, help);
        for listener in &api.shared.listeners {
            family.labelled(&[("listener", &listener.name), ("protocol", listener.protocol.name())], field(listener));
        }
    }
    let open = sum(parts, |part| part.stats.handshaking as u64);
    out.single("handshakes", Gauge, "Connections before the end of TLS, WebSocket or PROXY handshakes.", open);
    let done = sum(parts, |part| part.stats.handshakes);
    out.single("handshakes_total", Counter, "TLS, WebSocket and PROXY handshakes that came about.", done);
    let mut family = out.family("handshake_failures_total", Counter, "Connections that broke below MQTT.");
    for (index, (_, reason)) in Reason::ALL.iter().enumerate() {
        let count = sum(parts, |part| part.stats.faults.get(index).copied().unwrap_or(0));
        family.labelled(&[("reason", reason)], count);
    }
}

fn node_metrics(out: &mut Exposition, node: &NodeStatus) {
    use Kind::{Counter, Gauge};
    let state = super::handlers::state_name(node.state);
    out.family("node_state", Gauge, "State of the node; always 1.").labelled(&[("state", state)], 1);
    out.single("members", Gauge, "Members of the cluster, this node included.", node.members.len() as u64);
    out.single(
        "members_dead",
        Gauge,
        "Members that died a short while ago: cluster.autoclean.",
        node.dead.len() as u64,
    );
    let links = node.members.iter().filter(|member| member.link.is_some()).count();
    out.single("links", Gauge, "Links to other members.", links as u64);
    let neighbours = node.neighbours.as_ref().map_or(0, |neighbours| neighbours.lines.len());
    out.single("neighbours", Gauge, "Links that operators have chosen: cluster.links.", neighbours as u64);
    out.single("unreached_seeds", Gauge, "Seeds that have not answered.", node.unreached_seeds.len() as u64);
    out.single(
        "awaited_members",
        Gauge,
        "Members that the node waits for before it lets clients in: cluster.recovery_timeout.",
        node.awaited.len() as u64,
    );
    out.single("routes", Gauge, "Lines of the routing table.", node.routes as u64);
    out.single("retained_messages", Gauge, "Retained messages.", node.retained as u64);
    out.single("retained_bytes", Gauge, "Bytes of retained messages.", node.retained_bytes as u64);
    let help = "Topics that were cleared or expired, and are remembered.";
    out.single("retained_tombstones", Gauge, help, node.tombstones as u64);
    out.single("retained_tombstone_bytes", Gauge, "Bytes of these topics.", node.tombstone_bytes as u64);
    out.single(
        "unacknowledged",
        Gauge,
        "Publications that neighbours have not acknowledged.",
        node.unacknowledged as u64,
    );
    out.single("relayed", Gauge, "Publications sent over other nodes that have not arrived.", node.relayed as u64);
    out.single("relay_held", Gauge, "Publications that wait for earlier ones of their sender.", node.relay_held as u64);
    out.single(
        "relay_kept",
        Gauge,
        "Publications to new topics that wait for others to want them.",
        node.relay_kept as u64,
    );
    copies_metrics(out, node);
    for (name, count) in &node.counters {
        out.single(&format!("{name}_total"), Counter, "Counted by the node.", *count);
    }
}

fn copies_metrics(out: &mut Exposition, node: &NodeStatus) {
    let copies = [
        ("copies", "Nodes that hold this node's sessions, itself included.", node.copies),
        ("copies_wanted", "How many that should be.", node.copies_wanted),
        ("sessions_moving", "Sessions on their way to or from this node.", node.moving),
        ("sessions_arrived", "Sessions that have moved here, while it is known what they had before.", node.arrived),
        ("sessions_left", "Sessions that have left, while it is known where they went.", node.left),
        ("sessions_early", "Sessions that wait here until it is known to whom they belong.", node.early),
        ("sessions_asked_early", "Questions that wait until it is known that a node is gone.", node.asked_early),
        (
            "sessions_kept_elsewhere",
            "Sessions that another node keeps of whose copy this one was asked.",
            node.kept_elsewhere,
        ),
        ("nodes_away", "Nodes that are gone without a farewell and have not come back.", node.away),
        ("replicas", "Nodes whose sessions this node holds a copy of.", node.replicas),
        ("orphaned_nodes", "Nodes that are gone and whose sessions are being taken over.", node.orphaned),
        ("strays", "Publications kept for nodes that are gone or out of reach: limits.max_absent_bytes.", node.strays),
        ("stray_bytes", "Bytes of these publications.", node.stray_bytes),
        ("draining", "1 while the node is being emptied, 2 when it is empty.", node.drain.state as usize),
        ("drain_sessions_left", "Sessions that still have to leave.", node.drain.sessions_left),
        (
            "drain_replicas_left",
            "Nodes that still have copies here and are to have them elsewhere.",
            node.drain.replicas_left,
        ),
    ];
    for (name, help, value) in copies {
        out.single(name, Kind::Gauge, help, value as u64);
    }
}

fn journal_metrics(out: &mut Exposition, parts: &[Part], recovery: &RecoveryReport) {
    use Kind::{Counter, Gauge};
    let rows: [Row<'_, KeeperStats>; 11] = [
        ("journal_bytes", Gauge, "Size of the journal.", |journal| journal.bytes),
        ("journal_segments", Gauge, "Files of the journal.", |journal| journal.segments),
        ("journal_full", Gauge, "Whether there is no room in the journal.", |journal| u64::from(journal.full)),
        ("journal_batches_total", Counter, "Batches written.", |journal| journal.batches),
        ("journal_written_bytes_total", Counter, "Bytes of these batches.", |journal| journal.written),
        ("journal_commits_total", Counter, "Calls of fdatasync.", |journal| journal.commits.0),
        ("journal_commit_microseconds_total", Counter, "Time of these calls.", |journal| journal.commits.1),
        ("journal_commit_microseconds_max", Gauge, "The slowest of these calls.", |journal| journal.commits.2),
        ("journal_waiting_bytes", Gauge, "Bytes that wait to be written.", |journal| journal.waiting),
        ("journal_checkpoints_total", Counter, "Checkpoints that shortened the journal.", |journal| {
            journal.checkpoints
        }),
        ("journal_full_total", Counter, "Times that there was no room.", |journal| journal.times_full),
    ];
    for (name, kind, help, field) in rows {
        let mut family = out.family(name, kind, help);
        for (shard, part) in parts.iter().enumerate() {
            family.labelled(&[("shard", &shard.to_string())], part.journal.as_ref().map_or(0, field));
        }
    }
    let refused = sum(parts, |part| part.broker.refused_full);
    out.single("journal_refused_total", Counter, "Publications refused for want of room.", refused);
    let bytes = recovery.dropped_bytes;
    out.single("journal_recovery_dropped_bytes", Gauge, "Bytes the start found damaged.", bytes);
    let missing = recovery.missing_batches;
    out.single("journal_recovery_missing_batches", Gauge, "Batches the start did not find.", missing);
    let segments = recovery.missing_segments;
    out.single("journal_recovery_missing_segments", Gauge, "Files the start did not find.", segments);
    let shards = recovery.missing_shards;
    out.single("journal_recovery_missing_shards", Gauge, "Shards whose directory the start did not find.", shards);
    let undelivered = recovery.undelivered;
    out.single("journal_recovery_undelivered", Gauge, "Deliveries whose message the start did not find.", undelivered);
    out.single("journal_recovery_milliseconds", Gauge, "Time the start took to read the journal.", recovery.millis);
}

fn link_metrics(out: &mut Exposition, members: &[MemberStatus]) {
    use Kind::{Counter, Gauge};
    let fields: [Row<'_, LinkStatus>; 8] = [
        ("link_rtt_microseconds", Gauge, "Round trip, smoothed.", |link| u64::from(link.rtt_micros)),
        ("link_carried", Gauge, "Whether another node carries it.", |link| u64::from(link.via.is_some())),
        ("link_synced", Gauge, "Whether both sides know each other's tables.", |link| u64::from(link.synced)),
        ("link_unacknowledged", Gauge, "Frames not acknowledged.", |link| link.unacknowledged as u64),
        ("link_publications_sent_total", Counter, "Publications sent.", |link| link.publications_sent),
        ("link_publications_received_total", Counter, "Publications received.", |link| link.publications_received),
        ("link_sent_bytes_total", Counter, "Bytes sent.", |link| link.bytes_sent),
        ("link_received_bytes_total", Counter, "Bytes received.", |link| link.bytes_received),
    ];
    for (name, kind, help, field) in fields {
        let mut family = out.family(name, kind, help);
        for member in members {
            if let Some(link) = &member.link {
                family.labelled(&[("peer", &member.node.to_string())], field(link));
            }
        }
    }
    let help = "Milliseconds between the member's system clock and this node's: cluster.clock_tolerance.";
    let mut family = out.family("clock_difference_milliseconds", Gauge, help);
    for member in members {
        if let Some(ahead) = member.clock_ahead {
            family.labelled(&[("peer", &member.node.to_string())], ahead.unsigned_abs());
        }
    }
}
