//! Retained messages: looking at them, and clearing one.

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use bytes::Bytes;
use sedge_base::{NodeId, ShardId};
use sedge_broker::Report;
use sedge_mqtt::{Message, TopicFilter, TopicName};
use serde::{Deserialize, Serialize};

use super::ask::ask_node;
use super::desk::{ANSWER_BYTES, Inquiry, ask_member, ask_members, bytes};
use super::error::ApiError;
use super::handlers::{PAGE, check_limit, parameters};
use super::model::{Cleared, ErrorBody, RetainedMessage, RetainedMessages, Summary};
use super::scope::{Scope, labels, scope};
use super::server::Api;
use crate::runtime::Letter;

/// Longest payload that is shown.
const PAYLOAD_BYTES_MAX: usize = 4096;

/// Which retained messages.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Which {
    /// Topic filter; `#` if nothing is said. Topics that begin with `$` want a filter that does.
    filter: Option<String>,
    /// Most messages, 1 to 1000; 100 if nothing is said.
    limit: Option<usize>,
    /// Where to go on, from the last answer.
    #[serde(default)]
    cursor: usize,
    /// Name or id of the node that holds them; `*`: this node, and whether all members hold the same. The node that is asked if nothing is said.
    node: Option<String>,
}

/// Some of the retained messages whose topics match, which are the same on all nodes. A page may be short, even empty, and others
/// follow: as long as there is a `next`.
#[utoipa::path(get, path = "/api/v1/retained", tag = "retained", params(Which), responses(
    (status = 200, body = RetainedMessages), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody)))]
pub(super) async fn retained(
    State(api): State<Api>,
    query: Result<Query<Which>, QueryRejection>,
) -> Result<Json<RetainedMessages>, ApiError> {
    let which = parameters(query)?;
    check_limit(which.limit.unwrap_or(PAGE))?;
    Ok(Json(match scope(&api, which.node.as_deref()).await? {
        Scope::Here => own(&api, which).await?,
        Scope::One(node) => ask_member(&api, node, &Inquiry::Retained(which)).await?,
        Scope::All(others) => compared(&api, which, &others).await?,
    }))
}

/// Retained messages of this node, and the members that hold other ones.
async fn compared(api: &Api, which: Which, others: &[NodeId]) -> Result<RetainedMessages, ApiError> {
    let heard = ask_members::<Summary>(api, others, &Inquiry::Summary).await;
    let digest = format!("{:016x}", ask_node(&api.shared, sedge_cluster::Node::retained_digest).await?);
    let differ = heard.answers.into_iter().map(|(_, summary)| summary).filter(|of| of.retained_digest != digest);
    let differ = differ.map(|summary| summary.name).collect();
    Ok(RetainedMessages { differ, silent: labels(api, &heard.silent).await?, ..own(api, which).await? })
}

/// For another node: as many messages as fit into an answer.
pub(super) async fn fitted(api: &Api, which: Which) -> Result<Bytes, ApiError> {
    let mut limit = check_limit(which.limit.unwrap_or(PAGE))?;
    loop {
        let page = own(api, Which { limit: Some(limit), ..which.clone() }).await?;
        let answer = bytes(&page);
        if answer.len() <= ANSWER_BYTES {
            return Ok(answer);
        }
        if limit == 1 {
            // Its topic alone is longer than an answer.
            return Ok(bytes(&RetainedMessages { messages: Vec::new(), ..page }));
        }
        limit = (limit / 2).max(1);
    }
}

/// Retained messages of this node.
async fn own(api: &Api, which: Which) -> Result<RetainedMessages, ApiError> {
    let Which { filter, limit, cursor, node: _ } = which;
    let limit = check_limit(limit.unwrap_or(PAGE))?;
    let text = filter.unwrap_or_else(|| "#".to_owned());
    let filter = TopicFilter::new(&text)
        .map_err(|error| ApiError::BadRequest(format!("filter {text:?}: {error}")))
        .map(|filter| filter.detached())?;
    if filter.share_group().is_some() {
        return Err(ApiError::BadRequest("shared subscriptions get no retained messages".to_owned()));
    }
    let wall = api.shared.clock.now().wall;
    let look = move |node: &sedge_cluster::Node| {
        let (messages, next) = node.retained_page(&filter, wall, cursor, limit);
        (messages.iter().map(|message| model(message)).collect(), next, node.status().retained)
    };
    let (messages, next, total) = ask_node(&api.shared, look).await?;
    Ok(RetainedMessages { total, messages, next, differ: Vec::new(), silent: Vec::new() })
}

/// Clears the retained message of a topic on all nodes, as an empty retained PUBLISH does; subscribers get that, too.
#[utoipa::path(delete, path = "/api/v1/retained/{topic}", tag = "retained",
    params(("topic" = String, Path, description = "Topic name, percent-encoded")),
    responses((status = 200, body = Cleared), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody)))]
pub(super) async fn clear(State(api): State<Api>, Path(topic): Path<String>) -> Result<Json<Cleared>, ApiError> {
    let wrong = |what: String| ApiError::BadRequest(format!("topic {topic:?}: {what}"));
    let name = TopicName::new(&topic).map_err(|error| wrong(error.to_string()))?;
    if name.is_reserved() && (topic.starts_with("$SYS/") || topic.starts_with("$share/")) {
        return Err(wrong("it belongs to the broker".to_owned()));
    }
    let filter = TopicFilter::new(&topic).map_err(|error| wrong(error.to_string()))?;
    let wall = api.shared.clock.now().wall;
    let found = ask_node(&api.shared, move |node| !node.retained_page(&filter, wall, 0, 1).0.is_empty()).await?;
    if !found {
        return Err(ApiError::NotFound(format!("there is no retained message at {topic:?}")));
    }
    let report = Report { topic: name, payload: Bytes::new(), expiry: None };
    api.shared.post(ShardId(0), Letter::Report(vec![report]));
    tracing::info!(topic, "retained message cleared by request");
    api.shared.note_order(None, &format!("retained message of {topic} cleared by request"));
    Ok(Json(Cleared { topic }))
}

fn model(message: &Message) -> RetainedMessage {
    let text = std::str::from_utf8(&message.payload).ok().filter(|text| text.len() <= PAYLOAD_BYTES_MAX);
    RetainedMessage {
        topic: message.topic.as_str().to_owned(),
        qos: message.qos as u8,
        bytes: message.payload.len(),
        payload: text.map(str::to_owned),
        publisher: message.publisher.as_ref().map(ToString::to_string),
        set_at_ms: message.stamp.millis,
        expires_at_ms: message.expires_at.map(sedge_base::Timestamp::as_millis),
    }
}
