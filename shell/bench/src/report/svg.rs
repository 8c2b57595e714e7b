//! Plots as SVG.

use std::fmt::Write as _;

use super::table::number;
use crate::num;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 40.0;
/// About how many marks an axis has.
const MARKS: f64 = 5.0;

/// One line of a plot.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) name: &'static str,
    pub(crate) points: Vec<(f64, f64)>,
}

/// Lines over a common pair of axes.
#[derive(Clone, Debug)]
pub(crate) struct Plot {
    pub(crate) title: &'static str,
    pub(crate) x: &'static str,
    pub(crate) y: &'static str,
    pub(crate) lines: Vec<Line>,
    /// Logarithmic horizontal axis.
    pub(crate) log: bool,
    /// Vertical lines with their names.
    pub(crate) marks: Vec<(f64, String)>,
}

impl Plot {
    pub(crate) const fn new(title: &'static str, x: &'static str, y: &'static str) -> Self {
        Self { title, x, y, lines: Vec::new(), log: false, marks: Vec::new() }
    }

    pub(crate) fn line(mut self, name: &'static str, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        let log = self.log;
        let usable = points.into_iter().filter(|(x, y)| x.is_finite() && y.is_finite() && (!log || *x > 0.0));
        self.lines.push(Line { name, points: usable.collect() });
        self
    }

    /// The plot, or nothing if there is nothing to be seen.
    pub(super) fn svg(&self) -> String {
        let points = || self.lines.iter().flat_map(|line| line.points.iter().copied());
        if points().count() < 2 {
            return String::new();
        }
        let scale_x = |x: f64| if self.log { x.log10() } else { x };
        let range = |values: &mut dyn Iterator<Item = f64>| {
            values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)))
        };
        let (x_low, x_high) = range(&mut points().map(|(x, _)| scale_x(x)));
        let (y_low, y_high) = range(&mut points().map(|(_, y)| y));
        let (y_low, y_high) = (y_low.min(0.0), if y_high > y_low { y_high } else { y_low + 1.0 });
        let x_high = if x_high > x_low { x_high } else { x_low + 1.0 };
        let at_x = |x: f64| LEFT + (scale_x(x) - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT);
        let at_y = |y: f64| HEIGHT - BOTTOM - (y - y_low) / (y_high - y_low) * (HEIGHT - TOP - BOTTOM);
        let mut svg = format!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">\n<text x=\"{LEFT}\" y=\"18\" class=\"title\">{}</text>\n",
            self.title, self.title
        );
        for mark in ticks(y_low, y_high) {
            let y = at_y(mark);
            // Writing to a string cannot fail.
            let _ = writeln!(
                svg,
                "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{:.1}\"/><text x=\"{:.1}\" y=\"{:.1}\" class=\"end\">{}</text>",
                WIDTH - RIGHT,
                LEFT - 6.0,
                y + 4.0,
                number(mark)
            );
        }
        for mark in ticks(x_low, x_high) {
            let value = if self.log { 10f64.powf(mark) } else { mark };
            let x = at_x(value);
            let _ = writeln!(
                svg,
                "<text x=\"{x:.1}\" y=\"{:.1}\" class=\"middle\">{}</text>",
                HEIGHT - BOTTOM + 16.0,
                number(value)
            );
        }
        for (x, name) in self.marks.iter().filter(|(x, _)| (x_low..=x_high).contains(&scale_x(*x))) {
            let x = at_x(*x);
            let _ = writeln!(
                svg,
                "<path class=\"mark\" d=\"M{x:.1} {TOP}V{:.1}\"/><text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                HEIGHT - BOTTOM,
                x + 3.0,
                TOP + 10.0,
                escape(name)
            );
        }
        for (place, line) in self.lines.iter().enumerate() {
            let points: Vec<String> =
                line.points.iter().map(|(x, y)| format!("{:.1},{:.1}", at_x(*x), at_y(*y))).collect();
            let _ = writeln!(svg, "<polyline class=\"line{place}\" points=\"{}\"/>", points.join(" "));
            let x = WIDTH - RIGHT - 110.0 * (num::real(num::count(self.lines.len() - place)));
            let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"18\" class=\"key{place}\">{}</text>", line.name);
        }
        let middle = LEFT + (WIDTH - LEFT - RIGHT) / 2.0;
        let _ = writeln!(
            svg,
            "<text x=\"{middle:.1}\" y=\"{:.1}\" class=\"middle\">{}</text>\n<text x=\"6\" y=\"18\">{}</text>\n</svg>",
            HEIGHT - 6.0,
            self.x,
            self.y
        );
        svg
    }
}

/// Round numbers between `low` and `high`.
fn ticks(low: f64, high: f64) -> Vec<f64> {
    let rough = (high - low) / MARKS;
    let unit = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|step| step * unit).find(|step| *step >= rough).unwrap_or(unit);
    let mut marks = Vec::new();
    let mut mark = (low / step).ceil() * step;
    while mark <= high + step * 1e-9 && marks.len() < 20 {
        marks.push(if mark.abs() < step * 1e-9 { 0.0 } else { mark });
        mark += step;
    }
    marks
}

/// Text as HTML shows it.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_round_numbers() {
        assert_eq!(ticks(0.0, 97.0), [0.0, 20.0, 40.0, 60.0, 80.0]);
        assert_eq!(ticks(-3.0, 7.0), [-2.0, 0.0, 2.0, 4.0, 6.0]);
    }

    #[test]
    fn a_plot_holds_its_lines_and_nothing_is_no_plot() {
        let plot = Plot::new("title", "x", "y").line("a", [(0.0, 1.0), (1.0, 5.0), (f64::NAN, 1.0)]);
        let svg = plot.svg();
        assert!(svg.starts_with("<svg") && svg.contains("polyline") && !svg.contains("NaN"), "{svg}");
        assert_eq!(Plot::new("title", "x", "y").line("a", []).svg(), "");
        assert_eq!(escape("<a & \"b\">"), "&lt;a &amp; &quot;b&quot;&gt;");
    }
}
