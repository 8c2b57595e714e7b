//! Traces: what becomes of chosen publications at all nodes.

mod note;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use sedge_base::{ClientId, NodeId};
#[cfg(feature = "otlp")]
use sedge_broker::TRACE_EVENTS_MAX;
use sedge_broker::{TRACES_MAX, TraceSpec};
use sedge_mqtt::TopicFilter;
use serde::{Deserialize, Serialize};

use super::ask::{ask_all, ask_node};
use super::desk::{ANSWER_BYTES, Heard, Inquiry, ask_each, ask_members, bytes};
use super::error::ApiError;
use super::handlers::parameters;
use super::model::{ErrorBody, Trace, TraceNote, TraceNotes, Traces};
use super::scope::{EVERYBODY, Scope, labels, scope};
use super::server::Api;
use super::sessions::find_in;
use crate::identity;
use crate::runtime::{Shared, View};

/// Seconds that a trace runs if nothing is said.
const SECONDS: u32 = 60;
/// Most seconds.
const SECONDS_MAX: u32 = 3_600;
/// Most topic filters of a trace: of a client with more subscriptions the first ones.
const FILTERS_MAX: usize = 100;
/// Most notes of a thread in an answer.
const NOTES: usize = 400;
/// Numbers of 52 bits every reader of JSON takes for what they are.
pub(super) const ID_SHIFT: u32 = u64::BITS - 52;

/// Publications to follow: those of a client, of topics, or both.
#[derive(Clone, Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct What {
    /// The client: what it publishes, and its part in publications to the topics; without a topic those of its subscriptions.
    client: Option<String>,
    /// A topic filter.
    topic: Option<String>,
    /// One publication of so many is followed; 1 if nothing is said.
    one_in: Option<u32>,
    /// Seconds after which the trace ends by itself, 1 to 3600; 60 if nothing is said.
    seconds: Option<u32>,
}

/// A trace as nodes tell each other.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Order {
    id: u64,
    client: Option<String>,
    topics: Vec<String>,
    one_in: u32,
    seconds: u32,
}

impl Order {
    fn spec(&self) -> TraceSpec {
        let filters =
            self.topics.iter().filter_map(|filter| TopicFilter::new(filter).ok()).map(|filter| filter.detached());
        let client = self.client.as_deref().map(ClientId::new);
        TraceSpec { id: self.id, client, filters: filters.collect(), one_in: self.one_in }
    }
}

/// Where to go on with a trace.
#[derive(Clone, Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Begin {
    /// `next` of the last answer.
    cursor: Option<String>,
}

/// Which notes of a trace another node wants.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Wanted {
    id: u64,
    /// Last notes that are known: of the node, then of its shards.
    after: Vec<u64>,
}

/// The notes of one node.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Part {
    notes: Vec<TraceNote>,
    after: Vec<u64>,
    dropped: u64,
}

