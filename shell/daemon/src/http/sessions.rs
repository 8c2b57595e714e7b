//! Sessions: looking at them, and ending a client's connection.

mod everywhere;
mod select;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use sedge_base::{ClientId, NodeId, ShardId};
use sedge_broker::SessionInfo;
use sedge_cluster::mail::ToShard;
use sedge_mqtt::{PacketKind, ReasonCode, Version};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use self::select::Select;
pub(super) use self::select::{Order, SortBy};
use super::ask::{PATIENCE, ask, ask_all};
use super::desk::{ANSWER_BYTES, Heard, Inquiry, ask_members};
use super::error::ApiError;
use super::handlers::{PAGE, check_limit, parameters};
use super::model::{ErrorBody, Kicked, Session, Sessions, Subscription};
use super::scope::{Scope, labels, scope};
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
    /// Only sessions with this in their client identifier, address or user; the case of ASCII letters does not count.
    search: Option<String>,
    /// Only sessions that have a connection, or only those that have none.
    connected: Option<bool>,
    /// Sort by this; go on with `cursor`, not with `offset`.
    sort: Option<SortBy>,
    /// `asc` or `desc`; if nothing is said, identifiers go up and numbers down.
    order: Option<Order>,
    /// Name or id of the node whose sessions they are; `*`: those of all members, in one order. The node that is asked if nothing is said.
    node: Option<String>,
}

impl Which {
    const fn is_selective(&self) -> bool {
        self.search.is_some() || self.connected.is_some() || self.sort.is_some() || self.order.is_some()
    }
}

/// Which part of a sorted list.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Wanted {
    limit: usize,
    cursor: Option<String>,
    search: Option<String>,
    connected: Option<bool>,
    sort: Option<SortBy>,
    order: Option<Order>,
}

/// Some of the sessions of a node, shard by shard, or in the order that was asked for; or those of all members.
#[utoipa::path(get, path = "/api/v1/sessions", tag = "sessions", params(Which), responses(
    (status = 200, body = Sessions), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody)))]
pub(super) async fn sessions(
    State(api): State<Api>,
    query: Result<Query<Which>, QueryRejection>,
) -> Result<Json<Sessions>, ApiError> {
    let which = parameters(query)?;
    let limit = check_limit(which.limit.unwrap_or(PAGE))?;
    let whom = scope(&api, which.node.as_deref()).await?;
    let offset = which.offset;
    if let Some(client) = &which.client {
        let (found, silent) = find_in(&api, whom, client).await?;
        let (total, skipped) = (usize::from(found.is_some()), offset > 0);
        let sessions = found.filter(|_| !skipped).into_iter().collect();
        return Ok(Json(Sessions { total, offset, limit, sessions, next: None, silent }));
    }
    if whom != Scope::Here || which.is_selective() {
        return sorted(&api, whom, which, limit).await.map(Json);
    }
    unsorted(&api, which, limit).await.map(Json)
}

/// The sessions of this node, shard by shard.
async fn unsorted(api: &Api, which: Which, limit: usize) -> Result<Sessions, ApiError> {
    let Which { offset, cursor, .. } = which;
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
            return Ok(of_here((total, offset, limit), page, Some(at.to_string())));
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
    Ok(of_here((total, offset, limit), page, None))
}

const fn of_here(
    (total, offset, limit): (usize, usize, usize),
    sessions: Vec<Session>,
    next: Option<String>,
) -> Sessions {
    Sessions { total, offset, limit, sessions, next, silent: Vec::new() }
}

/// The sessions that match, of these nodes, in an order.
async fn sorted(api: &Api, whom: Scope, which: Which, limit: usize) -> Result<Sessions, ApiError> {
    let Which { offset, cursor, search, connected, sort, order, .. } = which;
    let wanted = Wanted { limit, cursor, search, connected, sort, order };
    let nodes = match whom {
        Scope::Here if offset > 0 => {
            let detail = "a sorted or searched list goes on with cursor, not with offset";
            return Err(ApiError::BadRequest(detail.to_owned()));
        }
        Scope::Here => return selected(api, &wanted).await,
        Scope::One(node) => vec![Some(node)],
        Scope::All(others) => others.into_iter().map(Some).chain([None]).collect(),
    };
    everywhere::page(api, nodes, &wanted, (offset, limit)).await
}

/// The session of a client at these nodes, and who has not answered.
pub(super) async fn find_in(api: &Api, whom: Scope, client: &str) -> Result<(Option<Session>, Vec<String>), ApiError> {
    let others = match whom {
        Scope::Here => return Ok((find(&api.shared, client).await?, Vec::new())),
        Scope::One(node) => vec![node],
        Scope::All(others) => {
            if let Some(found) = find(&api.shared, client).await? {
                return Ok((Some(found), Vec::new()));
            }
            others
        }
    };
    let inquiry = Inquiry::Session(client.to_owned());
    let Heard { answers, silent } = ask_members::<Option<Session>>(api, &others, &inquiry).await;
    let found = answers.into_iter().find_map(|(_, found)| found);
    Ok((found, labels(api, &silent).await?))
}

/// Sessions for another node's question, as many as fit into an answer.
pub(super) async fn fitted(api: &Api, wanted: &Wanted) -> Result<Sessions, ApiError> {
    let select = Select::new(wanted)?;
    let mut page = selected(api, &Wanted { limit: check_limit(wanted.limit)?, ..wanted.clone() }).await?;
    let mut bytes = 1024;
    for session in &mut page.sessions {
        shorten(session);
    }
    let mut fits = |session: &Session| {
        bytes += length(session) + 1;
        bytes < ANSWER_BYTES
    };
    let keep = page.sessions.iter().take_while(|session| fits(session)).count().max(1);
    if keep < page.sessions.len() {
        page.sessions.truncate(keep);
        page.next = page.sessions.last().map(|last| select.cursor_of(last));
    }
    Ok(page)
}

