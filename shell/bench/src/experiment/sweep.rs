//! More and more pairs of clients: what each of them still gets (BM-11).

use std::fmt::Write as _;

use serde::Serialize;

use super::args::{PairPlacement, SweepArgs};
use super::result::{Head, cell, csv, write_files};
use super::stats::{Average, text};
use super::target::{Target, Up};
use crate::error::BenchError;
use crate::num;
use crate::report::{Figures, Plot, Table, html_page, number};
use crate::run::run;
use crate::scenario::{Placement, PublisherGroup, Scenario, SubscriberGroup, Until};

/// Figures of the source (Thean-T, chapter 5) for four nodes.
const THROUGHPUT: [(u32, f64); 2] = [(50, 265.68), (2_000, 233.28)];
const LATENCY: (u32, &str) = (2_000, "3.42 / 42");
const JITTER: (u32, &str) = (2_000, "11-15 / 14.7-33.8");
const DEGRADATION: f64 = 12.2;

/// One run in each of the two loops.
#[derive(Clone, Debug, Serialize)]
struct Round {
    /// Messages per second of each publisher that waits for the handshake of one before it sends the next.
    per_client_per_s: f64,
    /// With a fixed time between messages.
    open: Figures,
    /// As fast as the handshakes go.
    closed: Figures,
}

/// One number of pairs.
#[derive(Clone, Debug, Serialize)]
struct SizeResult {
    pairs: u32,
    per_client_per_s: Option<Average>,
    latency_ms: Option<Average>,
    latency_p50_ms: Option<Average>,
    latency_p95_ms: Option<Average>,
    latency_p99_ms: Option<Average>,
    latency_max_ms: Option<Average>,
    jitter_p90_ms: Option<Average>,
    jitter_max_ms: Option<Average>,
    /// Of both loops.
    loss_rate: Option<Average>,
    /// Share of a core that the brokers took in the open loop.
    broker_cpu: Option<Average>,
    broker_rss_mib: Option<Average>,
    rounds: Vec<Round>,
}

/// From the first number of pairs to the last, in percent of the first; negative if it grew better.
#[derive(Clone, Copy, Debug, Serialize)]
struct Degradation {
    per_client_percent: f64,
    latency_percent: f64,
}

/// The whole sweep.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SweepReport {
    head: Head,
    placement: String,
    sizes: Vec<SizeResult>,
    degradation: Option<Degradation>,
}

/// Runs every size as often as asked.
pub(crate) fn sweep(args: &SweepArgs, note: &mut dyn FnMut(&str)) -> Result<SweepReport, BenchError> {
    let options = args.target.options(Vec::new());
    let target = Target::new(&args.cluster, &options, (4, args.course.seed))?;
    if args.pairs.is_empty() || args.pairs.contains(&0) {
        return Err(BenchError::Usage("--pairs: numbers above 0".to_owned()));
    }
    let mut rounds: Vec<Vec<Round>> = vec![Vec::new(); args.pairs.len()];
    let mut head = None;
    for repetition in 0..args.repeat.max(1) {
        let up = target.up(&options)?;
        for (pairs, rounds) in args.pairs.iter().zip(&mut rounds) {
            let seed = args.course.seed.wrapping_add(num::count(repetition));
            let round = measure(*pairs, seed, args, &up)?;
            note(&format!(
                "round {}: {pairs} pairs: {} per s and client, latency {} ms",
                repetition + 1,
                number(round.per_client_per_s),
                number(round.open.latency_us.mean / 1e3)
            ));
            rounds.push(round);
        }
        head.get_or_insert_with(|| Head::new("sweep", &target, up.nodes.clone(), args.course.seed));
    }
    let Some(head) = head else { return Err(BenchError::Usage("nothing was measured".to_owned())) };
    let sizes: Vec<SizeResult> =
        args.pairs.iter().zip(rounds).map(|(pairs, rounds)| SizeResult::new(*pairs, rounds)).collect();
    let degradation = degradation(&sizes);
    let placement = format!("{:?}", args.placement).to_lowercase();
    let report = SweepReport { head, placement, sizes, degradation };
    write_files(&args.report, || report.csv(), || report.html())?;
    Ok(report)
}

