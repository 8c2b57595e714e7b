//! A whole table of loads over several brokers.

mod journal;
mod measured;
mod row;
mod table;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use crate::args::{LoadArgs, TargetArgs};
use crate::command::write_json;
use crate::compare::{ContenderArgs, Plan, turns, with_broker};
use crate::error::BenchError;
use crate::report::number;
use crate::run::Options;
use crate::scenario::{Protocol, Scenario};
use journal::{Journal, Key};
use measured::Measured;
use row::{BUILT_IN, Measure, Row, rows};
use table::{Broker, Suite};

/// What `sedge bench suite` is told.
#[derive(Args, Clone, Debug)]
pub(crate) struct SuiteArgs {
    #[command(flatten)]
    field: ContenderArgs,
    /// File with the loads, instead of those that are there
    #[arg(long)]
    suite: Option<PathBuf>,
    /// Print the loads that are there as a file to start from
    #[arg(long)]
    print: bool,
    /// Only loads whose name contains this; may be repeated
    #[arg(long)]
    row: Vec<String>,
    /// Keep measurements in this file, and do not repeat those that are in it: goes on where it was stopped
    #[arg(long)]
    journal: Option<PathBuf>,
    /// Seconds to measure, for loads that do not say
    #[arg(long, short)]
    duration: Option<f64>,
    /// Seconds before the measurement, for loads that do not say
    #[arg(long)]
    warmup: Option<f64>,
    /// Most seconds to wait for what is under way at the end, for loads that do not say
    #[arg(long)]
    drain: Option<f64>,
    /// Version of MQTT, for loads that do not say
    #[arg(long, short = 'V')]
    protocol: Option<Protocol>,
    #[command(flatten)]
    target: TargetArgs,
    /// Print JSON with all measurements instead of a table
    #[arg(long)]
    json: bool,
    /// Write the table to a file as comma-separated values, with the range of each figure
    #[arg(long)]
    csv: Option<PathBuf>,
    /// Write the table to a file as Markdown
    #[arg(long)]
    markdown: Option<PathBuf>,
    /// Write the table to a file as a page
    #[arg(long)]
    html: Option<PathBuf>,
    /// Say nothing while running
    #[arg(long)]
    pub(crate) quiet: bool,
}

/// Runs a suite.
pub(crate) fn suite(args: &SuiteArgs, out: &mut dyn Write, note: &mut dyn FnMut(&str)) -> Result<ExitCode, BenchError> {
    if args.print {
        out.write_all(BUILT_IN.as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    let defaults = LoadArgs {
        duration: args.duration,
        warmup: args.warmup,
        drain: args.drain,
        protocol: args.protocol,
        ..LoadArgs::default()
    };
    let mut rows = rows(args.suite.as_deref(), &defaults)?;
    rows.retain(|row| args.row.is_empty() || args.row.iter().any(|part| row.name.contains(part)));
    if rows.is_empty() {
        return Err(BenchError::Usage("no load has such a name: --print shows what there is".to_owned()));
    }
    let Some(contenders) = args.field.contenders()? else {
        out.write_all(args.field.list()?.as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    };
    let mut journal = args.journal.as_deref().map(Journal::open).transpose()?;
    let options = args.target.options(Vec::new());
    let plan = args.field.plan();
    let brokers = contenders
        .iter()
        .map(|contender| Broker { name: contender.name().to_owned(), version: contender.version() })
        .collect();
    let mut suite = Suite::new(crate::host::machine(), plan.rounds, brokers);
    for row in rows {
        let mut all = vec![Vec::new(); contenders.len()];
        for (round, at) in turns(plan.rounds, contenders.len()) {
            let (Some(contender), Some(broker)) = (contenders.get(at), suite.brokers.get(at)) else { continue };
            let scenario = contender.warmed(&row.scenario);
            let key = Key {
                row: row.name.clone(),
                broker: broker.name.clone(),
                version: broker.version.clone(),
                round,
                setting: setting((&row, &scenario), &suite.machine, &options, &plan),
            };
            let known = journal.as_ref().and_then(|journal| journal.find(&key).cloned());
            let measured = if let Some(known) = known {
                known
            } else {
                let measured =
                    with_broker(contender, at, &options, &plan, |options| Measured::take(&row, &scenario, options))
                        .unwrap_or_else(|error| Measured { error: Some(error.to_string()), ..Measured::default() });
                note(&format!("{}, round {}: {}: {}", row.name, round + 1, broker.name, told(&row, &measured)));
                if let Some(journal) = &mut journal {
                    journal.add(&key, &measured)?;
                }
                measured
            };
            if let Some(runs) = all.get_mut(at) {
                runs.push(measured);
            }
        }
        suite.add(&row.name, row.measure, all);
    }
    // Only there if brokers were started.
    let _ = std::fs::remove_dir(&plan.folder);
    report(args, &suite, out)?;
    Ok(ExitCode::SUCCESS)
}

/// Setting that has to be the same for a measurement to be another round of the same.
fn setting((row, scenario): (&Row, &Scenario), machine: &str, options: &Options, plan: &Plan) -> serde_json::Value {
    serde_json::json!({
        "scenario": scenario,
        "measure": row.measure,
        "start_ms": row.search.start_ms,
        "repeat": row.search.repeat,
        "machine": machine,
        "cpus": plan.cpus,
        "pin": options.pin,
        "threads": options.threads,
        "drivers": options.drivers.len(),
    })
}

/// A measurement in a few words.
fn told(row: &Row, measured: &Measured) -> String {
    if let Some(error) = &measured.error {
        return error.clone();
    }
    match row.measure {
        Measure::Memory => {
            format!("{} KiB per connection", measured.kib_per_connection.map_or_else(|| "?".to_owned(), number))
        }
        Measure::Work | Measure::Latency | Measure::Limit => format!(
            "{} per s, {} per processor second",
            number(measured.egress_per_s),
            measured.egress_per_cpu_s.map_or_else(|| "?".to_owned(), number)
        ),
    }
}

fn report(args: &SuiteArgs, suite: &Suite, out: &mut dyn Write) -> Result<(), BenchError> {
    let write = |path: Option<&Path>, text: &dyn Fn() -> String| match path {
        Some(path) => std::fs::write(path, text()).map_err(|source| BenchError::File { path: path.to_owned(), source }),
        None => Ok(()),
    };
    write(args.csv.as_deref(), &|| suite.csv())?;
    write(args.markdown.as_deref(), &|| suite.markdown())?;
    write(args.html.as_deref(), &|| suite.html())?;
    if args.json {
        return write_json(suite, out);
    }
    out.write_all(suite.text().as_bytes())?;
    Ok(())
}
