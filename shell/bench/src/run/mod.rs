//! One run from beginning to end: drivers through their phases, brokers watched all the while.

mod coordinator;
mod outcome;
mod watch;

use std::net::IpAddr;
use std::path::PathBuf;

pub(crate) use coordinator::run;
#[cfg(test)]
pub(crate) use outcome::FaultDone;
pub(crate) use outcome::Outcome;

use crate::endpoint::Endpoint;
use crate::fault::Fault;

/// What a run needs beyond its scenario.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    pub(crate) brokers: Vec<Endpoint>,
    /// Processes of the brokers, whose descendants belong to them.
    pub(crate) pids: Vec<u32>,
    /// Driver threads in this process.
    pub(crate) threads: usize,
    pub(crate) sources: Vec<IpAddr>,
    pub(crate) username: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) pin: Vec<usize>,
    pub(crate) faults: Vec<Fault>,
    /// Where the emulated network that faults act on takes requests.
    pub(crate) network: Option<PathBuf>,
    /// Certificates that brokers are trusted by.
    pub(crate) ca: Option<PathBuf>,
    /// Any certificate will do.
    pub(crate) insecure: bool,
    /// Driver processes that do the work instead of this one.
    pub(crate) drivers: Vec<String>,
}
