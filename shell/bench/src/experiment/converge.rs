//! How long a cluster takes to form, and to go on without one of its nodes (BM-18).

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use sedge_base::Rng;
use serde::Serialize;

use super::args::{ConvergeArgs, Loss, Victim};
use super::cluster::{Cluster, Crossing, Plan, cross};
use super::recipe::StatusApi;
use super::result::{Head, cell, csv, write_files};
use super::service::{self, Load, Service};
use super::stats::{Average, text};
use super::status::Api;
use super::target::{Target, each_overlay, plan};
use crate::error::BenchError;
use crate::num;
use crate::report::{Table, html_page, number};

/// Figures of the source (Longo, section 6) in seconds: mean and standard deviation of five runs.
const CONVERGENCE: (f64, f64) = (19.5, 0.02);
const REPAIR: (f64, f64) = (59.1, 0.01);

/// Time between two looks at processes.
const TURN: Duration = Duration::from_millis(10);

/// When a node was first seen as wanted.
#[derive(Clone, Debug, Serialize)]
struct NodeTime {
    node: String,
    /// When the first look that found it so was answered, in seconds.
    at_s: f64,
    /// Seconds before that in which it may have become so: since the last look that did not find it so was begun.
    uncertain_s: f64,
    /// Looks at it.
    looks: u64,
}

/// One cluster from its start to the loss of a node.
#[derive(Clone, Debug, Serialize)]
struct Run {
    seed: u64,
    /// From the start of the first process until the last node knew all others and had its trees.
    convergence_s: f64,
    convergence: Vec<NodeTime>,
    /// The node that was lost.
    lost: String,
    /// Trees of which it was the root, as the others had them.
    rooted: usize,
    /// From the loss until the last of the others had no trace of it, and trees without it.
    repair_s: f64,
    repair: Vec<NodeTime>,
    /// Afterwards a message from each survivor came out at each.
    routed: bool,
    /// How many of them did.
    crossing: Crossing,
    /// Effects that clients of the survivors noticed.
    service: Option<Service>,
}

/// One of the two times.
#[derive(Clone, Debug, Serialize)]
struct Times {
    seconds: Option<Average>,
    /// By how much the largest uncertainty of a look may have delayed a time.
    uncertain_s: f64,
}

/// All runs with one overlay and one kind of loss.
#[derive(Clone, Debug, Serialize)]
struct Series {
    overlay: Option<String>,
    how: &'static str,
    convergence: Times,
    repair: Times,
    /// Largest latency of any message while a node was lost, in ms.
    worst_ms: Option<Average>,
    runs: Vec<Run>,
}

/// All series.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ConvergeReport {
    head: Head,
    poll_ms: f64,
    victim: &'static str,
    series: Vec<Series>,
}

/// Forms clusters, and takes a node from each.
pub(crate) fn converge(args: &ConvergeArgs, note: &mut dyn FnMut(&str)) -> Result<ConvergeReport, BenchError> {
    let flags = each_overlay(&args.cluster);
    let plans = flags.iter().map(|flags| plan(flags, (5, args.seed))).collect::<Result<Vec<Plan>, _>>()?;
    let mut head = None;
    let mut series = Vec::new();
    for plan in &plans {
        check(plan, args)?;
        let target = Target::Started(Box::new(plan.clone()));
        let overlay = target.overlay().map(ToOwned::to_owned);
        for how in &args.how {
            let mut runs = Vec::new();
            for number_of_run in 0..num::count(args.runs.max(1)) {
                let (run, brokers) = form_and_lose(plan, *how, args.seed.wrapping_add(number_of_run), args)?;
                note(&format!(
                    "{} run {}: formed in {} s; without {} ({}) after {} s; {}",
                    overlay.as_deref().unwrap_or_default(),
                    number_of_run + 1,
                    number(run.convergence_s),
                    run.lost,
                    how.name(),
                    number(run.repair_s),
                    run.crossing.text()
                ));
                runs.push(run);
                head.get_or_insert_with(|| Head::new("converge", &target, brokers, args.seed));
            }
            series.push(Series::new(overlay.clone(), *how, runs));
        }
    }
    let mut head: Head = head.ok_or_else(|| BenchError::Usage("no run was asked for".to_owned()))?;
    let overlays: Vec<&str> = plans.iter().map(|plan| plan.overlay.as_str()).collect();
    head.overlay = head.overlay.map(|_| overlays.join(", "));
    let victim = match args.victim {
        Victim::Random => "a random node",
        Victim::Root => "the strongest node",
    };
    let report = ConvergeReport { head, poll_ms: args.poll_ms, victim, series };
    write_files(&args.report, || report.csv(), || report.html())?;
    Ok(report)
}

