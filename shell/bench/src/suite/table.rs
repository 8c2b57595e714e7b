//! The table of a suite: loads down, brokers across.

use std::fmt::Write as _;

use serde::Serialize;

use super::measured::Measured;
use super::row::Measure;
use crate::compare::Spread;
use crate::report::{Table, escape, number};

/// A broker of the suite.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Broker {
    pub(super) name: String,
    pub(super) version: Option<String>,
}

/// One broker under one load.
#[derive(Clone, Debug, Serialize)]
struct Cell {
    broker: String,
    value: Option<Spread>,
    /// Faults of the measurements, a letter each; see [`FLAGS`].
    flags: String,
}

/// One figure under one load.
#[derive(Clone, Debug, Serialize)]
struct Line {
    row: String,
    figure: &'static str,
    cells: Vec<Cell>,
}

/// All measurements of one load.
#[derive(Clone, Debug, Serialize)]
struct Runs {
    row: String,
    broker: String,
    rounds: Vec<Measured>,
}

/// A suite and its measurements.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Suite {
    pub(super) machine: String,
    version: &'static str,
    rounds: usize,
    pub(super) brokers: Vec<Broker>,
    lines: Vec<Line>,
    runs: Vec<Runs>,
}

type Getter = fn(&Measured) -> Option<f64>;
type Flag = fn(&Measured) -> bool;

const WORK: (&str, Getter) = ("k/CPU-s", |run| run.egress_per_cpu_s.map(|per_s| per_s / 1e3));

/// Figures of a load.
const fn figures(measure: Measure) -> &'static [(&'static str, Getter)] {
    match measure {
        Measure::Work => &[WORK],
        Measure::Latency => &[WORK, ("p50, µs", |run| run.latency_p50_us), ("p99, µs", |run| run.latency_p99_us)],
        Measure::Limit => &[WORK, ("k/s", |run| Some(run.egress_per_s / 1e3))],
        Measure::Memory => &[("KiB/conn.", |run| run.kib_per_connection)],
    }
}

/// Meaning of each letter behind a figure.
const FLAGS: &[(char, &str, Flag)] = &[
    ('L', "messages were lost", |run| run.lost > 0),
    ('D', "messages came more than once", |run| run.duplicates > 0),
    ('R', "messages came out of order", |run| run.reordered > 0),
    ('C', "connections were lost", |run| run.disconnects > 0),
    ('W', "a warning, see below", |run| !run.warnings.is_empty()),
    ('E', "some runs failed, see below", |run| run.error.is_some()),
];

impl Suite {
    /// Nothing measured.
    pub(super) const fn new(machine: String, rounds: usize, brokers: Vec<Broker>) -> Self {
        let version = env!("CARGO_PKG_VERSION");
        Self { machine, version, rounds, brokers, lines: Vec::new(), runs: Vec::new() }
    }

    /// Adds a load with its measurements, by broker.
    pub(super) fn add(&mut self, row: &str, measure: Measure, all: Vec<Vec<Measured>>) {
        for (figure, get) in figures(measure) {
            let cells = self.brokers.iter().zip(&all).map(|(broker, runs)| {
                let good = runs.iter().filter(|run| run.error.is_none());
                let values: Vec<f64> = good.filter_map(get).collect();
                let letters = FLAGS.iter().filter(|(_, _, is)| runs.iter().any(is)).map(|(letter, ..)| *letter);
                Cell { broker: broker.name.clone(), value: Spread::of(&values), flags: letters.collect() }
            });
            self.lines.push(Line { row: row.to_owned(), figure, cells: cells.collect() });
        }
        for (broker, rounds) in self.brokers.iter().zip(all) {
            self.runs.push(Runs { row: row.to_owned(), broker: broker.name.clone(), rounds });
        }
    }

    /// Meaning of each letter that was used.
    fn legend(&self) -> Vec<String> {
        let used =
            |letter: char| self.lines.iter().flat_map(|line| &line.cells).any(|cell| cell.flags.contains(letter));
        FLAGS.iter().filter(|(letter, ..)| used(*letter)).map(|(letter, text, _)| format!("{letter}: {text}")).collect()
    }

    /// Subject and means of the measurements, as lines.
    fn head(&self) -> Vec<String> {
        let mut lines = vec![format!("{}; sedge bench {}", self.machine, self.version)];
        lines.extend(
            self.brokers.iter().filter_map(|broker| Some(format!("{}: {}", broker.name, broker.version.as_ref()?))),
        );
        lines.push(format!(
            "medians of {} rounds; k/CPU-s: thousands of deliveries per second of the broker's processor time",
            self.rounds
        ));
        lines
    }

