//! How long a cluster takes to form, and to go on without one of its nodes (BM-18).

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use sedge_base::Rng;
use serde::Serialize;

use super::args::{ConvergeArgs, Loss};
use super::cluster::{Cluster, Plan, routes_everywhere};
use super::recipe::StatusApi;
use super::result::{Head, csv, write_files};
use super::stats::Average;
use super::status::Api;
use super::target::{Target, plan};
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
    /// From the start of the first process until the last node knew all others.
    convergence_s: f64,
    convergence: Vec<NodeTime>,
    /// The node that was lost.
    lost: String,
    /// From the loss until the last of the others had no trace of it.
    repair_s: f64,
    repair: Vec<NodeTime>,
    /// Afterwards a message from each survivor came out at each.
    routed: bool,
}

/// One of the two times.
#[derive(Clone, Debug, Serialize)]
struct Times {
    seconds: Option<Average>,
    /// By how much the largest uncertainty of a look may have delayed a time.
    uncertain_s: f64,
}

/// All runs.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ConvergeReport {
    head: Head,
    how: String,
    poll_ms: f64,
    convergence: Times,
    repair: Times,
    runs: Vec<Run>,
}

/// Forms clusters, and takes a node from each.
pub(crate) fn converge(args: &ConvergeArgs, note: &mut dyn FnMut(&str)) -> Result<ConvergeReport, BenchError> {
    let plan = plan(&args.cluster, (5, args.seed))?;
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
    let mut head = None;
    let mut runs = Vec::new();
    for number_of_run in 0..num::count(args.runs.max(1)) {
        let (run, brokers) = form_and_lose(&plan, args.seed.wrapping_add(number_of_run), args)?;
        note(&format!(
            "run {}: formed in {} s; without {} after {} s",
            number_of_run + 1,
            number(run.convergence_s),
            run.lost,
            number(run.repair_s)
        ));
        runs.push(run);
        let target = Target::Started(Box::new(plan.clone()));
        head.get_or_insert_with(|| Head::new("converge", &target, brokers, args.seed));
    }
    let head = head.ok_or_else(|| BenchError::Usage("no run was asked for".to_owned()))?;
    let uncertain =
        |get: fn(&Run) -> &[NodeTime]| runs.iter().flat_map(get).map(|time| time.uncertain_s).fold(0.0, f64::max);
    let report = ConvergeReport {
        head,
        how: match args.how {
            Loss::Kill => "killed".to_owned(),
            Loss::Stop => "frozen".to_owned(),
        },
        poll_ms: args.poll_ms,
        convergence: Times {
            seconds: Average::of(runs.iter().map(|run| run.convergence_s)),
            uncertain_s: uncertain(|run| &run.convergence),
        },
        repair: Times {
            seconds: Average::of(runs.iter().map(|run| run.repair_s)),
            uncertain_s: uncertain(|run| &run.repair),
        },
        runs,
    };
    write_files(&args.report, || report.csv(), || report.html())?;
    Ok(report)
}

fn form_and_lose(
    plan: &Plan,
    seed: u64,
    args: &ConvergeArgs,
) -> Result<(Run, Vec<super::cluster::NodeInfo>), BenchError> {
    let pause = Duration::from_secs_f64(args.poll_ms / 1e3);
    let most = Duration::from_secs_f64(args.timeout_s);
    let mut cluster = Cluster::start(plan)?;
    let apis = cluster.apis();
    let count = apis.len();
    let formed =
        |api: &Api| api.view().is_some_and(|view| view.is_of(count)) && api.status().is_some_and(|status| status.ready);
    let began = cluster.began;
    let convergence = watch(&apis, began, (pause, most), &formed, &mut || cluster.check_alive())?;
    let convergence = convergence.ok_or_else(|| late("the nodes did not find each other", args))?;
    let brokers = cluster.describe();
    let ids = apis.iter().map(|api| api.status().map(|status| status.node)).collect::<Option<Vec<String>>>();
    let ids = ids.ok_or_else(|| late("a node does not answer", args))?;
    let names = |index: usize| brokers.get(index).map(|broker| broker.name.clone()).unwrap_or_default();

    let victim = Rng::new(seed).index(count);
    let survivors: Vec<usize> = (0..count).filter(|index| *index != victim).collect();
    let wanted: BTreeSet<String> = survivors.iter().filter_map(|index| ids.get(*index).cloned()).collect();
    let left: Vec<Api> = survivors.iter().filter_map(|index| apis.get(*index).cloned()).collect();
    let began = Instant::now();
    cluster.signal(victim, if args.how == Loss::Kill { Signal::KILL } else { Signal::STOP });
    let repaired = |api: &Api| api.view().is_some_and(|view| view.is_exactly(&wanted));
    let repair = watch(&left, began, (pause, most), &repaired, &mut || Ok(()))?;
    let repair = repair.ok_or_else(|| late("a node still knows the one that was lost", args))?;
    let endpoints = cluster.endpoints();
    let endpoints: Vec<_> = survivors.iter().filter_map(|index| endpoints.get(*index).cloned()).collect();
    let routed = routes_everywhere(&endpoints)?;
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
        repair_s: last(&repair),
        repair: named(repair, &survivors),
        routed,
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
        table.row(["", "mean, s", "stddev", "± 95 %", "runs", "uncertain, ms", "source, s", "stddev"]);
        for (name, times, source) in [("convergence", &self.convergence, CONVERGENCE), ("repair", &self.repair, REPAIR)]
        {
            let seconds = times.seconds.unwrap_or_default();
            table.row([
                name.to_owned(),
                format!("{:.3}", seconds.mean),
                format!("{:.3}", seconds.stddev),
                seconds.ci95.map_or_else(|| "-".to_owned(), |ci95| format!("{ci95:.3}")),
                seconds.count.to_string(),
                number(times.uncertain_s * 1e3),
                source.0.to_string(),
                source.1.to_string(),
            ]);
        }
        let mut out = format!("{}\n{}\n", self.head.text(), table.text());
        let routed = self.runs.iter().filter(|run| run.routed).count();
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "convergence: from the start of the first process until the last node is ready and has a link in step to each other;\n\
             repair: from the loss of a random node ({}) until no other knows it and all have links in step to each other;\n\
             each node is looked at {} ms after the last answer; uncertain: most time between the last look with another result\n\
             and the one that counts. In {routed} of {} runs a message from each survivor came out at each afterwards.",
            self.how,
            number(self.poll_ms),
            self.runs.len()
        );
        out
    }

    fn csv(&self) -> String {
        let rows = self.runs.iter().enumerate().flat_map(|(run, times)| {
            let phases = [("convergence", &times.convergence), ("repair", &times.repair)];
            phases.into_iter().flat_map(move |(phase, nodes)| {
                nodes.iter().map(move |time| {
                    [
                        (run + 1).to_string(),
                        times.seed.to_string(),
                        phase.to_owned(),
                        time.node.clone(),
                        time.at_s.to_string(),
                        time.uncertain_s.to_string(),
                        time.looks.to_string(),
                        times.lost.clone(),
                    ]
                })
            })
        });
        csv(["run", "seed", "phase", "node", "at_s", "uncertain_s", "looks", "lost"], rows)
    }

    fn html(&self) -> String {
        html_page("Convergence and repair", &self.head.machine, &self.text(), &[], self)
    }
}
