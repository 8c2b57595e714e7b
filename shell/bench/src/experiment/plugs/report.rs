//! The report of the runs of the plugs, beside the figures of the source.

use std::fmt::Write as _;

use serde::Serialize;

use super::super::args::{PlugMode, PlugScenario, PlugsArgs};
use super::super::result::{Head, cell, csv};
use super::super::stats::Average;
use super::{PLUGS, Run};
use crate::num;
use crate::report::{Plot, Table, html_page, number};

/// Lines of a curve in the text.
const LINES: usize = 16;

/// Runs of the same scenario with the same fixed number of nodes.
#[derive(Clone, Debug, Serialize)]
struct Completion {
    scenario: PlugScenario,
    nodes: u32,
    seconds: Average,
    /// Against one node.
    change_percent: f64,
    /// The same of the source.
    source_s: Option<f64>,
    source_percent: Option<f64>,
}

/// All runs.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PlugsReport {
    head: Head,
    houses: u32,
    interval_ms: f64,
    cpu_of_node: f64,
    period_s: u32,
    cooldown_s: u32,
    completion: Vec<Completion>,
    runs: Vec<Run>,
}

pub(super) const fn name(scenario: PlugScenario) -> &'static str {
    match scenario {
        PlugScenario::Publish => "publish",
        PlugScenario::Subscribe => "subscribe",
    }
}

pub(super) const fn mode(mode: PlugMode) -> &'static str {
    match mode {
        PlugMode::Fixed => "fixed",
        PlugMode::Single => "single",
        PlugMode::Elastic => "elastic",
    }
}

/// Completion time of the source in seconds (Pham, section V), and its change against one node in percent.
const fn source(scenario: PlugScenario, nodes: u32) -> Option<(f64, f64)> {
    match (scenario, nodes) {
        (PlugScenario::Publish, 1) => Some((360.0, 0.0)),
        (PlugScenario::Publish, 2) => Some((270.0, -25.0)),
        (PlugScenario::Subscribe, 1) => Some((390.0, 0.0)),
        (PlugScenario::Subscribe, 3) => Some((350.0, -10.0)),
        (PlugScenario::Publish | PlugScenario::Subscribe, _) => None,
    }
}

/// Number of the figure in the source.
const fn figure(scenario: PlugScenario, mode: PlugMode) -> u32 {
    match (scenario, mode) {
        (PlugScenario::Publish, PlugMode::Fixed) => 8,
        (PlugScenario::Publish, PlugMode::Single) => 9,
        (PlugScenario::Publish, PlugMode::Elastic) => 10,
        (PlugScenario::Subscribe, PlugMode::Fixed) => 11,
        (PlugScenario::Subscribe, PlugMode::Single) => 12,
        (PlugScenario::Subscribe, PlugMode::Elastic) => 13,
    }
}

/// Statement of the source on a figure; its curves have no numbers.
const fn said(figure: u32) -> &'static str {
    match figure {
        8 => "1 saturates, 2 resolve it",
        9 => "saturates at minute 1, drops begin",
        10 => "1 node added, later < 25 %, back to 1",
        11 => "2 do not help enough, 3 do",
        12 => "saturates at minute 2, drops begin",
        _ => "2 nodes added, 1 min apart, later than in 10",
    }
}

impl PlugsReport {
    pub(super) fn new(head: Head, args: &PlugsArgs, runs: Vec<Run>) -> Self {
        let mut completion: Vec<Completion> = Vec::new();
        for run in runs.iter().filter(|run| run.mode == PlugMode::Fixed) {
            if completion.iter().any(|known| (known.scenario, known.nodes) == (run.scenario, run.nodes)) {
                continue;
            }
            let alike = |nodes: u32| {
                let all = runs.iter().filter(move |other| other.mode == PlugMode::Fixed && other.nodes == nodes);
                Average::of(all.filter(|other| other.scenario == run.scenario).map(|other| other.completion_s))
            };
            let Some(seconds) = alike(run.nodes) else { continue };
            let one = alike(1).map_or(0.0, |one| one.mean);
            let source = source(run.scenario, run.nodes);
            completion.push(Completion {
                scenario: run.scenario,
                nodes: run.nodes,
                seconds,
                change_percent: num::ratio(seconds.mean - one, one) * 100.0,
                source_s: source.map(|source| source.0),
                source_percent: source.map(|source| source.1),
            });
        }
        Self {
            head,
            houses: args.houses,
            interval_ms: args.interval,
            cpu_of_node: args.cpu,
            period_s: args.period,
            cooldown_s: args.cooldown,
            completion,
            runs,
        }
    }

    /// For people.
    pub(crate) fn text(&self) -> String {
        let cpu = if self.cpu_of_node > 0.0 { number(self.cpu_of_node) } else { "all".to_owned() };
        let mut out = format!(
            "{}{} houses, {} plugs, interval {} ms (fixed: twice that); processors of a node: {cpu}; period {} s, cool-down {} s\n\n",
            self.head.text(),
            self.houses,
            self.houses * PLUGS,
            number(self.interval_ms),
            self.period_s,
            self.cooldown_s
        );
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{}\n{}", self.completion_table().text(), self.runs_table().text());
        for run in self.runs.iter().filter(|run| run.mode != PlugMode::Fixed) {
            let figure = figure(run.scenario, run.mode);
            let _ = writeln!(
                out,
                "figure {figure}, {} {}; source: {}\n{}",
                name(run.scenario),
                mode(run.mode),
                said(figure),
                curve(run).text()
            );
        }
        let warnings: std::collections::BTreeSet<&String> = self.runs.iter().flat_map(|run| &run.warnings).collect();
        for warning in warnings {
            let _ = writeln!(out, "warning: {warning}");
        }
        out
    }

