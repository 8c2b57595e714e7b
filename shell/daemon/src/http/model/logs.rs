//! The log of nodes.

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
