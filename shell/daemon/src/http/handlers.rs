//! Health, status and cluster.

use std::sync::atomic::Ordering;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use sedge_broker::Counters;
use sedge_cluster::{DeadStatus, LinkStatus, MemberStatus, NodeState, NodeStatus};
use serde::Deserialize;

use super::ask::{ask_all, ask_node};
use super::desk::{Inquiry, ask_member};
use super::error::ApiError;
use super::model::{
    Cluster, DeadMember, DiscoverySource, ErrorBody, JournalStatus, Link, Liveness, Member, Orphan, Readiness,
    RecoveryReport, Reload, ReloadedPart, Status,
};
use super::process;
use super::scope::{Scope, scope};
use super::server::Api;
use crate::discovery::{Source, SourceState};
use crate::runtime::KeeperStats;
use crate::{ReloadReport, Reloaded};

/// Entries of a list when nothing is said.
pub(super) const PAGE: usize = 100;
/// Most entries of a list: they are collected by a thread that serves clients.
pub(super) const PAGE_MAX: usize = 1000;

/// The parameters of a request, or what is wrong with them.
pub(super) fn parameters<T>(query: Result<Query<T>, QueryRejection>) -> Result<T, ApiError> {
    query.map(|Query(parameters)| parameters).map_err(|rejection| ApiError::BadRequest(rejection.body_text()))
}

pub(super) fn check_limit(limit: usize) -> Result<usize, ApiError> {
    if limit == 0 || limit > PAGE_MAX {
        return Err(ApiError::BadRequest(format!("limit is not between 1 and {PAGE_MAX}")));
    }
    Ok(limit)
}

/// Whether the process lives: all shards answer.
#[utoipa::path(get, path = "/health/live", tag = "health", responses(
    (status = 200, body = Liveness), (status = 503, body = ErrorBody)))]
pub(super) async fn live(State(api): State<Api>) -> Result<Json<Liveness>, ApiError> {
    ask_all(&api.shared, |_| ()).await?;
    Ok(Json(Liveness { alive: true }))
}

/// Whether the node is ready for clients; status 503 and the reasons while it is not.
#[utoipa::path(get, path = "/health/ready", tag = "health", responses(
    (status = 200, body = Readiness), (status = 503, body = Readiness)))]
pub(super) async fn ready(State(api): State<Api>) -> (StatusCode, Json<Readiness>) {
    let reasons = match ask_node(&api.shared, |node| (node.is_ready(), node.status())).await {
        Ok((ready, node)) => {
            let mut reasons = not_ready(&api, ready, &node);
            reasons.extend(super::upstream::not_ready(&api).await);
            reasons
        }
        Err(_) => vec!["the node does not answer".to_owned()],
    };
    let ready = reasons.is_empty();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(Readiness { ready, reasons }))
}

fn not_ready(api: &Api, ready: bool, node: &NodeStatus) -> Vec<String> {
    let mut reasons = Vec::new();
    if api.shared.stopping.load(Ordering::Acquire) {
        reasons.push("the node stops".to_owned());
    } else if !ready {
        reasons.push(match node.state {
            NodeState::Discovery | NodeState::Recovery if !node.awaited.is_empty() => {
                let awaited = awaited(node).join(", ");
                format!("the node waits until it has learned everything from its members: {awaited}")
            }
            NodeState::Discovery => "the node has not found any other yet".to_owned(),
            NodeState::Recovery => "the node has not learned everything from the others yet".to_owned(),
            NodeState::Leaving => "the node leaves the cluster".to_owned(),
            NodeState::Normal => "the node is being emptied".to_owned(),
        });
    }
    reasons
}

/// Which node.
#[derive(Clone, Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Of {
    /// Name or id of the node; the one that is asked if nothing is said.
    node: Option<String>,
}

/// A node as a whole.
#[utoipa::path(get, path = "/api/v1/status", tag = "node", params(Of), responses(
    (status = 200, body = Status), (status = 404, body = ErrorBody), (status = 504, body = ErrorBody)))]
