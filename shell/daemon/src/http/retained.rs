//! Retained messages: looking at them, and clearing one.

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use bytes::Bytes;
use sedge_base::ShardId;
use sedge_broker::Report;
use sedge_mqtt::{Message, TopicFilter, TopicName};
use serde::Deserialize;

use super::ask::ask_node;
use super::error::ApiError;
use super::handlers::{PAGE, check_limit, parameters};
use super::model::{Cleared, ErrorBody, RetainedMessage, RetainedMessages};
use super::server::Api;
use crate::runtime::Letter;

/// Longest payload that is shown.
const PAYLOAD_BYTES_MAX: usize = 4096;

/// Which retained messages.
#[derive(Clone, Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Which {
    /// Topic filter; `#` if nothing is said. Topics that begin with `$` want a filter that does.
    filter: Option<String>,
    /// Most messages, 1 to 1000; 100 if nothing is said.
    limit: Option<usize>,
    /// Where to go on, from the last answer.
    #[serde(default)]
    cursor: usize,
}

/// Some of the retained messages whose topics match, which are the same on all nodes. A page may be short, even empty, and others
/// follow: as long as there is a `next`.
#[utoipa::path(get, path = "/api/v1/retained", tag = "retained", params(Which), responses(
    (status = 200, body = RetainedMessages), (status = 400, body = ErrorBody)))]
pub(super) async fn retained(
    State(api): State<Api>,
    query: Result<Query<Which>, QueryRejection>,
) -> Result<Json<RetainedMessages>, ApiError> {
    let Which { filter, limit, cursor } = parameters(query)?;
    let limit = check_limit(limit.unwrap_or(PAGE))?;
    let text = filter.unwrap_or_else(|| "#".to_owned());
    let filter = TopicFilter::new(&text)
        .map_err(|error| ApiError::BadRequest(format!("filter {text:?}: {error}")))
        .map(|filter| filter.detached())?;
    if filter.share_group().is_some() {
        return Err(ApiError::BadRequest("shared subscriptions get no retained messages".to_owned()));
    }
    let wall = crate::runtime::wall();
    let look = move |node: &sedge_cluster::Node| {
        let (messages, next) = node.retained_page(&filter, wall, cursor, limit);
        (messages.iter().map(|message| model(message)).collect(), next, node.status().retained)
    };
    let (messages, next, total) = ask_node(&api.shared, look).await?;
    Ok(Json(RetainedMessages { total, messages, next }))
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
    let wall = crate::runtime::wall();
    let found = ask_node(&api.shared, move |node| !node.retained_page(&filter, wall, 0, 1).0.is_empty()).await?;
    if !found {
        return Err(ApiError::NotFound(format!("there is no retained message at {topic:?}")));
    }
    let report = Report { topic: name, payload: Bytes::new(), expiry: None };
    api.shared.post(ShardId(0), Letter::Report(vec![report]));
    tracing::info!(topic, "retained message cleared by request");
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
