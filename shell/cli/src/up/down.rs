//! `sedge down`.

use rustix::process::Signal;
use sedge_controller::process::{GRACE, signal, wait_until};
use serde_json::{Value, json};

use super::args::DownArgs;
use super::plan::default_dir;
use super::state::{NodeState, State};
use super::token;
use crate::failure::Failure;
use crate::out;

/// Outcome for a node that is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    WasGone,
    Stopped,
    Killed,
}

impl Fate {
    const fn words(self) -> &'static str {
        match self {
            Self::WasGone => "was not running any more",
            Self::Stopped => "stopped",
            Self::Killed => "killed: it did not stop within 3 s",
        }
    }
}

/// Runs `sedge down`.
pub(crate) fn run(args: &DownArgs) -> Result<(), Failure> {
    let dir = args.data_dir.clone().unwrap_or_else(|| default_dir(args.port));
    let Some(state) = State::load(&dir)? else {
        return Err(Failure::failed(format!(
            "no cluster was left running in {}; name its directory with --data-dir or its first port with --port",
            dir.display()
        )));
    };
    let fates = stop(&state.nodes);
    State::remove(&dir)?;
    token::forget(&dir, state.nodes.iter().map(|node| node.http_port));
    let told = state.nodes.iter().zip(fates);
    if args.json {
        let describe =
            |(node, fate): (&NodeState, Fate)| json!({ "name": node.name, "pid": node.pid, "result": name(fate) });
        return out::json(&json!({ "nodes": told.map(describe).collect::<Vec<Value>>() }));
    }
    for (node, fate) in told {
        out::line(&format!("{} (pid {}): {}", node.name, node.pid, fate.words()))?;
    }
    Ok(())
}

const fn name(fate: Fate) -> &'static str {
    match fate {
        Fate::WasGone => "not_running",
        Fate::Stopped => "stopped",
        Fate::Killed => "killed",
    }
}

/// Ends the nodes, all at the same time. A process with the id of a node that is not the one that was started is left alone.
fn stop(nodes: &[NodeState]) -> Vec<Fate> {
    let mut fates = Vec::new();
    for node in nodes {
        let running = node.is_running();
        if running {
            signal(node.pid, Signal::TERM);
        }
        fates.push(if running { Fate::Stopped } else { Fate::WasGone });
    }
    wait_until(GRACE, || !nodes.iter().any(NodeState::is_running));
    for (node, fate) in nodes.iter().zip(&mut fates) {
        if node.is_running() {
            signal(node.pid, Signal::KILL);
            *fate = Fate::Killed;
        }
    }
    wait_until(GRACE, || !nodes.iter().any(NodeState::is_running));
    fates
}
