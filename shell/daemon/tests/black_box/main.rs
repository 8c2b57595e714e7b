//! The daemon from outside: nodes in this process, on loopback ports of the system's choice.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod cluster;
mod common;
mod config;
mod dashboard;
mod http_token;
mod limits;
mod links;
mod node;
mod pki;
mod sys;
mod transports;