/// Starts a trace at all nodes. It ends by itself.
#[utoipa::path(post, path = "/api/v1/traces", tag = "traces", params(What), responses(
    (status = 200, body = Trace), (status = 400, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(super) async fn start(
    State(api): State<Api>,
    query: Result<Query<What>, QueryRejection>,
) -> Result<Json<Trace>, ApiError> {
    let What { client, topic, one_in, seconds } = parameters(query)?;
    let (one_in, seconds) = (one_in.unwrap_or(1).max(1), seconds.unwrap_or(SECONDS));
    if seconds == 0 || seconds > SECONDS_MAX {
        return Err(ApiError::BadRequest(format!("seconds is not between 1 and {SECONDS_MAX}")));
    }
    let topics = match (&client, topic) {
        (_, Some(topic)) => {
            TopicFilter::new(&topic).map_err(|error| ApiError::BadRequest(format!("topic {topic:?}: {error}")))?;
            vec![topic]
        }
        (Some(client), None) => subscriptions(&api, client).await?,
        (None, None) => return Err(ApiError::BadRequest("neither client nor topic is given".to_owned())),
    };
    let id = identity::random_u64().map_err(|_no_randomness| ApiError::Stopping)? >> ID_SHIFT;
    let order = Order { id, client, topics, one_in, seconds };
    if !begin(&api.shared, &order) {
        return Err(ApiError::Conflict(format!("{TRACES_MAX} traces run, which is as many as may; end one first")));
    }
    let others = others(&api).await?;
    let Heard { answers, mut silent } = ask_members::<bool>(&api, &others, &Inquiry::Trace(order.clone())).await;
    silent.extend(answers.into_iter().filter(|(_, started)| !started).map(|(node, _)| node));
    tracing::info!(client = order.client, topics = ?order.topics, seconds, "a trace was started by request");
    api.shared.note_order(order.client.as_deref(), "a trace was started by request");
    Ok(Json(Trace { silent: labels(&api, &silent).await?, ..model(&order.spec()) }))
}

/// The topics of a client's subscriptions, wherever its session is.
async fn subscriptions(api: &Api, client: &str) -> Result<Vec<String>, ApiError> {
    let everywhere = scope(api, Some(EVERYBODY)).await?;
    let (session, _) = find_in(api, everywhere, client).await?;
    let filters = session.into_iter().flat_map(|session| session.subscriptions).map(|subscription| subscription.filter);
    Ok(filters.take(FILTERS_MAX).collect())
}

async fn others(api: &Api) -> Result<Vec<NodeId>, ApiError> {
    Ok(match scope(api, Some(EVERYBODY)).await? {
        Scope::All(others) => others,
        Scope::Here | Scope::One(_) => Vec::new(),
    })
}

/// Starts a trace at this node and sees to its end; false if as many run as may.
pub(super) fn begin(shared: &Arc<Shared>, order: &Order) -> bool {
    let started = shared.start_trace(order.spec());
    if started {
        let (shared, id, time) = (Arc::clone(shared), order.id, Duration::from_secs(u64::from(order.seconds)));
        tokio::spawn(async move {
            tokio::time::sleep(time).await;
            shared.end_trace(id);
        });
    }
    started
}

fn model(spec: &TraceSpec) -> Trace {
    Trace {
        id: spec.id,
        client: spec.client.as_ref().map(ToString::to_string),
        topics: spec.filters.iter().map(ToString::to_string).collect(),
        one_in: spec.one_in.max(1),
        silent: Vec::new(),
    }
}

/// The traces that run at this node.
#[utoipa::path(get, path = "/api/v1/traces", tag = "traces", responses((status = 200, body = Traces)))]
pub(super) async fn list(State(api): State<Api>) -> Json<Traces> {
    Json(Traces { traces: api.shared.traces.running().iter().map(|spec| model(spec)).collect() })
}

/// Ends a trace at all nodes.
#[utoipa::path(delete, path = "/api/v1/traces/{id}", tag = "traces", params(("id" = u64, Path, description = "Number of the trace")),
    responses((status = 204), (status = 404, body = ErrorBody)))]
pub(super) async fn end(State(api): State<Api>, Path(id): Path<u64>) -> Result<StatusCode, ApiError> {
    let here = api.shared.end_trace(id);
    let others = others(&api).await?;
    let heard = ask_members::<bool>(&api, &others, &Inquiry::TraceEnd(id)).await;
    if here || heard.answers.iter().any(|(_, ended)| *ended) { Ok(StatusCode::NO_CONTENT) } else { Err(unknown(id)) }
}

fn unknown(id: u64) -> ApiError {
    ApiError::NotFound(format!("no trace has the number {id}; it may have ended"))
}

/// What was noted at all nodes, from a place on, by time.
#[utoipa::path(get, path = "/api/v1/traces/{id}", tag = "traces",
    params(("id" = u64, Path, description = "Number of the trace"), Begin),
    responses((status = 200, body = TraceNotes), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody)))]
