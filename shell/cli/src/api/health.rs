//! `sedge health`: for containers, supervisors and scripts.

use clap::Args;
use sedge_daemon::http::model::Readiness;

use super::commands::ApiArgs;
use crate::failure::Failure;
use crate::out;

/// Flags of `sedge health`.
#[derive(Args, Debug)]
pub(crate) struct HealthArgs {
    /// Ask only whether the process answers, not whether it is ready for clients
    #[arg(long)]
    live: bool,
    #[command(flatten)]
    api: ApiArgs,
}

/// Runs `sedge health`: exit code 0 if the node is healthy, 1 with the reasons if not.
pub(crate) fn health(args: &HealthArgs) -> Result<(), Failure> {
    let api = args.api.client()?;
    let answer = if args.live {
        let alive = api.is_there();
        let reasons = if alive { Vec::new() } else { vec!["nobody answers".to_owned()] };
        Readiness { ready: alive, reasons }
    } else {
        api.readiness()?
    };
    if args.api.json {
        out::json(&answer)?;
    }
    if !answer.ready {
        let reasons = answer.reasons.join("; ");
        return if args.api.json {
            Err(Failure::silent(1))
        } else {
            Err(Failure::failed(format!("not ready: {reasons}")))
        };
    }
    if args.api.json { Ok(()) } else { out::line(if args.live { "alive" } else { "ready" }) }
}
