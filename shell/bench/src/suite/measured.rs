//! One measurement of one broker under one load.

use serde::{Deserialize, Serialize};

use super::row::{Measure, Row};
use crate::error::BenchError;
use crate::limit::{limit, settle};
use crate::num;
use crate::report::Figures;
use crate::run::{Options, run};
use crate::scenario::Scenario;

/// Figures of one measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Measured {
    pub(super) egress_per_cpu_s: Option<f64>,
    pub(super) egress_per_s: f64,
    pub(super) latency_p50_us: Option<f64>,
    pub(super) latency_p99_us: Option<f64>,
    pub(super) kib_per_connection: Option<f64>,
    pub(super) expected: u64,
    pub(super) lost: u64,
    pub(super) duplicates: u64,
    pub(super) reordered: u64,
    pub(super) disconnects: u64,
    /// Reasons to doubt the figures.
    pub(super) warnings: Vec<String>,
    /// The reason for which there are no figures.
    pub(super) error: Option<String>,
}

impl Measured {
    /// Measures the broker in `options` under the load of `row`, which `scenario` is with the warm-up that this broker needs.
    pub(super) fn take(row: &Row, scenario: &Scenario, options: &Options) -> Result<Self, BenchError> {
        match row.measure {
            Measure::Work | Measure::Latency => Ok(Self::from(&Figures::from(&run(scenario, options, &mut |_| ())?))),
            Measure::Limit => {
                if scenario.warmup_s > row.scenario.warmup_s {
                    // Once for the whole search.
                    run(scenario, options, &mut |_| ())?;
                }
                let search = (row.search.start_ms, row.search.repeat);
                let found = limit(&row.scenario, options, search, &mut |_| ())?;
                let figures = found.figures.as_ref().ok_or_else(|| {
                    BenchError::Broker(format!("no load from {} ms on is under its limit", row.search.start_ms))
                })?;
                let mut measured = Self::from(figures);
                if found.tester_bound {
                    measured.warnings.push("the load generator was the limit: the broker may do more".to_owned());
                }
                Ok(measured)
            }
            Measure::Memory => {
                // Some go on with their start for a while when they serve already.
                settle(&options.pids);
                Ok(Self::from(&Figures::from(&run(scenario, options, &mut |_| ())?)))
            }
        }
    }
}

impl From<&Figures> for Measured {
    fn from(figures: &Figures) -> Self {
        let latency = Some(&figures.latency_us).filter(|latency| latency.count > 0);
        let before = figures.series.broker.first().map(|(_, _, rss)| *rss);
        let grown = figures.broker_rss_kib.zip(before).map(|(now, before)| num::real(now) - num::real(before));
        Self {
            egress_per_cpu_s: figures.egress_per_cpu_s.filter(|per_s| *per_s > 0.0),
            egress_per_s: figures.egress_per_s,
            latency_p50_us: latency.map(|latency| latency.p50),
            latency_p99_us: latency.map(|latency| latency.p99),
            kib_per_connection: grown.map(|kib| num::ratio(kib, num::real(figures.clients))),
            expected: figures.expected,
            lost: figures.lost,
            duplicates: figures.duplicates,
            reordered: figures.reordered,
            disconnects: figures.disconnects,
            warnings: figures.warnings.clone(),
            error: None,
        }
    }
}
