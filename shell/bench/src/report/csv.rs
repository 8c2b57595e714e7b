//! The series of a run as comma-separated values.

use std::fmt::Write as _;

use super::figures::Series;
use crate::num;

/// One line per bin.
pub(crate) fn csv(series: &Series) -> String {
    let mut text = String::from("second,ingress_per_s,egress_per_s,worst_latency_us,worst_jitter_us\n");
    let bins = series.ingress.len().max(series.egress.len());
    let at = |values: &[u64], bin: usize| num::real(values.get(bin).copied().unwrap_or(0)) / series.bin_s;
    let time = |values: &[f64], bin: usize| values.get(bin).copied().unwrap_or(0.0);
    for bin in 0..bins {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:.1},{:.0},{:.0},{:.1},{:.1}",
            num::real(num::count(bin)) * series.bin_s,
            at(&series.ingress, bin),
            at(&series.egress, bin),
            time(&series.worst_latency_us, bin),
            time(&series.worst_jitter_us, bin)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_of_different_length_fit_together() {
        let series = Series {
            bin_s: 0.1,
            ingress: vec![1, 2],
            egress: vec![1, 2, 3],
            worst_latency_us: vec![5.5],
            worst_jitter_us: Vec::new(),
            latency_us: Vec::new(),
            broker: Vec::new(),
        };
        let text = csv(&series);
        let lines: Vec<&str> = text.lines().skip(1).collect();
        assert_eq!(lines, ["0.0,10,10,5.5,0.0", "0.1,20,20,0.0,0.0", "0.2,0,30,0.0,0.0"]);
    }
}
