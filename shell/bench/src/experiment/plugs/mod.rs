//! Plugs of smart houses behind a load balancer, on clusters of fixed size and on one that grows and shrinks (Pham, section V; BM-13, BM-14).

mod report;
mod site;

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::Serialize;

use self::report::PlugsReport;
use self::site::{Bounds, Site, Status, look};
use super::args::{PlugMode, PlugScenario, PlugsArgs};
use super::cluster::NodeInfo;
use super::result::{Head, write_files};
use crate::endpoint::Endpoint;
use crate::error::BenchError;
use crate::num;
use crate::report::number;
use crate::run::{Options, Outcome, run};
use crate::scenario::{Pacing, Scenario, Size, Until, sized};

/// Plugs of a house.
const PLUGS: u32 = 90;
/// Time between two looks at the group.
const LOOK: Duration = Duration::from_secs(1);
/// Most seconds to wait for what is under way at the end.
const DRAIN_S: f64 = 120.0;

/// The group at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Point {
    /// Seconds since the first message.
    at_s: f64,
    /// Nodes that serve.
    nodes: usize,
    /// Processors that they may use.
    vcpus: f64,
    /// Mean of what they use of that, in percent.
    cpu_percent: Option<f64>,
}

/// A change of the number of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Change {
    /// Seconds from the first message to the decision.
    at_s: f64,
    from: u32,
    to: u32,
}

/// One run.
#[derive(Clone, Debug, Serialize)]
struct Run {
    scenario: PlugScenario,
    mode: PlugMode,
    /// Nodes at the start.
    nodes: u32,
    clients: u64,
    /// Messages a second of all publishers, as long as no handshake takes longer than the interval.
    offered_per_s: f64,
    /// Messages of all publishers.
    messages: u64,
    /// From the first message to the last delivery.
    completion_s: f64,
    /// When the mean was first above the threshold at which the group grows, as a look or the group's alarm has it.
    saturated_s: Option<f64>,
    /// From the first message until one node was left.
    shrunk_s: Option<f64>,
    lost: u64,
    duplicates: u64,
    disconnects: u64,
    latency_p50_ms: f64,
    latency_p99_ms: f64,
    changes: Vec<Change>,
    points: Vec<Point>,
    warnings: Vec<String>,
}

impl Run {
    /// Most nodes that served at a time.
    fn most(&self) -> usize {
        self.points.iter().map(|point| point.nodes).max().unwrap_or(0)
    }
}

/// Runs the scenarios in all modes.
pub(crate) fn plugs(args: &PlugsArgs, note: &mut dyn FnMut(&str)) -> Result<PlugsReport, BenchError> {
    check(args)?;
    let mut runs = Vec::new();
    for scenario in &args.scenarios {
        let most = args.max.unwrap_or(if *scenario == PlugScenario::Publish { 2 } else { 3 });
        for mode in &args.modes {
            let sizes: Vec<Bounds> = match mode {
                PlugMode::Fixed => (1..=most).map(|nodes| Bounds { min: nodes, max: nodes }).collect(),
                PlugMode::Single => vec![Bounds { min: 1, max: 1 }],
                PlugMode::Elastic => vec![Bounds { min: 1, max: most }],
            };
            // Sizes take turns, so that what else the machine does meets all of them.
            let rounds = if *mode == PlugMode::Fixed { args.repeat.max(1) } else { 1 };
            for round in 0..rounds {
                for bounds in &sizes {
                    let run = one(args, (*scenario, *mode), *bounds, round)?;
                    note(&format!(
                        "{} {}, {} to {} nodes, run {}: {} s, {} lost, {} twice",
                        report::name(*scenario),
                        report::mode(*mode),
                        bounds.min,
                        bounds.max,
                        round + 1,
                        number(run.completion_s),
                        run.lost,
                        run.duplicates
                    ));
                    runs.push(run);
                }
            }
        }
    }
    let report = PlugsReport::new(head(args), args, runs);
    write_files(&args.report, || report.csv(), || report.html())?;
    Ok(report)
}

