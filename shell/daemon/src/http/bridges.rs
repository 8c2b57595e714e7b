//! Bridges to other services.

use std::sync::Weak;

use axum::Json;
use axum::extract::State;
use sedge_bridge::{BridgeState, BridgeStatus};

use super::model::{Bridge, BridgeList};
use super::server::Api;
use crate::runtime::Shared;

/// How all bridges of this node do.
pub(super) fn status(shared: &Shared) -> Vec<BridgeStatus> {
    let bridges = shared.bridges.get().and_then(Weak::upgrade);
    bridges.map(|bridges| bridges.status()).unwrap_or_default()
}

/// The bridges of the configuration: which node runs them, what waits, what went wrong last.
#[utoipa::path(get, path = "/api/v1/bridges", tag = "bridges", responses((status = 200, body = BridgeList)))]
pub(super) async fn bridges(State(api): State<Api>) -> Json<BridgeList> {
    let model = |status: BridgeStatus| {
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
            node,
            address,
            lag: status.lag,
            lag_bytes: status.lag_bytes,
            messages_out: counts.messages_out,
            bytes_out: counts.bytes_out,
            messages_in: counts.messages_in,
            bytes_in: counts.bytes_in,
            dropped: counts.dropped,
            refused: counts.refused,
            last_error: status.last_error,
        }
    };
    Json(BridgeList { bridges: status(&api.shared).into_iter().map(model).collect() })
}