pub(super) async fn status(
    State(api): State<Api>,
    query: Result<Query<Of>, QueryRejection>,
) -> Result<Json<Status>, ApiError> {
    match scope(&api, parameters(query)?.node.as_deref()).await? {
        Scope::Here => own_status(&api).await.map(Json),
        Scope::One(node) => ask_member(&api, node, &Inquiry::Status).await.map(Json),
        Scope::All(_) => Err(ApiError::BadRequest("a status is that of one node; see /api/v1/members".to_owned())),
    }
}

/// This node as a whole.
pub(super) async fn own_status(api: &Api) -> Result<Status, ApiError> {
    let (node, ready) = ask_node(&api.shared, |node| (node.status(), node.is_ready())).await?;
    let counters = ask_all(&api.shared, |view| view.shard.broker().counters().clone()).await?;
    let journals = ask_all(&api.shared, |view| view.journal.clone()).await?;
    let sum = |field: fn(&Counters) -> u64| counters.iter().map(field).sum();
    let mut not_ready = not_ready(api, ready, &node);
    not_ready.extend(super::upstream::not_ready(api).await);
    let facts = &api.facts;
    let links = super::neighbours::model(&node);
    let journal = facts.recovery.clone().map(|recovery| journal_status(journals.iter().flatten(), recovery));
    Ok(Status {
        node: facts.node.clone(),
        name: facts.name.clone(),
        incarnation: facts.incarnation,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        cluster: facts.cluster.clone(),
        state: state_name(node.state).to_owned(),
        ready: not_ready.is_empty(),
        not_ready,
        warnings: super::members::warnings(&node, journal.as_ref()),
        overlay: node.overlay.to_owned(),
        uptime_seconds: api.shared.clock.uptime().as_secs(),
        addresses: facts.listening.clone(),
        shards: u16::try_from(api.shared.boxes.len()).unwrap_or(u16::MAX),
        members: node.members.len(),
        links: node.members.iter().filter(|member| member.link.is_some()).count(),
        unreached_seeds: unreached(&node),
        awaited_members: awaited(&node),
        refused_nodes: refused(&node),
        connections: api.shared.connections.load(Ordering::Relaxed) as u64,
        sessions: sum(|counters| counters.sessions),
        subscriptions: sum(|counters| counters.subscriptions),
        queued_messages: sum(|counters| counters.queued_messages),
        routes: node.routes,
        retained: node.retained,
        retained_bytes: node.retained_bytes,
        retained_tombstones: node.tombstones,
        retained_tombstone_bytes: node.tombstone_bytes,
        unacknowledged: node.unacknowledged,
        relayed: node.relayed,
        relay_held: node.relay_held,
        relay_kept: node.relay_kept,
        copies: node.copies,
        copies_wanted: node.copies_wanted,
        moving: node.moving,
        replicas: node.replicas,
        orphaned: node.orphaned,
        strays: node.strays,
        drain: super::drain::model(api, node.drain),
        neighbours: node.neighbours.as_ref().map_or(0, |neighbours| neighbours.lines.len()),
        link_mode: links.links,
        link_qos: links.link_qos,
        link_connections: links.link_connections,
        link_order: links.link_order,
        upstream: super::upstream::status(api).await?,
        durability: facts.durability.to_owned(),
        journal,
        disk_free_bytes: facts.data_dir.as_deref().and_then(process::free_bytes),
        resident_bytes: process::resident_bytes().unwrap_or(0),
    })
}

fn journal_status<'a>(journals: impl Iterator<Item = &'a KeeperStats>, recovery: RecoveryReport) -> JournalStatus {
    let empty = JournalStatus { bytes: 0, segments: 0, full: false, recovery };
    journals.fold(empty, |status, journal| JournalStatus {
        bytes: status.bytes + journal.bytes,
        segments: status.segments + journal.segments,
        full: status.full || journal.full,
        ..status
    })
}

pub(super) const fn state_name(state: NodeState) -> &'static str {
    match state {
        NodeState::Discovery => "discovery",
        NodeState::Recovery => "recovery",
        NodeState::Normal => "normal",
        NodeState::Leaving => "leaving",
    }
}