fn check(args: &PlugsArgs) -> Result<(), BenchError> {
    let wrong = |text: String| Err(BenchError::Usage(text));
    if args.houses == 0 || args.houses > 400 {
        return wrong(format!("--houses {}: 1 to 400", args.houses));
    }
    if args.max == Some(0) || args.max.is_some_and(|max| max > 64) {
        return wrong("--max: 1 to 64 nodes".to_owned());
    }
    for (flag, value, least, most) in [
        ("--interval", args.interval, 1.0, 1e6),
        ("--seconds", args.seconds, 1e-3, 1e6),
        ("--ramp", args.ramp, 0.0, 1e5),
        ("--idle", args.idle, 0.0, 1e5),
        ("--shrink", args.shrink, 0.0, 1e5),
        ("--cpu", args.cpu, 0.0, 1e3),
        ("--high", args.high, 0.0, 1e3),
        ("--low", args.low, 0.0, 1e3),
    ] {
        if !(least..=most).contains(&value) {
            return wrong(format!("{flag} {value}: {least} to {most}"));
        }
    }
    if args.period == 0 || args.cooldown == 0 {
        return wrong("--period and --cooldown: at least 1 second".to_owned());
    }
    if let Err(error) = TcpListener::bind((Ipv4Addr::LOCALHOST, args.port)) {
        return wrong(format!("--port {}: the load balancer cannot have it: {error}; give another one", args.port));
    }
    Ok(())
}

fn head(args: &PlugsArgs) -> Head {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let address = format!("127.0.0.1:{}", args.port);
    let balancer = NodeInfo { name: "load balancer".to_owned(), address, version: None, overlay: None, behind: None };
    Head {
        experiment: "plugs",
        at_ms: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
        machine: crate::host::machine(),
        version: env!("CARGO_PKG_VERSION"),
        recipe: Some("sedge scale".to_owned()),
        overlay: Some("mesh".to_owned()),
        brokers: vec![balancer],
        seed: args.seed,
        network: "loopback".to_owned(),
    }
}

/// The load: each client has one message under way (closed loop), and the interval is a lower bound (errata E19).
fn load(args: &PlugsArgs, (scenario, mode): (PlugScenario, PlugMode), seed: u64) -> Result<Scenario, BenchError> {
    let (houses, plugs) = (args.houses, args.houses * PLUGS);
    let (name, publishers, subscribers) = match scenario {
        PlugScenario::Publish => ("smart-plugs-publish", plugs, houses),
        PlugScenario::Subscribe => ("smart-plugs-subscribe", houses, plugs),
    };
    let size = Size { publishers: Some(publishers), subscribers: Some(subscribers), ..Size::default() };
    let known = || BenchError::Usage(format!("there is no scenario {name}"));
    let mut load = sized(name, size).ok_or_else(known)?;
    let interval = if mode == PlugMode::Fixed { 2.0 * args.interval } else { args.interval };
    let each = num::whole((args.seconds * 1e3 / args.interval).round().max(1.0));
    let of_publisher = if scenario == PlugScenario::Publish { 1 } else { PLUGS };
    load.set_interval(interval / f64::from(of_publisher));
    load.messages = Some(each * u64::from(of_publisher));
    load.pacing = Pacing::LastMessage;
    load.ramp_s = args.ramp;
    load.window = 1;
    load.until = Until::Ack;
    load.idle_s = args.idle;
    load.warmup_s = 0.0;
    load.drain_s = DRAIN_S;
    load.reconnect = true;
    load.payload = args.size.clone();
    load.seed = seed;
    load.check()?;
    Ok(load)
}

