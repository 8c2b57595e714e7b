//! Runs the load generator without the rest of the program: `cargo run --release -p sedge-bench --example bench -- run pairs`.

use std::process::ExitCode;

use clap::Parser;
use sedge_bench::{BenchArgs, run};

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    bench: BenchArgs,
}

#[expect(clippy::print_stderr, reason = "a program says what went wrong")]
fn main() -> ExitCode {
    match run(Cli::parse().bench, &mut std::io::stdout(), &mut std::io::stderr()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
