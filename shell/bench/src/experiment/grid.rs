//! Topics, payloads and localities of interest over emulated distributed brokers (BM-16, BM-17).

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::args::{ClusterArgs, GridArgs};
use super::carried::{Interest, Split};
use super::result::{Head, cell, csv, warnings, write_files};
use super::stats::{Average, text};
use super::status::LinkCounters;
use super::target::{Target, Up, each_overlay};
use crate::emulate::{EmulatorStatus, LinkStatus};
use crate::error::BenchError;
use crate::num;
use crate::report::{Figures, Table, html_page};
use crate::run::run;
use crate::scenario::{Payload, Scenario, Size, sized};

/// Distance of the start values of placements.
const NEXT_PLACEMENT: u64 = 1_000;

/// Traffic between brokers during one run.
#[derive(Clone, Copy, Debug, Serialize)]
struct Traffic {
    /// Bytes sent over links, from before the clients connect until after they are gone.
    bytes: f64,
    /// The part of `bytes` that the nodes send each other anyway in that time, as measured without clients.
    quiet_bytes: f64,
    /// Publications sent over links, where brokers count them.
    publications: Option<f64>,
}

/// Traffic that the emulated network carried during one run.
#[derive(Clone, Debug, Serialize)]
struct Told {
    /// The traffic without its quiet part.
    #[serde(flatten)]
    split: Split,
    /// Signalling in as much time as measured without clients.
    quiet_signalling_bytes: f64,
}

/// One run of one cell.
#[derive(Clone, Debug, Serialize)]
struct CellRun {
    seed: u64,
    traffic: Option<Traffic>,
    told: Option<Told>,
    /// Counters of every direction of every link of the emulated network since the network was made.
    links: Vec<LinkStatus>,
    /// How well the network was emulated.
    emulator: Option<EmulatorStatus>,
    figures: Figures,
}

/// One combination of topics, payload and locality.
#[derive(Clone, Debug, Serialize)]
struct Cell {
    overlay: Option<String>,
    topics: u32,
    payload: u32,
    locality: u8,
    latency_ms: Option<Average>,
    loss_rate: Option<Average>,
    link_kib: Option<Average>,
    quiet_kib: Option<Average>,
    publication_kib: Option<Average>,
    busiest_kib: Option<Average>,
    stranger_kib: Option<Average>,
    unsubscribed_kib: Option<Average>,
    signalling_kib: Option<Average>,
    quiet_signalling_kib: Option<Average>,
    link_publications: Option<Average>,
    broker_cpu_s: Option<Average>,
    broker_rss_mib: Option<Average>,
    runs: Vec<CellRun>,
}

/// The whole grid.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct GridReport {
    head: Head,
    publishers: u32,
    subscribers: u32,
    messages: u64,
    interval_ms: f64,
    cells: Vec<Cell>,
}