fn one(
    args: &PlugsArgs,
    (scenario, mode): (PlugScenario, PlugMode),
    bounds: Bounds,
    round: usize,
) -> Result<Run, BenchError> {
    let seed = args.seed.wrapping_add(num::count(round));
    let load = load(args, (scenario, mode), seed)?;
    let folder = std::env::temp_dir().join(format!("sedge-bench-plugs-{}", std::process::id()));
    let site = Site::start(&folder, args, bounds)?;
    let options = Options {
        brokers: vec![format!("127.0.0.1:{}", args.port).parse::<Endpoint>().map_err(BenchError::Usage)?],
        threads: args.threads.clamp(1, 1_024),
        pin: args.pin.clone(),
        ..Options::default()
    };
    let shrinks = mode == PlugMode::Elastic;
    let (outcome, seen, status) = watched(&site, &load, &options, shrinks.then_some(args.shrink))?;
    let run = Run::new((scenario, mode), bounds, &outcome, (&seen, &status), args.high);
    site.end()?;
    // Files that cannot be removed are left to the system.
    let _ = std::fs::remove_dir_all(&folder);
    Ok(run)
}

/// The group during a run: the moment at which the run began, and what the controller said, each with the time since then.
struct Seen {
    began_ms: u64,
    looks: Vec<(Duration, Status)>,
}

/// Puts the load on the site and looks at its group meanwhile, with `shrink` for at most so many seconds more until one node is left.
fn watched(
    site: &Site,
    load: &Scenario,
    options: &Options,
    shrink: Option<f64>,
) -> Result<(Outcome, Seen, Status), BenchError> {
    let (over, folder) = (&AtomicBool::new(false), site.folder());
    let began = Instant::now();
    let began_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let began_ms = u64::try_from(began_ms).unwrap_or(u64::MAX);
    let (outcome, looks) = std::thread::scope(|scope| {
        let watch = scope.spawn(move || watch(folder, began, over));
        let outcome = run(load, options, &mut |_| ());
        let end = Instant::now();
        while let Some(seconds) = shrink.filter(|_| outcome.is_ok()) {
            let left = look(folder).map_or(0, |status| status.nodes().len());
            if left == 1 || end.elapsed().as_secs_f64() > seconds {
                break;
            }
            std::thread::sleep(LOOK);
        }
        over.store(true, Ordering::Relaxed);
        (outcome, watch.join().unwrap_or_default())
    });
    let status = site.status().unwrap_or_default();
    Ok((outcome?, Seen { began_ms, looks }, status))
}

/// Looks at the group until `over`.
fn watch(folder: &Path, began: Instant, over: &AtomicBool) -> Vec<(Duration, Status)> {
    let mut looks = Vec::new();
    loop {
        let last = over.load(Ordering::Relaxed);
        let at = began.elapsed();
        looks.extend(look(folder).map(|status| (at, status)));
        if last {
            return looks;
        }
        let next = at + LOOK;
        while began.elapsed() < next && !over.load(Ordering::Relaxed) {
            std::thread::sleep(LOOK / 20);
        }
    }
}

fn point(at_s: f64, status: &Status) -> Point {
    let serving: Vec<_> = status.serving().collect();
    let of = |name: &str| -> Vec<f64> { serving.iter().filter_map(|node| node.samples.get(name).copied()).collect() };
    let used = of("cpu_util");
    let mean = (!used.is_empty()).then(|| used.iter().sum::<f64>() / num::real(num::count(used.len())));
    Point { at_s, nodes: serving.len(), vcpus: of("vcpus").iter().sum(), cpu_percent: mean }
}

/// Messages a second of all publishers together.
fn offered(load: &Scenario) -> f64 {
    let each = load.interval_ms.map_or(0.0, |interval| 1e3 / interval);
    load.publishers.iter().map(|group| f64::from(group.count) * each).sum()
}

