//! The Prometheus text format, as far as counters, gauges and classic histograms go.

use std::fmt::Write as _;

use super::exposition::Exposition;
use super::model::{LabelPair, Metric, MetricFamily, MetricType};

impl Exposition {
    /// The page as text.
    pub(super) fn text(&self) -> String {
        let mut out = String::new();
        for family in &self.0 {
            // Writing to a string cannot fail.
            let _ = write(&mut out, family);
        }
        out
    }
}

fn write(out: &mut String, family: &MetricFamily) -> std::fmt::Result {
    let (name, help) = (&family.name, &family.help);
    let kind = match family.kind() {
        MetricType::Counter => "counter",
        MetricType::Gauge => "gauge",
        MetricType::Histogram => "histogram",
    };
    writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}")?;
    for metric in &family.metric {
        let Metric { label, gauge, counter, histogram } = metric;
        if let Some(number) = gauge.as_ref().or(counter.as_ref()) {
            writeln!(out, "{name}{} {}", labels(label, None), number.value)?;
        }
        let Some(histogram) = histogram else { continue };
        for bucket in &histogram.bucket {
            let bound = bucket.upper_bound;
            let bound = if bound.is_finite() { bound.to_string() } else { "+Inf".to_owned() };
            writeln!(out, "{name}_bucket{} {}", labels(label, Some(&bound)), bucket.cumulative_count)?;
        }
        writeln!(out, "{name}_sum{} {}", labels(label, None), histogram.sample_sum)?;
        writeln!(out, "{name}_count{} {}", labels(label, None), histogram.sample_count)?;
    }
    Ok(())
}

fn labels(labels: &[LabelPair], bound: Option<&str>) -> String {
    let labels = labels.iter().map(|label| format!("{}=\"{}\"", label.name, escape(&label.value)));
    let all: Vec<String> = labels.chain(bound.map(|bound| format!("le=\"{bound}\""))).collect();
    if all.is_empty() { String::new() } else { format!("{{{}}}", all.join(",")) }
}

fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use sedge_base::Durations;

    use super::super::exposition::Kind;
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
        assert_eq!(out.text(), want);
    }

    #[test]
    fn a_histogram_has_buckets_a_sum_and_a_count() {
        let (mut out, mut durations) = (Exposition::default(), Durations::default());
        for micros in [0, 1_500_000] {
            durations.note(std::time::Duration::from_micros(micros));
        }
        out.histogram("wait_seconds", "Waits.").durations(&[("from", "node")], &durations);
        out.histogram("other_seconds", "Others.").durations(&[], &Durations::default());
        let text = out.text();
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
