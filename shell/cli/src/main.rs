//! The `sedge` program.

mod api;
mod backup;
mod bench;
mod client;
mod command;
mod config;
mod failure;
mod from_mosquitto;
mod manual;
mod migrate;
mod mqtt;
mod out;
mod passwd;
mod publish;
mod rule;
mod scale;
mod serve;
mod sim;
mod stop;
mod subscribe;
mod table;
mod up;

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
