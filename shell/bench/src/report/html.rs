//! One page with the figures of a run and their plots, which needs nothing else.

use std::fmt::Write as _;

use super::figures::{Figures, Series};
use super::svg::{Plot, escape};
use super::table::table;
use crate::num;

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1b1f24;--faint:#d0d7de;--back:#fff;--a:#0969da;--b:#bc4c00;--c:#1a7f37}\
@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--faint:#30363d;--back:#0d1117;--a:#58a6ff;--b:#f0883e;--c:#3fb950}}\
body{background:var(--back);color:var(--ink);font:15px/1.5 system-ui,sans-serif;max-width:1340px;margin:2em auto;padding:0 1em}\
pre{overflow-x:auto}.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,520px),1fr));gap:1.5em}\
svg{width:100%;height:auto}svg text{font-size:11px;fill:var(--ink)}svg .title{font-size:13px;font-weight:600}\
.end{text-anchor:end}.middle{text-anchor:middle}.grid{stroke:var(--faint)}.mark{stroke:var(--b);stroke-dasharray:4 3}\
polyline{fill:none;stroke-width:1.5}.line0{stroke:var(--a)}.line1{stroke:var(--b)}.line2{stroke:var(--c)}svg .key0{fill:var(--a)}svg .key1{fill:var(--b)}svg .key2{fill:var(--c)}";

/// The page of a run.
pub(crate) fn html(figures: &Figures) -> String {
    let lead = format!("{}; version {}, seed {}", figures.machine, figures.version, figures.seed);
    html_page(&figures.scenario, &lead, &table(figures), &plots(figures), figures)
}

/// A page with a text, plots, and the figures in `data` themselves for whoever has only the page.
pub(crate) fn html_page(title: &str, lead: &str, text: &str, plots: &[Plot], data: &impl serde::Serialize) -> String {
    let title = escape(title);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>\n<style>{STYLE}</style>\n\
         <h1>{title}</h1>\n<p>{}</p>\n<pre>{}</pre>\n<div class=\"plots\">\n",
        escape(lead),
        escape(text)
    );
    for plot in plots {
        page.push_str(&plot.svg());
    }
    // No sign in the data may end the element early.
    let data = serde_json::to_string(data).unwrap_or_default().replace('<', "\\u003c");
    let _ = writeln!(page, "</div>\n<script type=\"application/json\" id=\"figures\">{data}</script>\n</html>");
    page
}

fn plots(figures: &Figures) -> Vec<Plot> {
    let series = &figures.series;
    let over_time = |values: &[f64], factor: f64| -> Vec<(f64, f64)> {
        let times = (0u64..).map(|bin| num::real(bin) * series.bin_s);
        times.zip(values.iter().map(|value| value * factor)).collect()
    };
    let counts = |values: &[u64]| -> Vec<f64> { values.iter().map(|count| num::real(*count)).collect() };
    let marked = |mut plot: Plot| {
        plot.marks = figures.faults.iter().map(|fault| (fault.at_s, fault.what.clone())).collect();
        plot
    };
    let mut plots = vec![
        marked(
            Plot::new("Throughput", "s", "1/s")
                .line("ingress", over_time(&counts(&series.ingress), 1.0 / series.bin_s))
                .line("egress", over_time(&counts(&series.egress), 1.0 / series.bin_s)),
        ),
        marked(
            Plot::new("Largest latency in 0.1 s", "s", "ms").line("latency", over_time(&series.worst_latency_us, 1e-3)),
        ),
        marked(
            Plot::new("Largest jitter in 0.1 s", "s", "ms").line("jitter", over_time(&series.worst_jitter_us, 1e-3)),
        ),
    ];
    plots.extend(distribution(figures));
    plots.extend(brokers(series).into_iter().map(|mut plot| {
        plot.marks = phases(figures);
        plot
    }));
    plots
}

/// Begins of the phases on the time axis, which starts with publishing.
fn phases(figures: &Figures) -> Vec<(f64, String)> {
    // Shorter ones would only hide each other's names.
    let long = figures.phases.iter().filter(|phase| phase.seconds > 0.2);
    long.map(|phase| (phase.at_s, phase.name.to_owned())).collect()
}

