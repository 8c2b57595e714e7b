//! The Sedge daemon: event loops, listeners, links, configuration, HTTP API.
//!
//! [`run`] serves one node until the process is told to stop; [`Daemon`] starts and stops nodes inside a larger program.

pub mod access;
mod awaits;
pub mod backup;
mod bridges;
mod capacity;
pub mod config;
mod daemon;
mod discovery;
mod error;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod host_port;
pub mod http;
mod identity;
mod logging;
mod memory;
mod mirror;
mod node_config;
mod private;
mod recovery;
mod reload;
mod rules;
mod runtime;
mod seal;
mod sniff;
mod supervisor;
mod sys;
mod transport;

pub use config::{Config, ConfigError, Digests, Overrides};
pub use daemon::{Addresses, Daemon, ListenerAddress, Read, ReadAgain, run};
pub use error::StartError;
pub use logging::init_logging;
pub use reload::{ReloadReport, Reloaded};
pub use sedge_cluster::OVERLAYS;