fn check(plan: &Plan, args: &ConvergeArgs) -> Result<(), BenchError> {
    if plan.recipe.status == StatusApi::None {
        let name = &plan.recipe.name;
        return Err(BenchError::Usage(format!("recipe {name} has no status API: nobody can be asked who knows whom")));
    }
    if plan.nodes < 2 {
        return Err(BenchError::Usage("--nodes: at least 2, or there is nobody to find".to_owned()));
    }
    for (flag, value) in [("--poll-ms", args.poll_ms), ("--timeout-s", args.timeout_s)] {
        if !(value.is_finite() && (0.0..=1e6).contains(&value)) {
            return Err(BenchError::Usage(format!("{flag} {value}: 0 to a million")));
        }
    }
    Ok(())
}

impl Loss {
    const fn name(self) -> &'static str {
        match self {
            Self::Kill => "killed",
            Self::Stop => "frozen",
        }
    }
}

impl Series {
    fn new(overlay: Option<String>, how: Loss, runs: Vec<Run>) -> Self {
        let uncertain =
            |get: fn(&Run) -> &[NodeTime]| runs.iter().flat_map(get).map(|time| time.uncertain_s).fold(0.0, f64::max);
        Self {
            overlay,
            how: how.name(),
            convergence: Times {
                seconds: Average::of(runs.iter().map(|run| run.convergence_s)),
                uncertain_s: uncertain(|run| &run.convergence),
            },
            repair: Times {
                seconds: Average::of(runs.iter().map(|run| run.repair_s)),
                uncertain_s: uncertain(|run| &run.repair),
            },
            worst_ms: Average::of(runs.iter().filter_map(|run| Some(run.service.as_ref()?.worst_ms))),
            runs,
        }
    }

    /// Messages that the clients of the survivors did not get, or got twice; none without load.
    fn missed(&self, get: fn(&Service) -> u64) -> Option<u64> {
        self.runs.iter().map(|run| run.service.as_ref().map(get)).sum()
    }
}

/// Whether `api` knows exactly `wanted` and has trees of them.
fn knows(api: &Api, wanted: &BTreeSet<String>) -> bool {
    api.view().is_some_and(|view| view.is_exactly(wanted)) && api.topology().is_some_and(|trees| trees.is_of(wanted))
}

/// Whether `api` is ready, knows so many, and has trees of them.
fn has_formed(api: &Api, count: usize) -> bool {
    let all = api.view().filter(|view| view.is_of(count)).map(|view| view.nodes());
    all.is_some_and(|all| api.topology().is_some_and(|trees| trees.is_of(&all)))
        && api.status().is_some_and(|status| status.ready)
}