fn refused(node: &NodeStatus) -> Vec<String> {
    node.refused.iter().map(|refused| refused.why.clone()).collect()
}

fn awaited(node: &NodeStatus) -> Vec<String> {
    node.awaited.iter().map(|(node, address)| format!("{node} at {address}")).collect()
}

fn unreached(node: &NodeStatus) -> Vec<String> {
    node.unreached_seeds.iter().map(ToString::to_string).collect()
}

/// The cluster as this node sees it.
#[utoipa::path(get, path = "/api/v1/cluster", tag = "cluster", responses((status = 200, body = Cluster)))]
pub(super) async fn cluster(State(api): State<Api>) -> Result<Json<Cluster>, ApiError> {
    let node = ask_node(&api.shared, sedge_cluster::Node::status).await?;
    Ok(Json(Cluster {
        node: api.facts.node.clone(),
        cluster: node.cluster.clone(),
        overlay: node.overlay.to_owned(),
        members: node.members.iter().map(|member| member_model(member, &node)).collect(),
        dead: node.dead.iter().map(dead_model).collect(),
        discovery: api.shared.discovered.states().into_iter().map(source_model).collect(),
        unreached_seeds: unreached(&node),
    }))
}

fn member_model(member: &MemberStatus, this: &NodeStatus) -> Member {
    Member {
        node: member.node.to_string(),
        name: member.name.clone(),
        incarnation: member.incarnation.get(),
        address: member.address.to_string(),
        this: member.node == this.node,
        link: member.link.as_ref().map(link_model),
        clock_ahead_ms: member.clock_ahead,
    }
}

fn source_model((source, state): (Source, SourceState)) -> DiscoverySource {
    DiscoverySource {
        source: source.name().to_owned(),
        addresses: state.addresses.iter().map(ToString::to_string).collect(),
        failure: state.failure,
    }
}

pub(super) fn dead_model(dead: &DeadStatus) -> DeadMember {
    DeadMember {
        node: dead.node.to_string(),
        name: dead.name.clone(),
        incarnation: dead.incarnation.get(),
        address: dead.address.to_string(),
        seconds: dead.since.as_secs(),
        orphans: dead.orphans.iter().map(orphan_model).collect(),
    }
}

fn orphan_model(orphan: &sedge_cluster::Orphan) -> Orphan {
    Orphan { client: orphan.client.as_str().to_owned(), filters: orphan.filters.clone() }
}

pub(super) fn link_model(link: &LinkStatus) -> Link {
    Link {
        via: link.via.map(|node| node.to_string()),
        connections: link.connections,
        rtt_micros: link.rtt_micros,
        protocol: link.version,
        synced: link.synced,
        unacknowledged: link.unacknowledged,
        publications_sent: link.publications_sent,
        publications_received: link.publications_received,
        bytes_sent: link.bytes_sent,
        bytes_received: link.bytes_received,
    }
}

/// Reads again what is kept in files of its own, such as certificates, and which bridges and rules there are. Each part stands for itself. Says
/// which changed keys count from then on, and which from the next start on.
#[utoipa::path(post, path = "/api/v1/reload", tag = "node", responses(
    (status = 200, body = Reload), (status = 422, body = Reload)))]
pub(super) async fn reload(State(api): State<Api>) -> (StatusCode, Json<Reload>) {
    let part = |part: Reloaded| ReloadedPart { what: part.what, problem: part.problem };
    // Bridges that end take a moment.
    let done = tokio::task::spawn_blocking(move || crate::reload::reload(&api.shared)).await;
    let broken = |error: tokio::task::JoinError| {
        let parts = vec![Reloaded { what: "configuration".to_owned(), problem: Some(error.to_string()) }];
        ReloadReport { parts, ..ReloadReport::default() }
    };
    let ReloadReport { parts, applied, restart } = done.unwrap_or_else(broken);
    let reloaded: Vec<_> = parts.into_iter().map(part).collect();
    let good = reloaded.iter().all(|part| part.problem.is_none());
    let status = if good { StatusCode::OK } else { StatusCode::UNPROCESSABLE_ENTITY };
    (status, Json(Reload { reloaded, applied, restart }))
}
