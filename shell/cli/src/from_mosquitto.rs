//! `sedge config from-mosquitto`.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use crate::failure::Failure;
use crate::migrate::{Migrated, migrate};
use crate::out;

const EXAMPLES: &str = "\
Examples:
  sedge config from-mosquitto /etc/mosquitto/mosquitto.conf
  sedge config from-mosquitto mosquitto.conf -o sedge.toml && sedge config check -c sedge.toml

What could not be carried over is named on standard error, line by line, and in comments of the new file.";

/// Flags of `sedge config from-mosquitto`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct FromMosquittoArgs {
    /// Configuration file of Mosquitto 2.0 or 2.1; files that it includes are read, too
    file: PathBuf,
    /// File to write, which must not exist; standard output without it
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print the new configuration and what was not carried over as JSON
    #[arg(long, conflicts_with = "output")]
    json: bool,
}

/// Runs `sedge config from-mosquitto`.
pub(crate) fn run(args: &FromMosquittoArgs) -> Result<(), Failure> {
    let migrated = migrate(&args.file).map_err(|error| Failure::usage(format!("cannot read {error}")))?;
    let Migrated { toml, report } = migrated;
    if args.json {
        return out::json(&json!({ "toml": toml, "not_carried_over": report }));
    }
    match &args.output {
        Some(path) => write(path, &toml)?,
        None => out::raw(toml.as_bytes())?,
    }
    if !report.is_empty() {
        out::note("Not carried over:");
        for line in &report {
            out::note(&format!("  {line}"));
        }
    }
    Ok(())
}

fn write(path: &Path, toml: &str) -> Result<(), Failure> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| file.write_all(toml.as_bytes()));
    written.map_err(|error| Failure::failed(format!("-o {}: {error}", path.display())))
}
