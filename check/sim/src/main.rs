//! Runs the simulator by hand: one seed, many, or one twice.

use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use sedge_cluster::OVERLAYS;
use sedge_sim::{ChurnOptions, Draw, KINDS, Options, Report, Tracing, churn, run};

const USAGE: &str = "usage: sedge-sim [over NAME] [KIND] run SEED          one run, printed step by step
       sedge-sim [over NAME] [KIND] sweep FROM COUNT  many runs on all processors, one line each; fails if one of them does
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
            let report = run(draw(seed).over(overlay), Tracing::Printed);
            println!("{report}");
            if report.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        (Some("sweep"), Some(from), Some(count)) => {
            let seeds: Vec<u64> = (from..from.saturating_add(count)).collect();
            let failed = sweep(&seeds, |seed| draw(seed).over(overlay));
            println!("{} runs, {} with a violation: {failed:?}", seeds.len(), failed.len());
            if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        (Some("check"), Some(seed), None) => {
            let [first, second] = [(); 2].map(|()| run(draw(seed).over(overlay), Tracing::Hashed).trace);
            println!("{:016x} {:016x}", first.unwrap_or_default(), second.unwrap_or_default());
            if first == second { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        _ => {
            eprintln!("{}", usage());
            ExitCode::from(2)
        }
    }
}

/// Runs all seeds, as many at once as there are processors; returns those that violate an invariant.
#[expect(clippy::print_stdout, reason = "a program for a terminal")]
fn sweep(seeds: &[u64], draw: impl Fn(u64) -> Options + Sync) -> Vec<u64> {
    let (taken, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(seed) = seeds.get(taken.fetch_add(1, Ordering::Relaxed)).copied() {
                    let report = run(draw(seed), Tracing::Off);
                    if report.violations.is_empty() {
                        let Report { events, deliveries, excused, .. } = report;
                        println!("{seed}: {events} events, {deliveries} deliveries, excused: {excused}");
                    } else {
                        println!("{report}");
                        failed.lock().unwrap_or_else(PoisonError::into_inner).push(seed);
                    }
                }
            });
        }
    });
    let mut failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    failed.sort_unstable();
    failed
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
