//! A site of `sedge scale` for a run: HAProxy, and nodes of the process driver behind it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde::Deserialize;

use super::super::args::PlugsArgs;
use crate::compare::{Running, search_path};
use crate::error::BenchError;

/// Most time until all nodes and the load balancer are there.
const UP: Duration = Duration::from_mins(2);
/// Most time until nothing of a site is left.
const DOWN: Duration = Duration::from_mins(2);
/// Time between two looks while waiting.
const TURN: Duration = Duration::from_millis(100);
const FILE: &str = "site.yaml";

/// How many nodes there are to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) min: u32,
    pub(super) max: u32,
}

/// The parts of `sedge scale status --json` that the experiment reads.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Status {
    pub(super) converged: bool,
    pub(super) groups: std::collections::BTreeMap<String, Group>,
    pub(super) decisions: Vec<Decision>,
    pub(super) events: Vec<Event>,
}

/// A group of nodes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Group {
    pub(super) nodes: Vec<Node>,
}

/// A node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Node {
    pub(super) state: String,
    pub(super) samples: std::collections::BTreeMap<String, f64>,
}

/// A change of the number of nodes that the controller has decided on.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Decision {
    pub(super) at_ms: u64,
    pub(super) from: u32,
    pub(super) to: u32,
}

/// Something that happened.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Event {
    kind: String,
    subject: String,
    text: String,
}

impl Status {
    /// All nodes of the group.
    pub(super) fn nodes(&self) -> &[Node] {
        self.groups.get("brokers").map_or(&[], |group| &group.nodes)
    }

    /// Nodes that serve.
    pub(super) fn serving(&self) -> impl Iterator<Item = &Node> {
        self.nodes().iter().filter(|node| node.state == "serving")
    }
}

/// A site that runs. Nothing of it is left when this value ends.
pub(super) struct Site {
    folder: PathBuf,
    controller: Running,
}

/// The site file.
pub(super) fn file(args: &PlugsArgs, bounds: Bounds) -> String {
    let cpu = if args.cpu > 0.0 { format!(", cpu: {}", args.cpu) } else { String::new() };
    let Bounds { min, max } = bounds;
    let PlugsArgs { port, high, low, period, cooldown, .. } = args;
    let alarm = |op: &str, threshold: f64, action: &str| {
        format!(
            "{{type: alarm, metric: cpu_util, of: \"${{brokers}}\", stat: mean, period: {period}s, evaluations: 1, op: \"{op}\", \
             threshold: {threshold}, action: \"${{{action}}}\"}}"
        )
    };
    format!(
        "driver: process\n\
         resources:\n  \
           brokers: {{type: group, member: {{type: broker{cpu}}}, min: {min}, max: {max}}}\n  \
           lb: {{type: loadbalancer, backend: \"${{brokers}}\", algorithm: roundrobin, port: {port}, bind: 127.0.0.1}}\n  \
           high: {}\n  low: {}\n  \
           out: {{type: policy, group: \"${{brokers}}\", adjust: +1, cooldown: {cooldown}s}}\n  \
           in: {{type: policy, group: \"${{brokers}}\", adjust: -1, cooldown: {cooldown}s}}\n",
        alarm(">", *high, "out"),
        alarm("<", *low, "in"),
    )
}

/// Runs a command of this version of `sedge` on the site.
fn sedge(folder: &Path, words: &[&str]) -> Result<Output, BenchError> {
    let mut command = Command::new("sedge");
    command.args(words).current_dir(folder).env("PATH", search_path()).env("SEDGE_SCALE_DIR", folder.join("state"));
    let done = command.stdin(Stdio::null()).output();
    done.map_err(|error| BenchError::Broker(format!("cannot run sedge {}: {error}", words.join(" "))))
}