    /// Losses, warnings and errors in words, each once with how often it was.
    fn remarks(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for of in &self.runs {
            let sum = |get: fn(&Measured) -> u64| of.rounds.iter().map(get).sum::<u64>();
            let counts = [
                (sum(|run| run.lost), "lost"),
                (sum(|run| run.duplicates), "duplicates"),
                (sum(|run| run.reordered), "out of order"),
                (sum(|run| run.disconnects), "connections lost"),
            ];
            let told: Vec<String> =
                counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
            if !told.is_empty() {
                let expected = sum(|run| run.expected);
                lines.push(format!("{}, {}: {} of {expected} expected", of.row, of.broker, told.join(", ")));
            }
            let mut texts: Vec<&String> =
                of.rounds.iter().flat_map(|run| run.warnings.iter().chain(&run.error)).collect();
            texts.sort();
            texts.dedup();
            lines.extend(texts.into_iter().map(|text| format!("{}, {}: {text}", of.row, of.broker)));
        }
        lines
    }

    /// Rows of cells as text, the head first.
    fn cells(&self) -> Vec<Vec<String>> {
        let names = self.brokers.iter().map(|broker| broker.name.clone());
        let mut rows = vec![["load".to_owned(), String::new()].into_iter().chain(names).collect::<Vec<_>>()];
        let mut last = "";
        for line in &self.lines {
            let name = if line.row == last { "" } else { &line.row };
            last = &line.row;
            let head = [name.to_owned(), line.figure.to_owned()];
            rows.push(head.into_iter().chain(line.cells.iter().map(Cell::text)).collect());
        }
        rows
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let mut table = Table::default();
        for row in self.cells() {
            table.row(row);
        }
        let mut text = table.text() + "\n";
        for line in self.head().into_iter().chain(self.legend()).chain(self.remarks()) {
            text.push_str(&line);
            text.push('\n');
        }
        text
    }

    /// For documents.
    pub(super) fn markdown(&self) -> String {
        let mut text = String::new();
        let safe = |cell: &str| cell.replace('|', "\\|");
        for (place, row) in self.cells().iter().enumerate() {
            let cells: Vec<String> = row.iter().map(|cell| safe(cell)).collect();
            // Writing to a string cannot fail.
            let _ = writeln!(text, "| {} |", cells.join(" | "));
            if place == 0 {
                let _ = writeln!(text, "|---|---|{}", "---:|".repeat(self.brokers.len()));
            }
        }
        for line in self.head().into_iter().chain(self.legend()).chain(self.remarks()) {
            let _ = write!(text, "\n* {}", safe(&line).replace('\n', " "));
        }
        text.push('\n');
        text
    }

    /// For other programs: a line per figure and broker.
    pub(super) fn csv(&self) -> String {
        let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
        let mut text = String::from("load,figure,broker,version,median,low,high,runs,flags\n");
        for line in &self.lines {
            for (cell, broker) in line.cells.iter().zip(&self.brokers) {
                let value = cell.value.map_or_else(
                    || ",,,0".to_owned(),
                    |value| format!("{},{},{},{}", value.median, value.low, value.high, value.count),
                );
                let version = quoted(broker.version.as_deref().unwrap_or_default());
                // Writing to a string cannot fail.
                let _ = writeln!(
                    text,
                    "{},{},{},{version},{value},{}",
                    quoted(&line.row),
                    quoted(line.figure),
                    quoted(&cell.broker),
                    cell.flags
                );
            }
        }
        text
    }

