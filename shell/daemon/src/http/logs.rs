//! The log: its level, and its last lines.

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{ConnectInfo, Query, State};
use serde::{Deserialize, Serialize};

use super::desk::{ANSWER_BYTES, Heard, Inquiry, ask_member, ask_members};
use super::error::ApiError;
use super::handlers::{PAGE, check_limit, parameters};
use super::model::{ErrorBody, LogLevel, LogLevels, LogLine, LogLines};
use super::scope::{Scope, Whose, labels, scope};
use super::server::Api;
use super::visitors::Peer;
use crate::logging::{self, Start};

/// A change of the level of logs.
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

/// Level of this node's log; it changes first if a level is `wanted`.
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
    let (others, here) = scope(api, node).await?.parts();
    let own = here.then(|| own(api, wanted.as_deref())).transpose()?;
    let inquiry = Inquiry::LogLevel(wanted);
    let Heard { answers, silent } = ask_members::<LogLevel>(api, &others, &inquiry).await;
    let mut nodes: Vec<LogLevel> = own.into_iter().chain(answers.into_iter().map(|(_, level)| level)).collect();
    nodes.sort_by(|one, other| (&one.name, &one.node).cmp(&(&other.name, &other.node)));
    Ok(Json(LogLevels { nodes, silent: labels(api, &silent).await? }))
}

/// Which lines of which log.
#[derive(Clone, Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Which {
    /// Name or id of the node; the one that is asked if nothing is said.
    node: Option<String>,
    /// Number of the first line: `next` of the last answer.
    from: Option<u64>,
    /// Without `from`: begin with the last so many lines; 100 if nothing is said.
    last: Option<usize>,
    /// Most lines of the answer, 1 to 1000; 100 if nothing is said.
    limit: Option<usize>,
}

/// The same as nodes ask each other.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Part {
    from: Option<u64>,
    last: usize,
    limit: usize,
}

/// The last lines of a node's log, as far as they are kept. An answer may have fewer than there are: ask again from `next` on until there is none.
#[utoipa::path(get, path = "/api/v1/log/lines", tag = "node", params(Which), responses(
    (status = 200, body = LogLines), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody),
    (status = 504, body = ErrorBody)))]
pub(super) async fn lines(
    State(api): State<Api>,
    query: Result<Query<Which>, QueryRejection>,
) -> Result<Json<LogLines>, ApiError> {
    let Which { node, from, last, limit } = parameters(query)?;
    let part = Part { from, last: last.unwrap_or(PAGE), limit: check_limit(limit.unwrap_or(PAGE))? };
    match scope(&api, node.as_deref()).await? {
        Scope::Here => Ok(Json(own_lines(&api, part))),
        Scope::One(node) => ask_member(&api, node, &Inquiry::LogLines(part)).await.map(Json),
        Scope::All(_) => Err(ApiError::BadRequest("node is *: lines are those of one node; ask each".to_owned())),
    }
}

fn own_lines(api: &Api, Part { from, last, limit }: Part) -> LogLines {
    let (lines, next) = logging::lines(from.map_or(Start::Last(last), Start::Number), limit);
    let lines =
        lines.into_iter().map(|line| LogLine { number: line.number, at_ms: line.at_ms, text: line.text.into() });
    let facts = &api.facts;
    LogLines {
        node: facts.node.clone(),
        name: facts.name.clone(),
        incarnation: facts.incarnation,
        lines: lines.collect(),
        next,
    }
}

/// As many of the lines as one answer to another node holds; a single line always fits.
pub(super) fn fitted_lines(api: &Api, part: Part) -> LogLines {
    let mut answer = own_lines(api, part);
    let mut bytes = 1024;
    let mut fits = |line: &LogLine| {
        bytes += serde_json::to_string(line).map_or(0, |text| text.len() + 1);
        bytes < ANSWER_BYTES
    };
    let keep = answer.lines.iter().take_while(|line| fits(line)).count().max(1);
    if let Some(first) = answer.lines.get(keep) {
        answer.next = first.number;
        answer.lines.truncate(keep);
    }
    answer
}
