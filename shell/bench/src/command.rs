//! What the command line asks for, done.

use std::io::Write;
use std::process::ExitCode;

use crate::args::{BenchArgs, BenchCommand, ReportArgs, RunArgs, ScenariosArgs};
use crate::error::BenchError;
use crate::report::{Figures, Table, csv, table};
use crate::run::run as measure;
use crate::scenario::{NAMES, named};

/// The command as part of a larger one.
pub fn command() -> clap::Command {
    use clap::Args;
    BenchArgs::augment_args(clap::Command::new("bench").about("Load generator and experiments for any MQTT broker"))
}

/// Does what `args` ask for. Reports go to `out`, what is going on meanwhile to `notes`.
pub fn run(args: BenchArgs, out: &mut dyn Write, notes: &mut dyn Write) -> Result<ExitCode, BenchError> {
    match args.command {
        BenchCommand::Run(args) => run_once(&args, out, notes),
        BenchCommand::Scenarios(args) => scenarios(&args, out),
    }
}

/// A listener that writes lines, or none.
pub(crate) fn listener<'a>(report: &ReportArgs, notes: &'a mut dyn Write) -> impl FnMut(&str) + use<'a> {
    let quiet = report.quiet;
    move |text: &str| {
        if !quiet {
            // Whoever reads this may have gone; the measurement goes on.
            let _ = writeln!(notes, "{text}");
        }
    }
}

fn run_once(args: &RunArgs, out: &mut dyn Write, notes: &mut dyn Write) -> Result<ExitCode, BenchError> {
    let scenario = args.load.scenario(&args.scenario)?;
    let options = args.target.options(args.fault.clone());
    let mut note = listener(&args.report, notes);
    let outcome = measure(&scenario, &options, &mut note)?;
    let figures = Figures::from(&outcome);
    print(&args.report, &figures, out)?;
    Ok(ExitCode::SUCCESS)
}

fn print(report: &ReportArgs, figures: &Figures, out: &mut dyn Write) -> Result<(), BenchError> {
    if let Some(path) = &report.csv {
        std::fs::write(path, csv(&figures.series)).map_err(|source| BenchError::File { path: path.clone(), source })?;
    }
    if report.json {
        write_json(figures, out)
    } else {
        out.write_all(table(figures).as_bytes())?;
        Ok(())
    }
}

/// Writes `value` as indented JSON.
pub(crate) fn write_json(value: &impl serde::Serialize, out: &mut dyn Write) -> Result<(), BenchError> {
    serde_json::to_writer_pretty(&mut *out, value).map_err(std::io::Error::from)?;
    writeln!(out)?;
    Ok(())
}

fn scenarios(args: &ScenariosArgs, out: &mut dyn Write) -> Result<ExitCode, BenchError> {
    if let Some(name) = &args.name {
        let scenario = named(name).ok_or_else(|| BenchError::Usage(format!("no scenario {name}")))?;
        let text = toml::to_string(&scenario).map_err(|error| BenchError::Usage(error.to_string()))?;
        out.write_all(text.as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::default();
    for (name, what) in NAMES {
        table.row([(*name).to_owned()]);
        table.row([format!("    {what}")]);
    }
    out.write_all(table.text().as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