/// The load of `pairs` pairs; the loop is open if there is an interval.
fn scenario(pairs: u32, interval_ms: Option<f64>, (seed, nodes): (u64, usize), args: &SweepArgs) -> Scenario {
    let (publishers, subscribers) = match args.placement {
        PairPlacement::Random => (Placement::Random, Placement::Random),
        PairPlacement::Leastconn => {
            let first = usize::try_from(pairs).unwrap_or(0) % nodes.max(1);
            (Placement::Only((0..nodes).map(|node| (first + node) % nodes.max(1)).collect()), Placement::Spread)
        }
        PairPlacement::Same => (Placement::Spread, Placement::Spread),
        PairPlacement::Apart => {
            (Placement::Spread, Placement::Only((0..nodes).map(|node| (node + 1) % nodes.max(1)).collect()))
        }
    };
    let topic = "bench/sweep/{i}".to_owned();
    let publishers = PublisherGroup {
        count: pairs,
        topic: topic.clone(),
        topics: 1,
        interval_ms: None,
        brokers: publishers,
        probe: false,
    };
    Scenario {
        name: format!("sweep-{pairs}-{}", if interval_ms.is_some() { "open" } else { "closed" }),
        qos: args.qos,
        subscribe_qos: Some(args.subscribe_qos),
        payload: args.size.clone(),
        interval_ms,
        // One message of each client is under way in the closed loop.
        window: if interval_ms.is_some() { 100 } else { 1 },
        until: if args.qos > 0 { Until::Ack } else { Until::Delivery },
        warmup_s: 2.0,
        measure_s: 10.0,
        drain_s: 10.0,
        seed,
        publishers: vec![publishers],
        subscribers: vec![SubscriberGroup { count: pairs, filter: topic, brokers: subscribers }],
        ..Scenario::default()
    }
}

fn measure(pairs: u32, seed: u64, args: &SweepArgs, up: &Up) -> Result<Round, BenchError> {
    let figures = |interval: Option<f64>| {
        let mut scenario = scenario(pairs, interval, (seed, up.options.brokers.len()), args);
        let mut load = args.course.load();
        load.seed = Some(seed);
        load.change(&mut scenario)?;
        Ok::<_, BenchError>(Figures::from(&run(&scenario, &up.options, &mut |_| ())?))
    };
    let open = figures(Some(args.interval))?;
    let closed = figures(None)?;
    Ok(Round { per_client_per_s: closed.ingress_per_s / f64::from(pairs), open, closed })
}

impl SizeResult {
    fn new(pairs: u32, rounds: Vec<Round>) -> Self {
        let mean = |get: &dyn Fn(&Round) -> Option<f64>| Average::of(rounds.iter().filter_map(get));
        let latency =
            |get: fn(&Figures) -> f64| mean(&|round| (round.open.latency_us.count > 0).then(|| get(&round.open) / 1e3));
        let loss = |round: &Round| {
            let lost = num::real(round.open.lost + round.closed.lost);
            Some(num::ratio(lost, num::real(round.open.expected + round.closed.expected)))
        };
        Self {
            pairs,
            per_client_per_s: mean(&|round| Some(round.per_client_per_s)),
            latency_ms: latency(|figures| figures.latency_us.mean),
            latency_p50_ms: latency(|figures| figures.latency_us.p50),
            latency_p95_ms: latency(|figures| figures.latency_us.p95),
            latency_p99_ms: latency(|figures| figures.latency_us.p99),
            latency_max_ms: latency(|figures| figures.latency_us.max),
            jitter_p90_ms: latency(|figures| figures.jitter_us.p90),
            jitter_max_ms: latency(|figures| figures.jitter_us.max),
            loss_rate: mean(&loss),
            broker_cpu: mean(&|round| Some(num::ratio(round.open.broker_cpu_s?, round.open.measure_s))),
            broker_rss_mib: mean(&|round| {
                let most = round.open.broker_rss_kib?.max(round.closed.broker_rss_kib?);
                Some(num::real(most) / 1_024.0)
            }),
            rounds,
        }
    }
}

fn degradation(sizes: &[SizeResult]) -> Option<Degradation> {
    let [first, .., last] = sizes else { return None };
    let percent = |first: Option<Average>, last: Option<Average>| {
        let (first, last) = (first?.mean, last?.mean);
        (first > 0.0).then(|| (first - last) / first * 100.0)
    };
    Some(Degradation {
        per_client_percent: percent(first.per_client_per_s, last.per_client_per_s)?,
        latency_percent: -percent(first.latency_ms, last.latency_ms)?,
    })
}

/// The source's figure for a size, if it gives one.
fn source<T: ToString>(known: &[(u32, T)], pairs: u32) -> String {
    known.iter().find(|(size, _)| *size == pairs).map_or_else(|| "-".to_owned(), |(_, figure)| figure.to_string())
}

