//! One run from beginning to end: drivers through their phases, brokers watched all the while.

mod coordinator;
mod outcome;
mod raw;
mod watch;

use std::net::IpAddr;
use std::path::PathBuf;

pub(crate) use coordinator::run;
#[cfg(test)]
pub(crate) use outcome::FaultDone;
pub(crate) use outcome::{Outcome, ProcessSamples, Sample};

use crate::endpoint::Endpoint;
use crate::fault::Fault;
use crate::metrics::{MetricsUrl, Token};
use crate::transport::TlsFiles;

/// A process that was started for a run, the leader of a group of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    /// `node-2`, or `broker-2` behind it.
    pub(crate) name: String,
    pub(crate) pid: u32,
}

/// Settings of a run beyond its scenario.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    pub(crate) brokers: Vec<Endpoint>,
    /// Processes of the brokers, whose descendants belong to them.
    pub(crate) pids: Vec<u32>,
    /// Processes of the brokers that have names: faults know them, and each is watched alone.
    pub(crate) processes: Vec<Process>,
    /// Metrics of brokers whose processes are elsewhere.
    pub(crate) metrics: Vec<MetricsUrl>,
    /// Token that requests for the metrics have to show.
    pub(crate) token: Option<Token>,
    /// Driver threads in this process.
    pub(crate) threads: usize,
    pub(crate) sources: Vec<IpAddr>,
    pub(crate) username: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) pin: Vec<usize>,
    pub(crate) faults: Vec<Fault>,
    /// Where the emulated network that faults act on takes requests.
    pub(crate) network: Option<PathBuf>,
    /// File that every delivery is written to.
    pub(crate) raw: Option<PathBuf>,
    /// Certificates of encrypted connections.
    pub(crate) tls: TlsFiles,
    /// Driver processes that do the work instead of this one.
    pub(crate) drivers: Vec<String>,
}
