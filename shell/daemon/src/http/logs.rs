//! The level of the log.

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{ConnectInfo, Query, State};
use sedge_base::NodeId;
use serde::Deserialize;

use super::desk::{Heard, Inquiry, ask_members};
use super::error::ApiError;
use super::handlers::parameters;
use super::model::{ErrorBody, LogLevel, LogLevels};
use super::scope::{Scope, labels, scope};
use super::server::Api;
use super::visitors::Peer;
use crate::logging;

/// Whose log.
#[derive(Clone, Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Whose {
    /// Name or id of the node, `*` for all; the one that is asked if nothing is said.
    node: Option<String>,
}

/// What to write to which log.
#[derive(Clone, Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Wanted {
    /// `error`, `warn`, `info`, `debug`, `trace`, `off`, or directives such as `info,sedge_daemon=debug`.
    level: String,
    /// Name or id of the node, `*` for all; the one that is asked if nothing is said.
    node: Option<String>,
}

/// What nodes write to their logs.
#[utoipa::path(get, path = "/api/v1/log", tag = "node", params(Whose), responses(
    (status = 200, body = LogLevels), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(super) async fn levels(
    State(api): State<Api>,
    query: Result<Query<Whose>, QueryRejection>,
) -> Result<Json<LogLevels>, ApiError> {
    everywhere(&api, parameters(query)?.node.as_deref(), None).await
}

/// Changes what nodes write to their logs, until their next reload or restart.
#[utoipa::path(put, path = "/api/v1/log", tag = "node", params(Wanted), responses(
    (status = 200, body = LogLevels), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody),
    (status = 409, body = ErrorBody)))]
pub(super) async fn set(
    State(api): State<Api>,
    ConnectInfo(Peer(peer)): ConnectInfo<Peer>,
    query: Result<Query<Wanted>, QueryRejection>,
) -> Result<Json<LogLevels>, ApiError> {
    let Wanted { level, node } = parameters(query)?;
    logging::parse_level(&level).map_err(|what| ApiError::BadRequest(format!("level: {what}")))?;
    let whom = node.as_deref().unwrap_or("this node");
    // Before it counts: afterwards it may be below what is written.
    tracing::warn!(asked_by = %peer, level, whom, "the level of the log is to change");
    everywhere(&api, node.as_deref(), Some(level)).await
}

/// What this node writes; it changes first if a level is `wanted`.
pub(super) fn own(api: &Api, wanted: Option<&str>) -> Result<LogLevel, ApiError> {
    if let Some(level) = wanted {
        logging::set_level(level).map_err(ApiError::Conflict)?;
        api.shared.note_order(None, &format!("the level of the log is {level:?}"));
    }
    let level = logging::level().ok_or_else(|| ApiError::Conflict("this node has no log of its own".to_owned()))?;
    let logging::Level { level, configured } = level;
    Ok(LogLevel { node: api.facts.node.clone(), name: api.facts.name.clone(), level, configured })
}

async fn everywhere(api: &Api, node: Option<&str>, wanted: Option<String>) -> Result<Json<LogLevels>, ApiError> {
    let (others, here): (Vec<NodeId>, bool) = match scope(api, node).await? {
        Scope::Here => (Vec::new(), true),
        Scope::One(node) => (vec![node], false),
        Scope::All(others) => (others, true),
    };
    let own = here.then(|| own(api, wanted.as_deref())).transpose()?;
    let inquiry = Inquiry::LogLevel(wanted);
    let Heard { answers, silent } = ask_members::<LogLevel>(api, &others, &inquiry).await;
    let mut nodes: Vec<LogLevel> = own.into_iter().chain(answers.into_iter().map(|(_, level)| level)).collect();
    nodes.sort_by(|one, other| (&one.name, &one.node).cmp(&(&other.name, &other.node)));
    Ok(Json(LogLevels { nodes, silent: labels(api, &silent).await? }))
}
