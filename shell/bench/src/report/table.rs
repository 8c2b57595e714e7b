//! Figures as text for people.

use std::fmt::Write as _;

use super::figures::{Figures, Quantiles};

/// Columns of text, the first to the left, the others to the right.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Adds a row.
    pub(crate) fn row<T: Into<String>>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// The rows as lines of text.
    pub(crate) fn text(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                // Writing to a string cannot fail.
                let _ = if column == 0 { write!(line, "{cell:<width$}") } else { write!(line, "  {cell:>width$}") };
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// A number with separators of thousands and as many digits as are worth reading.
pub(crate) fn number(value: f64) -> String {
    let digits = if value.abs() >= 100.0 || value == 0.0 {
        0
    } else if value.abs() >= 10.0 {
        1
    } else {
        2
    };
    let text = format!("{value:.digits$}");
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut grouped = String::new();
    let length = whole.trim_start_matches('-').len();
    if whole.starts_with('-') {
        grouped.push('-');
    }
    for (place, digit) in whole.trim_start_matches('-').chars().enumerate() {
        if place > 0 && (length - place) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + rest
}

fn count(value: u64) -> String {
    number(crate::num::real(value))
}

fn optional(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), number)
}

fn quantiles(name: &str, all: &Quantiles, table: &mut Table) {
    if all.count == 0 {
        return;
    }
    let values = [all.min, all.mean, all.p50, all.p90, all.p99, all.p999, all.p9999, all.max];
    table.row(std::iter::once(name.to_owned()).chain(values.into_iter().map(number)));
}

/// The processor time and memory of the processes that were started for the run.
fn processes(figures: &Figures, text: &mut String) {
    let mut table = Table::default();
    table.row(["process", "CPU, %", "most", "memory, KiB"]);
    for process in &figures.processes {
        let Some(phase) = process.phases.iter().find(|phase| phase.name == "measure") else { continue };
        let [mean, most] = [phase.cpu_percent, phase.cpu_max_percent].map(number);
        table.row([process.name.clone(), mean, most, count(phase.rss_kib)]);
    }
    if !figures.processes.is_empty() {
        text.push('\n');
        text.push_str(&table.text());
    }
}

/// The figures of one run.
pub(crate) fn table(figures: &Figures) -> String {
    let mut text = format!(
        "{} on {}\n{} clients, MQTT {}, QoS {}, payload {}, {} s measured\n\n",
        figures.scenario,
        figures.brokers.join(", "),
        count(figures.clients),
        figures.protocol,
        figures.qos,
        figures.payload,
        number(figures.measure_s),
    );
    let mut main = Table::default();
    main.row(["connections per s".to_owned(), number(figures.connect_per_s)]);
    main.row(["ingress per s".to_owned(), number(figures.ingress_per_s)]);
    main.row(["egress per s".to_owned(), number(figures.egress_per_s)]);
    main.row(["expected deliveries".to_owned(), count(figures.expected)]);
    main.row(["lost".to_owned(), count(figures.lost)]);
    main.row(["duplicates".to_owned(), count(figures.duplicates)]);
    main.row(["out of order".to_owned(), count(figures.reordered)]);
    main.row(["longest gap, ms".to_owned(), number(figures.longest_gap_ms)]);
    main.row(["broker CPU, s".to_owned(), optional(figures.broker_cpu_s)]);
    main.row(["egress per broker CPU s".to_owned(), optional(figures.egress_per_cpu_s)]);
    main.row(["broker memory, KiB".to_owned(), figures.broker_rss_kib.map_or_else(|| "-".to_owned(), count)]);
    main.row(["load generator, ns per message".to_owned(), number(figures.driver_ns_per_message)]);
    main.row(["load generator, share of a core".to_owned(), number(figures.driver_busy)]);
    text.push_str(&main.text());
    let mut times = Table::default();
    times.row(["µs", "min", "mean", "p50", "p90", "p99", "p99.9", "p99.99", "max"]);
    quantiles("latency", &figures.latency_us, &mut times);
    quantiles("jitter", &figures.jitter_us, &mut times);
    quantiles("generator lag", &figures.driver_lag_us, &mut times);
    text.push('\n');
    text.push_str(&times.text());
    processes(figures, &mut text);
    if figures.phases.iter().any(|phase| phase.broker_cpu_s.is_some()) {
        let mut phases = Table::default();
        phases.row(["phase", "s", "broker CPU, s", "memory, KiB"]);
        for phase in &figures.phases {
            let memory = phase.broker_rss_kib.map_or_else(|| "-".to_owned(), count);
            phases.row([phase.name.to_owned(), number(phase.seconds), optional(phase.broker_cpu_s), memory]);
        }
        text.push('\n');
        text.push_str(&phases.text());
    }
    for fault in &figures.faults {
        let _ = writeln!(text, "\n{} s: {}", number(fault.at_s), fault.what);
    }
    for clock in &figures.clocks {
        let _ = writeln!(text, "\n{clock}");
    }
    for warning in &figures.warnings {
        let _ = writeln!(text, "\nwarning: {warning}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_grouped() {
        let texts = [0.0, 0.123, 5.0, 12.34, 999.6, 1_234_567.0, -1_234.0].map(number);
        assert_eq!(texts, ["0", "0.12", "5.00", "12.3", "1,000", "1,234,567", "-1,234"]);
    }

    #[test]
    fn columns_line_up() {
        let mut table = Table::default();
        table.row(["a", "b"]);
        table.row(["long", "1"]);
        table.row(["x"]);
        assert_eq!(table.text(), "a     b\nlong  1\nx\n");
    }
}
