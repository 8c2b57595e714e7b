//! Commands that look at and steer a running node through its HTTP API.

mod advise;
mod client;
mod commands;
mod drain;
mod explain;
mod health;
mod log_level;
mod logs;
mod names;
mod neighbours;
mod reload;
mod text;
mod top;
mod trace;
mod watch;
mod workers;

pub(crate) use advise::{AdviseArgs, advise};
pub(crate) use client::Api;
pub(crate) use commands::{
    ClusterArgs, KickArgs, ListArgs, PageArgs, RetainedArgs, SessionsArgs, StatusArgs, bridges, kick, retained, routes,
    rules, sessions, status, topology,
};
pub(crate) use drain::{DrainArgs, drain};
pub(crate) use explain::{ExplainArgs, explain};
pub(crate) use health::{HealthArgs, health};
pub(crate) use log_level::{LogLevelArgs, log_level};
pub(crate) use logs::{LogsArgs, logs};
pub(crate) use neighbours::{NeighbourCommand, neighbour, neighbours};
pub(crate) use reload::{ReloadArgs, reload};
pub(crate) use top::{TopArgs, top};
pub(crate) use trace::{TraceArgs, trace};
pub(crate) use watch::{Page, WatchArgs};
