//! The figures of a run under the names they have in JSON.

use serde::Serialize;

use crate::measure::{BIN, Distribution};
use crate::num;
use crate::run::{Outcome, ProcessSamples, Sample};

/// A look at a process may be so many seconds away from the end of a phase.
const PHASE_EDGE_S: f64 = 0.02;
/// Between two looks that are closer, ticks of 10 ms say nothing of the share of a core.
const SHORTEST_LOOK_S: f64 = 0.1;

/// A distribution in µs.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Quantiles {
    pub(crate) count: u64,
    pub(crate) min: f64,
    pub(crate) mean: f64,
    pub(crate) stddev: f64,
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p95: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
    pub(crate) p9999: f64,
    pub(crate) max: f64,
}

/// Nanoseconds as µs, to three digits.
fn micros(nanos: u64) -> f64 {
    num::real(nanos) / 1e3
}

impl From<&Distribution> for Quantiles {
    fn from(all: &Distribution) -> Self {
        let at = |part| micros(all.quantile(part));
        Self {
            count: all.count(),
            min: micros(all.min()),
            mean: rounded(all.mean() / 1e3),
            stddev: rounded(all.deviation() / 1e3),
            p50: at(0.5),
            p90: at(0.9),
            p95: at(0.95),
            p99: at(0.99),
            p999: at(0.999),
            p9999: at(0.9999),
            max: micros(all.max()),
        }
    }
}

/// To three digits behind the point.
fn rounded(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}

/// One phase of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct PhaseFigures {
    pub(crate) name: &'static str,
    /// Seconds since publishing began, negative before.
    pub(crate) at_s: f64,
    pub(crate) seconds: f64,
    pub(crate) broker_cpu_s: Option<f64>,
    pub(crate) broker_rss_kib: Option<u64>,
}

/// A process that was started for the run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ProcessFigures {
    /// `node-2`, or `broker-2` behind it.
    pub(crate) name: String,
    /// Those phases in which it lived.
    pub(crate) phases: Vec<ProcessPhase>,
    /// Seconds since publishing began, processor seconds, resident KiB.
    pub(crate) series: Vec<(f64, f64, u64)>,
}

/// A process in one phase.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ProcessPhase {
    pub(crate) name: &'static str,
    /// Mean share of a core in percent.
    pub(crate) cpu_percent: f64,
    /// Largest share of a core between two looks, in percent.
    pub(crate) cpu_max_percent: f64,
    /// Largest resident memory seen.
    pub(crate) rss_kib: u64,
}

impl ProcessFigures {
    fn new(process: &ProcessSamples, outcome: &Outcome) -> Self {
        let of = |sample: &Sample| {
            let (at_s, cpu_s) = (rounded(sample.at_s - outcome.origin_s), rounded(sample.usage.cpu_s));
            (at_s, cpu_s, sample.usage.rss_kib)
        };
        let phases = outcome.phases.iter().filter_map(|phase| {
            // The looks at both ends of the phase may be a little off.
            let within = |sample: &&Sample| {
                sample.at_s >= phase.at_s - PHASE_EDGE_S && sample.at_s <= phase.at_s + phase.seconds + PHASE_EDGE_S
            };
            let samples: Vec<&Sample> = process.samples.iter().filter(within).collect();
            let (first, last) = (samples.first()?, samples.last()?);
            let percent = |from: &Sample, to: &Sample| {
                num::ratio((to.usage.cpu_s - from.usage.cpu_s).max(0.0), to.at_s - from.at_s) * 100.0
            };
            let pairs = samples.windows(2).filter_map(|pair| match pair {
                [from, to] if to.at_s - from.at_s >= SHORTEST_LOOK_S => Some(percent(from, to)),
                _ => None,
            });
            Some(ProcessPhase {
                name: phase.name,
                cpu_percent: rounded(percent(first, last)),
                cpu_max_percent: rounded(pairs.fold(0.0, f64::max)),
                rss_kib: samples.iter().map(|sample| sample.usage.rss_kib).max()?,
            })
        });
        let phases = phases.collect();
        Self { name: process.name.clone(), phases, series: process.samples.iter().map(of).collect() }
    }
}

