//! The state that `sedge up --detach` leaves for `sedge down`.

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use sedge_controller::process::started;
use serde::{Deserialize, Serialize};

use super::cluster::Cluster;
use crate::failure::Failure;

/// A cluster that was left running.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct State {
    pub(super) nodes: Vec<NodeState>,
}

/// One of its nodes.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NodeState {
    pub(super) name: String,
    pub(super) pid: u32,
    /// When the process started: a pid alone may belong to another process by now.
    pub(super) started: String,
    pub(super) mqtt_port: u16,
    pub(super) http_port: u16,
    pub(super) cluster_port: u16,
}

impl NodeState {
    /// Whether this very process still runs.
    pub(super) fn is_running(&self) -> bool {
        started(self.pid).is_some_and(|now| now == self.started)
    }
}

impl State {
    /// The state of a running cluster.
    pub(super) fn of(cluster: &Cluster) -> Result<Self, Failure> {
        let mut nodes = Vec::new();
        for node in cluster.nodes() {
            let plan = &node.plan;
            let gone = || {
                Failure::cannot_start(format!("{} has ended already; its log is {}", plan.name, plan.log().display()))
            };
            nodes.push(NodeState {
                name: plan.name.clone(),
                pid: node.pid(),
                started: started(node.pid()).ok_or_else(gone)?,
                mqtt_port: plan.mqtt,
                http_port: plan.http,
                cluster_port: plan.cluster,
            });
        }
        for broker in cluster.brokers() {
            nodes.push(NodeState {
                name: format!("{} behind {}", broker.plan.make, broker.node),
                pid: broker.pid(),
                started: started(broker.pid()).unwrap_or_default(),
                mqtt_port: broker.plan.port,
                http_port: 0,
                cluster_port: 0,
            });
        }
        Ok(Self { nodes })
    }

    /// Reads the state that is kept in `dir`, if there is one.
    pub(super) fn load(dir: &Path) -> Result<Option<Self>, Failure> {
        let path = file(dir);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Failure::failed(format!("cannot read {}: {error}", path.display()))),
        };
        let damaged = |error| {
            let path = path.display();
            Failure::failed(format!("{path} is damaged ({error}); end the processes by hand, then remove it"))
        };
        serde_json::from_str(&text).map(Some).map_err(damaged)
    }

    /// Keeps the state in `dir`.
    pub(super) fn save(&self, dir: &Path) -> Result<(), Failure> {
        let path = file(dir);
        let failed = |error: String| Failure::cannot_start(format!("cannot write {}: {error}", path.display()));
        let text = serde_json::to_string_pretty(self).map_err(|error| failed(error.to_string()))?;
        let file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&path);
        file.and_then(|mut file| file.write_all((text + "\n").as_bytes())).map_err(|error| failed(error.to_string()))
    }

    /// Forgets it.
    pub(super) fn remove(dir: &Path) -> Result<(), Failure> {
        let path = file(dir);
        fs::remove_file(&path).map_err(|error| Failure::failed(format!("cannot remove {}: {error}", path.display())))
    }
}

fn file(dir: &Path) -> PathBuf {
    dir.join("up.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_read_back() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(State::load(dir.path()).unwrap(), None);
        let started = started(std::process::id()).unwrap();
        let node = |started: &str| NodeState {
            name: "node-1".to_owned(),
            pid: std::process::id(),
            started: started.to_owned(),
            mqtt_port: 1,
            http_port: 2,
            cluster_port: 3,
        };
        let state = State { nodes: vec![node(&started), node("another time")] };
        state.save(dir.path()).unwrap();
        assert_eq!(State::load(dir.path()).unwrap().unwrap(), state);
        assert_eq!(state.nodes.iter().map(NodeState::is_running).collect::<Vec<_>>(), [true, false]);
        fs::write(file(dir.path()), "{").unwrap();
        assert!(State::load(dir.path()).unwrap_err().message.unwrap().contains("up.json is damaged"));
    }
}