impl Site {
    /// Starts the controller and waits until `bounds.min` nodes serve behind the load balancer.
    pub(super) fn start(folder: &Path, args: &PlugsArgs, bounds: Bounds) -> Result<Self, BenchError> {
        let state = folder.join("state");
        // Nodes outlive their controller: whatever ends it, what it has made is ended as well.
        let command = format!(
            "env -C {} SEDGE_SCALE_DIR={} sh -c 'trap : TERM; sedge scale run {FILE}; sedge scale delete {FILE}'",
            folder.display(),
            state.display()
        );
        let files = [(FILE, file(args, bounds))];
        let controller = Running::spawn("sedge scale", &command, folder, files.into_iter())?;
        let mut site = Self { folder: folder.to_owned(), controller };
        let deadline = Instant::now() + UP;
        loop {
            let status = site.status();
            let serving = status.as_ref().map_or(0, |status| status.serving().count());
            if serving >= usize::try_from(bounds.min).unwrap_or(usize::MAX)
                && status.as_ref().is_some_and(|status| status.converged)
            {
                return Ok(site);
            }
            if site.controller.has_ended() {
                return Err(site.controller.did_not_start());
            }
            let failure =
                status.as_ref().and_then(|status| status.events.iter().rev().find(|event| event.kind == "failure"));
            if Instant::now() > deadline || failure.is_some_and(|event| event.text.contains("cannot be limited")) {
                let why = failure.map_or_else(String::new, |event| format!(": {}: {}", event.subject, event.text));
                return Err(BenchError::Broker(format!(
                    "only {serving} of {} nodes serve behind HAProxy{why} (without root use --cpu 0)",
                    bounds.min
                )));
            }
            std::thread::sleep(TURN);
        }
    }

    /// Status of the controller; none if the controller does not answer.
    pub(super) fn status(&self) -> Option<Status> {
        look(&self.folder)
    }

    /// Ends everything of the site: the shell that started the controller deletes the site after it.
    pub(super) fn end(mut self) -> Result<(), BenchError> {
        self.controller.signal(Signal::TERM);
        let deadline = Instant::now() + DOWN;
        while !self.controller.has_ended() && Instant::now() < deadline {
            std::thread::sleep(TURN);
        }
        let state = self.folder.join("state");
        if std::fs::read_dir(&state).is_ok_and(|mut left| left.next().is_none()) {
            return Ok(());
        }
        let (state, log) = (state.display(), self.folder.join("output.log"));
        let advice = format!("SEDGE_SCALE_DIR={state} sedge scale delete {}", self.folder.join(FILE).display());
        Err(BenchError::Broker(format!("nodes still run, {} may say why; end them with {advice}", log.display())))
    }

    /// Where the site is.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }
}

/// Status of the controller of the site in `folder`; none if the controller does not answer.
pub(super) fn look(folder: &Path) -> Option<Status> {
    let said = sedge(folder, &["scale", "status", FILE, "--json"]).ok()?;
    serde_json::from_slice(&said.stdout).ok()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: PlugsArgs,
    }

    /// EL-15, EL-16, EL-18: thresholds, bounds and cool-down of the source unless said otherwise.
    #[test]
    fn a_site_has_the_numbers_of_the_source() {
        let args = Cli::try_parse_from(["plugs", "--port", "2000"]).expect("flags").args;
        let text = file(&args, Bounds { min: 1, max: 3 });
        for wanted in [
            "member: {type: broker, cpu: 0.2}, min: 1, max: 3}",
            "algorithm: roundrobin, port: 2000",
            "op: \">\", threshold: 80, action: \"${out}\"",
            "op: \"<\", threshold: 25, action: \"${in}\"",
            "period: 60s",
            "adjust: -1, cooldown: 60s",
        ] {
            assert!(text.contains(wanted), "{wanted} is not in {text}");
        }
        assert!(!file(&PlugsArgs { cpu: 0.0, ..args }, Bounds { min: 1, max: 1 }).contains("cpu: 0"));
    }
}
