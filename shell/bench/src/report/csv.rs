//! The series of a run as comma-separated values.

use std::fmt::Write as _;

use super::figures::{Figures, Series};
use crate::num;

/// One line per bin, from the first look at the brokers to the last bin; times are seconds since publishing began.
pub(crate) fn csv(figures: &Figures) -> String {
    let series = &figures.series;
    let mut text = String::from(
        "second,phase,ingress_per_s,egress_per_s,worst_latency_us,worst_jitter_us,broker_cpu_percent,broker_rss_kib\n",
    );
    let bins = series.ingress.len().max(series.egress.len());
    let watched = series.broker.first().map_or(0.0, |(at_s, ..)| (-at_s / series.bin_s).ceil().max(0.0));
    for bin in 0..num::whole(watched) {
        let second = (num::real(bin) - watched) * series.bin_s;
        line(figures, second, [0.0; 4], &mut text);
    }
    let at = |values: &[u64], bin: usize| num::real(values.get(bin).copied().unwrap_or(0)) / series.bin_s;
    let time = |values: &[f64], bin: usize| values.get(bin).copied().unwrap_or(0.0);
    for bin in 0..bins {
        let second = num::real(num::count(bin)) * series.bin_s;
        let (latency, jitter) = (time(&series.worst_latency_us, bin), time(&series.worst_jitter_us, bin));
        line(figures, second, [at(&series.ingress, bin), at(&series.egress, bin), latency, jitter], &mut text);
    }
    text
}

fn line(figures: &Figures, second: f64, [ingress, egress, latency, jitter]: [f64; 4], text: &mut String) {
    let begun = figures.phases.iter().rev().find(|phase| phase.at_s <= second);
    let phase = begun.or_else(|| figures.phases.first()).map_or("", |phase| phase.name);
    // Writing to a string cannot fail.
    let _ = write!(text, "{second:.1},{phase},{ingress:.0},{egress:.0},{latency:.1},{jitter:.1}");
    let _ = match broker(&figures.series, second) {
        Some((cpu_percent, rss_kib)) => writeln!(text, ",{cpu_percent:.1},{rss_kib}"),
        None => writeln!(text, ",,"),
    };
}

/// Usage of the brokers around `second`: percent of a core between the looks before and after, KiB at the look before.
fn broker(series: &Series, second: f64) -> Option<(f64, u64)> {
    let looks = series.broker.windows(2).filter_map(|pair| match pair {
        [before, after] if after.0 > before.0 => Some((before, after)),
        _ => None,
    });
    let mut around = looks.skip_while(|(_, after)| after.0 <= second);
    let (before, after) = around.next()?;
    Some(((after.1 - before.1).max(0.0) / (after.0 - before.0) * 100.0, before.2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::figures::PhaseFigures;
    use crate::run::Outcome;

    /// BM-19
    #[test]
    fn series_of_different_length_fit_together() {
        let outcome = Outcome::empty(crate::scenario::named("pairs").expect("a scenario"));
        let mut figures = Figures::from(&outcome);
        figures.series = Series {
            bin_s: 0.1,
            ingress: vec![1, 2],
            egress: vec![1, 2, 3],
            worst_latency_us: vec![5.5],
            worst_jitter_us: Vec::new(),
            worst_pause_us: Vec::new(),
            latency_us: Vec::new(),
            broker: vec![(-0.15, 1.0, 500), (0.1, 1.05, 600), (0.2, 1.1, 700)],
        };
        let phase = |name, at_s| PhaseFigures { name, at_s, seconds: 1.0, broker_cpu_s: None, broker_rss_kib: None };
        figures.phases = vec![phase("idle", -0.12), phase("warm-up", -0.05), phase("measure", 0.1)];
        let text = csv(&figures);
        let lines: Vec<&str> = text.lines().skip(1).collect();
        let expected = [
            "-0.2,idle,0,0,0.0,0.0,20.0,500",
            "-0.1,idle,0,0,0.0,0.0,20.0,500",
            "0.0,warm-up,10,10,5.5,0.0,20.0,500",
            "0.1,measure,20,20,0.0,0.0,50.0,600",
            "0.2,measure,0,30,0.0,0.0,,",
        ];
        assert_eq!(lines, expected);
    }
}
