//! Metrics as Prometheus has them: the messages of `io.prometheus.client`, as far as they are used here.

use prost::{Enumeration, Message};

/// Behaviour of a number over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub(super) enum MetricType {
    Counter = 0,
    Gauge = 1,
    Histogram = 4,
}

/// One name, with its metrics.
#[derive(Clone, PartialEq, Message)]
pub(super) struct MetricFamily {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) help: String,
    #[prost(enumeration = "MetricType", tag = "3")]
    pub(super) kind: i32,
    #[prost(message, repeated, tag = "4")]
    pub(super) metric: Vec<Metric>,
}

/// The labels of a metric, and one of the three.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Metric {
    #[prost(message, repeated, tag = "1")]
    pub(super) label: Vec<LabelPair>,
    #[prost(message, optional, tag = "2")]
    pub(super) gauge: Option<Number>,
    #[prost(message, optional, tag = "3")]
    pub(super) counter: Option<Number>,
    #[prost(message, optional, tag = "7")]
    pub(super) histogram: Option<Histogram>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LabelPair {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) value: String,
}

/// A counter or a gauge.
#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Number {
    #[prost(double, tag = "1")]
    pub(super) value: f64,
}

/// A classic and a native histogram of the same.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Histogram {
    #[prost(uint64, tag = "1")]
    pub(super) sample_count: u64,
    #[prost(double, tag = "2")]
    pub(super) sample_sum: f64,
    #[prost(message, repeated, tag = "3")]
    pub(super) bucket: Vec<Bucket>,
    #[prost(sint32, tag = "5")]
    pub(super) schema: i32,
    #[prost(double, tag = "6")]
    pub(super) zero_threshold: f64,
    #[prost(uint64, tag = "7")]
    pub(super) zero_count: u64,
    #[prost(message, repeated, tag = "12")]
    pub(super) positive_span: Vec<BucketSpan>,
    /// Counts, each less the one before.
    #[prost(sint64, repeated, tag = "13")]
    pub(super) positive_delta: Vec<i64>,
}

/// A classic bucket.
#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Bucket {
    #[prost(uint64, tag = "1")]
    pub(super) cumulative_count: u64,
    #[prost(double, tag = "2")]
    pub(super) upper_bound: f64,
}

/// Native buckets that follow each other.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(super) struct BucketSpan {
    /// Of the first span the power of its first bucket, of others how many buckets lie between it and the span before.
    #[prost(sint32, tag = "1")]
    pub(super) offset: i32,
    #[prost(uint32, tag = "2")]
    pub(super) length: u32,
}