/// The session of a client, such that it fits into an answer.
pub(super) async fn fitted_one(api: &Api, client: &str) -> Result<Option<Session>, ApiError> {
    let mut found = find(&api.shared, client).await?;
    found.iter_mut().for_each(shorten);
    Ok(found)
}

fn length(session: &Session) -> usize {
    serde_json::to_string(session).map_or(0, |text| text.len())
}

/// Leaves subscriptions out until the session fits into an answer.
fn shorten(session: &mut Session) {
    while !session.subscriptions.is_empty() && length(session) > ANSWER_BYTES - 1024 {
        session.subscriptions.truncate(session.subscriptions.len() / 2);
    }
}

/// A page of the sessions of this node that match, in an order.
async fn selected(api: &Api, wanted: &Wanted) -> Result<Sessions, ApiError> {
    let limit = wanted.limit;
    let page = Select::new(wanted)?.run(&api.shared, limit).await?;
    let mut by_shard = vec![Vec::new(); api.shared.boxes.len()];
    for (place, client) in page.clients.into_iter().enumerate() {
        if let Some(clients) = by_shard.get_mut(usize::from(shard_of(&api.shared, &client).0)) {
            clients.push((place, client));
        }
    }
    let mut found = Vec::new();
    for (shard, clients) in (0_u16..).zip(by_shard).filter(|(_, clients)| !clients.is_empty()) {
        let look = move |view: &View<'_>| {
            let look = |(place, client): &(usize, ClientId)| {
                view.shard.broker().session(client).map(|info| (*place, model(view, &info)))
            };
            clients.iter().filter_map(look).collect::<Vec<_>>()
        };
        found.extend(ask(&api.shared, ShardId(shard), look).await?);
    }
    found.sort_by_key(|(place, _)| *place);
    let sessions = found.into_iter().map(|(_, session)| session).collect();
    Ok(of_here((page.total, 0, limit), sessions, page.next))
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
    (found.iter().map(|info| model(view, info)).collect(), next)
}

/// The session of a client, which can be in one shard only.
async fn find(shared: &Shared, client: &str) -> Result<Option<Session>, ApiError> {
    let client = ClientId::new(client);
    let shard = shard_of(shared, &client);
    let look = move |view: &View<'_>| view.shard.broker().session(&client).map(|info| model(view, &info));
    ask(shared, shard, look).await
}

fn shard_of(shared: &Shared, client: &ClientId) -> ShardId {
    let shard = client.stable_hash() % (shared.boxes.len() as u64).max(1);
    ShardId(u16::try_from(shard).unwrap_or(0))
}

/// Reason of a disconnection, as the client is told it.
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
    let (peer, node, name) = if let Some(session) = here {
        let shard = shard_of(&api.shared, &id);
        api.shared.post(shard, Letter::Shard(ToShard::Kick { client: id, reason, end_session }));
        (session.peer, api.facts.node.clone(), api.facts.name.clone())
    } else {
        let node = end_elsewhere(api, id, reason, end_session).await?;
        let name = labels(api, &[node]).await?.pop().unwrap_or_default();
        (None, node.to_string(), name)
    };
    tracing::info!(client, peer, node = name, end_session, "client's connection ended by request");
    api.shared.note_order(
        Some(&client),
        if end_session { "session ended by request" } else { "connection ended by request" },
    );
    Ok(Json(Kicked { client, peer, node, name, session_ended: end_session }))
}

/// Asks the other nodes; returns the one that has the session.
async fn end_elsewhere(api: &Api, client: ClientId, reason: ReasonCode, end_session: bool) -> Result<NodeId, ApiError> {
    let (answer, answered) = oneshot::channel();
    let nobody = format!("no node that can be reached has a session of client {:?}", client.as_str());
    let kick = RemoteKick { client, reason, end_session, answer };
    api.shared.post(ShardId(0), Letter::Kick(Box::new(kick)));
    match tokio::time::timeout(PATIENCE, answered).await {
        Ok(Ok(Some(node))) => Ok(node),
        Ok(Ok(None)) => Err(ApiError::NotFound(nobody)),
        Ok(Err(_)) => Err(ApiError::Stopping),
        Err(_) => Err(ApiError::Silent),
    }
}

fn model(view: &View<'_>, info: &SessionInfo) -> Session {
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
        node: view.place.0.clone(),
        name: view.place.1.clone(),
        broker: view.broker(),
        shard: view.id.0,
        epoch: info.epoch,
        clean: info.clean,
        expiry_seconds: info.expiry_secs,
        keep_alive_seconds: info.keep_alive_secs,
        disconnected_at_ms: info.disconnected_at.map(sedge_base::Timestamp::as_millis),
        subscriptions: subscriptions.collect(),
        subscriptions_total: info.subscriptions.len(),
        queued_messages: info.queued,
        queued_bytes: info.queued_bytes,
        inflight: info.inflight,
        incoming_qos2: info.inbound,
        will: info.will,
        messages_received: info.received,
        messages_sent: info.sent,
        topic: info.topic.clone(),
    }
}

const fn protocol(version: Version) -> &'static str {
    match version {
        Version::V311 => "3.1.1",
        Version::V5 => "5.0",
    }
}
