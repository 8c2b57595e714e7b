//! Execution of the subcommands of `sedge bench`.

use std::io::Write;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::args::{
    BenchArgs, BenchCommand, CompareArgs, DriveArgs, FailArgs, LimitArgs, ReportArgs, RunArgs, ScenariosArgs,
};
use crate::compare::compare;
use crate::emulate::emulate;
use crate::error::BenchError;
use crate::experiment::{ClusterArgs, Site, converge, grid, pattern, plugs, sweep, up};
use crate::fail::FailFigures;
use crate::limit::limit;
use crate::remote::drive;
use crate::report::{Figures, Table, csv, html, table};
use crate::run::{Options, Outcome, run as measure};
use crate::scenario::{NAMES, Scenario, named};
use crate::suite::suite;

/// The command as part of a larger one.
pub fn command() -> clap::Command {
    use clap::Args;
    BenchArgs::augment_args(clap::Command::new("bench").about("Load generator and experiments for any MQTT broker"))
}

/// Does what `args` ask for. Reports go to `out`, what is going on meanwhile to `notes`.
pub fn run(args: BenchArgs, out: &mut dyn Write, notes: &mut dyn Write) -> Result<ExitCode, BenchError> {
    match args.command {
        BenchCommand::Run(args) => run_once(&args, out, notes),
        BenchCommand::Limit(args) => search_limit(&args, out, notes),
        BenchCommand::Fail(args) => fail(&args, out, notes),
        BenchCommand::Compare(args) => compare_brokers(&args, out, notes),
        BenchCommand::Pattern(args) => {
            let report = pattern(&args, &mut listener(args.report.quiet, notes))?;
            give(&args.report, &report, || report.text(), out)
        }
        BenchCommand::Sweep(args) => {
            let report = sweep(&args, &mut listener(args.report.quiet, notes))?;
            give(&args.report, &report, || report.text(), out)
        }
        BenchCommand::Grid(args) => {
            let report = grid(&args, &mut listener(args.report.quiet, notes))?;
            give(&args.report, &report, || report.text(), out)
        }
        BenchCommand::Converge(args) => {
            let report = converge(&args, &mut listener(args.report.quiet, notes))?;
            give(&args.report, &report, || report.text(), out)
        }
        BenchCommand::Plugs(args) => {
            let report = plugs(&args, &mut listener(args.report.quiet, notes))?;
            give(&args.report, &report, || report.text(), out)
        }
        BenchCommand::Suite(args) => suite(&args, out, &mut listener(args.quiet, notes)),
        BenchCommand::Drive(args) => serve_as_driver(&args, notes),
        BenchCommand::Net(args) => emulate(&args, out, notes),
        BenchCommand::Scenarios(args) => scenarios(&args, out),
    }
}

/// A listener that writes lines, or none.
pub(crate) fn listener(quiet: bool, notes: &mut dyn Write) -> impl FnMut(&str) + use<'_> {
    move |text: &str| {
        if !quiet {
            // Whoever reads this may have gone; the measurement goes on.
            let _ = writeln!(notes, "{text}");
        }
    }
}

/// Runs once, over brokers that are started for it if `cluster` says so.
fn measure_once(
    cluster: &ClusterArgs,
    scenario: &Scenario,
    options: &Options,
    note: &mut dyn FnMut(&str),
) -> Result<(Outcome, Option<Site>), BenchError> {
    let Some(up) = up(cluster, options, scenario.seed)? else {
        return Ok((measure(scenario, options, note)?, None));
    };
    let before = up.transfers();
    let outcome = measure(scenario, &up.options, note)?;
    Ok((outcome, Some(Site::new(&up, &before))))
}

fn run_once(args: &RunArgs, out: &mut dyn Write, notes: &mut dyn Write) -> Result<ExitCode, BenchError> {
    #[derive(serde::Serialize)]
    struct Report {
        site: Option<Site>,
        #[serde(flatten)]
        figures: Figures,
    }
    let scenario = args.load.scenario(&args.scenario)?;
    let options =
        Options { network: args.network.clone(), raw: args.raw.clone(), ..args.target.options(args.fault.clone()) };
    let mut note = listener(args.report.quiet, notes);
    let (outcome, site) = measure_once(&args.cluster, &scenario, &options, &mut note)?;
    let figures = Figures::from(&outcome);
    write_files(&args.report, &figures)?;
    let text = || table(&figures) + &site.as_ref().map(Site::text).unwrap_or_default();
    give(&args.report, &Report { site: site.clone(), figures: figures.clone() }, text, out)
}