/// Measures every cell, each run with a cluster of its own if it is started here.
pub(crate) fn grid(args: &GridArgs, note: &mut dyn FnMut(&str)) -> Result<GridReport, BenchError> {
    check(args)?;
    let options = args.target.options(Vec::new());
    let target = |cluster: &ClusterArgs| {
        let mut target = Target::new(cluster, &options, (5, args.course.seed))?;
        if !args.encrypt {
            target.bare_links();
        }
        Ok(target)
    };
    let targets = each_overlay(&args.cluster).iter().map(target).collect::<Result<Vec<Target>, BenchError>>()?;
    let mut head = None;
    let mut cells = Vec::new();
    for locality in &args.locality {
        for payload in &args.payload {
            for topics in &args.topics {
                let mut runs: Vec<Vec<CellRun>> = targets.iter().map(|_| Vec::new()).collect();
                for repetition in 0..repetitions(*locality, args) {
                    let seed = args.course.seed.wrapping_add(NEXT_PLACEMENT * repetition);
                    let scenario = scenario((*topics, *payload, *locality), seed, args)?;
                    // One after another with the same placement, so that all have the machine as it is.
                    for (target, runs) in targets.iter().zip(&mut runs) {
                        let up = target.up(&options)?;
                        head.get_or_insert_with(|| Head::new("grid", target, up.nodes.clone(), args.course.seed));
                        runs.push(measure(&scenario, args.quiet_s, &up)?);
                    }
                }
                for (target, runs) in targets.iter().zip(runs) {
                    let cell = Cell::new(target.overlay(), (*topics, *payload, *locality), runs);
                    let (name, delay) = (target.overlay().unwrap_or_default(), text(cell.latency_ms));
                    note(&format!("locality {locality} %, {payload} bytes, {topics} topics: {name} {delay} ms"));
                    cells.push(cell);
                }
            }
        }
    }
    let mut head: Head = head.ok_or_else(|| BenchError::Usage("the grid has no cell".to_owned()))?;
    let overlays: Vec<&str> = targets.iter().filter_map(Target::overlay).collect();
    head.overlay = Some(overlays.join(", ")).filter(|names| !names.is_empty()).or(head.overlay);
    let report = GridReport {
        head,
        publishers: args.publishers,
        subscribers: args.subscribers,
        messages: args.messages,
        interval_ms: args.interval,
        cells,
    };
    write_files(&args.report, || report.csv(), || report.html())?;
    Ok(report)
}

fn check(args: &GridArgs) -> Result<(), BenchError> {
    let wrong = |text: &str| Err(BenchError::Usage(text.to_owned()));
    if let Some(odd) = args.locality.iter().find(|locality| ![0, 50, 100].contains(*locality)) {
        return Err(BenchError::Usage(format!("--locality {odd}: there are 100, 50 and 0")));
    }
    if args.topics.contains(&0) {
        return wrong("--topics: at least 1");
    }
    if !(args.quiet_s.is_finite() && (0.0..=3_600.0).contains(&args.quiet_s)) {
        return wrong("--quiet-s: 0 to 3600 seconds");
    }
    Ok(())
}

/// How often a cell is measured: 50 % has a new placement each time.
fn repetitions(locality: u8, args: &GridArgs) -> u64 {
    let often = num::count(args.repeat.max(1));
    if locality == 50 || args.repeat_all { often } else { 1 }
}

fn scenario((topics, payload, locality): (u32, u32, u8), seed: u64, args: &GridArgs) -> Result<Scenario, BenchError> {
    let (publishers, subscribers) = (Some(args.publishers), Some(args.subscribers));
    let size = Size { publishers, subscribers, topics: Some(topics), locality: Some(locality) };
    let mut scenario = sized("locality", size).ok_or_else(|| BenchError::Usage("no scenario locality".to_owned()))?;
    args.course.load().change(&mut scenario)?;
    scenario.name = format!("grid-{topics}-{payload}-{locality}");
    scenario.payload = Payload::Fixed(payload);
    (scenario.qos, scenario.subscribe_qos) = (args.qos, None);
    scenario.messages = Some(args.messages);
    scenario.warmup_s = 0.0;
    scenario.set_interval(args.interval);
    scenario.seed = seed;
    scenario.check()?;
    Ok(scenario)
}

