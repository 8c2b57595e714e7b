//! The limit under the placements of the interworking experiments (BM-08).

use std::fmt::Write as _;

use serde::Serialize;

use super::args::PatternArgs;
use super::result::{Head, csv, write_files};
use super::target::Target;
use crate::error::BenchError;
use crate::limit::{LimitReport, limit};
use crate::report::{Table, html_page, number};
use crate::scenario::{Interworking, interworking};

/// Result of the source (Banno, section 5.5): patterns with five brokers against one.
const SOURCE: &str =
    "source: five brokers carried 2 to 4 times as much as one, at best 4.3 times (d); no loss at the limit";

/// The limit under one pattern.
#[derive(Clone, Debug, Serialize)]
struct PatternResult {
    pattern: &'static str,
    head: Head,
    /// Deliveries per second at the limit.
    egress_per_s: Option<f64>,
    /// The same in relation to pattern a, if it was measured too.
    gain: Option<f64>,
    limit: LimitReport,
}

/// Limits under several patterns.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PatternReport {
    patterns: Vec<PatternResult>,
}

/// Starts the brokers of each pattern and searches their limit.
pub(crate) fn pattern(args: &PatternArgs, note: &mut dyn FnMut(&str)) -> Result<PatternReport, BenchError> {
    if !(args.start_ms.is_finite() && args.start_ms > 0.0) {
        return Err(BenchError::Usage("the first interval has to be above 0".to_owned()));
    }
    let mut patterns = Vec::new();
    for pattern in &args.patterns {
        patterns.push(search(*pattern, args, note)?);
    }
    let first = patterns.iter().find(|result| result.pattern == Interworking::A.name());
    if let Some(single) = first.and_then(|result| result.egress_per_s).filter(|single| *single > 0.0) {
        for result in &mut patterns {
            result.gain = result.egress_per_s.map(|egress| egress / single);
        }
    }
    let report = PatternReport { patterns };
    write_files(&args.report, || report.csv(), || report.html())?;
    Ok(report)
}

fn search(pattern: Interworking, args: &PatternArgs, note: &mut dyn FnMut(&str)) -> Result<PatternResult, BenchError> {
    let options = args.target.options(Vec::new());
    let mut cluster = args.cluster.clone();
    if pattern == Interworking::A {
        cluster.nodes = None;
    }
    let target = Target::new(&cluster, &options, (pattern.nodes(), args.course.seed))?;
    let mut scenario = interworking(pattern, target.nodes(&options));
    let mut load = args.course.load();
    (load.qos, load.size) = (args.qos, args.size.clone());
    load.change(&mut scenario)?;
    scenario.check()?;
    let up = target.up(&options)?;
    note(&format!("{}: {} brokers", pattern.name(), up.nodes.len()));
    let head = Head::new(pattern.name(), &target, up.nodes.clone(), scenario.seed);
    let limit = limit(&scenario, &up.options, (args.start_ms, args.repeat), note)?;
    let egress_per_s = limit.figures.as_ref().map(|figures| figures.egress_per_s);
    Ok(PatternResult { pattern: pattern.name(), head, egress_per_s, gain: None, limit })
}

impl PatternReport {
    /// For people.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for result in &self.patterns {
            text.push_str(&result.head.text());
            text.push('\n');
            text.push_str(&result.limit.text());
            text.push('\n');
        }
        let mut table = Table::default();
        table.row([
            "",
            "interval, ms",
            "ingress per s",
            "egress per s",
            "latency, ms",
            "p99, ms",
            "lost",
            "gain over a",
        ]);
        for result in &self.patterns {
            let dash = || "-".to_owned();
            let figures = result.limit.figures.as_ref();
            let of = |value: Option<f64>| value.map_or_else(dash, number);
            table.row([
                result.pattern.to_owned(),
                of(result.limit.interval_ms),
                of(figures.map(|figures| figures.ingress_per_s)),
                of(result.egress_per_s),
                of(figures.map(|figures| figures.latency_us.mean / 1e3)),
                of(figures.map(|figures| figures.latency_us.p99 / 1e3)),
                figures.map_or_else(dash, |figures| figures.lost.to_string()),
                of(result.gain),
            ]);
        }
        text.push_str(&table.text());
        // Writing to a string cannot fail.
        let _ = writeln!(text, "\n{SOURCE}");
        text
    }

    fn csv(&self) -> String {
        let trials = self.patterns.iter().flat_map(|result| {
            result.limit.trials.iter().map(|trial| {
                [
                    result.pattern.to_owned(),
                    result.head.brokers.len().to_string(),
                    trial.interval_ms.to_string(),
                    trial.verdict.to_owned(),
                    trial.share.to_string(),
                    trial.ingress_per_s.to_string(),
                    trial.egress_per_s.to_string(),
                ]
            })
        });
        csv(["pattern", "brokers", "interval_ms", "verdict", "share", "ingress_per_s", "egress_per_s"], trials)
    }

    fn html(&self) -> String {
        html_page("Patterns of placement", "", &self.text(), &[], self)
    }
}
