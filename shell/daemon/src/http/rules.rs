//! Rules that run in the cluster.

use std::collections::BTreeMap;
use std::sync::Weak;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use sedge_bridge::{RuleState, RuleStatus};

use super::desk::Inquiry;
use super::error::ApiError;
use super::handlers::parameters;
use super::model::{ErrorBody, RuleEntry, RuleList};
use super::server::Api;
use super::workers::{Part, Which, Worker, fitted, found, names};
use crate::runtime::Shared;

/// How all rules of this node do.
pub(super) fn status(shared: &Shared) -> Vec<RuleStatus> {
    let rules = shared.rules.get().and_then(Weak::upgrade);
    rules.map(|rules| rules.status()).unwrap_or_default()
}

/// The rules of the configuration: which node runs them, what they hold, what they have counted.
#[utoipa::path(get, path = "/api/v1/rules", tag = "rules", params(Which), responses(
    (status = 200, body = RuleList), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody)))]
pub(super) async fn rules(
    State(api): State<Api>,
    query: Result<Query<Which>, QueryRejection>,
) -> Result<Json<RuleList>, ApiError> {
    let Which { node } = parameters(query)?;
    let (rules, silent) = found(&api, node.as_deref(), own(&api).await?, Inquiry::Rules).await?;
    Ok(Json(RuleList { rules, silent }))
}

/// Those of this node from a place on, for another node.
pub(super) async fn part(api: &Api, from: usize) -> Result<Part<RuleEntry>, ApiError> {
    Ok(fitted(own(api).await?, from))
}

async fn own(api: &Api) -> Result<Vec<RuleEntry>, ApiError> {
    let found = status(&api.shared);
    let names = if found.is_empty() { BTreeMap::new() } else { names(api).await? };
    Ok(found.into_iter().map(|status| model(status, api, &names)).collect())
}

fn model(status: RuleStatus, api: &Api, names: &BTreeMap<String, String>) -> RuleEntry {
    let node = match &status.state {
        RuleState::Elsewhere(node) => Some(node.clone()),
        RuleState::Running | RuleState::Down => Some(api.facts.node.clone()),
        RuleState::Waiting => None,
    };
    let counters = status.counters;
    RuleEntry {
        name: status.name,
        state: status.state.name().to_owned(),
        node_name: node.as_ref().and_then(|node| names.get(node).cloned()),
        node,
        lag: status.lag.messages,
        lag_bytes: status.lag.bytes,
        lag_most: status.lag.most,
        waits_seconds: status.lag.waits.as_secs(),
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
        births_forgotten: status.births_forgotten,
        jq_failed: counters.jq_failed,
        jq_over_budget: counters.jq_over_budget,
        failed: counters.failed,
        last_error: status.last_error,
    }
}

impl Worker for RuleEntry {
    fn name(&self) -> &str {
        &self.name
    }

    fn state(&self) -> &str {
        &self.state
    }

    fn error(&mut self) -> &mut Option<String> {
        &mut self.last_error
    }

    /// Only the node that runs a rule has the rule's state.
    fn add(&mut self, other: &Self) {
        self.lag += other.lag;
        self.lag_bytes += other.lag_bytes;
        self.lag_most = self.lag_most.max(other.lag_most);
        self.waits_seconds = self.waits_seconds.max(other.waits_seconds);
        self.seen += other.seen;
        self.selected += other.selected;
        self.outputs += other.outputs;
        self.held_back += other.held_back;
        self.late += other.late;
        self.bad_time += other.bad_time;
        self.loops += other.loops;
        self.too_large += other.too_large;
        self.over_limit += other.over_limit;
        self.closed_early += other.closed_early;
        self.undecodable += other.undecodable;
        self.unknown_metrics += other.unknown_metrics;
        self.rebirths += other.rebirths;
        self.births_forgotten += other.births_forgotten;
        self.jq_failed += other.jq_failed;
        self.jq_over_budget += other.jq_over_budget;
        self.failed += other.failed;
    }
}
