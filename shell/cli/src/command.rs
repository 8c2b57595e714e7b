//! The command line as a whole.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Parser, Subcommand};

use crate::failure::{Failure, USAGE};
use crate::mqtt::{explain_unknown, fold_properties};
use crate::{publish, subscribe};

const EXAMPLES: &str = "\
Examples:
  sedge pub -t kitchen/lamp -m on      publish a message
  sedge sub -t '#' -v                  print all messages

Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 3 a node could not be started.";

/// One MQTT service from several small machines.
#[derive(Parser, Debug)]
#[command(name = "sedge", version, after_help = EXAMPLES, subcommand_required = true, arg_required_else_help = false)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Pub(Box<publish::PubArgs>),
    Sub(Box<subscribe::SubArgs>),
}

/// Runs the command that `arguments`, the program's name first, ask for.
pub(crate) fn run(arguments: Vec<OsString>) -> Result<(), Failure> {
    let cli = match Cli::try_parse_from(fold_properties(arguments)?) {
        Ok(cli) => cli,
        Err(error) => return unparsed(&error),
    };
    match cli.command {
        Command::Pub(args) => publish::run(&args),
        Command::Sub(args) => subscribe::run(&args),
    }
}

/// Help and version are no errors; and some flags deserve a better answer than that they do not exist.
fn unparsed(error: &clap::Error) -> Result<(), Failure> {
    if !error.use_stderr() {
        return error.print().map_err(|error| Failure::output(&error));
    }
    if error.kind() == ErrorKind::UnknownArgument
        && let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg)
        && let Some(explanation) = explain_unknown(flag)
    {
        return Err(Failure::usage(explanation));
    }
    let _ = error.print();
    Err(Failure::silent(USAGE))
}