impl SweepReport {
    /// For people.
    pub(crate) fn text(&self) -> String {
        let mut table = Table::default();
        table.row(std::iter::once("pairs".to_owned()).chain(self.sizes.iter().map(|size| size.pairs.to_string())));
        let mut row = |name: &str, get: &dyn Fn(&SizeResult) -> String| {
            table.row(std::iter::once(name.to_owned()).chain(self.sizes.iter().map(get)));
        };
        row("closed loop: messages per s and client", &|size| text(size.per_client_per_s));
        row("  source", &|size| source(&THROUGHPUT, size.pairs));
        row("open loop: latency mean, ms", &|size| text(size.latency_ms));
        row("  worst, ms", &|size| text(size.latency_max_ms));
        row("  source, mean / worst", &|size| source(&[LATENCY], size.pairs));
        row("  p50, ms", &|size| text(size.latency_p50_ms));
        row("  p95, ms", &|size| text(size.latency_p95_ms));
        row("  p99, ms", &|size| text(size.latency_p99_ms));
        row("jitter p90, ms", &|size| text(size.jitter_p90_ms));
        row("  max, ms", &|size| text(size.jitter_max_ms));
        row("  source, p90 / max", &|size| source(&[JITTER], size.pairs));
        row("loss rate", &|size| text(size.loss_rate));
        row("broker CPU, cores", &|size| text(size.broker_cpu));
        row("broker memory, MiB", &|size| text(size.broker_rss_mib));
        let mut out = format!("{}placement of the pairs: {}\n\n{}\n", self.head.text(), self.placement, table.text());
        let count = self.sizes.first().map_or(0, |size| size.rounds.len());
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "means of {count} rounds, ± half of the interval that holds the true mean with 95 % certainty"
        );
        if let (Some(degradation), Some(first), Some(last)) = (self.degradation, self.sizes.first(), self.sizes.last())
        {
            let _ = writeln!(
                out,
                "degradation from {} to {} pairs: throughput {} % (source, 50 to 2000: {DEGRADATION} %), latency {} %",
                first.pairs,
                last.pairs,
                number(degradation.per_client_percent),
                number(degradation.latency_percent)
            );
        }
        out.push_str(&super::result::warnings(
            self.sizes.iter().flat_map(|size| size.rounds.iter().flat_map(|round| [&round.open, &round.closed])),
        ));
        out
    }

    fn csv(&self) -> String {
        let rounds = self.sizes.iter().flat_map(|size| {
            size.rounds.iter().enumerate().map(|(round, figures)| {
                let open = &figures.open;
                [
                    size.pairs.to_string(),
                    (round + 1).to_string(),
                    figures.per_client_per_s.to_string(),
                    open.latency_us.mean.to_string(),
                    open.latency_us.p50.to_string(),
                    open.latency_us.p95.to_string(),
                    open.latency_us.p99.to_string(),
                    open.latency_us.max.to_string(),
                    open.jitter_us.p90.to_string(),
                    open.jitter_us.max.to_string(),
                    (open.lost + figures.closed.lost).to_string(),
                    (open.expected + figures.closed.expected).to_string(),
                    cell(open.broker_cpu_s),
                    cell(open.broker_rss_kib.map(num::real)),
                ]
            })
        });
        let names = [
            "pairs",
            "round",
            "closed_per_client_per_s",
            "latency_mean_us",
            "latency_p50_us",
            "latency_p95_us",
            "latency_p99_us",
            "latency_max_us",
            "jitter_p90_us",
            "jitter_max_us",
            "lost",
            "expected",
            "broker_cpu_s",
            "broker_rss_kib",
        ];
        csv(names, rounds)
    }

    fn html(&self) -> String {
        let points = |get: fn(&SizeResult) -> Option<Average>| {
            let mean = |size: &SizeResult| Some((f64::from(size.pairs), get(size)?.mean));
            self.sizes.iter().filter_map(mean).collect::<Vec<_>>()
        };
        let known = THROUGHPUT.map(|(pairs, figure)| (f64::from(pairs), figure));
        let plots = [
            Plot::new("Throughput per client, closed loop", "pairs", "1/s")
                .line("measured", points(|size| size.per_client_per_s))
                .line("source", known),
            Plot::new("Latency, open loop", "pairs", "ms")
                .line("mean", points(|size| size.latency_ms))
                .line("p99", points(|size| size.latency_p99_ms)),
            Plot::new("Jitter, open loop", "pairs", "ms").line("p90", points(|size| size.jitter_p90_ms)),
        ];
        html_page("Sweep over pairs", &self.head.machine, &self.text(), &plots, self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::named;

    fn figures(ingress: f64, latency_us: f64) -> Figures {
        let mut figures = Figures::from(&crate::run::Outcome::empty(named("pairs").expect("a scenario")));
        (figures.ingress_per_s, figures.latency_us.count, figures.latency_us.mean) = (ingress, 1, latency_us);
        figures
    }

    fn size(pairs: u32, per_client: f64, latency_us: f64) -> SizeResult {
        let round = Round {
            per_client_per_s: per_client,
            open: figures(0.0, latency_us),
            closed: figures(per_client * f64::from(pairs), 0.0),
        };
        SizeResult::new(pairs, vec![round])
    }

    /// BM-11
    #[test]
    fn degradation_is_that_of_the_source_for_its_own_figures() {
        let found = degradation(&[size(50, 265.68, 1_000.0), size(100, 1.0, 1.0), size(2_000, 233.28, 3_000.0)]);
        let found = found.expect("a degradation");
        assert!((found.per_client_percent - 12.195).abs() < 1e-3, "{found:?}");
        assert!((found.latency_percent - 200.0).abs() < 1e-9);
        assert!(degradation(&[size(50, 1.0, 1.0)]).is_none(), "a single size says nothing");
    }

    #[test]
    fn a_source_is_quoted_only_for_its_own_size() {
        assert_eq!([source(&THROUGHPUT, 50), source(&THROUGHPUT, 100)], ["265.68", "-"]);
    }
}
