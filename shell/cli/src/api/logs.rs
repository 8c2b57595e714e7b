//! `sedge logs`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{Duration, Instant};

use clap::Args;
use sedge_base::printable;
use sedge_controller::segment;
use sedge_daemon::http::model::{Cluster, LogLine, LogLines};
use serde_json::json;

use super::client::Api;
use super::commands::ApiArgs;
use crate::failure::Failure;
use crate::out;
use crate::stop::Stop;

/// How often nodes are asked for new lines.
const EVERY: Duration = Duration::from_millis(500);
/// How soon a signal ends the waiting.
const STEP: Duration = Duration::from_millis(50);
/// Lines of a request.
const LIMIT: usize = 1_000;

const EXAMPLES: &str = "\
Examples:
  sedge logs                        the last 100 lines of each node, in order of time
  sedge logs --follow --lines 0     new lines of all nodes, until Ctrl-C
  sedge logs --node attic -n 1000   all that one node keeps

A node keeps its last 1,000 lines, 128 KiB of them, until it ends. Times are those of each node's clock.";

/// Show the last lines of the logs of all nodes, or of one
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LogsArgs {
    /// Show only this node: its name or id; all nodes if not given
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Show at most N last lines of each node, up to 1000
    #[arg(short = 'n', long, value_name = "N", default_value = "100")]
    #[arg(value_parser = clap::value_parser!(u16).range(0..=1000))]
    lines: u16,
    /// Go on with new lines until Ctrl-C
    #[arg(short, long)]
    follow: bool,
    #[command(flatten)]
    api: ApiArgs,
}

/// Runs `sedge logs`.
pub(crate) fn logs(args: &LogsArgs) -> Result<(), Failure> {
    let api = args.api.client()?;
    let mut reader = Reader { args, api: &api, places: BTreeMap::new(), silent: Vec::new() };
    let stop = args.follow.then(Stop::on_signals).transpose()?;
    reader.round(true)?;
    let Some(stop) = stop else { return Ok(()) };
    loop {
        let due = Instant::now() + EVERY;
        while Instant::now() < due {
            if stop.told() {
                return Ok(());
            }
            std::thread::sleep(STEP);
        }
        if let Err(failure) = reader.round(false) {
            reader.missing("", failure);
        }
    }
}

/// How far a node's log was read.
struct Place {
    incarnation: u64,
    next: u64,
}

struct Reader<'a> {
    args: &'a LogsArgs,
    api: &'a Api,
    /// Places in the nodes' logs, by the node's id or its name on the command line.
    places: BTreeMap<String, Place>,
    /// Nodes that did not answer the last time; an empty name stands for the node that is asked.
    silent: Vec<String>,
}

impl Reader<'_> {
    /// Prints the new lines of all nodes that are wanted, in order of time.
    fn round(&mut self, is_first: bool) -> Result<(), Failure> {
        let nodes = match &self.args.node {
            Some(node) => vec![node.clone()],
            None => self.api.get::<Cluster>("/api/v1/cluster")?.value.members.into_iter().map(|one| one.node).collect(),
        };
        self.answered("");
        let mut all: Vec<(LogLine, String, String)> = Vec::new();
        for node in nodes {
            match self.read(&node) {
                Ok(pages) => {
                    self.answered(&node);
                    all.extend(pages.into_iter().flat_map(|page| {
                        let LogLines { node, name, lines, .. } = page;
                        lines.into_iter().map(move |line| (line, node.clone(), name.clone()))
                    }));
                }
                Err(failure) if is_first && self.args.node.is_some() => return Err(failure),
                Err(failure) => self.missing(&node, failure),
            }
        }
        all.sort_by_key(|one| one.0.at_ms);
        all.iter().try_for_each(|(line, node, name)| self.print(line, node, name))
    }

    /// All that is new at a node.
    fn read(&mut self, node: &str) -> Result<Vec<LogLines>, Failure> {
        let mut pages = Vec::new();
        loop {
            let place = self.places.get(node);
            let mut path = format!("/api/v1/log/lines?node={}&limit={LIMIT}", segment(node));
            let _ = match place {
                Some(place) => write!(path, "&from={}", place.next),
                None => write!(path, "&last={}", self.args.lines),
            };
            let page = self.api.get::<LogLines>(&path)?.value;
            if let (Some(place), Some(first)) = (place, page.lines.first())
                && place.incarnation == page.incarnation
                && first.number > place.next
            {
                out::note(&format!("{} lines of {} are gone", first.number - place.next, printable(&page.name)));
            }
            let is_new_life = place.is_some_and(|place| place.incarnation != page.incarnation);
            // Another life counts its lines anew: from its first one.
            let next = if is_new_life { 0 } else { page.next };
            self.places.insert(node.to_owned(), Place { incarnation: page.incarnation, next });
            if is_new_life {
                continue;
            }
            if page.lines.is_empty() {
                return Ok(pages);
            }
            pages.push(page);
        }
    }

    fn print(&self, line: &LogLine, node: &str, name: &str) -> Result<(), Failure> {
        let LogLine { number, at_ms, text } = line;
        if self.args.api.json {
            let text = json!({ "node": node, "name": name, "number": number, "at_ms": at_ms, "text": text });
            return out::json(&text);
        }
        let text = printable(text);
        if self.args.node.is_some() { out::line(&text) } else { out::line(&format!("{}  {text}", printable(name))) }
    }

    /// Says once that a node does not answer: `node` is empty where the one that is asked does not.
    fn missing(&mut self, node: &str, failure: Failure) {
        if !self.silent.iter().any(|silent| silent == node) {
            self.silent.push(node.to_owned());
            let message = failure.message.unwrap_or_else(|| "no answer".to_owned());
            out::note(&if node.is_empty() {
                format!("error: {message}")
            } else {
                format!("error: node {node}: {message}")
            });
        }
    }

    fn answered(&mut self, node: &str) {
        self.silent.retain(|silent| silent != node);
    }
}
