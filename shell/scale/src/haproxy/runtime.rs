//! The runtime socket of HAProxy: one command a connection.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::config::{BACKEND, Server};

const PATIENCE: Duration = Duration::from_secs(2);
const MAX_ANSWER_BYTES: u64 = 1 << 20;

/// A socket that commands are sent to.
#[derive(Debug)]
pub(super) struct Runtime {
    path: PathBuf,
}

impl Runtime {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// HAProxy's answer to a command.
    pub(super) fn ask(&self, command: &str) -> Result<String, String> {
        let failed = |error: std::io::Error| format!("haproxy at {}: {error}", self.path.display());
        let mut stream = UnixStream::connect(&self.path).map_err(failed)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
        stream.set_write_timeout(Some(PATIENCE)).map_err(failed)?;
        stream.write_all(format!("{command}\n").as_bytes()).map_err(failed)?;
        let mut answer = String::new();
        stream.take(MAX_ANSWER_BYTES).read_to_string(&mut answer).map_err(failed)?;
        Ok(answer.trim().to_owned())
    }

    /// Sends a command that is answered with nothing, or with a note of the change.
    pub(super) fn change(&self, command: &str) -> Result<(), String> {
        let answer = self.ask(command)?;
        let fine = ["IP changed", "port changed", "no need to change", "nothing changed"];
        if answer.is_empty() || fine.iter().any(|word| answer.contains(word)) {
            return Ok(());
        }
        Err(format!("haproxy answers to {command:?}: {answer}"))
    }

    /// Puts a node into a place, and lets it take connections.
    pub(super) fn place(&self, name: &str, server: &Server) -> Result<(), String> {
        self.change(&format!("set server {name} addr {} port {}", server.host, server.mqtt))?;
        self.change(&format!("set server {name} check-port {}", server.http))?;
        self.change(&format!("set server {name} state ready"))?;
        // Whoever says that a node serves has asked it: no need to wait for the first check.
        self.change(&format!("set server {name} health up"))
    }

    /// Connections of each server.
    pub(super) fn connections(&self) -> Result<BTreeMap<String, u64>, String> {
        let table = self.ask("show stat")?;
        let mut lines = table.lines();
        let heads: Vec<&str> = lines.next().unwrap_or_default().trim_start_matches("# ").split(',').collect();
        let column = |name: &str| heads.iter().position(|head| *head == name);
        let (Some(proxy), Some(server), Some(current)) = (column("pxname"), column("svname"), column("scur")) else {
            return Err("haproxy shows no table of its servers".to_owned());
        };
        let mut found = BTreeMap::new();
        for line in lines {
            let cells: Vec<&str> = line.split(',').collect();
            let cell = |at: usize| cells.get(at).copied().unwrap_or_default();
            if cell(proxy) == BACKEND && cell(server) != "BACKEND" {
                found.insert(cell(server).to_owned(), cell(current).parse().unwrap_or(0));
            }
        }
        Ok(found)
    }
}
