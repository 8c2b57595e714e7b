//! Commands that look at and steer a running node through its HTTP API.

mod advise;
mod client;
mod commands;
mod drain;
mod health;
mod text;

pub(crate) use advise::{AdviseArgs, advise};
pub(crate) use client::Api;
pub(crate) use commands::{
    ApiArgs, KickArgs, PageArgs, RetainedArgs, SessionsArgs, kick, retained, routes, sessions, status, topology,
};
pub(crate) use drain::{DrainArgs, drain};
pub(crate) use health::{HealthArgs, health};