/// A fault that was done to a broker.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct FaultFigures {
    /// Seconds since publishing began.
    pub(crate) at_s: f64,
    pub(crate) what: String,
}

/// Figures over time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Series {
    /// Seconds per bin.
    pub(crate) bin_s: f64,
    pub(crate) ingress: Vec<u64>,
    pub(crate) egress: Vec<u64>,
    pub(crate) worst_latency_us: Vec<f64>,
    pub(crate) worst_jitter_us: Vec<f64>,
    /// Longest pause within a replay, in µs.
    pub(crate) worst_pause_us: Vec<f64>,
    /// Latencies with their counts, ascending.
    pub(crate) latency_us: Vec<(f64, u64)>,
    /// Seconds since publishing began, processor seconds, resident KiB.
    pub(crate) broker: Vec<(f64, f64, u64)>,
}

/// The figures of a run under the names they have in JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Figures {
    pub(crate) scenario: String,
    pub(crate) brokers: Vec<String>,
    pub(crate) machine: String,
    pub(crate) version: &'static str,
    pub(crate) seed: u64,
    pub(crate) protocol: &'static str,
    pub(crate) qos: u8,
    pub(crate) payload: String,
    pub(crate) clients: u64,
    pub(crate) connect_per_s: f64,
    pub(crate) measure_s: f64,
    pub(crate) completion_s: f64,
    pub(crate) sp_ratio: f64,
    pub(crate) nominal_per_s: Option<f64>,
    pub(crate) ingress_per_s: f64,
    pub(crate) egress_per_s: f64,
    pub(crate) sent: u64,
    pub(crate) expected: u64,
    pub(crate) lost: u64,
    pub(crate) loss_rate: f64,
    pub(crate) duplicates: u64,
    pub(crate) reordered: u64,
    pub(crate) latency_us: Quantiles,
    pub(crate) jitter_us: Quantiles,
    pub(crate) jitter_signed_us: (f64, f64),
    pub(crate) longest_gap_ms: f64,
    pub(crate) broker_cpu_s: Option<f64>,
    pub(crate) egress_per_cpu_s: Option<f64>,
    pub(crate) broker_rss_kib: Option<u64>,
    pub(crate) disconnects: u64,
    pub(crate) resent: u64,
    pub(crate) unacknowledged: u64,
    pub(crate) refused: u64,
    pub(crate) foreign: u64,
    pub(crate) stalls: u64,
    pub(crate) driver_cpu_s: f64,
    pub(crate) driver_busy: f64,
    pub(crate) driver_ns_per_message: f64,
    pub(crate) driver_lag_us: Quantiles,
    pub(crate) retransmitted: f64,
    pub(crate) phases: Vec<PhaseFigures>,
    /// Processes that were started for the run, each alone.
    pub(crate) processes: Vec<ProcessFigures>,
    pub(crate) faults: Vec<FaultFigures>,
    pub(crate) clocks: Vec<String>,
    pub(crate) warnings: Vec<String>,
    pub(crate) series: Series,
}

