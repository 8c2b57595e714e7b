//! The HTTP API: health, metrics, and a look at the node. [`model`] holds what it says.

mod accounts;
mod ask;
mod assets;
mod bridges;
mod desk;
mod drain;
mod error;
mod events;
mod explain;
#[cfg(any(test, fuzzing))]
mod fuzz;
mod guard;
mod handlers;
mod history;
mod logs;
mod members;
mod metrics;
pub mod model;
mod neighbours;
mod openapi;
mod origin;
#[cfg_attr(not(feature = "otlp"), path = "otlp_none.rs")]
mod otlp;
mod process;
mod retained;
mod role;
mod routes;
mod rules;
mod scale;
mod scope;
mod server;
mod sessions;
mod settings;
mod table;
mod tokens;
mod topics;
mod topology;
mod traces;
mod tree;
mod upstream;
mod visitors;
mod workers;

pub(crate) use desk::{Desk, asked};
#[cfg(any(test, fuzzing))]
pub(crate) use fuzz::http;
pub(crate) use guard::Guard;
pub(crate) use model::RecoveryReport;
pub(crate) use otlp::Export;
pub(crate) use server::{Facts, HttpServer};
pub(crate) use tokens::{Tokens, wrong_token};
pub(crate) use visitors::Visits;
