//! Rules that run in the cluster.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The rules of the configuration that run in the cluster.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct RuleList {
    /// By name.
    pub rules: Vec<RuleEntry>,
    /// Names of members that did not answer in time.
    #[serde(default)]
    pub silent: Vec<String>,
}

/// A rule. Counters are those of the node that was asked since its start, or of all members together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct RuleEntry {
    /// Its name in the configuration.
    pub name: String,
    /// `running`, `down` (it cannot run, messages wait), `elsewhere` (another node runs it) or `waiting`.
    pub state: String,
    /// Id of the node that runs it.
    pub node: Option<String>,
    /// Name of that node.
    pub node_name: Option<String>,
    /// Messages that wait for it.
    pub lag: u64,
    /// Bytes of those in the queue.
    pub lag_bytes: u64,
    /// Most messages that waited at once since the rule fell behind; what waits for less than two seconds is not behind.
    pub lag_most: u64,
    /// How many seconds the oldest message has waited.
    pub waits_seconds: u64,
    /// Groups that it keeps.
    pub groups: u64,
    /// Windows that are open.
    pub windows: u64,
    /// Bytes of both.
    pub state_bytes: u64,
    /// Messages that reached it.
    pub seen: u64,
    /// Messages that it selected.
    pub selected: u64,
    /// Messages that it put out.
    pub outputs: u64,
    /// Outputs that `on_change` or `deadband` held back.
    pub held_back: u64,
    /// Messages that came after their windows had closed.
    pub late: u64,
    /// Messages without a usable time.
    pub bad_time: u64,
    /// Messages that it, or too many rules, had a part in.
    pub loops: u64,
    /// Messages whose payload was too large to look into.
    pub too_large: u64,
    /// Messages that a limit kept out.
    pub over_limit: u64,
    /// Groups whose windows closed early to make room.
    pub closed_early: u64,
    /// Payloads that are none of Sparkplug B.
    pub undecodable: u64,
    /// Sparkplug metrics that no birth explains.
    pub unknown_metrics: u64,
    /// Sparkplug edge nodes that it asked for their births.
    pub rebirths: u64,
    /// Sparkplug edge nodes that it remembers.
    pub births: u64,
    /// Messages for which its `jq` program has raised an error.
    pub jq_failed: u64,
    /// Messages for which its `jq` program has taken too much.
    pub jq_over_budget: u64,
    /// Sparkplug edge nodes that it has forgotten for want of room.
    pub births_forgotten: u64,
    /// Outputs without a topic that they may go to.
    pub failed: u64,
    /// What went wrong last, since the start of the node that runs it.
    pub last_error: Option<String>,
}
