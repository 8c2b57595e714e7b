//! `sedge scale` and `sedge rebalance`.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use sedge_controller::{Home, Messages, Module, Report, RunOptions, ScaleError, SiteFile};
use sedge_scale::{Step, Verb};
use serde_json::json;

use crate::api::{Page, WatchArgs};
use crate::failure::Failure;
use crate::out;
use crate::stop::Stop;

const EXAMPLES: &str = "\
Examples:
  sedge scale check site.yaml              say what is wrong in a site file
  sedge scale run site.yaml                keep the site as the file says, until Ctrl-C; its nodes go on
  sedge scale run site.yaml --once         make what is missing, then end
  sedge scale status --json                groups, nodes, samples, alarms and the last decisions
  sedge scale delete site.yaml             end everything of the site

docs/elasticity.md has the fields of a site file.
Exit codes: 0 done, 1 failed, 2 the site file or the command line is wrong.";

/// What to do with a site.
#[derive(Subcommand, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) enum ScaleCommand {
    /// Say what is wrong in a site file, with line and field
    Check(FileArgs),
    /// Say what `run` would do, in order, without doing it
    Plan(FileArgs),
    /// Keep a site as its file says: nodes by load, behind one address
    Run(RunArgs),
    /// Show groups, nodes, samples, alarms and the last decisions with their reasons
    Status(StatusArgs),
    /// End everything of a site: controller, load balancers, nodes, their files
    Delete(FileArgs),
    /// Stop all actions of a site's controller until `resume`
    Pause(SiteArgs),
    /// Let a site's controller act again
    Resume(SiteArgs),
}

/// A site file.
#[derive(Args, Debug)]
pub(crate) struct FileArgs {
    /// Site file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Flags of `sedge scale run`.
#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    /// Site file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Make what is missing, then end; nodes and load balancers go on
    #[arg(long)]
    once: bool,
    /// MQTT broker between the modules: scheme mqtt, with user and password if it wants them
    #[arg(long, value_name = "URL", env = "SEDGE_SCALE_MESSAGES", hide_env_values = true)]
    messages: Option<Messages>,
    /// Run this module only, and reach the others over --messages; may be given twice
    #[arg(long = "module", value_name = "MODULE", requires = "messages")]
    modules: Vec<ModuleName>,
}

/// A module by its name.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum ModuleName {
    /// Measures the nodes
    Metering,
    /// Keeps measurements and evaluates alarms
    Alarming,
    /// Decides, makes and removes nodes, and keeps load balancers in step
    Orchestrator,
}

impl From<ModuleName> for Module {
    fn from(name: ModuleName) -> Self {
        match name {
            ModuleName::Metering => Self::Metering,
            ModuleName::Alarming => Self::Alarming,
            ModuleName::Orchestrator => Self::Orchestrator,
        }
    }
}

