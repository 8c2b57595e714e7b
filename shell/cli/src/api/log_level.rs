//! `sedge log-level`.

use clap::Args;
use sedge_controller::segment;
use sedge_daemon::http::model::LogLevels;

use super::commands::{ApiArgs, WhichNode};
use super::text;
use crate::failure::Failure;
use crate::out;
use crate::table::table;

const EXAMPLES: &str = "\
Examples:
  sedge log-level                                  what all nodes write to their logs
  sedge log-level debug --node attic               one node, until its next reload or restart
  sedge log-level info,sedge_daemon=debug          all nodes, one part of the program in detail
  sedge reload                                     what log.level of the configuration says";

/// Flags of `sedge log-level`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LogLevelArgs {
    /// Write this from now on: error, warn, info, debug, trace, off, or directives
    level: Option<String>,
    #[command(flatten)]
    which: WhichNode,
    #[command(flatten)]
    api: ApiArgs,
}

/// Runs `sedge log-level`.
pub(crate) fn log_level(args: &LogLevelArgs) -> Result<(), Failure> {
    let (api, whom) = (args.api.client()?, args.which.wanted());
    let answer = match &args.level {
        Some(level) => api.put::<LogLevels>(&format!("/api/v1/log?level={}&{whom}", segment(level)))?,
        None => api.get::<LogLevels>(&format!("/api/v1/log?{whom}"))?,
    };
    if args.api.json {
        return out::json_text(&answer.body);
    }
    let names = args.api.names(&api)?;
    let rows = answer.value.nodes.iter().map(|node| {
        let name = if names.of(&node.node) == node.node { node.name.clone() } else { names.of(&node.node) };
        vec![name, node.level.clone(), node.configured.clone()]
    });
    let rows: Vec<_> = rows.collect();
    let table = table(&["NODE", "LEVEL", "CONFIGURED"], &rows);
    out::line(&format!("{table}{}", text::silent(&answer.value.silent)))
}