fn form_and_lose(
    plan: &Plan,
    how: Loss,
    seed: u64,
    args: &ConvergeArgs,
) -> Result<(Run, Vec<super::cluster::NodeInfo>), BenchError> {
    let pause = Duration::from_secs_f64(args.poll_ms / 1e3);
    let most = Duration::from_secs_f64(args.timeout_s);
    let victim = Rng::new(seed).index(plan.nodes);
    let strongest = (args.victim == Victim::Root).then_some(victim);
    let mut cluster = Cluster::start(&Plan { strongest, ..plan.clone() })?;
    let apis = cluster.apis();
    let count = apis.len();
    let began = cluster.began;
    let formed = |api: &Api| has_formed(api, count);
    let convergence = watch(&apis, began, (pause, most), &formed, &mut || cluster.check_alive())?;
    let convergence = convergence.ok_or_else(|| late("the nodes did not find each other", args))?;
    let brokers = cluster.describe();
    let ids = apis.iter().map(|api| api.status().map(|status| status.node)).collect::<Option<Vec<String>>>();
    let ids = ids.ok_or_else(|| late("a node does not answer", args))?;
    let names = |index: usize| brokers.get(index).map(|broker| broker.name.clone()).unwrap_or_default();

    let survivors: Vec<usize> = (0..count).filter(|index| *index != victim).collect();
    let wanted: BTreeSet<String> = survivors.iter().filter_map(|index| ids.get(*index).cloned()).collect();
    let left: Vec<Api> = survivors.iter().filter_map(|index| apis.get(*index).cloned()).collect();
    let endpoints = cluster.endpoints();
    let lost = endpoints.get(victim).filter(|_| args.load);
    let endpoints: Vec<_> = survivors.iter().filter_map(|index| endpoints.get(*index).cloned()).collect();
    let load = lost.map(|lost| Load::start(&endpoints, lost));
    if load.is_some() {
        std::thread::sleep(service::BEFORE);
    }
    let rooted = |api: &Api| api.topology().zip(ids.get(victim)).map_or(0, |(trees, id)| trees.rooted_at(id));
    let rooted = left.first().map_or(0, rooted);
    let began = Instant::now();
    cluster.signal(victim, if how == Loss::Kill { Signal::KILL } else { Signal::STOP });
    let repair = watch(&left, began, (pause, most), &|api: &Api| knows(api, &wanted), &mut || Ok(()))?;
    let repair = repair.ok_or_else(|| late("a node still knows the one that was lost", args))?;
    let service = load.map(Load::end).transpose()?;
    let crossing = cross(&endpoints)?;
    let last = |times: &[NodeTime]| times.iter().map(|time| time.at_s).fold(0.0, f64::max);
    let named = |times: Vec<NodeTime>, indexes: &[usize]| -> Vec<NodeTime> {
        times.into_iter().zip(indexes).map(|(time, index)| NodeTime { node: names(*index), ..time }).collect()
    };
    let all: Vec<usize> = (0..count).collect();
    let run = Run {
        seed,
        convergence_s: last(&convergence),
        convergence: named(convergence, &all),
        lost: names(victim),
        rooted,
        repair_s: last(&repair),
        repair: named(repair, &survivors),
        routed: crossing.is_whole(),
        crossing,
        service,
    };
    Ok((run, brokers))
}

fn late(what: &str, args: &ConvergeArgs) -> BenchError {
    BenchError::Broker(format!("{what} within {} s", args.timeout_s))
}

/// Looks at all nodes, each by a thread of its own, until each is as `wanted`; none if one is not in time. Ends at once with
/// the error of `alive`, which is asked meanwhile.
fn watch(
    apis: &[Api],
    began: Instant,
    (pause, most): (Duration, Duration),
    wanted: &(impl Fn(&Api) -> bool + Sync),
    alive: &mut dyn FnMut() -> Result<(), BenchError>,
) -> Result<Option<Vec<NodeTime>>, BenchError> {
    let over = AtomicBool::new(false);
    let over = &over;
    let look = move |api: &Api| {
        let mut since = Duration::ZERO;
        let mut looks = 0;
        loop {
            let from = began.elapsed();
            looks += 1;
            let found = wanted(api);
            let at = began.elapsed();
            if found {
                let uncertain_s = at.saturating_sub(since).as_secs_f64();
                return Some(NodeTime { node: String::new(), at_s: at.as_secs_f64(), uncertain_s, looks });
            }
            if at > most || over.load(Ordering::Relaxed) {
                return None;
            }
            since = from;
            std::thread::sleep(pause);
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = apis.iter().map(|api| scope.spawn(move || look(api))).collect();
        while threads.iter().any(|thread| !thread.is_finished()) {
            alive().inspect_err(|_| over.store(true, Ordering::Relaxed))?;
            std::thread::sleep(pause.max(TURN));
        }
        Ok(threads.into_iter().map(|thread| thread.join().ok().flatten()).collect())
    })
}

