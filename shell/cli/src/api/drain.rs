//! `sedge drain`.

use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::Args;
use sedge_daemon::http::model::Drain;

use super::client::{Answer, Api};
use super::commands::ApiArgs;
use super::text;
use crate::failure::Failure;
use crate::out;

/// How often the node is asked how far it has come.
const PERIOD: Duration = Duration::from_millis(200);
/// How long an empty process may take to end.
const STOP_PATIENCE: Duration = Duration::from_secs(10);

/// Flags of `sedge drain`.
#[derive(Args, Debug)]
pub(crate) struct DrainArgs {
    /// Wait until the node is empty; fails if it gives up
    #[arg(long)]
    wait: bool,
    /// Stop the node's process when it is empty; with --wait, wait for that, too
    #[arg(long)]
    stop: bool,
    /// Give up and serve on after so many seconds
    #[arg(long, value_name = "SECONDS", default_value = "600", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    limit: u32,
    /// Let the node serve on, whether it is empty or not
    #[arg(long, conflicts_with_all = ["wait", "stop", "limit"])]
    cancel: bool,
    #[command(flatten)]
    api: ApiArgs,
}

/// Runs `sedge drain`.
pub(crate) fn drain(args: &DrainArgs) -> Result<(), Failure> {
    let api = args.api.client()?;
    if args.cancel {
        return show(args, &api.delete::<Drain>("/api/v1/drain")?);
    }
    // Whoever waits sees the node empty before it stops.
    let stops = args.stop && !args.wait;
    let mut answer = api.post::<Drain>(&format!("/api/v1/drain?limit={}&stop={stops}", args.limit))?;
    if !args.wait {
        return show(args, &answer);
    }
    while answer.value.state == "draining" {
        sleep(PERIOD);
        answer = api.get::<Drain>("/api/v1/drain")?;
    }
    if answer.value.state != "drained" {
        let why = answer.value.gave_up.unwrap_or_else(|| "somebody else wants it to".to_owned());
        return Err(Failure::failed(format!("the node serves on: {why}")));
    }
    if !args.stop {
        return show(args, &answer);
    }
    if !args.api.json {
        show(args, &answer)?;
    }
    stop(args, &api)?;
    if args.api.json {
        return out::json(&serde_json::json!(Drain { stop: true, ..answer.value }));
    }
    out::line("the node has stopped")
}

fn stop(args: &DrainArgs, api: &Api) -> Result<(), Failure> {
    // The answer may be lost with the process.
    let _ = api.post::<Drain>(&format!("/api/v1/drain?limit={}&stop=true", args.limit));
    let until = Instant::now() + STOP_PATIENCE;
    while api.is_there() {
        if Instant::now() >= until {
            return Err(Failure::failed(format!("the node is empty but has not stopped in {STOP_PATIENCE:?}")));
        }
        sleep(PERIOD);
    }
    Ok(())
}

fn show(args: &DrainArgs, answer: &Answer<Drain>) -> Result<(), Failure> {
    if args.api.json { out::json_text(&answer.body) } else { out::line(&text::drain(&answer.value)) }
}