impl Run {
    fn new(
        (scenario, mode): (PlugScenario, PlugMode),
        bounds: Bounds,
        outcome: &Outcome,
        (seen, status): (&Seen, &Status),
        high: f64,
    ) -> Self {
        let origin = outcome.origin_s;
        let points: Vec<Point> =
            seen.looks.iter().map(|(at, status)| point(at.as_secs_f64() - origin, status)).collect();
        let since = |at_ms: u64| num::real(at_ms.saturating_sub(seen.began_ms)) / 1e3 - origin;
        let changes = status.decisions.iter().filter(|decision| decision.at_ms >= seen.began_ms);
        let changes: Vec<Change> = changes
            .map(|decision| Change { at_s: since(decision.at_ms), from: decision.from, to: decision.to })
            .collect();
        let above = |point: &&Point| point.at_s >= 0.0 && point.cpu_percent.is_some_and(|cpu| cpu > high);
        let looked = points.iter().find(above).map(|point| point.at_s);
        // Looks are a second apart: the alarm, which has a mean over its period, may have seen what none of them did.
        let alarmed = changes.iter().find(|change| change.to > change.from).map(|change| change.at_s.max(0.0));
        let shrunk = points.last().filter(|last| mode == PlugMode::Elastic && last.nodes == 1);
        let tally = &outcome.tally;
        let millis = |part: f64| num::real(tally.latency.quantile(part)) / 1e6;
        Self {
            scenario,
            mode,
            nodes: bounds.min,
            clients: outcome.clients,
            offered_per_s: offered(&outcome.scenario),
            messages: tally.all_sent,
            completion_s: outcome.completion_s,
            saturated_s: looked.into_iter().chain(alarmed).reduce(f64::min),
            shrunk_s: shrunk.map(|point| point.at_s),
            lost: tally.lost,
            duplicates: tally.duplicates,
            disconnects: tally.disconnects,
            latency_p50_ms: millis(0.5),
            latency_p99_ms: millis(0.99),
            changes,
            points,
            warnings: outcome.warnings.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: PlugsArgs,
    }

    fn args(words: &str) -> PlugsArgs {
        Cli::try_parse_from(std::iter::once("plugs").chain(words.split_whitespace())).expect("flags").args
    }

    /// BM-13, BM-14: 3,640 clients at full size; half the rate with fixed nodes; as many messages in all modes; closed loop.
    #[test]
    fn loads_have_the_clients_and_rates_of_the_source() {
        let args = args("--houses 40");
        for (scenario, publishers, subscribers) in
            [(PlugScenario::Publish, 3_600, 40), (PlugScenario::Subscribe, 40, 3_600)]
        {
            let elastic = load(&args, (scenario, PlugMode::Elastic), 1).expect("a load");
            let fixed = load(&args, (scenario, PlugMode::Fixed), 1).expect("a load");
            assert_eq!((elastic.publishers[0].count, elastic.subscribers[0].count), (publishers, subscribers));
            assert!((offered(&elastic) - 3_600.0).abs() < 1e-6 && (offered(&fixed) - 1_800.0).abs() < 1e-6);
            assert_eq!(elastic.messages, fixed.messages);
            assert_eq!(u64::from(publishers) * elastic.messages.expect("a number"), 3_600 * 240);
            assert_eq!((elastic.qos, elastic.persistent, elastic.window), (2, true, 1));
            assert_eq!(elastic.pacing, Pacing::LastMessage);
        }
    }

    #[test]
    fn impossible_flags_are_refused_by_name() {
        for (words, named) in [
            ("--houses 0", "--houses"),
            ("--max 0", "--max"),
            ("--interval 0", "--interval"),
            ("--period 0", "--period"),
            ("--seconds NaN", "--seconds"),
        ] {
            let error = check(&args(words)).expect_err(words).to_string();
            assert!(error.contains(named), "{error}");
        }
        check(&args("publish --modes elastic")).expect("sound flags");
    }

    fn look(at_s: u64, text: &str) -> (Duration, Status) {
        (Duration::from_secs(at_s), serde_json::from_str(text).expect("a status"))
    }

    /// EL-12, EL-19: the curves and what a reader takes from them.
    #[test]
    fn a_run_tells_when_it_was_saturated_and_when_it_had_shrunk() {
        let node = |cpu: u32| format!(r#"{{"state":"serving","samples":{{"cpu_util":{cpu},"vcpus":0.2}}}}"#);
        let group = |nodes: &[String]| format!(r#"{{"groups":{{"brokers":{{"nodes":[{}]}}}}}}"#, nodes.join(","));
        let leaving = r#"{"state":"leaving","samples":{}}"#.to_owned();
        let looks = vec![
            look(1, &group(&[node(99)])),
            look(12, &group(&[node(70)])),
            look(15, &group(&[node(90)])),
            look(20, &group(&[node(90), node(40)])),
            look(50, &group(&[node(5), leaving])),
            look(51, &group(&[node(5)])),
        ];
        let status = r#"{"decisions":[{"at_ms":900,"from":1,"to":2},{"at_ms":17000,"from":1,"to":2},{"at_ms":45000,"from":2,"to":1}]}"#;
        let status: Status = serde_json::from_str(status).expect("a status");
        let mut outcome =
            Outcome::empty(load(&args(""), (PlugScenario::Publish, PlugMode::Elastic), 1).expect("a load"));
        outcome.origin_s = 10.0;
        let seen = Seen { began_ms: 1_000, looks };
        let bounds = Bounds { min: 1, max: 2 };
        let kind = (PlugScenario::Publish, PlugMode::Elastic);
        let run = Run::new(kind, bounds, &outcome, (&seen, &status), 80.0);
        assert_eq!((run.saturated_s, run.shrunk_s, run.most()), (Some(5.0), Some(41.0), 2));
        assert_eq!(run.changes, [Change { at_s: 6.0, from: 1, to: 2 }, Change { at_s: 34.0, from: 2, to: 1 }]);
        assert_eq!(run.points[3], Point { at_s: 10.0, nodes: 2, vcpus: 0.4, cpu_percent: Some(65.0) });
        assert_eq!(run.points[4].nodes, 1, "a node that leaves does not serve");
        // Every look came between two samples that were above the threshold; the alarm saw them.
        let mut calm = seen;
        calm.looks.retain(|(at, _)| !(11..50).contains(&at.as_secs()));
        let run = Run::new(kind, bounds, &outcome, (&calm, &status), 80.0);
        assert_eq!((run.saturated_s, run.shrunk_s), (Some(6.0), Some(41.0)));
    }

    /// BM-13: clients would talk to another program.
    #[test]
    fn a_port_in_use_is_named() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = taken.local_addr().expect("an address").port();
        let error = check(&args(&format!("publish --port {port}"))).expect_err("it is in use").to_string();
        assert!(error.contains(&format!("--port {port}")), "{error}");
        drop(taken);
        check(&args(&format!("publish --port {port}"))).expect("it is free");
    }

    /// BM-14: completion times stand beside those of the source.
    #[test]
    fn a_report_puts_the_source_beside_its_own() {
        let args = args("publish --repeat 2");
        let run = |nodes: u32, seconds: f64| {
            let kind = (PlugScenario::Publish, PlugMode::Fixed);
            let outcome = Outcome { completion_s: seconds, ..Outcome::empty(load(&args, kind, 1).expect("a load")) };
            let seen = Seen { began_ms: 0, looks: Vec::new() };
            Run::new(kind, Bounds { min: nodes, max: nodes }, &outcome, (&seen, &Status::default()), 80.0)
        };
        let runs = vec![run(1, 100.0), run(2, 80.0), run(1, 100.0), run(2, 70.0)];
        let text = PlugsReport::new(head(&args), &args, runs).text();
        let row = text.lines().find(|line| line.contains("-25.0")).unwrap_or_else(|| panic!("{text}"));
        let cells: Vec<&str> = row.split_whitespace().collect();
        assert_eq!((cells[0], cells[2], cells[3]), ("8", "2", "2"), "{row}");
        assert!(row.ends_with("-25") && row.contains("270"), "{row}");
    }
}
