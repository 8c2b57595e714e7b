//! A page of `sedge top`, as text and on a terminal.

use ratatui::Frame as Screen;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, Table};
use sedge_base::printable;

use super::super::text;
use super::frame::{Frame, HotLine, NodeLine, Order, SlowLine};
use crate::table::table;

const NODES: [&str; 9] = ["NODE", "STATE", "CLIENTS", "IN/s", "OUT/s", "DROPPED/s", "CPU", "MEMORY", "QUEUED"];
const SLOW: [&str; 5] = ["SLOW SUBSCRIBER", "NODE", "QUEUED", "BYTES", "UNACKED"];
const HOT: [&str; 2] = ["HOT TOPIC", "IN/s"];
/// From this width on topics stand beside subscribers.
const WIDE: u16 = 120;

/// How the terminal shows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    pub(super) order: Order,
    pub(super) reverse: bool,
    pub(super) paused: bool,
    pub(super) seconds: u16,
    /// Nodes that are scrolled away.
    pub(super) skip: usize,
}

/// The page as plain text.
pub(super) fn plain(frame: &Frame) -> String {
    let nodes: Vec<_> = frame.nodes.iter().map(node).collect();
    let slow: Vec<_> = frame.slow_subscribers.iter().map(slow).collect();
    let hot: Vec<_> = frame.hot_topics.iter().map(hot).collect();
    let none = |rows: &[Vec<String>], text: &str| if rows.is_empty() { format!("\n{text}") } else { String::new() };
    [
        printable(&summary(frame)).into_owned(),
        table(&NODES, &nodes),
        table(&SLOW, &slow) + &none(&slow, "none"),
        table(&HOT, &hot) + &none(&hot, nothing_hot(frame)),
    ]
    .join("\n\n")
}

fn nothing_hot(frame: &Frame) -> &'static str {
    if frame.hot_topics_seconds > 0.0 { "nobody publishes" } else { "counting begins" }
}

fn summary(frame: &Frame) -> String {
    let figures = || frame.nodes.iter().filter_map(|node| node.figures.as_ref());
    let rates = || figures().filter_map(|figures| figures.rates);
    format!(
        "{}: {} nodes, {} away, {} clients, {} messages/s in, {} out",
        frame.cluster,
        frame.nodes.len(),
        frame.nodes.iter().filter(|node| node.is_away).count(),
        figures().map(|figures| figures.clients).sum::<u64>(),
        rate(total(rates().map(|rates| rates.messages_in))),
        rate(total(rates().map(|rates| rates.messages_out))),
    )
}

fn node(line: &NodeLine) -> Vec<String> {
    let none = || "-".to_owned();
    let figures = line.figures.as_ref();
    let number = |value: Option<u64>| value.map_or_else(none, |value| value.to_string());
    let rates = figures.and_then(|figures| figures.rates);
    let of = |value: Option<f64>| value.map_or_else(none, rate);
    vec![
        line.name.clone(),
        line.state.clone(),
        number(figures.map(|figures| figures.clients)),
        of(rates.map(|rates| rates.messages_in)),
        of(rates.map(|rates| rates.messages_out)),
        of(rates.map(|rates| rates.dropped)),
        rates.map_or_else(none, |rates| format!("{:.0} %", rates.cpu_percent)),
        figures.map_or_else(none, |figures| text::bytes(figures.memory_bytes)),
        number(figures.map(|figures| figures.queued)),
    ]
}

fn slow(line: &SlowLine) -> Vec<String> {
    let SlowLine { client, node, queued, queued_bytes, inflight } = line;
    vec![client.clone(), node.clone(), queued.to_string(), text::bytes(*queued_bytes as u64), inflight.to_string()]
}

fn hot(line: &HotLine) -> Vec<String> {
    vec![line.topic.clone(), rate(line.messages)]
}

/// The sum of rates; of none it is 0, where the library's is -0.
fn total(rates: impl Iterator<Item = f64>) -> f64 {
    rates.fold(0.0, |sum, rate| sum + rate)
}