pub(super) async fn notes(
    State(api): State<Api>,
    Path(id): Path<u64>,
    query: Result<Query<Begin>, QueryRejection>,
) -> Result<Json<TraceNotes>, ApiError> {
    let cursor = parameters(query)?.cursor.unwrap_or_else(|| "{}".to_owned());
    let mut known: BTreeMap<String, Vec<u64>> =
        serde_json::from_str(&cursor).map_err(|_nonsense| ApiError::BadRequest("no such cursor".to_owned()))?;
    if !api.shared.traces.running().iter().any(|spec| spec.id == id) {
        return Err(unknown(id));
    }
    let wanted = |node: &str| Wanted { id, after: known.get(node).cloned().unwrap_or_default() };
    let others = others(&api).await?;
    let questions = others.iter().map(|node| (*node, Inquiry::TraceNotes(wanted(&node.to_string()))));
    let Heard { answers, silent } = ask_each::<Part>(&api, questions.collect::<Vec<_>>().into_iter()).await;
    let here = (api.facts.node.clone(), part(&api, &wanted(&api.facts.node), NOTES).await?);
    let parts = answers.into_iter().map(|(node, part)| (node.to_string(), part)).chain([here]);
    let (mut notes, mut dropped) = (Vec::new(), 0);
    for (node, part) in parts {
        notes.extend(part.notes);
        dropped += part.dropped;
        known.insert(node, part.after);
    }
    notes.sort_by_key(|note| note.at_us);
    let next = serde_json::to_string(&known).unwrap_or_default();
    Ok(Json(TraceNotes { notes, next, dropped, silent: labels(&api, &silent).await? }))
}

/// The notes of this node's threads for a trace that come after these numbers, one for each thread; with the numbers of the last notes.
#[cfg(feature = "otlp")]
pub(super) async fn own(api: &Api, id: u64, after: Vec<u64>) -> Result<(Vec<TraceNote>, Vec<u64>), ApiError> {
    let Part { notes, after, .. } = part(api, &Wanted { id, after }, TRACE_EVENTS_MAX).await?;
    Ok((notes, after))
}

/// For another node: as many notes as fit into an answer.
pub(super) async fn fitted(api: &Api, wanted: &Wanted) -> Result<bytes::Bytes, ApiError> {
    let mut limit = NOTES;
    loop {
        let answer = bytes(&part(api, wanted, limit).await?);
        if answer.len() <= ANSWER_BYTES || limit == 1 {
            return Ok(answer);
        }
        limit /= 2;
    }
}

/// Notes of this node's threads, at most so many of each.
async fn part(api: &Api, wanted: &Wanted, limit: usize) -> Result<Part, ApiError> {
    let (id, after) = (wanted.id, wanted.after.clone());
    let known = move |at: usize| after.get(at).copied().unwrap_or(0);
    let of_node = known(0);
    let here = ask_node(&api.shared, move |node| {
        let Some(tracer) = node.tracer() else { return (Vec::new(), of_node, 0) };
        let events = tracer.events(id, of_node, limit);
        let last = events.last().map_or(of_node, |event| event.number);
        (events.into_iter().map(|event| note::of_node(node, event)).collect(), last, tracer.dropped())
    });
    let (mut notes, last, mut dropped): (Vec<TraceNote>, u64, u64) = here.await?;
    let mut after = vec![last];
    let of_shards = ask_all(&api.shared, move |view: &View<'_>| {
        let from = known(usize::from(view.id.0) + 1);
        let Some(tracer) = view.shard.broker().tracer() else { return (Vec::new(), from, 0) };
        let events = tracer.events(id, from, limit);
        let last = events.last().map_or(from, |event| event.number);
        (events.into_iter().map(|event| note::model(view.place, event)).collect(), last, tracer.dropped())
    });
    for (noted, last, gone) in of_shards.await? {
        notes.extend(noted);
        after.push(last);
        dropped += gone;
    }
    Ok(Part { notes, after, dropped })
}
