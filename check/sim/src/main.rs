//! Runs the simulator by hand: one seed, many, or one twice.

use std::process::ExitCode;

use sedge_cluster::OVERLAYS;
use sedge_sim::{ChurnOptions, Draw, KINDS, Options, churn, run};

const USAGE: &str = "usage: sedge-sim [over NAME] [KIND] run SEED          one run, printed step by step
       sedge-sim [over NAME] [KIND] sweep FROM COUNT  many runs, one line each; fails at the first violation
       sedge-sim [over NAME] [KIND] check SEED        one run twice: both must be equal
       sedge-sim churn NODES SECONDS SEED [OVERLAY ...]            overlays while 1 % of their nodes die and start each second
The nodes cooperate over the overlay NAME: mesh if none is named, or detour, which sends publications astray.
Without KIND the seed says which faults there are. KIND is one of:";

fn usage() -> String {
    let kinds = KINDS.iter().map(|(name, _, what)| format!("\n  {name:16}{what}"));
    format!("{USAGE}{}", kinds.collect::<String>())
}

#[expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for a terminal")]
fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "churn") {
        return run_churn(&arguments[1..]);
    }
    let overlay = match arguments.as_slice() {
        [over, name, ..] if over == "over" => OVERLAYS.into_iter().chain(["detour"]).find(|known| known == name),
        _ => Some(OVERLAYS[0]),
    };
    let Some(overlay) = overlay else {
        eprintln!("there is no such overlay\n{}", usage());
        return ExitCode::from(2);
    };
    if arguments.first().is_some_and(|first| first == "over") {
        arguments.drain(..2);
    }
    let known = KINDS.iter().find(|(name, _, _)| arguments.first().is_some_and(|first| first == name));
    let draw: Draw = known.map_or(Options::from_seed, |(_, draw, _)| *draw);
    let named = known.is_some();
    arguments.drain(..usize::from(named));
    let number = |at: usize| arguments.get(at).and_then(|text| text.parse::<u64>().ok());
    match (arguments.first().map(String::as_str), number(1), number(2)) {
        (Some("run"), Some(seed), None) => {
            let report = run(draw(seed).over(overlay), true);
            println!("{report}");
            if report.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        (Some("sweep"), Some(from), Some(count)) => {
            for seed in from..from.saturating_add(count) {
                let report = run(draw(seed).over(overlay), false);
                if !report.violations.is_empty() {
                    println!("{report}");
                    return ExitCode::FAILURE;
                }
                println!(
                    "{seed}: {} events, {} deliveries, excused: {}, trace {:016x}",
                    report.events, report.deliveries, report.excused, report.trace
                );
            }
            ExitCode::SUCCESS
        }
        (Some("check"), Some(seed), None) => {
            let (first, second) = (run(draw(seed).over(overlay), false), run(draw(seed).over(overlay), false));
            println!("{:016x} {:016x}", first.trace, second.trace);
            if first.trace == second.trace { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        _ => {
            eprintln!("{}", usage());
            ExitCode::from(2)
        }
    }
}

/// Runs the algorithms one after the other while nodes come and go.
#[expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for a terminal")]
fn run_churn(arguments: &[String]) -> ExitCode {
    let number = |at: usize| arguments.get(at).and_then(|text| text.parse::<u64>().ok());
    let (Some(nodes), Some(seconds), Some(seed)) = (number(0), number(1), number(2)) else {
        eprintln!("{}", usage());
        return ExitCode::from(2);
    };
    let named = &arguments[3..];
    if named.iter().any(|name| !OVERLAYS.contains(&name.as_str())) {
        eprintln!("there is no such overlay\n{}", usage());
        return ExitCode::from(2);
    }
    let nodes = usize::try_from(nodes).unwrap_or(usize::MAX);
    for overlay in OVERLAYS.into_iter().filter(|overlay| named.is_empty() || named.iter().any(|name| name == overlay)) {
        println!("{}", churn(ChurnOptions { seed, overlay, nodes, subscriptions: 3, seconds, deaths: 10 }));
    }
    ExitCode::SUCCESS
}