/// A rate with as many digits as say something.
fn rate(value: f64) -> String {
    if value >= 100.0 || value == 0.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}

/// Draws the page.
pub(super) fn screen(screen: &mut Screen<'_>, frame: &Frame, problem: Option<&str>, look: Look) {
    let area = screen.area();
    let is_wide = area.width >= WIDE;
    let nodes_height = u16::try_from(frame.nodes.len()).unwrap_or(u16::MAX).saturating_add(2);
    let below = if is_wide { 8 } else { 12 };
    let [head, nodes, lists, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Max(nodes_height.min(area.height.saturating_sub(2 + below).max(4))),
        Constraint::Min(0),
        Constraint::Length(1),
    ])
    .areas(area);
    screen.render_widget(Line::from(printable(&summary(frame)).into_owned()).style(Modifier::BOLD), head);
    draw_nodes(screen, nodes, frame, look);
    let [left, right] = if is_wide {
        Layout::horizontal([Constraint::Percentage(55), Constraint::Percentage(45)]).areas(lists)
    } else {
        Layout::vertical([Constraint::Percentage(50), Constraint::Percentage(50)]).areas(lists)
    };
    let rows = frame.slow_subscribers.iter().map(|line| cells(slow(line)));
    let widths = [
        Constraint::Fill(3),
        Constraint::Fill(1),
        Constraint::Length(9),
        Constraint::Length(11),
        Constraint::Length(8),
    ];
    screen.render_widget(listing(&SLOW, rows, &widths), left);
    let rows = frame.hot_topics.iter().map(|line| cells(hot(line)));
    screen.render_widget(listing(&HOT, rows, &[Constraint::Fill(1), Constraint::Length(11)]), right);
    screen.render_widget(footer(problem, look), foot);
}

fn draw_nodes(screen: &mut Screen<'_>, area: Rect, frame: &Frame, look: Look) {
    let row = |line: &NodeLine| {
        let color = match (line.is_away, line.is_well) {
            (true, _) => Some(Color::Red),
            (false, false) => Some(Color::Yellow),
            (false, true) => None,
        };
        let row = cells(node(line));
        color.map_or_else(|| row.clone(), |color| row.clone().style(Style::new().fg(color)))
    };
    let widths = [
        Constraint::Fill(2),
        Constraint::Fill(3),
        Constraint::Length(8),
        Constraint::Length(9),
        Constraint::Length(9),
        Constraint::Length(9),
        Constraint::Length(6),
        Constraint::Length(9),
        Constraint::Length(8),
    ];
    let sorted = look.order.label().0;
    let head = NODES.map(|name| if name == sorted { format!("{name}{}", arrow(look)) } else { name.to_owned() });
    let head = Row::new(head).style(Modifier::REVERSED);
    let rows = frame.nodes.iter().skip(look.skip).map(row);
    screen.render_widget(Table::new(rows, widths).header(head).column_spacing(1), area);
}

const fn arrow(look: Look) -> &'static str {
    // Names go upward if nothing is said, numbers downward.
    if matches!(look.order, Order::Name) == look.reverse { "↓" } else { "↑" }
}

fn listing<'a>(head: &[&'a str], rows: impl Iterator<Item = Row<'a>>, widths: &[Constraint]) -> Table<'a> {
    let head = Row::new(head.to_vec()).style(Modifier::REVERSED);
    let block = Block::new().borders(Borders::TOP);
    Table::new(rows, widths.to_vec()).header(head).block(block).column_spacing(1)
}

/// A row of texts with control characters escaped: clients and nodes have chosen some of the texts.
fn cells(texts: Vec<String>) -> Row<'static> {
    Row::new(texts.into_iter().map(|text| Cell::from(printable(&text).into_owned())).collect::<Vec<_>>())
}

