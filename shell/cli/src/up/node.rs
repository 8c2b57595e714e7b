//! One node of the cluster as a child process.

use std::fs::{DirBuilder, File, Permissions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::Signal;
use sedge_controller::process::signal;

use super::plan::NodePlan;
use crate::failure::Failure;

/// How much of a log to show when a node has died.
const TAIL_LINES: usize = 10;
const TAIL_BYTES: u64 = 16 * 1024;

/// Settings of the surroundings that cannot hold for several nodes at once.
const NOT_INHERITED: &[&str] = &["SEDGE_CLUSTER__KEY_FILE", "SEDGE_CLUSTER__ADVERTISE", "SEDGE_NODE__ID"];

/// A node that was started.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) plan: NodePlan,
    child: Child,
    ended: Option<ExitStatus>,
}

impl Node {
    /// Starts a node. Unless it is detached, it ends with this process, whatever this process dies of.
    pub(super) fn start(
        plan: &NodePlan,
        seeds: &[String],
        key: &str,
        settings: &[(&str, String)],
        token_file: Option<&Path>,
        detached: bool,
    ) -> Result<Self, Failure> {
        let failed =
            |what: &str, error: std::io::Error| Failure::cannot_start(format!("{}: {what}: {error}", plan.name));
        let log = plan.log();
        let place = format!("cannot write {}", log.display());
        // The log names clients and topics; it is nobody else's business, whatever the umask is.
        DirBuilder::new().recursive(true).mode(0o700).create(&plan.dir).map_err(|error| failed(&place, error))?;
        let output = File::options().write(true).create(true).truncate(true).mode(0o600).open(&log);
        let output = output.map_err(|error| failed(&place, error))?;
        output.set_permissions(Permissions::from_mode(0o600)).map_err(|error| failed(&place, error))?;
        let errors = output.try_clone().map_err(|error| failed(&place, error))?;
        let program = std::env::current_exe().map_err(|error| failed("cannot find the program itself", error))?;
        let mut command = Command::new(program);
        command.arg("serve").args(flags(plan)).arg("--data-dir").arg(&plan.dir);
        command.args(seeds.iter().flat_map(|seed| ["--seed", seed]));
        command.env("SEDGE_CLUSTER__KEY", key).envs(settings.iter().map(|(name, value)| (name, value)));
        command.env("SEDGE_CLUSTER__BIND", "127.0.0.1").env("SEDGE_HTTP__BIND", "127.0.0.1");
        command.env("SEDGE_HTTP__ENABLED", "true");
        if let Some(file) = token_file {
            command.env("SEDGE_HTTP__TOKEN_FILE", file);
            if std::env::var_os("SEDGE_HTTP__OPEN").is_none() {
                command.env("SEDGE_HTTP__OPEN", "health,metrics,reads");
            }
        }
        if plan.ws_for_page {
            let origins = ["127.0.0.1", "localhost"].map(|host| format!("http://{host}:{}", plan.http));
            command.env("SEDGE_LISTENER__WS__ALLOWED_ORIGINS", origins.join(","));
        }
        let broker = plan.broker.as_ref();
        let broker = broker.map(|broker| sedge_bench::broker_address(&broker.make, broker.port, &broker.dir));
        command.envs(broker.map(|address| ("SEDGE_UPSTREAM__ADDRESS", address)));
        let make = plan.broker.as_ref().and_then(|broker| broker.described.as_ref());
        command.envs(make.map(|make| ("SEDGE_UPSTREAM__MAKE", make)));
        for name in NOT_INHERITED {
            command.env_remove(name);
        }
        command.stdout(output).stderr(errors);
        if detached {
            command.arg("--own-session").stdin(Stdio::null());
        } else {
            // A group of its own: Ctrl-C in a terminal is for this process, which then ends its nodes in an orderly way.
            command.arg("--exit-with-parent").stdin(Stdio::piped()).process_group(0);
        }
        let child = command.spawn().map_err(|error| failed("cannot start", error))?;
        Ok(Self { plan: plan.clone(), child, ended: None })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How the node ended, if it has.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().ok().flatten();
        }
        self.ended
    }

    /// Tells the node to end.
    pub(super) fn tell_to_stop(&mut self) {
        if self.ended().is_none() {
            signal(self.pid(), Signal::TERM);
        }
    }

    /// Ends the node for good.
    pub(super) fn kill(&mut self) {
        if self.ended().is_none() {
            let _ = self.child.kill();
            self.ended = self.child.wait().ok();
        }
    }

    /// The message about a node that has ended: its status and the end of its log.
    pub(super) fn obituary(&self, status: ExitStatus) -> String {
        let log = self.plan.log();
        let tail = tail(&log).unwrap_or_default();
        let name = &self.plan.name;
        format!("{name} has ended ({status}); the end of {}:\n{tail}", log.display()).trim_end().to_owned()
    }
}

fn flags(plan: &NodePlan) -> Vec<String> {
    let pairs = [
        ("--name", plan.name.clone()),
        ("--bind", "127.0.0.1".to_owned()),
        ("--port", plan.mqtt.to_string()),
        ("--http-port", plan.http.to_string()),
        ("--cluster-port", plan.cluster.to_string()),
    ];
    let ws = plan.ws.map(|port| ("--ws-port", port.to_string()));
    pairs.into_iter().chain(ws).flat_map(|(flag, value)| [flag.to_owned(), value]).collect()
}

/// The last lines of a file, indented.
fn tail(path: &Path) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    let last = lines.iter().skip(lines.len().saturating_sub(TAIL_LINES));
    Ok(last.map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_tail_is_the_last_lines() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        fs::write(&path, "line\n".repeat(5) + &"last\n".repeat(10)).unwrap();
        let tail = tail(&path).unwrap();
        assert_eq!(tail, ["  last"; TAIL_LINES].join("\n"));
    }
}
