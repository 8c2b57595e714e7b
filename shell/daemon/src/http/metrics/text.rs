//! The Prometheus text format, as far as counters, gauges and classic histograms go.

use std::fmt::Write as _;

use sedge_base::Durations;

/// Names of Sedge's own begin so.
const PREFIX: &str = "sedge_";
/// Names that every process gives alike begin so.
const PROCESS: &str = "process_";

fn prefix(name: &str) -> &'static str {
    if name.starts_with(PROCESS) { "" } else { PREFIX }
}

/// What becomes of a number over time.
#[derive(Clone, Copy, Debug)]
pub(in crate::http) enum Kind {
    /// It grows until the process ends.
    Counter,
    /// It goes up and down.
    Gauge,
}

/// A page of metrics.
#[derive(Debug, Default)]
pub(in crate::http) struct Exposition(String);

/// One name, with its lines.
#[derive(Debug)]
pub(in crate::http) struct Family<'a> {
    out: &'a mut String,
    name: &'a str,
}

impl Exposition {
    /// Begins a metric with labels.
    pub(in crate::http) fn family<'a>(&'a mut self, name: &'a str, kind: Kind, help: &str) -> Family<'a> {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        self.begin(name, kind, help)
    }

    /// Begins a histogram.
    pub(in crate::http) fn histogram<'a>(&'a mut self, name: &'a str, help: &str) -> Family<'a> {
        self.begin(name, "histogram", help)
    }

    fn begin<'a>(&'a mut self, name: &'a str, kind: &str, help: &str) -> Family<'a> {
        let prefix = prefix(name);
        self.add(format_args!("# HELP {prefix}{name} {help}\n# TYPE {prefix}{name} {kind}\n"));
        Family { out: &mut self.0, name }
    }

    /// A metric without labels.
    pub(in crate::http) fn single(&mut self, name: &str, kind: Kind, help: &str, value: u64) {
        self.family(name, kind, help);
        self.add(format_args!("{}{name} {value}\n", prefix(name)));
    }

    /// A metric without labels that is no whole number.
    pub(in crate::http) fn float(&mut self, name: &str, kind: Kind, help: &str, value: f64) {
        self.family(name, kind, help);
        self.add(format_args!("{}{name} {value}\n", prefix(name)));
    }

    pub(in crate::http) fn finish(self) -> String {
        self.0
    }

    fn add(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.0.write_fmt(text);
    }
}

impl Family<'_> {
    /// A line.
    pub(in crate::http) fn labelled(&mut self, labels: &[(&str, &str)], value: u64) {
        let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escape(value))).collect();
        // Writing to a string cannot fail.
        let _ = writeln!(self.out, "{}{}{{{}}} {value}", prefix(self.name), self.name, labels.join(","));
    }
}

impl Family<'_> {
    /// The lines of a histogram.
    pub(in crate::http) fn durations(&mut self, labels: &[(&str, &str)], durations: &Durations) {
        let (name, labels) = (self.name, labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escape(value))));
        let labels: Vec<String> = labels.collect();
        let all = |more: Option<String>| {
            let all: Vec<String> = labels.iter().cloned().chain(more).collect();
            if all.is_empty() { String::new() } else { format!("{{{}}}", all.join(",")) }
        };
        // Writing to a string cannot fail.
        for (bound, count) in durations.up_to() {
            let bound = bound.map_or_else(|| "+Inf".to_owned(), |bound| bound.as_secs_f64().to_string());
            let _ = writeln!(self.out, "{PREFIX}{name}_bucket{} {count}", all(Some(format!("le=\"{bound}\""))));
        }
        let _ = writeln!(self.out, "{PREFIX}{name}_sum{} {}", all(None), durations.sum().as_secs_f64());
        let _ = writeln!(self.out, "{PREFIX}{name}_count{} {}", all(None), durations.count());
    }
}

fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_is_that_of_prometheus() {
        let mut out = Exposition::default();
        out.single("sessions", Kind::Gauge, "Sessions.", 3);
        out.float("process_cpu_seconds_total", Kind::Counter, "Time.", 1.5);
        out.family("links_total", Kind::Counter, "Links.").labelled(&[("peer", "a\"\\\n"), ("x", "y")], 7);
        let want = "# HELP sedge_sessions Sessions.\n# TYPE sedge_sessions gauge\nsedge_sessions 3\n\
                    # HELP process_cpu_seconds_total Time.\n# TYPE process_cpu_seconds_total counter\n\
                    process_cpu_seconds_total 1.5\n\
                    # HELP sedge_links_total Links.\n# TYPE sedge_links_total counter\n\
                    sedge_links_total{peer=\"a\\\"\\\\\\n\",x=\"y\"} 7\n";
        assert_eq!(out.finish(), want);
    }

    #[test]
    fn a_histogram_has_buckets_a_sum_and_a_count() {
        let (mut out, mut durations) = (Exposition::default(), Durations::default());
        for micros in [0, 1_500_000] {
            durations.note(std::time::Duration::from_micros(micros));
        }
        out.histogram("wait_seconds", "Waits.").durations(&[("from", "node")], &durations);
        out.histogram("other_seconds", "Others.").durations(&[], &Durations::default());
        let text = out.finish();
        for line in [
            "# TYPE sedge_wait_seconds histogram",
            "sedge_wait_seconds_bucket{from=\"node\",le=\"0.0001\"} 1",
            "sedge_wait_seconds_bucket{from=\"node\",le=\"1\"} 1",
            "sedge_wait_seconds_bucket{from=\"node\",le=\"2.5\"} 2",
            "sedge_wait_seconds_bucket{from=\"node\",le=\"+Inf\"} 2",
            "sedge_wait_seconds_sum{from=\"node\"} 1.5",
            "sedge_wait_seconds_count{from=\"node\"} 2",
            "sedge_other_seconds_bucket{le=\"60\"} 0",
            "sedge_other_seconds_sum 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }
}
