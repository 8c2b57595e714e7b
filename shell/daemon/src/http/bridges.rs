//! Bridges to other services.

use std::collections::BTreeMap;
use std::sync::Weak;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use sedge_bridge::{BridgeState, BridgeStatus};

use super::desk::Inquiry;
use super::error::ApiError;
use super::handlers::parameters;
use super::model::{Bridge, BridgeList, ErrorBody};
use super::server::Api;
use super::workers::{Part, Which, Worker, fitted, found, names};
use crate::runtime::Shared;

/// How all bridges of this node do.
pub(super) fn status(shared: &Shared) -> Vec<BridgeStatus> {
    let bridges = shared.bridges.get().and_then(Weak::upgrade);
    bridges.map(|bridges| bridges.status()).unwrap_or_default()
}

/// The bridges of the configuration: which node runs them, what waits and for how long, what went wrong last.
#[utoipa::path(get, path = "/api/v1/bridges", tag = "bridges", params(Which), responses(
    (status = 200, body = BridgeList), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody)))]
pub(super) async fn bridges(
    State(api): State<Api>,
    query: Result<Query<Which>, QueryRejection>,
) -> Result<Json<BridgeList>, ApiError> {
    let Which { node } = parameters(query)?;
    let (bridges, silent) = found(&api, node.as_deref(), own(&api).await?, Inquiry::Bridges).await?;
    Ok(Json(BridgeList { bridges, silent }))
}

/// Those of this node from a place on, for another node.
pub(super) async fn part(api: &Api, from: usize) -> Result<Part<Bridge>, ApiError> {
    Ok(fitted(own(api).await?, from))
}

async fn own(api: &Api) -> Result<Vec<Bridge>, ApiError> {
    let found = status(&api.shared);
    let names = if found.is_empty() { BTreeMap::new() } else { names(api).await? };
    Ok(found.into_iter().map(|status| model(status, api, &names)).collect())
}

fn model(status: BridgeStatus, api: &Api, names: &BTreeMap<String, String>) -> Bridge {
    let (node, address) = match &status.state {
        BridgeState::Elsewhere(node) => (Some(node.clone()), None),
        BridgeState::Running(address) => (Some(api.facts.node.clone()), Some(address.clone())),
        BridgeState::Down => (Some(api.facts.node.clone()), None),
        BridgeState::Waiting => (None, None),
    };
    let counts = status.counts;
    Bridge {
        name: status.name,
        kind: status.kind.to_owned(),
        direction: status.direction.to_owned(),
        state: status.state.name().to_owned(),
        node_name: node.as_ref().and_then(|node| names.get(node).cloned()),
        node,
        address,
        lag: status.lag.messages,
        lag_bytes: status.lag.bytes,
        lag_most: status.lag.most,
        waits_seconds: status.lag.waits.as_secs(),
        messages_out: counts.messages_out,
        bytes_out: counts.bytes_out,
        messages_in: counts.messages_in,
        bytes_in: counts.bytes_in,
        dropped: counts.dropped,
        refused: counts.refused,
        kept: counts.kept,
        repeats: counts.repeats,
        forgotten: counts.forgotten,
        connects: counts.connects,
        failures: counts.failures,
        last_error: status.last_error,
    }
}

impl Worker for Bridge {
    fn name(&self) -> &str {
        &self.name
    }

    fn state(&self) -> &str {
        &self.state
    }

    fn error(&mut self) -> &mut Option<String> {
        &mut self.last_error
    }

    fn add(&mut self, other: &Self) {
        self.lag += other.lag;
        self.lag_bytes += other.lag_bytes;
        self.lag_most = self.lag_most.max(other.lag_most);
        self.waits_seconds = self.waits_seconds.max(other.waits_seconds);
        self.messages_out += other.messages_out;
        self.bytes_out += other.bytes_out;
        self.messages_in += other.messages_in;
        self.bytes_in += other.bytes_in;
        self.dropped += other.dropped;
        self.refused += other.refused;
        self.kept += other.kept;
        self.repeats += other.repeats;
        self.forgotten += other.forgotten;
        self.connects += other.connects;
        self.failures += other.failures;
    }
}
