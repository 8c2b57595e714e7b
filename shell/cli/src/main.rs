//! The `sedge` program.

mod client;
mod command;
mod failure;
mod mqtt;
mod out;
mod publish;
mod stop;
mod subscribe;

use std::process::ExitCode;

fn main() -> ExitCode {
    match command::run(std::env::args_os().collect()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if let Some(message) = &failure.message {
                out::note(&format!("error: {message}"));
            }
            ExitCode::from(failure.code)
        }
    }
}
