//! The fail test: what a fault does to a flow of messages.

use serde::Serialize;

use crate::num;
use crate::report::{Figures, Table, number};

/// Bins that make a second.
const SECOND: usize = 10;
/// Share of the throughput before the fault that counts as recovered.
const RECOVERED: f64 = 0.9;

/// Effects of a fault on a flow of messages.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct FailFigures {
    /// Longest time in which some receiver got nothing, in ms.
    pub(crate) longest_gap_ms: f64,
    /// Deliveries per second before the first fault.
    pub(crate) before_per_s: f64,
    /// By how much the worst second after the fault was below, in percent.
    pub(crate) dip_percent: f64,
    /// Whether a whole second came up to nine tenths of the throughput before.
    pub(crate) recovered: bool,
    /// Seconds from the first fault to the begin of that second, counted behind the worst one.
    pub(crate) recovered_after_s: Option<f64>,
    /// Largest latency after the first fault: of what was replayed, if anything was, in µs.
    pub(crate) recovery_time_us: f64,
    /// Largest jitter after the first fault in µs: the outage, as the receivers see it, is in it.
    pub(crate) largest_jitter_us: f64,
    /// Longest time between two deliveries of a replay after the first fault, in µs: the later one waited already when the other came.
    pub(crate) replay_jitter_us: f64,
    pub(crate) lost: u64,
    pub(crate) duplicates: u64,
    pub(crate) reordered: u64,
    pub(crate) resent: u64,
}

impl FailFigures {
    /// From the figures of a run, measured from `warmup_s` to the end; none without a fault.
    pub(crate) fn new(figures: &Figures, warmup_s: f64) -> Option<Self> {
        let fault_s = figures.faults.iter().map(|fault| fault.at_s).reduce(f64::min)?;
        let series = &figures.series;
        let bin = |seconds: f64| num::index(num::whole(seconds / series.bin_s));
        let (start, fault, end) = (bin(warmup_s), bin(fault_s), bin(warmup_s + figures.measure_s));
        let counts = |from: usize, to: usize| (from..to).map(|at| series.egress.get(at).copied().unwrap_or(0));
        let before = num::ratio(num::real(counts(start, fault).sum()), num::real(num::count(fault - start.min(fault))));
        let second = |from: usize| num::real(counts(from, from + SECOND).sum()) / num::real(num::count(SECOND));
        let seconds = fault..end.saturating_sub(SECOND - 1).max(fault);
        let worst = seconds.clone().min_by(|a, b| second(*a).total_cmp(&second(*b)));
        let recovery = worst.and_then(|worst| (worst..seconds.end).find(|at| second(*at) >= RECOVERED * before));
        let recovered_after_s = recovery.map(|at| num::real(num::count(at.saturating_sub(fault))) * series.bin_s);
        let dip = worst.map_or(0.0, |worst| num::ratio(before - second(worst), before).max(0.0));
        let after = |values: &[f64]| values.iter().skip(fault).copied().fold(0.0, f64::max);
        Some(Self {
            longest_gap_ms: figures.longest_gap_ms,
            before_per_s: before / series.bin_s,
            dip_percent: dip * 100.0,
            recovered: recovery.is_some(),
            recovered_after_s,
            recovery_time_us: after(&series.worst_latency_us),
            largest_jitter_us: after(&series.worst_jitter_us),
            replay_jitter_us: after(&series.worst_pause_us),
            lost: figures.lost,
            duplicates: figures.duplicates,
            reordered: figures.reordered,
            resent: figures.resent,
        })
    }

    /// For people.
    pub(crate) fn text(&self) -> String {
        let mut table = Table::default();
        table.row(["longest gap, ms".to_owned(), number(self.longest_gap_ms)]);
        table.row(["egress per s before".to_owned(), number(self.before_per_s)]);
        table.row(["dip of the worst second, %".to_owned(), number(self.dip_percent)]);
        let recovered = self.recovered_after_s.map_or_else(|| "no".to_owned(), |after| format!("{} s", number(after)));
        table.row(["recovered after".to_owned(), recovered]);
        table.row(["recovery time (largest latency), ms".to_owned(), number(self.recovery_time_us / 1e3)]);
        table.row(["largest jitter (the outage), ms".to_owned(), number(self.largest_jitter_us / 1e3)]);
        table.row(["jitter of the replay, ms".to_owned(), number(self.replay_jitter_us / 1e3)]);
        for (name, count) in [
            ("lost", self.lost),
            ("duplicates", self.duplicates),
            ("out of order", self.reordered),
            ("sent again by publishers", self.resent),
        ] {
            table.row([name.to_owned(), number(num::real(count))]);
        }
        table.text()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{FaultDone, Outcome};
    use crate::scenario::named;

    /// A second of warm-up, ten measured, 100 deliveries per bin but for those named.
    fn figures(fault_s: Option<f64>, low: std::ops::Range<usize>, count: u64) -> Figures {
        let mut outcome = Outcome::empty(named("failover").expect("a scenario"));
        outcome.measure_s = 10.0;
        outcome.tally.egress = (0..115).map(|bin| if low.contains(&bin) { count } else { 100 }).collect();
        outcome.tally.worst_latency = (0..115).map(|bin| if bin == 55 { 250_000_000 } else { 1_000_000 }).collect();
        outcome.tally.worst_jitter = vec![2_000_000; 115];
        outcome.tally.worst_pause = vec![500_000; 115];
        outcome.faults = fault_s.into_iter().map(|at_s| FaultDone { at_s, what: "kill".to_owned() }).collect();
        Figures::from(&outcome)
    }

    #[test]
    fn a_dip_has_its_depth_and_its_length() {
        let fail = FailFigures::new(&figures(Some(5.0), 50..70, 25), 1.0).expect("a fault");
        assert!((fail.before_per_s - 1_000.0).abs() < 1e-9);
        assert!((fail.dip_percent - 75.0).abs() < 1e-9);
        // The second from bin 69 on has nine bins at full height and one at a quarter.
        assert!((fail.recovered_after_s.expect("recovered") - 1.9).abs() < 1e-9);
        assert!((fail.recovery_time_us - 250_000.0).abs() < 1e-9);
        assert!((fail.largest_jitter_us - 2_000.0).abs() < 1e-9);
        assert!((fail.replay_jitter_us - 500.0).abs() < 1e-9);
    }

    #[test]
    fn what_does_not_come_back_is_not_recovered() {
        let fail = FailFigures::new(&figures(Some(5.0), 50..115, 0), 1.0).expect("a fault");
        assert!(!fail.recovered && (fail.dip_percent - 100.0).abs() < 1e-9);
        let calm = FailFigures::new(&figures(Some(5.0), 0..0, 0), 1.0).expect("a fault");
        assert!(calm.recovered && calm.dip_percent.abs() < 1e-9);
        assert_eq!(FailFigures::new(&figures(None, 0..0, 0), 1.0), None);
    }
}
