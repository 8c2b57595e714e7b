//! HAProxy, kept in step with a group: a written file for its next start, its runtime socket for this one (EL-04 to EL-06).

mod config;
mod runtime;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use sedge_scale::site::LoadBalancer;

pub(crate) use self::config::{BACKEND, Server, config, place_name};
use self::runtime::Runtime;
use crate::error::ScaleError;
use crate::process::{GRACE, Proof, wait_until};
use crate::state::Home;

/// How long HAProxy may take to start.
const START: Duration = Duration::from_secs(5);
/// Longest path of a socket that HAProxy takes: it puts a suffix of up to 10 bytes behind it for a moment, and the system takes 107.
const MAX_SOCKET_PATH: usize = 90;

/// One HAProxy.
#[derive(Clone, Debug)]
pub(crate) struct Haproxy {
    name: String,
    home: Home,
}

impl Haproxy {
    pub(crate) fn new(home: &Home, name: &str) -> Self {
        Self { name: name.to_owned(), home: home.clone() }
    }

    fn file(&self, suffix: &str) -> PathBuf {
        self.home.dir().join(format!("haproxy-{}.{suffix}", self.name))
    }

    /// Its admin socket; beside the other files unless the path would be too long for a socket.
    fn socket(&self) -> PathBuf {
        let beside = self.file("sock");
        if beside.as_os_str().len() <= MAX_SOCKET_PATH {
            return beside;
        }
        let folder = self.home.dir().file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        std::env::temp_dir().join(format!("sedge-{folder}-{}.sock", self.name))
    }

    /// Starts it, with these nodes in its places. Says which process it is.
    pub(crate) fn start(&self, balancer: &LoadBalancer, servers: &[Option<Server>]) -> Result<Proof, String> {
        let program = find().ok_or(
            "haproxy is not installed, which load balancers need: install the package haproxy (apt-get install haproxy)",
        )?;
        let cfg = self.write(balancer, servers).map_err(|error| error.to_string())?;
        check(&program, &cfg)?;
        let pid_file = self.file("pid");
        let _ = fs::remove_file(&pid_file);
        let log = fs::File::options().write(true).create(true).truncate(true).mode(0o600).open(self.file("log"));
        let log = log.map_err(|error| format!("cannot write its log: {error}"))?;
        let errors = log.try_clone().map_err(|error| format!("cannot write its log: {error}"))?;
        let status = Command::new(program)
            .args(["-W", "-D", "-f"])
            .arg(&cfg)
            .arg("-p")
            .arg(&pid_file)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .status()
            .map_err(|error| format!("cannot start haproxy: {error}"))?;
        let said = || complaint(&fs::read_to_string(self.file("log")).unwrap_or_default());
        if !status.success() {
            return Err(format!("haproxy does not start at port {}: {}", balancer.port, said()));
        }
        let mut proof = None;
        wait_until(START, || {
            proof = fs::read_to_string(&pid_file).ok().and_then(|text| text.trim().parse().ok()).and_then(Proof::of);
            proof.is_some() && Runtime::new(&self.socket()).ask("show info").is_ok()
        });
        proof.ok_or_else(|| format!("haproxy has not started within {START:?}: {}", said()))
    }

    fn write(&self, balancer: &LoadBalancer, servers: &[Option<Server>]) -> Result<PathBuf, ScaleError> {
        let path = self.file("cfg");
        self.home.write(&path, config(balancer, &self.socket(), servers).as_bytes())?;
        Ok(path)
    }

    /// Puts these nodes into its places while it runs: no connection is lost, since no process is replaced.
    pub(crate) fn balance(&self, balancer: &LoadBalancer, servers: &[Option<Server>]) -> Result<(), String> {
        self.write(balancer, servers).map_err(|error| error.to_string())?;
        let runtime = Runtime::new(&self.socket());
        for (place, server) in servers.iter().enumerate() {
            let name = format!("{BACKEND}/{}", place_name(place));
            match server {
                Some(server) => runtime.place(&name, server)?,
                None => runtime.change(&format!("set server {name} state maint"))?,
            }
        }
        Ok(())
    }

    /// Starts a new worker with the written file; the old one keeps its connections until they end.
    pub(crate) fn reload(
        &self,
        proof: &Proof,
        balancer: &LoadBalancer,
        servers: &[Option<Server>],
    ) -> Result<(), String> {
        let cfg = self.write(balancer, servers).map_err(|error| error.to_string())?;
        check(&find().ok_or("haproxy is not installed")?, &cfg)?;
        proof.signal(rustix::process::Signal::USR2);
        Ok(())
    }

    /// How much a place counts when a node for a new connection is chosen, 1 being normal.
    pub(crate) fn weigh(&self, place: usize, weight: u32) -> Result<(), String> {
        Runtime::new(&self.socket()).change(&format!("set server {BACKEND}/{} weight {weight}", place_name(place)))
    }

    /// Connections in each place, by its name.
    pub(crate) fn connections(&self) -> BTreeMap<String, u64> {
        Runtime::new(&self.socket()).connections().unwrap_or_default()
    }

    /// Ends it and removes its files.
    pub(crate) fn end(&self, proof: &Proof) -> Result<(), String> {
        // The master ends its workers, old ones with connections among them.
        if !proof.end(GRACE) {
            return Err(format!("haproxy (pid {}) does not end", proof.pid));
        }
        for suffix in ["cfg", "pid", "log"] {
            let _ = fs::remove_file(self.file(suffix));
        }
        let _ = fs::remove_file(self.socket());
        Ok(())
    }
}

/// The errors among the lines that HAProxy has written, in one line; all lines if none is marked as one.
fn complaint(log: &str) -> String {
    let errors: Vec<&str> = log.lines().filter(|line| line.starts_with("[ALERT]")).map(str::trim).collect();
    if errors.is_empty() { log.trim().replace('\n', "; ") } else { errors.join("; ") }
}

/// Where the program is.
fn find() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Debian puts it where users' paths do not lead.
    let folders = std::env::split_paths(&path).chain(["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from));
    folders.map(|folder| folder.join("haproxy")).find(|program| program.is_file())
}

/// Lets HAProxy itself check a file.
fn check(program: &Path, cfg: &Path) -> Result<(), String> {
    let output = Command::new(program).arg("-c").arg("-f").arg(cfg).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("cannot start haproxy: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("haproxy refuses {}: {}", cfg.display(), said.trim()))
}

#[cfg(test)]
mod tests {
    use super::complaint;

    #[test]
    fn of_many_lines_the_errors_are_passed_on() {
        let log = "[NOTICE]   (7) : version 2.6\n[ALERT]    (7) : cannot bind socket\n[ALERT]    (7) : Exiting.\n";
        assert_eq!(complaint(log), "[ALERT]    (7) : cannot bind socket; [ALERT]    (7) : Exiting.");
        assert_eq!(complaint("it broke\nhere\n"), "it broke; here");
    }
}
