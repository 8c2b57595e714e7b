//! Metering: the nodes' figures of themselves, as samples (EL-10).

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use sedge_scale::site::Metric;

use crate::network::Nodes;

/// How long a node may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Numbers of a node that only grow, and when they were read.
#[derive(Clone, Copy, Debug)]
struct Before {
    at: Instant,
    cpu_seconds: f64,
    publications: f64,
    drops: f64,
}

/// A node to be measured.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) node: String,
    pub(crate) http: String,
    /// Processors that it may use.
    pub(crate) cpus: f64,
}

/// A sample of a node.
pub(crate) type Sample = (String, Metric, f64);

/// Reads the metrics of nodes and makes rates of counters.
#[derive(Debug)]
pub(crate) struct Meter {
    nodes: Nodes,
    before: BTreeMap<String, Before>,
}

impl Meter {
    pub(crate) fn new(token: &str) -> Self {
        Self { nodes: Nodes::new(token, PATIENCE), before: BTreeMap::new() }
    }

    /// Asks all nodes at the same time. A node that does not answer gives no sample.
    pub(crate) fn measure(&mut self, nodes: &[Measured]) -> Vec<Sample> {
        self.before.retain(|name, _| nodes.iter().any(|node| node.node == *name));
        let asked = &self.nodes;
        let answers: Vec<(&Measured, Result<String, String>)> = thread::scope(|scope| {
            let mut waiting = Vec::new();
            for node in nodes {
                waiting.push((node, scope.spawn(move || asked.text(&node.http, "/metrics"))));
            }
            let gone = |_| Err("the thread that asked has ended".to_owned());
            waiting.into_iter().map(|(node, answer)| (node, answer.join().unwrap_or_else(gone))).collect()
        });
        let mut samples = Vec::new();
        for (node, answer) in answers {
            match answer {
                Ok(text) => self.understand(node, &parse(&text), &mut samples),
                Err(why) => tracing::debug!(node = node.node, why, "a node was not measured"),
            }
        }
        samples
    }

    fn understand(&mut self, node: &Measured, values: &BTreeMap<&str, f64>, samples: &mut Vec<Sample>) {
        let get = |name: &str| values.get(name).copied();
        let mut give =
            |metric, value: Option<f64>| samples.extend(value.map(|value| (node.node.clone(), metric, value)));
        give(Metric::Connections, get("sedge_connections"));
        give(Metric::Sessions, get("sedge_sessions"));
        give(Metric::QueuedMessages, get("sedge_queued_messages"));
        give(Metric::QueueAge, get("sedge_queue_age_seconds"));
        give(Metric::LoopLag, get("sedge_loop_lag_seconds").map(|seconds| seconds * 1_000.0));
        give(Metric::Vcpus, Some(node.cpus));
        let missing =
            get("sedge_copies_wanted").zip(get("sedge_copies")).map(|(wanted, copies)| (wanted - copies).max(0.0));
        give(Metric::CopiesMissing, missing);
        let now = Before {
            at: Instant::now(),
            cpu_seconds: get("process_cpu_seconds_total")
                .or_else(|| get("sedge_process_cpu_seconds_total"))
                .unwrap_or(f64::NAN),
            publications: get("sedge_publishes_received_total").unwrap_or(f64::NAN),
            drops: get("sedge_dropped_messages_total").unwrap_or(f64::NAN),
        };
        if let Some(before) = self.before.insert(node.node.clone(), now) {
            let seconds = now.at.duration_since(before.at).as_secs_f64().max(0.001);
            // A node that was started again counts from nothing.
            let rate = |later: f64, earlier: f64| Some((later - earlier) / seconds).filter(|rate| *rate >= 0.0);
            let share = rate(now.cpu_seconds, before.cpu_seconds).map(|used| used / node.cpus * 100.0);
            give(Metric::CpuUtil, share);
            give(Metric::MessagesPerSecond, rate(now.publications, before.publications));
            give(Metric::Drops, rate(now.drops, before.drops));
        }
    }
}

/// The sum of each metric over its labels, from Prometheus' text format.
fn parse(text: &str) -> BTreeMap<&str, f64> {
    let mut found = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some((series, value)) = line.rsplit_once(' ') else { continue };
        let name = series.split_once('{').map_or(series, |(name, _)| name);
        if let Ok(value) = value.parse::<f64>() {
            *found.entry(name).or_insert(0.0) += value;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// EL-10
    #[test]
    fn metrics_become_samples_and_counters_become_rates() {
        let mut meter = Meter::new("");
        let node = Measured { node: "n".to_owned(), http: String::new(), cpus: 0.5 };
        let text = "# HELP sedge_connections x\nsedge_connections 7\nsedge_publishes_received_total{qos=\"0\"} 2\n\
                    sedge_publishes_received_total{qos=\"1\"} 3\nprocess_cpu_seconds_total 1.5\nsedge_copies 1\nsedge_copies_wanted 2\n";
        let mut samples = Vec::new();
        meter.understand(&node, &parse(text), &mut samples);
        let value =
            |samples: &[Sample], metric| samples.iter().find(|sample| sample.1 == metric).map(|sample| sample.2);
        assert_eq!(
            (value(&samples, Metric::Connections), value(&samples, Metric::CopiesMissing)),
            (Some(7.0), Some(1.0))
        );
        assert_eq!(value(&samples, Metric::CpuUtil), None, "one reading gives no rate");
        meter.before.get_mut("n").unwrap().at -= Duration::from_secs(10);
        samples.clear();
        meter.understand(&node, &parse(&text.replace("1.5", "4.0").replace("} 3", "} 103")), &mut samples);
        let near =
            |metric, wanted: f64| value(&samples, metric).is_some_and(|found| (found - wanted).abs() < wanted / 50.0);
        assert!(near(Metric::CpuUtil, 50.0) && near(Metric::MessagesPerSecond, 10.0), "{samples:?}");
    }
}
