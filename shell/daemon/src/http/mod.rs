//! The HTTP API: health, metrics, and a look at the node. [`model`] holds what it says.

mod ask;
mod drain;
mod error;
mod guard;
mod handlers;
mod metrics;
pub mod model;
mod openapi;
mod origin;
mod process;
mod retained;
mod server;
mod sessions;
mod topology;

pub(crate) use guard::{Guard, read_token, wrong_token};
pub(crate) use model::RecoveryReport;
pub(crate) use server::{Facts, HttpServer};
