//! Emptying the node before it stops.

use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{ConnectInfo, Query, State};
use sedge_base::ShardId;
use sedge_cluster::{DrainEnd, DrainState, DrainStatus};
use serde::Deserialize;
use tokio::sync::oneshot;

use super::ask::{ask_node, receive};
use super::error::ApiError;
use super::handlers::parameters;
use super::model::{Drain, ErrorBody};
use super::server::Api;
use super::visitors::Peer;
use crate::runtime::{DrainOrder, Letter};

/// Seconds after which a node serves on if nothing is said.
const LIMIT: u32 = 600;
/// Most seconds.
const LIMIT_MAX: u32 = 86_400;

/// How to empty the node.
#[derive(Clone, Copy, Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct How {
    /// Seconds after which the node gives up and serves on, 1 to 86400; 600 if nothing is said.
    limit: Option<u32>,
    /// True: the process stops when the node is empty, at once if it is.
    #[serde(default)]
    stop: bool,
}

/// How far the node has come with being emptied.
#[utoipa::path(get, path = "/api/v1/drain", tag = "node", responses((status = 200, body = Drain)))]
pub(super) async fn progress(State(api): State<Api>) -> Result<Json<Drain>, ApiError> {
    let status = ask_node(&api.shared, |node| node.status().drain).await?;
    Ok(Json(model(&api, status)))
}

/// Empties the node: it takes no more clients, and its sessions and the copies that it keeps for others move to other nodes. Asked
/// again, sets the limit anew.
#[utoipa::path(post, path = "/api/v1/drain", tag = "node", params(How), responses(
    (status = 200, body = Drain), (status = 400, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(super) async fn start(
    State(api): State<Api>,
    ConnectInfo(Peer(peer)): ConnectInfo<Peer>,
    how: Result<Query<How>, QueryRejection>,
) -> Result<Json<Drain>, ApiError> {
    let How { limit, stop } = parameters(how)?;
    let limit = limit.unwrap_or(LIMIT);
    if limit == 0 || limit > LIMIT_MAX {
        return Err(ApiError::BadRequest(format!("limit is not between 1 and {LIMIT_MAX} seconds")));
    }
    api.shared.stop_when_drained.store(stop, Ordering::Release);
    tracing::info!(asked_by = %peer, limit_seconds = limit, stop, "the node is to be emptied");
    api.shared.note_order(None, "the node is to be emptied");
    let limit = Duration::from_secs(u64::from(limit));
    let status = order(&api, Some(limit)).await?;
    let hindrance = match status.gave_up {
        Some(DrainEnd::NobodyElse) => "there is no other node that could take its sessions",
        Some(DrainEnd::OlderNode) => {
            "a neighbour is of an older version that cannot take sessions; upgrade it first, or just stop this node"
        }
        Some(DrainEnd::Cancelled | DrainEnd::TimeLimit) | None => return Ok(Json(model(&api, status))),
    };
    Err(ApiError::Conflict(hindrance.to_owned()))
}

/// Lets the node serve on, whether it is empty or not. What has moved stays where it is.
#[utoipa::path(delete, path = "/api/v1/drain", tag = "node", responses((status = 200, body = Drain)))]
pub(super) async fn cancel(State(api): State<Api>) -> Result<Json<Drain>, ApiError> {
    api.shared.stop_when_drained.store(false, Ordering::Release);
    api.shared.note_order(None, "the node is to serve on");
    let status = order(&api, None).await?;
    Ok(Json(model(&api, status)))
}

async fn order(api: &Api, limit: Option<Duration>) -> Result<DrainStatus, ApiError> {
    let (answer, answered) = oneshot::channel();
    api.shared.post(ShardId(0), Letter::Drain(DrainOrder { limit, answer }));
    receive(ShardId(0), answered).await
}

pub(super) fn model(api: &Api, status: DrainStatus) -> Drain {
    let DrainStatus { state, sessions, sessions_left, replicas_left, gave_up } = status;
    let state = match state {
        DrainState::Off => "off",
        DrainState::Draining => "draining",
        DrainState::Drained => "drained",
    };
    let gave_up = gave_up.map(|why| match why {
        DrainEnd::Cancelled => "cancelled",
        DrainEnd::NobodyElse => "no other node could take the sessions",
        DrainEnd::OlderNode => "a neighbour is of an older version that cannot take sessions",
        DrainEnd::TimeLimit => "it took longer than its limit",
    });
    let stop = state != "off" && api.shared.stop_when_drained.load(Ordering::Acquire);
    let gave_up = gave_up.map(str::to_owned);
    Drain { state: state.to_owned(), sessions, sessions_left, replicas_left, stop, gave_up }
}