fn measure(scenario: &Scenario, quiet_s: f64, up: &Up) -> Result<CellRun, BenchError> {
    let look = || (up.traffic(), up.network().map(|status| status.links).unwrap_or_default());
    let interest = Interest::new(scenario, up.options.brokers.len())?;
    let (before, links_before) = look();
    let began = Instant::now();
    if before.is_some() {
        std::thread::sleep(Duration::from_secs_f64(quiet_s));
    }
    let (start, links_start) = look();
    let quiet_took = began.elapsed().as_secs_f64();
    let began = Instant::now();
    let figures = Figures::from(&run(scenario, &up.options, &mut |_| ())?);
    let took = began.elapsed().as_secs_f64();
    let (end, network) = (up.traffic(), up.network());
    let traffic = end.zip(start).zip(before).map(|((end, start), before)| {
        let sent = end.since(start);
        Traffic {
            bytes: sent.bytes,
            quiet_bytes: LinkCounters::signalling(start.since(before), quiet_took, took),
            publications: sent.publications,
        }
    });
    let told = network.as_ref().map(|network| Told {
        split: Split::new(&links_start, &network.links, &interest),
        quiet_signalling_bytes: Split::new(&links_before, &links_start, &interest).quiet(quiet_took, took),
    });
    let (links, emulator) = network.map_or_else(Default::default, |status| (status.links, Some(status.emulator)));
    Ok(CellRun { seed: scenario.seed, traffic, told, links, emulator, figures })
}

impl Cell {
    fn new(overlay: Option<&str>, (topics, payload, locality): (u32, u32, u8), runs: Vec<CellRun>) -> Self {
        let mean = |get: &dyn Fn(&CellRun) -> Option<f64>| Average::of(runs.iter().filter_map(get));
        let traffic = |get: fn(Traffic) -> f64| mean(&|run| Some(get(run.traffic?) / 1_024.0));
        let told = |get: fn(&Told) -> f64| mean(&|run| Some(get(run.told.as_ref()?) / 1_024.0));
        Self {
            overlay: overlay.map(ToOwned::to_owned),
            topics,
            payload,
            locality,
            // A choice of topics in which no subscriber has a publisher has no latency.
            latency_ms: mean(&|run| (run.figures.latency_us.count > 0).then_some(run.figures.latency_us.mean / 1e3)),
            loss_rate: mean(&|run| (run.figures.expected > 0).then_some(run.figures.loss_rate)),
            link_kib: traffic(|traffic| traffic.bytes),
            quiet_kib: traffic(|traffic| traffic.quiet_bytes),
            publication_kib: told(|told| num::real(told.split.publications.bytes)),
            busiest_kib: told(|told| num::real(told.split.busiest_bytes)),
            stranger_kib: told(|told| num::real(told.split.to_strangers.bytes)),
            unsubscribed_kib: told(|told| num::real(told.split.to_unsubscribed.bytes)),
            signalling_kib: told(|told| num::real(told.split.signalling_bytes)),
            quiet_signalling_kib: told(|told| told.quiet_signalling_bytes),
            link_publications: mean(&|run| run.traffic?.publications),
            broker_cpu_s: mean(&|run| run.figures.broker_cpu_s),
            broker_rss_mib: mean(&|run| Some(num::real(run.figures.broker_rss_kib?) / 1_024.0)),
            runs,
        }
    }
}

