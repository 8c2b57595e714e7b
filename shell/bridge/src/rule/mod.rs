//! Rules that run in the cluster (DP-02): from topics to topics, each at one node, exactly once.
//!
//! A rule is a persistent session of the broker, `$rule/NAME`, and a thread. What comes for the rule waits in the session; what the rule has
//! become of it is a log ([`sedge_rules::Ledger`]), kept in the queue of a second session, `$rule/NAME/log`. So inputs, state and outputs
//! have the copies, the journal and the takeover that all sessions have.

mod log;
mod run;
mod status;
mod supervisor;

pub use status::{RuleState, RuleStatus};
pub use supervisor::Rules;

/// Client id of the session of the rule `name`.
fn session_id(name: &str) -> String {
    format!("$rule/{name}")
}

/// Client id of the session that holds its log, and the log's topic.
fn log_id(name: &str) -> String {
    format!("$rule/{name}/log")
}