impl ConvergeReport {
    /// For people.
    pub(crate) fn text(&self) -> String {
        let mut table = Table::default();
        let names = ["overlay", "node lost", "runs", "roots", "", "mean, s", "stddev", "± 95 %", "uncertain, ms"];
        let more = ["source, s", "stddev", "worst latency, ms", "lost", "twice"];
        table.row(names.into_iter().chain(more).map(ToOwned::to_owned));
        for series in &self.series {
            let count = |count: Option<u64>| count.map_or_else(|| "-".to_owned(), |count| count.to_string());
            for (name, times, source) in
                [("convergence", &series.convergence, CONVERGENCE), ("repair", &series.repair, REPAIR)]
            {
                let seconds = times.seconds.unwrap_or_default();
                let mut row = vec![
                    series.overlay.clone().unwrap_or_default(),
                    series.how.to_owned(),
                    seconds.count.to_string(),
                    series.runs.iter().map(|run| run.rooted).sum::<usize>().to_string(),
                    name.to_owned(),
                    format!("{:.3}", seconds.mean),
                    format!("{:.3}", seconds.stddev),
                    seconds.ci95.map_or_else(|| "-".to_owned(), |ci95| format!("{ci95:.3}")),
                    number(times.uncertain_s * 1e3),
                    source.0.to_string(),
                    source.1.to_string(),
                ];
                if name == "repair" {
                    let (lost, twice) =
                        (series.missed(|service| service.lost), series.missed(|service| service.duplicates));
                    row.extend([text(series.worst_ms), count(lost), count(twice)]);
                }
                table.row(row);
            }
        }
        let mut out = format!("{}\n{}\n", self.head.text(), table.text());
        let runs = || self.series.iter().flat_map(|series| &series.runs);
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "convergence: from the start of the first process until the last node is ready and has a link in step to each other,\n\
             and trees of all nodes if its overlay has trees without clients; repair: from the loss of {} until no other knows it,\n\
             all have links in step to each other, and no tree has it; roots: trees that had it as their root, in all runs;\n\
             each node is looked at {} ms after the last answer; uncertain: most time between the last look with another result\n\
             and the one that counts. With --load: largest latency of QoS 1 between the others, messages that they lost or got twice.\n\
             In {} of {} runs a message from each survivor came out at each afterwards.",
            self.victim,
            number(self.poll_ms),
            runs().filter(|run| run.routed).count(),
            runs().count()
        );
        out
    }

    fn csv(&self) -> String {
        let mut rows = Vec::new();
        for series in &self.series {
            for (run, times) in series.runs.iter().enumerate() {
                for (phase, nodes) in [("convergence", &times.convergence), ("repair", &times.repair)] {
                    rows.extend(nodes.iter().map(|time| {
                        let service = |get: fn(&Service) -> f64| cell(times.service.as_ref().map(get));
                        [
                            series.overlay.clone().unwrap_or_default(),
                            series.how.to_owned(),
                            (run + 1).to_string(),
                            times.seed.to_string(),
                            phase.to_owned(),
                            time.node.clone(),
                            time.at_s.to_string(),
                            time.uncertain_s.to_string(),
                            time.looks.to_string(),
                            times.lost.clone(),
                            service(|service| service.worst_ms),
                            service(|service| num::real(service.lost)),
                            service(|service| num::real(service.duplicates)),
                        ]
                    }));
                }
            }
        }
        let names = [
            "overlay",
            "how",
            "run",
            "seed",
            "phase",
            "node",
            "at_s",
            "uncertain_s",
            "looks",
            "lost",
            "worst_ms",
            "messages_lost",
            "duplicates",
        ];
        csv(names, rows.into_iter())
    }

    fn html(&self) -> String {
        html_page("Convergence and repair", &self.head.machine, &self.text(), &[], self)
    }
}
