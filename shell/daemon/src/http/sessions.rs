//! Sessions: looking at them, and ending a client's connection.

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use sedge_base::{ClientId, ShardId};
use sedge_broker::SessionInfo;
use sedge_cluster::mail::ToShard;
use sedge_mqtt::{ReasonCode, Version};
use serde::Deserialize;

use super::ask::ask;
use super::error::ApiError;
use super::handlers::{PAGE, check_limit, parameters};
use super::model::{ErrorBody, Kicked, Session, Sessions, Subscription};
use super::server::Api;
use crate::runtime::{Letter, Shared, View};

/// Which sessions.
#[derive(Clone, Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Which {
    /// Sessions to leave out at the beginning.
    #[serde(default)]
    offset: usize,
    /// Most sessions, 1 to 1000; 100 if nothing is said.
    limit: Option<usize>,
    /// Only the session of this client.
    client: Option<String>,
}

/// Some of the sessions of this node, shard by shard.
#[utoipa::path(get, path = "/api/v1/sessions", tag = "sessions", params(Which), responses(
    (status = 200, body = Sessions), (status = 400, body = ErrorBody)))]
pub(super) async fn sessions(
    State(api): State<Api>,
    query: Result<Query<Which>, QueryRejection>,
) -> Result<Json<Sessions>, ApiError> {
    let Which { offset, limit, client } = parameters(query)?;
    let limit = check_limit(limit.unwrap_or(PAGE))?;
    if let Some(client) = client {
        let found = find(&api.shared, &client).await?;
        let (total, skipped) = (usize::from(found.is_some()), offset > 0);
        let sessions = found.filter(|_| !skipped).into_iter().collect();
        return Ok(Json(Sessions { total, offset, limit, sessions }));
    }
    let (mut total, mut page) = (0, Vec::new());
    for number in 0..api.shared.boxes.len() {
        let skip = offset.saturating_sub(total);
        let take = limit - page.len();
        let shard = ShardId(u16::try_from(number).unwrap_or(0));
        let (here, found) = ask(&api.shared, shard, move |view| part(view, skip, take)).await?;
        total += here;
        page.extend(found);
    }
    Ok(Json(Sessions { total, offset, limit, sessions: page }))
}

/// The sessions of a shard from the `skip`th on, and how many there are in all.
fn part(view: &View<'_>, skip: usize, take: usize) -> (usize, Vec<Session>) {
    let broker = view.shard.broker();
    let here = usize::try_from(broker.counters().sessions).unwrap_or(usize::MAX);
    if skip >= here || take == 0 {
        return (here, Vec::new());
    }
    (here, broker.sessions().skip(skip).take(take).map(|info| model(view.id, &info)).collect())
}

/// The session of a client, which can be in one shard only.
async fn find(shared: &Shared, client: &str) -> Result<Option<Session>, ApiError> {
    let client = ClientId::new(client);
    let shard = shard_of(shared, &client);
    let look = move |view: &View<'_>| {
        let mut sessions = view.shard.broker().sessions();
        sessions.find(|info| info.client == client).map(|info| model(view.id, &info))
    };
    ask(shared, shard, look).await
}

fn shard_of(shared: &Shared, client: &ClientId) -> ShardId {
    let shard = client.stable_hash() % (shared.boxes.len() as u64).max(1);
    ShardId(u16::try_from(shard).unwrap_or(0))
}

/// Ends a client's connection (5.0: with reason code 0x98, administrative action). Its session stays.
#[utoipa::path(delete, path = "/api/v1/sessions/{client}/connection", tag = "sessions",
    params(("client" = String, Path, description = "Client identifier, percent-encoded")),
    responses((status = 200, body = Kicked), (status = 404, body = ErrorBody)))]
pub(super) async fn kick(State(api): State<Api>, Path(client): Path<String>) -> Result<Json<Kicked>, ApiError> {
    let session = find(&api.shared, &client).await?;
    let Some(session) = session.filter(|session| session.connected) else {
        return Err(ApiError::NotFound(format!("client {client:?} is not connected to this node")));
    };
    let id = ClientId::new(&client);
    let shard = shard_of(&api.shared, &id);
    let mail = ToShard::Kick { client: id, reason: ReasonCode::AdministrativeAction };
    api.shared.post(shard, Letter::Shard(mail));
    tracing::info!(client, peer = session.peer, "client's connection ended by request");
    Ok(Json(Kicked { client, peer: session.peer }))
}

fn model(shard: ShardId, info: &SessionInfo) -> Session {
    let subscriptions = info.subscriptions.iter().map(|subscription| Subscription {
        filter: subscription.filter.to_string(),
        qos: subscription.options.qos as u8,
        id: subscription.id,
    });
    Session {
        client: info.client.to_string(),
        connected: info.connection.is_some(),
        peer: info.peer.clone(),
        user: info.user.clone(),
        protocol: protocol(info.version).to_owned(),
        shard: shard.0,
        epoch: info.epoch,
        clean: info.clean,
        expiry_seconds: info.expiry_secs,
        keep_alive_seconds: info.keep_alive_secs,
        disconnected_at_ms: info.disconnected_at.map(sedge_base::Timestamp::as_millis),
        subscriptions: subscriptions.collect(),
        queued_messages: info.queued,
        queued_bytes: info.queued_bytes,
        inflight: info.inflight,
        incoming_qos2: info.inbound,
        will: info.will,
    }
}

const fn protocol(version: Version) -> &'static str {
    match version {
        Version::V311 => "3.1.1",
        Version::V5 => "5.0",
    }
}