impl GridReport {
    /// For people.
    pub(crate) fn text(&self) -> String {
        let mut table = Table::default();
        let names = ["overlay", "locality, %", "payload", "topics", "runs", "delay, ms", "loss rate", "links, KiB"];
        let more = ["of it quiet", "publications", "busiest link", "to strangers", "without subscriber", "signalling"];
        let last = ["of it quiet", "over links", "CPU, s", "memory, MiB"];
        table.row(names.into_iter().chain(more).chain(last).map(ToOwned::to_owned));
        for cell in &self.cells {
            let place = [cell.locality.to_string(), cell.payload.to_string(), cell.topics.to_string()];
            let figures = [
                cell.latency_ms,
                cell.loss_rate,
                cell.link_kib,
                cell.quiet_kib,
                cell.publication_kib,
                cell.busiest_kib,
                cell.stranger_kib,
                cell.unsubscribed_kib,
                cell.signalling_kib,
                cell.quiet_signalling_kib,
                cell.link_publications,
                cell.broker_cpu_s,
                cell.broker_rss_mib,
            ];
            let overlay = cell.overlay.clone().unwrap_or_else(|| "-".to_owned());
            let first = std::iter::once(overlay).chain(place).chain([cell.runs.len().to_string()]);
            table.row(first.chain(figures.map(text)));
        }
        let mut out = format!(
            "{}{} publishers with {} messages each, one every {} ms; {} subscribers\n\n{}\n",
            self.head.text(),
            self.publishers,
            self.messages,
            self.interval_ms,
            self.subscribers,
            table.text()
        );
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "means over the runs of a cell, ± half of the interval that holds the true mean with 95 % certainty;\n\
             links: bytes sent between brokers, of it what they send each other without any client in the same time;\n\
             publications (KiB) once for each link, over the link with most of them, to brokers without publishers and subscribers of the\n\
             topic, and to brokers without subscribers of it; signalling: what brokers tell each other (KiB), of it without clients;\n\
             over links: number of publications sent between brokers; CPU and memory: all brokers together"
        );
        out.push_str(&warnings(self.cells.iter().flat_map(|cell| cell.runs.iter().map(|run| &run.figures))));
        out
    }

    fn csv(&self) -> String {
        let runs = self.cells.iter().flat_map(|cell_of| {
            cell_of.runs.iter().map(|run| {
                let figures = &run.figures;
                let told = |get: fn(&Told) -> f64| cell(run.told.as_ref().map(get));
                [
                    cell_of.overlay.clone().unwrap_or_default(),
                    cell_of.locality.to_string(),
                    cell_of.payload.to_string(),
                    cell_of.topics.to_string(),
                    run.seed.to_string(),
                    figures.sent.to_string(),
                    figures.expected.to_string(),
                    figures.lost.to_string(),
                    cell((figures.latency_us.count > 0).then_some(figures.latency_us.mean)),
                    cell((figures.latency_us.count > 0).then_some(figures.latency_us.p99)),
                    cell((figures.latency_us.count > 0).then_some(figures.latency_us.max)),
                    cell(run.traffic.map(|traffic| traffic.bytes)),
                    cell(run.traffic.map(|traffic| traffic.quiet_bytes)),
                    cell(run.traffic.and_then(|traffic| traffic.publications)),
                    told(|told| num::real(told.split.publications.bytes)),
                    told(|told| num::real(told.split.busiest_bytes)),
                    told(|told| num::real(told.split.to_strangers.count)),
                    told(|told| num::real(told.split.to_strangers.bytes)),
                    told(|told| num::real(told.split.to_unsubscribed.count)),
                    told(|told| num::real(told.split.to_unsubscribed.bytes)),
                    told(|told| num::real(told.split.signalling_bytes)),
                    told(|told| told.quiet_signalling_bytes),
                    told(|told| told.split.mechanisms.get("$sedge/overlay").copied().map_or(0.0, num::real)),
                    told(|told| num::real(told.split.other_bytes)),
                    told(|told| num::real(told.split.unread_bytes)),
                    cell(figures.broker_cpu_s),
                    cell(figures.broker_rss_kib.map(num::real)),
                ]
            })
        });
        let names = [
            "overlay",
            "locality",
            "payload",
            "topics",
            "seed",
            "sent",
            "expected",
            "lost",
            "latency_mean_us",
            "latency_p99_us",
            "latency_max_us",
            "link_bytes",
            "quiet_bytes",
            "link_publications",
            "publication_bytes",
            "busiest_link_bytes",
            "to_strangers",
            "to_strangers_bytes",
            "to_unsubscribed",
            "to_unsubscribed_bytes",
            "signalling_bytes",
            "quiet_signalling_bytes",
            "overlay_bytes",
            "other_bytes",
            "unread_bytes",
            "broker_cpu_s",
            "broker_rss_kib",
        ];
        csv(names, runs)
    }

    fn html(&self) -> String {
        html_page("Grid of topics, payloads and localities", &self.head.machine, &self.text(), &[], self)
    }
}
