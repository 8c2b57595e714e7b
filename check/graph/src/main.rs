//! Runs the experiments by hand: `sedge-graph [--quick] [--seed N] [EXPERIMENT ...]`.

use std::process::ExitCode;

use sedge_graph::{Experiment, Options, run};

const USAGE: &str = "usage: sedge-graph [--quick] [--seed N] [EXPERIMENT ...]";

fn parse() -> Option<Options> {
    let mut options = Options::default();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--quick" => options.quick = true,
            "--seed" => options.seed = arguments.next()?.parse().ok()?,
            name => options.experiments.push(Experiment::ALL.into_iter().find(|known| known.name() == name)?),
        }
    }
    Some(options)
}

#[expect(clippy::print_stderr, reason = "a program for a terminal")]
fn main() -> ExitCode {
    let Some(options) = parse() else {
        let names: Vec<&str> = Experiment::ALL.iter().map(|experiment| experiment.name()).collect();
        eprintln!("{USAGE}\nExperiments: {}", names.join(", "));
        return ExitCode::from(2);
    };
    match run(&options, &mut std::io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
