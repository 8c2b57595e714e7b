//! `sedge sim`.

use std::io;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use sedge_graph::{Experiment, Options};

use crate::failure::Failure;

/// Simulate very large clusters
#[derive(Subcommand, Debug)]
pub(crate) enum SimCommand {
    /// Experiments with the Skip Graph overlay: 100,000 nodes in this process, against a Scribe
    SkipGraph(SkipGraphArgs),
}

#[derive(Args, Debug)]
pub(crate) struct SkipGraphArgs {
    /// Experiments to run; all without names
    #[arg(value_parser = PossibleValuesParser::new(Experiment::ALL.map(Experiment::name)))]
    experiments: Vec<String>,
    /// Draw everything from this number: the same seed gives the same report
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Far fewer nodes: done in seconds, and less exact
    #[arg(long)]
    quick: bool,
    /// Experiments at a time; each needs up to 2 GB
    #[arg(long, default_value_t = 2)]
    threads: usize,
}

/// Runs `sedge sim`: the report goes to standard output as Markdown.
pub(crate) fn run(command: &SimCommand) -> Result<(), Failure> {
    let SimCommand::SkipGraph(args) = command;
    let named = |name: &String| Experiment::ALL.into_iter().find(|experiment| experiment.name() == name);
    let options = Options {
        seed: args.seed,
        quick: args.quick,
        experiments: args.experiments.iter().filter_map(named).collect(),
        threads: args.threads,
    };
    sedge_graph::run(&options, &mut io::stdout().lock()).map_err(|error| Failure::output(&error))
}