/// Writes the files that are asked for.
fn write_files(report: &ReportArgs, figures: &Figures) -> Result<(), BenchError> {
    let write = |path: &Option<PathBuf>, text: &dyn Fn() -> String| match path {
        Some(path) => std::fs::write(path, text()).map_err(|source| BenchError::File { path: path.clone(), source }),
        None => Ok(()),
    };
    write(&report.csv, &|| csv(figures))?;
    write(&report.html, &|| html(figures))
}

/// Writes `value` as indented JSON.
pub(crate) fn write_json(value: &impl serde::Serialize, out: &mut dyn Write) -> Result<(), BenchError> {
    serde_json::to_writer_pretty(&mut *out, value).map_err(std::io::Error::from)?;
    writeln!(out)?;
    Ok(())
}

/// Gives a report as JSON or as text.
fn give(
    args: &ReportArgs,
    report: &impl serde::Serialize,
    text: impl FnOnce() -> String,
    out: &mut dyn Write,
) -> Result<ExitCode, BenchError> {
    if args.json {
        write_json(report, out)?;
    } else {
        out.write_all(text().as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn search_limit(args: &LimitArgs, out: &mut dyn Write, notes: &mut dyn Write) -> Result<ExitCode, BenchError> {
    let mut scenario = args.load.scenario(&args.scenario)?;
    if !(args.start_ms.is_finite() && args.start_ms > 0.0) {
        return Err(BenchError::Usage("the first interval has to be above 0".to_owned()));
    }
    // A given number of messages would let slow intervals last for ever.
    scenario.messages = None;
    let options = args.target.options(Vec::new());
    let mut note = listener(args.report.quiet, notes);
    let report = limit(&scenario, &options, (args.start_ms, args.repeat), &mut note)?;
    if let Some(figures) = &report.figures {
        write_files(&args.report, figures)?;
    }
    if args.report.json {
        write_json(&report, out)?;
    } else {
        out.write_all(report.text().as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn fail(args: &FailArgs, out: &mut dyn Write, notes: &mut dyn Write) -> Result<ExitCode, BenchError> {
    #[derive(serde::Serialize)]
    struct Report {
        fail: Option<FailFigures>,
        site: Option<Site>,
        #[serde(flatten)]
        figures: Figures,
    }
    let scenario = args.load.scenario(&args.scenario)?;
    let options =
        Options { network: args.network.clone(), raw: args.raw.clone(), ..args.target.options(args.fault.clone()) };
    let mut note = listener(args.report.quiet, notes);
    let (outcome, site) = measure_once(&args.cluster, &scenario, &options, &mut note)?;
    let figures = Figures::from(&outcome);
    let fail = FailFigures::new(&figures, scenario.warmup_s);
    write_files(&args.report, &figures)?;
    let told = fail.as_ref().map_or_else(|| "no fault happened\n".to_owned(), FailFigures::text);
    let links = site.as_ref().map(Site::text).unwrap_or_default();
    let text = format!("{}\n{told}{links}", table(&figures));
    give(&args.report, &Report { fail, site, figures }, || text, out)
}

fn compare_brokers(args: &CompareArgs, out: &mut dyn Write, notes: &mut dyn Write) -> Result<ExitCode, BenchError> {
    let Some(contenders) = args.field.contenders()? else {
        out.write_all(args.field.list()?.as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    };
    let scenario = args.load.scenario(&args.scenario)?;
    let plan = args.field.plan();
    let mut note = listener(args.quiet, notes);
    let comparison = compare(&scenario, &contenders, &args.target.options(Vec::new()), &plan, &mut note);
    // Only there if brokers were started.
    let _ = std::fs::remove_dir(&plan.folder);
    if args.json {
        write_json(&comparison, out)?;
    } else {
        out.write_all(comparison.text().as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn serve_as_driver(args: &DriveArgs, notes: &mut dyn Write) -> Result<ExitCode, BenchError> {
    let socket = TcpListener::bind(&args.listen).map_err(BenchError::system("listening"))?;
    let address = socket.local_addr().map_err(BenchError::system("listening"))?;
    let options = Options {
        threads: args.threads.clamp(1, 1_024),
        sources: args.source.clone(),
        pin: args.pin.clone(),
        tls: args.tls.clone(),
        ..Options::default()
    };
    let mut note = listener(false, notes);
    note(&format!("driver at {address}"));
    drive(&socket, &options, args.runs, &mut note)?;
    Ok(ExitCode::SUCCESS)
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
