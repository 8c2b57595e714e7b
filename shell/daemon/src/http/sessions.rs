//! Sessions: looking at them, and ending a client's connection.

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use sedge_base::{ClientId, ShardId};
use sedge_broker::SessionInfo;
use sedge_cluster::mail::ToShard;
use sedge_mqtt::{PacketKind, ReasonCode, Version};
use serde::Deserialize;
use tokio::sync::oneshot;

use super::ask::{PATIENCE, ask, ask_all};
use super::error::ApiError;
use super::handlers::{PAGE, check_limit, parameters};
use super::model::{ErrorBody, Kicked, Session, Sessions, Subscription};
use super::server::Api;
use crate::runtime::{Letter, RemoteKick, Shared, View};

/// Which sessions.
#[derive(Clone, Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Which {
    /// Sessions to leave out at the beginning.
    #[serde(default)]
    offset: usize,
    /// Most sessions, 1 to 1000; 100 if nothing is said.
    limit: Option<usize>,
    /// In place of an offset: go on where the last answer said, whatever has come and gone meanwhile.
    cursor: Option<String>,
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
    let Which { offset, limit, cursor, client } = parameters(query)?;
    let limit = check_limit(limit.unwrap_or(PAGE))?;
    if let Some(client) = client {
        let found = find(&api.shared, &client).await?;
        let (total, skipped) = (usize::from(found.is_some()), offset > 0);
        let sessions = found.filter(|_| !skipped).into_iter().collect();
        return Ok(Json(Sessions { total, offset, limit, sessions, next: None }));
    }
    let counts = ask_all(&api.shared, |view| view.shard.broker().counters().sessions).await?;
    let counts: Vec<usize> = counts.into_iter().map(|count| usize::try_from(count).unwrap_or(usize::MAX)).collect();
    let total = counts.iter().sum();
    let mut at = match &cursor {
        Some(_) if offset > 0 => return Err(ApiError::BadRequest("either offset or cursor".to_owned())),
        Some(cursor) => Place::parse(cursor).ok_or_else(|| ApiError::BadRequest("no such cursor".to_owned()))?,
        None => Place::default(),
    };
    let (mut skip, mut page) = (offset, Vec::new());
    while let Some(&here) = counts.get(usize::from(at.shard)) {
        if page.len() == limit {
            return Ok(Json(Sessions { total, offset, limit, sessions: page, next: Some(at.to_string()) }));
        }
        if at.key == 0 && skip >= here {
            skip -= here;
            at = Place { shard: at.shard + 1, key: 0 };
            continue;
        }
        let (from, left, take) = (at.key, std::mem::take(&mut skip), limit - page.len());
        let (found, next) = ask(&api.shared, ShardId(at.shard), move |view| part(view, from, left, take)).await?;
        page.extend(found);
        at = next.map_or(Place { shard: at.shard + 1, key: 0 }, |key| Place { shard: at.shard, key });
    }
    Ok(Json(Sessions { total, offset, limit, sessions: page, next: None }))
}

/// Where a list goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Place {
    shard: u16,
    key: usize,
}

impl Place {
    fn parse(text: &str) -> Option<Self> {
        let (shard, key) = text.split_once('-')?;
        Some(Self { shard: shard.parse().ok()?, key: key.parse().ok()? })
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.shard, self.key)
    }
}

/// The sessions of a shard from a place on, `skip` of them left out; and where to go on, if there may be more.
fn part(view: &View<'_>, from: usize, skip: usize, take: usize) -> (Vec<Session>, Option<usize>) {
    let broker = view.shard.broker();
    let (_, from) = if skip > 0 { broker.sessions_from(from, skip) } else { (Vec::new(), Some(from)) };
    let Some(from) = from else { return (Vec::new(), None) };
    let (found, next) = broker.sessions_from(from, take);
    (found.iter().map(|info| model(view.id, info)).collect(), next)
}

/// The session of a client, which can be in one shard only.
async fn find(shared: &Shared, client: &str) -> Result<Option<Session>, ApiError> {
    let client = ClientId::new(client);
    let shard = shard_of(shared, &client);
    let look = move |view: &View<'_>| view.shard.broker().session(&client).map(|info| model(view.id, &info));
    ask(shared, shard, look).await
}