    /// Figures 8 and 11: completion time on clusters of fixed size.
    fn completion_table(&self) -> Table {
        let mut table = Table::default();
        let names = ["figure", "scenario", "nodes", "runs", "completion, s", "change, %", "source, s", "source, %"];
        table.row(names.map(ToOwned::to_owned));
        for row in &self.completion {
            table.row([
                figure(row.scenario, PlugMode::Fixed).to_string(),
                name(row.scenario).to_owned(),
                row.nodes.to_string(),
                row.seconds.count.to_string(),
                row.seconds.text(),
                format!("{:+.1}", row.change_percent),
                row.source_s.map_or_else(|| "-".to_owned(), number),
                row.source_percent.map_or_else(|| "-".to_owned(), |percent| format!("{percent:+.0}")),
            ]);
        }
        table
    }

    fn runs_table(&self) -> Table {
        let mut table = Table::default();
        let names = ["figure", "scenario", "mode", "nodes", "offered, 1/s", "messages", "seconds", "> high after, s"];
        let more = ["changes", "one node after, s", "p50, ms", "p99, ms", "lost", "twice", "moved"];
        table.row(names.into_iter().chain(more).map(ToOwned::to_owned));
        for run in &self.runs {
            let changes: Vec<String> = run.changes.iter().map(|to| format!("{}:{}", number(to.at_s), to.to)).collect();
            let most = num::count(run.most());
            let nodes =
                if most > u64::from(run.nodes) { format!("{}-{most}", run.nodes) } else { run.nodes.to_string() };
            let after = |seconds: Option<f64>| seconds.map_or_else(|| "-".to_owned(), number);
            table.row([
                figure(run.scenario, run.mode).to_string(),
                name(run.scenario).to_owned(),
                mode(run.mode).to_owned(),
                nodes,
                number(run.offered_per_s),
                run.messages.to_string(),
                number(run.completion_s),
                after(run.saturated_s),
                if changes.is_empty() { "-".to_owned() } else { changes.join(" ") },
                after(run.shrunk_s),
                number(run.latency_p50_ms),
                number(run.latency_p99_ms),
                run.lost.to_string(),
                run.duplicates.to_string(),
                run.disconnects.to_string(),
            ]);
        }
        table
    }

    /// Every look at the group.
    pub(crate) fn csv(&self) -> String {
        let names = ["figure", "scenario", "mode", "nodes_at_start", "run", "at_s", "nodes", "vcpus", "cpu_percent"];
        let mut rows = Vec::new();
        for (number_of_run, run) in self.runs.iter().enumerate() {
            rows.extend(run.points.iter().map(|point| {
                [
                    figure(run.scenario, run.mode).to_string(),
                    name(run.scenario).to_owned(),
                    mode(run.mode).to_owned(),
                    run.nodes.to_string(),
                    (number_of_run + 1).to_string(),
                    format!("{:.1}", point.at_s),
                    point.nodes.to_string(),
                    format!("{:.2}", point.vcpus),
                    cell(point.cpu_percent.map(|cpu| (cpu * 10.0).round() / 10.0)),
                ]
            }));
        }
        csv(names, rows.into_iter())
    }

    pub(crate) fn html(&self) -> String {
        let plots: Vec<Plot> = (8..=13).flat_map(|figure| self.plots(figure)).collect();
        html_page("Smart plugs on a cluster that grows and shrinks", &self.head.machine, &self.text(), &plots, self)
    }

    /// The curves of a figure: one for each number of nodes, of its first run.
    fn plots(&self, wanted: u32) -> Vec<Plot> {
        const CPU: [&str; 6] = ["Figure 8", "Figure 9", "Figure 10", "Figure 11", "Figure 12", "Figure 13"];
        let title = num::index(u64::from(wanted.saturating_sub(8)));
        let Some(title) = CPU.get(title).copied() else { return Vec::new() };
        let mut cpu = Plot::new(title, "s", "CPU, %");
        let mut nodes = Plot::new(title, "s", "nodes");
        let mut known = Vec::new();
        for run in self.runs.iter().filter(|run| figure(run.scenario, run.mode) == wanted) {
            if known.contains(&run.nodes) {
                continue;
            }
            known.push(run.nodes);
            let line = ["1 node", "2 nodes", "3 nodes"].get(known.len() - 1).copied().unwrap_or("more");
            let line = if run.mode == PlugMode::Elastic { "elastic" } else { line };
            cpu = cpu.line(line, run.points.iter().filter_map(|point| Some((point.at_s, point.cpu_percent?))));
            nodes = nodes.line(line, run.points.iter().map(|point| (point.at_s, num::real(num::count(point.nodes)))));
        }
        vec![cpu, nodes]
    }
}

/// Nodes and processor time of a run at some moments, each the mean since the one before.
fn curve(run: &Run) -> Table {
    let mut table = Table::default();
    table.row(["until, s", "nodes", "vcpus", "CPU, %"].map(ToOwned::to_owned));
    let points: Vec<_> = run.points.iter().filter(|point| point.at_s >= 0.0).collect();
    for part in points.chunks(points.len().div_ceil(LINES).max(1)) {
        let Some(last) = part.last() else { continue };
        let used = Average::of(part.iter().filter_map(|point| point.cpu_percent));
        let cells = [format!("{:.0}", last.at_s), last.nodes.to_string(), number(last.vcpus)];
        table.row(cells.into_iter().chain([used.map_or_else(|| "-".to_owned(), |used| number(used.mean))]));
    }
    table
}