    /// A page that needs nothing else; the range of a figure is shown when it is pointed at.
    pub(super) fn html(&self) -> String {
        const STYLE: &str = ":root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;margin:2em}\
            div{overflow-x:auto}table{border-collapse:collapse}th,td{padding:.2em .7em;text-align:right;white-space:nowrap}\
            th:first-child,td:first-child,td:nth-child(2){text-align:left}tr{border-bottom:1px solid #8884}";
        let mut page = format!(
            "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width\">\n<title>Brokers compared</title>\n\
             <style>{STYLE}</style>\n<h1>Brokers compared</h1>\n<div><table>\n"
        );
        let ranges = self.lines.iter().map(|line| Some(&line.cells));
        for (row, cells) in self.cells().iter().zip(std::iter::once(None).chain(ranges)) {
            page.push_str("<tr>");
            for (place, text) in row.iter().enumerate() {
                let cell = place.checked_sub(2).and_then(|broker| cells?.get(broker)?.value);
                let range = cell.map_or_else(String::new, |value| {
                    format!(" title=\"{} to {} in {} runs\"", number(value.low), number(value.high), value.count)
                });
                let tag = if cells.is_none() { "th" } else { "td" };
                // Writing to a string cannot fail.
                let _ = write!(page, "<{tag}{range}>{}</{tag}>", escape(text));
            }
            page.push_str("</tr>\n");
        }
        page.push_str("</table></div>\n<ul>\n");
        for line in self.head().into_iter().chain(self.legend()).chain(self.remarks()) {
            let _ = writeln!(page, "<li>{}</li>", escape(&line));
        }
        // The measurements themselves, for whoever has only the page. No sign in them may end the element early.
        let data = serde_json::to_string(self).unwrap_or_default().replace('<', "\\u003c");
        let _ = writeln!(page, "</ul>\n<script type=\"application/json\" id=\"suite\">{data}</script>\n</html>");
        page
    }
}

impl Cell {
    fn text(&self) -> String {
        let value = self.value.map_or_else(|| "-".to_owned(), |value| number(value.median));
        if self.flags.is_empty() { value } else { format!("{value} {}", self.flags) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suite() -> Suite {
        let broker =
            |name: &str, version: Option<&str>| Broker { name: name.to_owned(), version: version.map(Into::into) };
        let mut suite = Suite::new("a machine".to_owned(), 3, vec![broker("a|b", Some("<1>")), broker("c", None)]);
        let good = |per_cpu: f64, lost: u64| Measured {
            egress_per_cpu_s: Some(per_cpu),
            expected: 1_000,
            lost,
            latency_p50_us: Some(80.0),
            latency_p99_us: Some(900.0),
            ..Measured::default()
        };
        let failed = Measured { error: Some("did not start".to_owned()), ..Measured::default() };
        suite.add("one", Measure::Work, vec![vec![good(1_000.0, 0), good(3_000.0, 5), good(2e3, 0)], vec![failed; 3]]);
        suite.add("two", Measure::Latency, vec![vec![good(5_000.0, 0)], vec![good(7e6, 0)]]);
        suite
    }

    /// BM-07.
    #[test]
    fn the_table_has_medians_flags_versions_and_errors() {
        let text = suite().text();
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines.first(), Some(&vec!["load", "a|b", "c"]));
        assert_eq!(lines.get(1), Some(&vec!["one", "k/CPU-s", "2.00", "L", "-", "E"]));
        assert_eq!(lines.get(2), Some(&vec!["two", "k/CPU-s", "5.00", "7,000"]));
        assert_eq!(lines.get(4), Some(&vec!["p99,", "µs", "900", "900"]));
        for part in ["a machine", "a|b: <1>", "L: messages", "5 lost of 3000 expected", "one, c: did not start"] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(!text.contains("D: "), "{text}");
    }

    #[test]
    fn other_forms_hold_the_same_and_escape_what_is_theirs() {
        let suite = suite();
        let markdown = suite.markdown();
        assert!(
            markdown.starts_with("| load |  | a\\|b | c |\n|---|---|---:|---:|\n| one | k/CPU-s | 2.00 L | - E |\n")
        );
        let csv = suite.csv();
        assert!(csv.contains("\"one\",\"k/CPU-s\",\"a|b\",\"<1>\",2,1,3,3,L\n"), "{csv}");
        assert!(csv.contains("\"one\",\"k/CPU-s\",\"c\",\"\",,,,0,E\n"), "{csv}");
        assert_eq!(csv.lines().count(), 1 + 2 * 4);
        let page = suite.html();
        assert!(page.contains("title=\"1.00 to 3.00 in 3 runs\">2.00 L<") && !page.contains("<1>"), "{page}");
        let data = page.split_once("id=\"suite\">").and_then(|(_, rest)| rest.split_once("</script>"));
        let data: serde_json::Value = serde_json::from_str(data.expect("data").0).expect("JSON");
        assert_eq!(data.pointer("/runs/0/rounds/1/lost").and_then(serde_json::Value::as_u64), Some(5));
    }
}
