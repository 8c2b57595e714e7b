//! The command line as a whole.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser, Subcommand};

use crate::failure::{Failure, USAGE};
use crate::mqtt::{explain_unknown, fold_properties};
use crate::{
    api, backup, bench, config, from_mosquitto, manual, passwd, publish, rule, scale, serve, sim, subscribe, up,
};

const EXAMPLES: &str = "\
Examples:
  sedge up                             a cluster of three nodes on this machine
  sedge serve -c sedge.toml            one node of a cluster on several
  sedge pub -t kitchen/lamp -m on      publish a message
  sedge sub -t '#' -v                  print all messages

Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 3 a node could not be started.";

/// One MQTT service from several small machines.
#[derive(Parser, Debug)]
#[command(name = "sedge", version, after_help = EXAMPLES, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Up(up::UpArgs),
    Down(up::DownArgs),
    Serve(Box<serve::ServeArgs>),
    Pub(Box<publish::PubArgs>),
    Sub(Box<subscribe::SubArgs>),
    /// Show a node, and all nodes of its cluster
    Status(api::StatusArgs),
    /// Say whether a node is ready for clients: exit code 0 or 1; for containers and scripts
    Health(api::HealthArgs),
    Top(api::TopArgs),
    /// Show the nodes of a cluster, the links between them, and the trees and tables of its overlay
    Topology(api::ClusterArgs),
    /// Say which topics' subscribers should share nodes and which should be spread, from a cluster that runs
    Advise(api::AdviseArgs),
    /// Show the sessions of all nodes, or of one
    Sessions(api::SessionsArgs),
    /// Show what clients of all nodes want, or where one node sends publications
    Routes(api::PageArgs),
    /// Show the links of a node, and which of them were chosen by hand
    Neighbours(api::ListArgs),
    /// Choose or end links between nodes by hand
    #[command(subcommand)]
    Neighbour(api::NeighbourCommand),
    /// Show the bridges to other services: who runs them, what waits, what went wrong last
    Bridges(api::ClusterArgs),
    /// Show the rules that run in the cluster: which node runs them, what they hold and have counted
    Rules(api::ClusterArgs),
    /// Show retained messages, or clear one
    Retained(api::RetainedArgs),
    /// Say whether a client would get a publication now, from where and at which QoS, or what prevents it
    Explain(api::ExplainArgs),
    /// Show what becomes of publications, step by step, at all nodes
    Trace(api::TraceArgs),
    /// End the connection of a client at any node, and its session if wanted
    Kick(api::KickArgs),
    /// Have a node read its files and configuration again, and say what counts at once and what needs a restart
    Reload(api::ReloadArgs),
    Logs(api::LogsArgs),
    /// Show or change what nodes write to their logs, while they run
    LogLevel(api::LogLevelArgs),
    /// Empty a node before it stops: its clients and sessions go to other nodes
    Drain(api::DrainArgs),
    /// Grow and shrink a cluster with its load, behind one address
    #[command(subcommand)]
    Scale(scale::ScaleCommand),
    /// Move clients of a scaled site from fuller nodes to emptier ones
    Rebalance(scale::RebalanceArgs),
    /// Measure any MQTT broker: load, limits, failures, comparisons
    Bench(Box<sedge_bench::BenchArgs>),
    /// Try rules without a cluster
    #[command(subcommand)]
    Rule(rule::RuleCommand),
    /// Simulate very large clusters
    #[command(subcommand)]
    Sim(sim::SimCommand),
    Passwd(passwd::PasswdArgs),
    /// Look at access rules
    #[command(subcommand)]
    Acl(passwd::AclCommand),
    /// Check or show a configuration, or make one from that of Mosquitto
    #[command(subcommand)]
    Config(ConfigCommand),
    Backup(backup::BackupArgs),
    Restore(backup::RestoreArgs),
    /// Run a jq program on messages from standard input, for the rule that has started this process
    #[cfg(feature = "jq")]
    #[command(hide = true)]
    JqWorker,
    Completions(manual::CompletionsArgs),
    Man(manual::ManArgs),
}

/// Look at the configuration without starting a node.
#[derive(Subcommand, Debug)]
enum ConfigCommand {
    /// Check a configuration file together with the environment
    Check(serve::CheckArgs),
    /// Print a file with every key, what it is for and its default
    Default,
    /// Show every key with its value and where that comes from
    Show(config::ShowArgs),
    /// Write the configuration that a mosquitto.conf stands for
    FromMosquitto(from_mosquitto::FromMosquittoArgs),
}

/// Runs the command that `arguments`, the program's name first, ask for.
pub(crate) fn run(arguments: Vec<OsString>) -> Result<(), Failure> {
    let cli = match Cli::try_parse_from(fold_properties(arguments)?) {
        Ok(cli) => cli,
        Err(error) => return unparsed(&error),
    };
    match cli.command {
        Command::Up(args) => up::up(&args),
        Command::Down(args) => up::down(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Pub(args) => publish::run(&args),
        Command::Sub(args) => subscribe::run(&args),
        Command::Status(args) => api::status(&args),
        Command::Top(args) => api::top(&args),
        Command::Health(args) => api::health(&args),
        Command::Topology(args) => api::topology(&args),
        Command::Advise(args) => api::advise(&args),
        Command::Sessions(args) => api::sessions(&args),
        Command::Routes(args) => api::routes(&args),
        Command::Neighbours(args) => api::neighbours(&args),
        Command::Neighbour(command) => api::neighbour(&command),
        Command::Bridges(args) => api::bridges(&args),
        Command::Rules(args) => api::rules(&args),
        Command::Retained(args) => api::retained(&args),
        Command::Explain(args) => api::explain(&args),
        Command::Trace(args) => api::trace(&args),
        Command::Kick(args) => api::kick(&args),
        Command::Reload(args) => api::reload(&args),
        Command::Logs(args) => api::logs(&args),
        Command::LogLevel(args) => api::log_level(&args),
        Command::Drain(args) => api::drain(&args),
        Command::Scale(command) => scale::run(&command),
        Command::Rebalance(args) => scale::rebalance(&args),
        Command::Bench(args) => bench::run(*args),
        Command::Rule(command) => rule::run(&command),
        #[cfg(feature = "jq")]
        Command::JqWorker => sedge_bridge::jq::serve().map_err(|error| Failure::failed(error.to_string())),
        Command::Sim(command) => sim::run(&command),
        Command::Passwd(args) => passwd::passwd(&args),
        Command::Acl(passwd::AclCommand::Check(args)) => passwd::acl_check(&args),
        Command::Config(ConfigCommand::Check(args)) => serve::check(&args),
        Command::Config(ConfigCommand::Default) => config::default(),
        Command::Config(ConfigCommand::Show(args)) => config::show(&args),
        Command::Backup(args) => backup::backup(&args),
        Command::Restore(args) => backup::restore(&args),
        Command::Completions(args) => manual::completions(&args, &mut Cli::command()),
        Command::Man(args) => manual::man(&args, Cli::command()),
        Command::Config(ConfigCommand::FromMosquitto(args)) => from_mosquitto::run(&args),
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