/// Which site.
#[derive(Args, Debug)]
pub(crate) struct SiteArgs {
    /// Site file; not needed where only one site runs
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

/// Flags of `sedge scale status`.
#[derive(Args, Debug)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    site: SiteArgs,
    #[command(flatten)]
    watch: WatchArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Flags of `sedge rebalance`.
#[derive(Args, Debug)]
pub(crate) struct RebalanceArgs {
    #[command(flatten)]
    site: SiteArgs,
    /// Say how many clients would be moved, and move none
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs `sedge scale`.
pub(crate) fn run(command: &ScaleCommand) -> Result<(), Failure> {
    match command {
        ScaleCommand::Check(args) => check(args),
        ScaleCommand::Plan(args) => plan(args),
        ScaleCommand::Run(args) => keep(args),
        ScaleCommand::Status(args) => status(args),
        ScaleCommand::Delete(args) => delete(args),
        ScaleCommand::Pause(args) => pause(args, true),
        ScaleCommand::Resume(args) => pause(args, false),
    }
}

fn failure(error: ScaleError) -> Failure {
    match error {
        ScaleError::Site(text) => Failure::usage(text),
        error @ (ScaleError::File { .. } | ScaleError::Other(_)) => Failure::failed(error.to_string()),
    }
}

fn load(file: &Path) -> Result<SiteFile, Failure> {
    SiteFile::load(file).map_err(failure)
}

fn check(args: &FileArgs) -> Result<(), Failure> {
    let file = load(&args.file)?;
    sedge_controller::plan(&file).map_err(failure)?;
    let count = file.site.resources.len();
    if args.json {
        return out::json(&json!({ "resources": count, "valid": true }));
    }
    out::line(&format!("{}: {count} resources, nothing wrong", args.file.display()))
}

fn plan(args: &FileArgs) -> Result<(), Failure> {
    let steps = sedge_controller::plan(&load(&args.file)?).map_err(failure)?;
    show(&steps, args.json)
}

fn show(steps: &[Step], as_json: bool) -> Result<(), Failure> {
    if as_json {
        let steps: Vec<_> = steps
            .iter()
            .map(|step| json!({ "wave": step.wave + 1, "do": word(step.verb), "name": step.name, "what": step.what }))
            .collect();
        return out::json(&json!({ "steps": steps }));
    }
    for step in steps {
        out::line(&format!("{}. {} {}: {}", step.wave + 1, word(step.verb), step.name, step.what))?;
    }
    Ok(())
}

const fn word(verb: Verb) -> &'static str {
    match verb {
        Verb::Create => "create",
        Verb::Keep => "keep",
        Verb::Remove => "remove",
    }
}

fn keep(args: &RunArgs) -> Result<(), Failure> {
    let stop = Stop::on_signals()?;
    let modules: Vec<Module> = args.modules.iter().copied().map(Module::from).collect();
    let modules = if modules.is_empty() { Module::ALL.to_vec() } else { modules };
    if args.once && !modules.contains(&Module::Orchestrator) {
        return Err(Failure::usage(
            "--once is for the orchestrator; give --module orchestrator as well, or leave --once out",
        ));
    }
    let options = RunOptions { once: args.once, modules, messages: args.messages.clone() };
    // That nobody reads standard output is no reason to let the site go.
    let say = |text: &str| drop(out::line(text));
    sedge_controller::run(load(&args.file)?, &options, &|| stop.told(), &say).map_err(failure)
}

fn home(args: &SiteArgs) -> Result<Home, Failure> {
    if let Some(file) = &args.file {
        let path =
            std::fs::canonicalize(file).map_err(|error| Failure::usage(format!("{}: {error}", file.display())))?;
        return Ok(Home::of(&path));
    }
    let mut homes = Home::all();
    match (homes.pop(), homes.len()) {
        (Some(home), 0) => Ok(home),
        (None, _) => Err(Failure::failed("no site runs here; start one with `sedge scale run FILE`")),
        (Some(_), more) => Err(Failure::usage(format!("{} sites run here; name the file of one", more + 1))),
    }
}

fn status(args: &StatusArgs) -> Result<(), Failure> {
    let home = home(&args.site)?;
    args.watch.show(|| {
        let report: Report = sedge_controller::status(&home).map_err(failure)?;
        if args.json { Page::json(&report) } else { Ok(Page::Text(report.text())) }
    })
}

fn delete(args: &FileArgs) -> Result<(), Failure> {
    let steps = sedge_controller::delete(&load(&args.file)?).map_err(failure)?;
    if steps.is_empty() && !args.json {
        return out::line("nothing of this site was there");
    }
    show(&steps, args.json)
}

fn pause(args: &SiteArgs, paused: bool) -> Result<(), Failure> {
    sedge_controller::pause(&home(args)?, paused).map_err(failure)?;
    out::line(if paused { "no action begins until `sedge scale resume`" } else { "actions begin again" })
}

/// Runs `sedge rebalance`.
pub(crate) fn rebalance(args: &RebalanceArgs) -> Result<(), Failure> {
    let moved = sedge_controller::rebalance(&home(&args.site)?, args.dry_run).map_err(failure)?;
    if args.json {
        let moved: serde_json::Map<String, serde_json::Value> =
            moved.iter().map(|(node, clients)| (node.clone(), json!(clients))).collect();
        return out::json(&json!({ "dry_run": args.dry_run, "clients": moved }));
    }
    if moved.is_empty() {
        return out::line("the nodes are even: no client moves");
    }
    let verb = if args.dry_run { "would move" } else { "were told to move" };
    for (node, clients) in moved {
        out::line(&format!("{clients} clients of {node} {verb}"))?;
    }
    Ok(())
}