fn shard_of(shared: &Shared, client: &ClientId) -> ShardId {
    let shard = client.stable_hash() % (shared.boxes.len() as u64).max(1);
    ShardId(u16::try_from(shard).unwrap_or(0))
}

/// What the client is told.
#[derive(Clone, Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Why {
    /// Reason code of DISCONNECT for 5.0 clients, such as `0x87` or `135`; 0x98 (administrative action) if nothing is said.
    reason: Option<String>,
}

impl Why {
    fn code(&self) -> Result<ReasonCode, ApiError> {
        let Some(text) = &self.reason else { return Ok(ReasonCode::AdministrativeAction) };
        let number = text.strip_prefix("0x").map_or_else(|| text.parse().ok(), |hex| u8::from_str_radix(hex, 16).ok());
        let code = number.and_then(ReasonCode::from_u8);
        let code = code.filter(|code| code.is_error() && code.valid_for(PacketKind::Disconnect));
        code.ok_or_else(|| {
            ApiError::BadRequest(format!("reason {text:?} is no reason code of DISCONNECT from 0x80 on"))
        })
    }
}

/// Ends a client's connection, at whichever node it is. Its session stays as it was agreed.
#[utoipa::path(delete, path = "/api/v1/sessions/{client}/connection", tag = "sessions",
    params(("client" = String, Path, description = "Client identifier, percent-encoded"), Why),
    responses((status = 200, body = Kicked), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody)))]
pub(super) async fn kick(
    State(api): State<Api>,
    Path(client): Path<String>,
    why: Result<Query<Why>, QueryRejection>,
) -> Result<Json<Kicked>, ApiError> {
    end(&api, client, parameters(why)?.code()?, false).await
}

/// Ends a client's session and its connection, if it has one, at whichever node it is.
#[utoipa::path(delete, path = "/api/v1/sessions/{client}", tag = "sessions",
    params(("client" = String, Path, description = "Client identifier, percent-encoded"), Why),
    responses((status = 200, body = Kicked), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody)))]
pub(super) async fn end_session(
    State(api): State<Api>,
    Path(client): Path<String>,
    why: Result<Query<Why>, QueryRejection>,
) -> Result<Json<Kicked>, ApiError> {
    end(&api, client, parameters(why)?.code()?, true).await
}

async fn end(api: &Api, client: String, reason: ReasonCode, end_session: bool) -> Result<Json<Kicked>, ApiError> {
    let id = ClientId::new(&client);
    let here = find(&api.shared, &client).await?;
    if here.as_ref().is_some_and(|session| !session.connected && !end_session) {
        return Err(ApiError::NotFound(format!("client {client:?} is not connected; its session is at this node")));
    }
    let (peer, node) = if let Some(session) = here {
        let shard = shard_of(&api.shared, &id);
        api.shared.post(shard, Letter::Shard(ToShard::Kick { client: id, reason, end_session }));
        (session.peer, api.facts.node.clone())
    } else {
        (None, end_elsewhere(api, id, reason, end_session).await?)
    };
    tracing::info!(client, peer, node, end_session, "client's connection ended by request");
    Ok(Json(Kicked { client, peer, node, session_ended: end_session }))
}

/// Asks the other nodes; returns the one that has the session.
async fn end_elsewhere(api: &Api, client: ClientId, reason: ReasonCode, end_session: bool) -> Result<String, ApiError> {
    let (answer, answered) = oneshot::channel();
    let nobody = format!("no node that can be reached has a session of client {:?}", client.as_str());
    let kick = RemoteKick { client, reason, end_session, answer };
    api.shared.post(ShardId(0), Letter::Kick(Box::new(kick)));
    match tokio::time::timeout(PATIENCE, answered).await {
        Ok(Ok(Some(node))) => Ok(node.to_string()),
        Ok(Ok(None)) => Err(ApiError::NotFound(nobody)),
        Ok(Err(_)) => Err(ApiError::Stopping),
        Err(_) => Err(ApiError::Silent),
    }
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
