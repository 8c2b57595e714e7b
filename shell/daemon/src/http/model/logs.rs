//! The logs of nodes.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What nodes write to their logs (`GET` and `PUT /api/v1/log`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LogLevels {
    /// Those that have answered, by name.
    pub nodes: Vec<LogLevel>,
    /// Names of those that have not answered in time.
    pub silent: Vec<String>,
}

/// What a node writes to its log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LogLevel {
    /// Id of the node.
    pub node: String,
    /// Its name.
    pub name: String,
    /// `error`, `warn`, `info`, `debug`, `trace`, `off`, or directives such as `info,sedge_daemon=debug`.
    pub level: String,
    /// What its configuration says (`log.level`), which holds again after a reload or a restart.
    pub configured: String,
}

/// The last lines of a node's log (`GET /api/v1/log/lines`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LogLines {
    /// Id of the node.
    pub node: String,
    /// Its name.
    pub name: String,
    /// Which life of it: lines are counted anew in each.
    pub incarnation: u64,
    /// Lines in order.
    pub lines: Vec<LogLine>,
    /// Number of the line behind them.
    pub next: u64,
}

/// A line of a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LogLine {
    /// Which line of the log it is, from 0 on. Missing numbers: lines that made room for others.
    pub number: u64,
    /// When it was written by the system clock of the node, in milliseconds since 1970.
    pub at_ms: u64,
    /// As it was written, without colours.
    pub text: String,
}
