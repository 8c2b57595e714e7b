//! Rules that run in the cluster.

use std::sync::Weak;

use axum::Json;
use axum::extract::State;
use sedge_bridge::{RuleState, RuleStatus};

use super::model::{RuleEntry, RuleList};
use super::server::Api;
use crate::runtime::Shared;

/// How all rules of this node do.
pub(super) fn status(shared: &Shared) -> Vec<RuleStatus> {
    let rules = shared.rules.get().and_then(Weak::upgrade);
    rules.map(|rules| rules.status()).unwrap_or_default()
}

/// The rules of the configuration: which node runs them, what they hold, what they have counted.
#[utoipa::path(get, path = "/api/v1/rules", tag = "rules", responses((status = 200, body = RuleList)))]
pub(super) async fn rules(State(api): State<Api>) -> Json<RuleList> {
    let model = |status: RuleStatus| {
        let node = match &status.state {
            RuleState::Elsewhere(node) => Some(node.clone()),
            RuleState::Running | RuleState::Down => Some(api.facts.node.clone()),
            RuleState::Waiting => None,
        };
        let counters = status.counters;
        RuleEntry {
            name: status.name,
            state: status.state.name().to_owned(),
            node,
            lag: status.lag,
            groups: status.groups,
            windows: status.windows,
            state_bytes: status.state_bytes,
            seen: counters.seen,
            selected: counters.selected,
            outputs: counters.outputs,
            held_back: counters.held_back,
            late: counters.late,
            bad_time: counters.bad_time,
            loops: counters.loops,
            too_large: counters.too_large,
            over_limit: counters.over_limit,
            closed_early: counters.closed_early,
            undecodable: counters.undecodable,
            unknown_metrics: counters.unknown_metrics,
            rebirths: counters.rebirths,
            births: status.births,
            jq_failed: counters.jq_failed,
            jq_over_budget: counters.jq_over_budget,
            failed: counters.failed,
            last_error: status.last_error,
        }
    };
    Json(RuleList { rules: status(&api.shared).into_iter().map(model).collect() })
}
