//! A page of metrics, while it is written.

use sedge_base::{Durations, Fine};

use super::model::{Bucket, BucketSpan, Histogram, LabelPair, Metric, MetricFamily, MetricType, Number};

/// Names of Sedge's own begin so.
const PREFIX: &str = "sedge_";
/// Names that every process gives alike begin so.
const PROCESS: &str = "process_";
/// Below it lies what took no time, as in histograms of Prometheus's own library: 2^-128.
const ZERO_THRESHOLD: f64 = 2.938_735_877_055_719e-39;

/// Behaviour of a number over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http) enum Kind {
    /// It grows until the process ends.
    Counter,
    /// It goes up and down.
    Gauge,
}

/// A page of metrics.
#[derive(Debug, Default)]
pub(in crate::http) struct Exposition(pub(super) Vec<MetricFamily>);

/// One name, with its metrics.
#[derive(Debug)]
pub(in crate::http) struct Family<'a>(&'a mut MetricFamily);

impl Exposition {
    /// Begins a metric with labels.
    pub(in crate::http) fn family(&mut self, name: &str, kind: Kind, help: &str) -> Family<'_> {
        let kind = match kind {
            Kind::Counter => MetricType::Counter,
            Kind::Gauge => MetricType::Gauge,
        };
        self.begin(name, kind, help)
    }

    /// Begins a histogram.
    pub(in crate::http) fn histogram(&mut self, name: &str, help: &str) -> Family<'_> {
        self.begin(name, MetricType::Histogram, help)
    }

    fn begin(&mut self, name: &str, kind: MetricType, help: &str) -> Family<'_> {
        let prefix = if name.starts_with(PROCESS) { "" } else { PREFIX };
        let (name, help) = (format!("{prefix}{name}"), help.to_owned());
        Family(self.0.push_mut(MetricFamily { name, help, kind: kind.into(), metric: Vec::new() }))
    }

    /// A metric without labels.
    pub(in crate::http) fn single(&mut self, name: &str, kind: Kind, help: &str, value: u64) {
        self.family(name, kind, help).labelled(&[], value);
    }

    /// A metric without labels that is no whole number.
    pub(in crate::http) fn float(&mut self, name: &str, kind: Kind, help: &str, value: f64) {
        self.family(name, kind, help).number(&[], value);
    }
}

impl Family<'_> {
    /// A metric.
    #[expect(clippy::cast_precision_loss, reason = "Prometheus has no other numbers")]
    pub(in crate::http) fn labelled(&mut self, labels: &[(&str, &str)], value: u64) {
        self.number(labels, value as f64);
    }

    fn number(&mut self, labels: &[(&str, &str)], value: f64) {
        let (label, number) = (pairs(labels), Some(Number { value }));
        let is_counter = self.0.kind() == MetricType::Counter;
        let (counter, gauge) = if is_counter { (number, None) } else { (None, number) };
        self.0.metric.push(Metric { label, counter, gauge, histogram: None });
    }

    /// A histogram.
    pub(in crate::http) fn durations(&mut self, labels: &[(&str, &str)], durations: &Durations) {
        let bucket = |(bound, cumulative_count): (Option<std::time::Duration>, u64)| Bucket {
            cumulative_count,
            upper_bound: bound.map_or(f64::INFINITY, |bound| bound.as_secs_f64()),
        };
        let Fine { schema, zeros, buckets } = durations.fine();
        let (positive_span, positive_delta) = spans(&buckets);
        let histogram = Some(Histogram {
            sample_count: durations.count(),
            sample_sum: durations.sum().as_secs_f64(),
            bucket: durations.up_to().map(bucket).collect(),
            schema,
            zero_threshold: ZERO_THRESHOLD,
            zero_count: zeros,
            positive_span,
            positive_delta,
        });
        self.0.metric.push(Metric { label: pairs(labels), counter: None, gauge: None, histogram });
    }
}

fn pairs(labels: &[(&str, &str)]) -> Vec<LabelPair> {
    labels.iter().map(|(name, value)| LabelPair { name: (*name).to_owned(), value: (*value).to_owned() }).collect()
}

/// Buckets as a native histogram has them: which follow each other, and by how much each count differs from the one before.
fn spans(buckets: &[(i32, u64)]) -> (Vec<BucketSpan>, Vec<i64>) {
    let (mut spans, mut deltas) = (Vec::<BucketSpan>::new(), Vec::with_capacity(buckets.len()));
    let (mut next, mut before) = (0, 0);
    for &(power, count) in buckets {
        match spans.last_mut().filter(|_| power == next) {
            Some(span) => span.length += 1,
            None => spans.push(BucketSpan { offset: power - next, length: 1 }),
        }
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        deltas.push(count - before);
        (next, before) = (power + 1, count);
    }
    (spans, deltas)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_say_where_buckets_lie_and_deltas_how_counts_differ() {
        assert_eq!(spans(&[]), (Vec::new(), Vec::new()));
        let span = |offset, length| BucketSpan { offset, length };
        let buckets = [(-3, 5), (-2, 1), (0, 4), (7, 4)];
        assert_eq!(spans(&buckets), (vec![span(-3, 2), span(1, 1), span(6, 1)], vec![5, -4, 3, 0]));
    }
}
