//! `sedge bench`.

use std::io;
use std::process::ExitCode;

use sedge_bench::{BenchArgs, BenchError};

use crate::failure::{FAILED, Failure, USAGE};
use crate::out::Report;

/// Runs `sedge bench`: the report goes to standard output, progress to standard error.
pub(crate) fn run(args: BenchArgs) -> Result<(), Failure> {
    match sedge_bench::run(args, &mut Report(io::stdout().lock()), &mut Report(io::stderr().lock())) {
        Ok(ExitCode::SUCCESS) => Ok(()),
        Ok(_) => Err(Failure::silent(FAILED)),
        Err(BenchError::Write(error)) => Err(Failure::output(&error)),
        Err(error @ (BenchError::Usage(_) | BenchError::File { .. } | BenchError::Toml { .. })) => {
            Err(Failure::new(USAGE, error.to_string()))
        }
        Err(error) => Err(Failure::failed(error.to_string())),
    }
}