fn footer(problem: Option<&str>, look: Look) -> Paragraph<'static> {
    let line = match (problem, look.paused) {
        (Some(problem), _) => Line::from(printable(problem).into_owned()).style(Color::Red),
        (None, true) => Line::from("paused: space goes on   q quit").style(Color::Yellow),
        (None, false) => {
            let keys = Order::ALL.map(|order| format!("{} {}", order.label().1, order.label().0.to_lowercase()));
            let keys = keys.join(", ");
            Line::from(format!("q quit   space pause   r reverse   sort: {keys}   every {} s", look.seconds))
        }
    };
    Paragraph::new(line)
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::frame::{Figures, Rates};
    use super::*;

    fn frame() -> Frame {
        let rates = Rates { messages_in: 1234.5, messages_out: 9.25, dropped: 0.0, cpu_percent: 51.4 };
        let figures = Figures { clients: 3, sessions: 4, queued: 7, memory_bytes: 12_345_678, rates: Some(rates) };
        let well = NodeLine {
            name: "attic".to_owned(),
            state: "normal, ready".to_owned(),
            is_well: true,
            figures: Some(figures),
            ..NodeLine::default()
        };
        let away = NodeLine {
            name: "cellar\x1b[2J".to_owned(),
            state: "no answer".to_owned(),
            is_away: true,
            ..NodeLine::default()
        };
        Frame {
            cluster: "site".to_owned(),
            nodes: vec![well, away],
            slow_subscribers: vec![SlowLine {
                client: "slow\x1b]0;x".to_owned(),
                node: "attic".to_owned(),
                queued: 7,
                queued_bytes: 9,
                inflight: 1,
            }],
            hot_topics: vec![HotLine { topic: "a/b".to_owned(), messages: 3.25 }],
            hot_topics_seconds: 7.0,
        }
    }

    fn drawn(width: u16, height: u16, problem: Option<&str>) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let look = Look { order: Order::Queue, reverse: false, paused: false, seconds: 2, skip: 0 };
        terminal.draw(|area| screen(area, &frame(), problem, look)).unwrap();
        let buffer = terminal.backend().buffer();
        let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        (0..height).map(row).collect::<Vec<_>>().join("\n")
    }

    /// OP-09: names do not draw on the screen.
    #[test]
    fn the_page_as_text_has_everything_and_nothing_that_a_terminal_obeys() {
        let text = plain(&frame());
        assert!(text.starts_with("site: 2 nodes, 1 away, 3 clients, 1234 messages/s in, 9.2 out\n\nNODE "), "{text}");
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        let attic = ["attic", "normal,", "ready", "3", "1234", "9.2", "0", "51", "%", "12", "MB", "7"];
        assert!(lines.contains(&attic.to_vec()), "{text}");
        assert!(
            lines.contains(&["cellar\\x1b[2J", "no", "answer", "-", "-", "-", "-", "-", "-", "-"].to_vec()),
            "{text}"
        );
        assert!(lines.contains(&["slow\\x1b]0;x", "attic", "7", "9", "bytes", "1"].to_vec()), "{text}");
        assert!(lines.contains(&["a/b", "3.2"].to_vec()) && !text.contains('\x1b'), "{text}");
        let quiet = Frame { slow_subscribers: Vec::new(), hot_topics: Vec::new(), ..frame() };
        assert!(
            plain(&quiet).ends_with("HOT TOPIC  IN/s\nnobody publishes") && plain(&quiet).contains("UNACKED\nnone")
        );
    }

    #[test]
    fn the_page_fits_the_terminal_whatever_its_size() {
        for (width, height) in [(1, 1), (20, 5), (80, 24), (200, 60)] {
            let shown = drawn(width, height, None);
            assert!(!shown.contains('\x1b'), "{shown}");
        }
        let shown = drawn(100, 24, None);
        for part in ["attic", "cellar\\x1b[2J", "QUEUED↓", "slow\\x1b]0;x", "a/b", "q quit"] {
            assert!(shown.contains(part), "{part} is not in\n{shown}");
        }
        let wide = drawn(150, 24, None);
        let beside = wide.lines().any(|line| line.contains("SLOW SUBSCRIBER") && line.contains("HOT TOPIC"));
        assert!(beside, "{wide}");
        assert!(drawn(100, 24, Some("cannot reach\x1b it")).contains("cannot reach\\x1b it"));
    }
}