impl From<&Outcome> for Figures {
    fn from(outcome: &Outcome) -> Self {
        let tally = &outcome.tally;
        let scenario = &outcome.scenario;
        let per_s = |count: u64| rounded(num::ratio(num::real(count), outcome.measure_s));
        let measure = outcome.phase("measure");
        let broker_cpu_s = measure.and_then(|phase| phase.cpu_s);
        let broker_rss_kib = measure.and_then(|phase| phase.rss_kib);
        let moved = num::real(tally.sent + tally.received);
        let phases = outcome.phases.iter().map(|phase| PhaseFigures {
            name: phase.name,
            at_s: rounded(phase.at_s - outcome.origin_s),
            seconds: rounded(phase.seconds),
            broker_cpu_s: phase.cpu_s.map(rounded),
            broker_rss_kib: phase.rss_kib,
        });
        let faults = outcome.faults.iter().map(|fault| FaultFigures { at_s: fault.at_s, what: fault.what.clone() });
        Self {
            scenario: scenario.name.clone(),
            brokers: outcome.brokers.clone(),
            machine: crate::host::machine(),
            version: env!("CARGO_PKG_VERSION"),
            seed: scenario.seed,
            protocol: match scenario.protocol {
                crate::scenario::Protocol::V311 => "3.1.1",
                crate::scenario::Protocol::V5 => "5.0",
            },
            qos: scenario.qos,
            payload: scenario.payload.to_string(),
            clients: outcome.clients,
            connect_per_s: rounded(num::ratio(num::real(outcome.clients), outcome.connect_s)),
            measure_s: rounded(outcome.measure_s),
            completion_s: rounded(outcome.completion_s),
            sp_ratio: rounded(outcome.sp_ratio),
            nominal_per_s: outcome.nominal_rate.map(rounded),
            ingress_per_s: per_s(tally.sent),
            egress_per_s: per_s(tally.received),
            sent: tally.sent,
            expected: outcome.expected,
            lost: tally.lost,
            loss_rate: num::ratio(num::real(tally.lost), num::real(outcome.expected)),
            duplicates: tally.duplicates,
            reordered: tally.reordered,
            latency_us: Quantiles::from(&tally.latency),
            jitter_us: Quantiles::from(&tally.jitter),
            jitter_signed_us: (signed_micros(tally.jitter_low), signed_micros(tally.jitter_high)),
            longest_gap_ms: num::real(tally.longest_gap) / 1e6,
            broker_cpu_s: broker_cpu_s.map(rounded),
            egress_per_cpu_s: broker_cpu_s.filter(|cpu| *cpu > 0.0).map(|cpu| rounded(num::real(tally.received) / cpu)),
            broker_rss_kib,
            disconnects: tally.disconnects,
            resent: tally.resent,
            unacknowledged: tally.unacknowledged,
            refused: tally.refused,
            foreign: tally.foreign,
            stalls: tally.stalls,
            driver_cpu_s: rounded(num::seconds(tally.driver_cpu)),
            driver_busy: rounded(tally.driver_busy),
            driver_ns_per_message: rounded(num::ratio(num::real(tally.driver_cpu), moved)),
            driver_lag_us: Quantiles::from(&tally.lag),
            retransmitted: outcome.retransmitted,
            phases: phases.collect(),
            processes: outcome.processes.iter().map(|process| ProcessFigures::new(process, outcome)).collect(),
            faults: faults.collect(),
            clocks: outcome.clocks.clone(),
            warnings: warnings(outcome),
            series: series(outcome),
        }
    }
}

fn signed_micros(nanos: i64) -> f64 {
    let size = micros(nanos.unsigned_abs());
    if nanos < 0 { -size } else { size }
}

fn series(outcome: &Outcome) -> Series {
    let tally = &outcome.tally;
    let micros = |series: &[u64]| series.iter().map(|nanos| micros(*nanos)).collect();
    let broker = outcome
        .samples
        .iter()
        .map(|sample| (rounded(sample.at_s - outcome.origin_s), rounded(sample.usage.cpu_s), sample.usage.rss_kib));
    Series {
        bin_s: num::seconds(BIN),
        ingress: tally.ingress.clone(),
        egress: tally.egress.clone(),
        worst_latency_us: micros(&tally.worst_latency),
        worst_jitter_us: micros(&tally.worst_jitter),
        worst_pause_us: micros(&tally.worst_pause),
        latency_us: tally.latency.values().map(|(nanos, count)| (num::real(nanos) / 1e3, count)).collect(),
        broker: broker.collect(),
    }
}

/// Reasons to doubt the figures.
fn warnings(outcome: &Outcome) -> Vec<String> {
    let mut warnings = outcome.warnings.clone();
    warnings.extend(crate::limit::tester_limits(outcome));
    if outcome.tally.foreign > 0 {
        warnings.push(format!("{} messages came that are not of this run", outcome.tally.foreign));
    }
    if outcome.tally.stalls > 0 {
        warnings
            .push("messages that did not come back within two seconds were written off in the closed loop".to_owned());
    }
    if outcome.tally.disconnects > 0 && outcome.faults.is_empty() {
        warnings.push(format!("{} connections were lost", outcome.tally.disconnects));
    }
    warnings
}