fn distribution(figures: &Figures) -> Vec<Plot> {
    let values = &figures.series.latency_us;
    let total = num::real(values.iter().map(|(_, count)| count).sum());
    let mut below = 0;
    let cumulated: Vec<(f64, f64)> = values
        .iter()
        .map(|(value, count)| {
            below += count;
            (*value, num::real(below) / total)
        })
        .collect();
    let mut cdf = Plot::new("Latency, cumulated", "µs", "share");
    cdf.log = true;
    let (mean, deviation) = (figures.latency_us.mean, figures.latency_us.stddev);
    let steps: Vec<f64> = (1u32..1_000).map(|step| f64::from(step) / 1e3).collect();
    let measured = |part: f64| cumulated.iter().find(|(_, share)| *share >= part).map_or(0.0, |(value, _)| *value);
    let against: Vec<(f64, f64)> =
        steps.iter().map(|part| (mean + deviation * normal_quantile(*part), measured(*part))).collect();
    let (low, high) = (measured(0.0), measured(0.995));
    let bins = 60u32;
    let width = ((high - low) / f64::from(bins)).max(1e-3);
    let density = |bin: u32| {
        let from = low + f64::from(bin) * width;
        let inside = values.iter().filter(|(value, _)| (from..from + width).contains(value));
        (from + width / 2.0, num::real(inside.map(|(_, count)| count).sum()) / total)
    };
    let normal = |value: f64| {
        let z = num::ratio(value - mean, deviation);
        (-z * z / 2.0).exp() * num::ratio(width, deviation * std::f64::consts::TAU.sqrt())
    };
    let bars: Vec<(f64, f64)> = (0..bins).map(density).collect();
    let bell: Vec<(f64, f64)> = bars.iter().map(|(value, _)| (*value, normal(*value))).collect();
    let diagonal: Vec<(f64, f64)> = against.iter().map(|(normal, _)| (*normal, *normal)).collect();
    let quantiles: Vec<(f64, f64)> = cumulated.iter().map(|(value, share)| (*share, *value)).collect();
    vec![
        cdf.line("latency", cumulated.iter().copied()),
        Plot::new("Latency, quantiles", "share", "µs").line("latency", quantiles),
        Plot::new("Latency, histogram up to 99.5 %", "µs", "share").line("latency", bars).line("normal", bell),
        Plot::new("Latency, probability plot against normal", "µs if it were normal", "µs")
            .line("latency", against)
            .line("normal", diagonal),
    ]
}

fn brokers(series: &Series) -> Vec<Plot> {
    let cpu = series.broker.windows(2).filter_map(|pair| match pair {
        [(before, used_before, _), (at, used, _)] if at > before => {
            Some((*at, (used - used_before) / (at - before) * 100.0))
        }
        _ => None,
    });
    let memory = series.broker.iter().map(|(at, _, rss)| (*at, num::real(*rss) / 1_024.0));
    vec![
        Plot::new("Processor time of the brokers", "s", "% of a core").line("CPU", cpu),
        Plot::new("Memory of the brokers", "s", "MiB").line("resident", memory),
    ]
}

/// The value that a standard normal variable does not exceed with probability `part`, by bisection of its distribution.
fn normal_quantile(part: f64) -> f64 {
    let (mut low, mut high) = (-8.0, 8.0);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if normal_share(middle) < part { low = middle } else { high = middle }
    }
    low
}

/// Probability that a standard normal variable does not exceed `z` (Abramowitz and Stegun 7.1.26, within 1.5e-7).
fn normal_share(z: f64) -> f64 {
    let x = z.abs() / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let sum = [0.254_829_592, -0.284_496_736, 1.421_413_741, -1.453_152_027, 1.061_405_429];
    let sum = sum.into_iter().rev().fold(0.0, |sum, factor| (sum + factor) * t);
    let error = 1.0 - sum * (-x * x).exp();
    f64::midpoint(1.0, if z < 0.0 { -error } else { error })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Tally;
    use crate::run::Outcome;

    #[test]
    fn quantiles_of_the_normal_distribution() {
        for (part, z) in [(0.5, 0.0), (0.975, 1.96), (0.001, -3.0902), (0.8413, 0.9998)] {
            assert!((normal_quantile(part) - z).abs() < 1e-3, "{part}");
        }
    }

    #[test]
    fn a_page_holds_plots_and_figures_and_nothing_from_outside() {
        let mut scenario = crate::scenario::named("pairs").expect("a scenario");
        "<b>mine</b></script>".clone_into(&mut scenario.name);
        let mut tally = Tally { ingress: vec![5; 30], egress: vec![5; 30], ..Tally::default() };
        tally.worst_latency = vec![1_000; 30];
        for nanos in 1..2_000 {
            tally.latency.record(nanos * 1_000);
        }
        let page = html(&Figures::from(&Outcome { tally, ..Outcome::empty(scenario) }));
        for plot in ["Throughput", "histogram", "cumulated", "quantiles", "probability plot against normal"] {
            assert!(page.lines().any(|line| line.contains("class=\"title\"") && line.contains(plot)), "{plot}");
        }
        assert!(!page.contains("<b>mine") && !page.contains("http") && !page.contains("NaN"));
        assert_eq!(page.matches("</script>").count(), 1);
        let data = page.split_once("id=\"figures\">").and_then(|(_, rest)| rest.split_once("</script>"));
        let data: serde_json::Value = serde_json::from_str(data.expect("data").0).expect("JSON");
        assert_eq!(data.get("scenario").and_then(serde_json::Value::as_str), Some("<b>mine</b></script>"));
    }
}
