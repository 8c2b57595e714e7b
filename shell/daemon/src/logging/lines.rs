//! The last lines of the log, for `sedge logs`.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use crate::runtime::wall;

/// Lines that are kept; the oldest goes.
const LINES_MAX: usize = 1_000;
/// Bytes of their texts.
const BYTES_MAX: usize = 128 * 1024;
/// Bytes of one: escaped in every way it still fits an answer to another node.
const LINE_BYTES_MAX: usize = 4 * 1024;

/// Last lines of the log of this process, which has one log.
static KEPT: Mutex<Kept> = Mutex::new(Kept::new());

/// A line as it was written, without colours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// Lines are counted from 0 on.
    pub(crate) number: u64,
    /// When it was written, in milliseconds since 1970.
    pub(crate) at_ms: u64,
    pub(crate) text: Box<str>,
}

/// How much is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LineStats {
    pub(crate) kept: usize,
    pub(crate) bytes: usize,
    /// Lines that made room for others.
    pub(crate) forgotten: u64,
}

#[derive(Debug)]
struct Kept {
    lines: VecDeque<Line>,
    bytes: usize,
    /// Number of the next line.
    next: u64,
}

impl Kept {
    const fn new() -> Self {
        Self { lines: VecDeque::new(), bytes: 0, next: 0 }
    }

    fn push(&mut self, at_ms: u64, text: &str) {
        let cut = text.get(..text.floor_char_boundary(LINE_BYTES_MAX)).unwrap_or_default();
        let text: Box<str> = if cut.len() < text.len() { format!("{cut}...").into() } else { cut.into() };
        self.bytes += text.len();
        self.lines.push_back(Line { number: self.next, at_ms, text });
        self.next += 1;
        while self.lines.len() > LINES_MAX || self.bytes > BYTES_MAX {
            let Some(oldest) = self.lines.pop_front() else { break };
            self.bytes -= oldest.text.len();
        }
    }

    fn part(&self, from: Start, limit: usize) -> (Vec<Line>, u64) {
        let from = match from {
            Start::Number(number) => number.min(self.next),
            Start::Last(count) => self.next.saturating_sub(count as u64),
        };
        let wanted = self.lines.iter().filter(|line| line.number >= from).take(limit);
        let lines: Vec<Line> = wanted.cloned().collect();
        let next = lines.last().map_or(from, |line| line.number + 1);
        (lines, next)
    }
}

/// Where to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// With this line.
    Number(u64),
    /// With the last so many.
    Last(usize),
}

/// Keeps what is written: an event with its line end.
pub(super) fn keep(event: &str) {
    let text = without_colours(event.trim_end());
    KEPT.lock().unwrap_or_else(PoisonError::into_inner).push(wall().as_millis(), &text);
}

/// At most `limit` lines in order, and the number of the line behind them.
pub(crate) fn lines(from: Start, limit: usize) -> (Vec<Line>, u64) {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner).part(from, limit)
}

pub(crate) fn stats() -> LineStats {
    let kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    LineStats { kept: kept.lines.len(), bytes: kept.bytes, forgotten: kept.next - kept.lines.len() as u64 }
}

/// The log itself colours its lines; whatever else begins like a colour was escaped.
fn without_colours(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        plain.push_str(part.split_once('m').map_or(part, |(_, rest)| rest));
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts((lines, next): (Vec<Line>, u64)) -> (Vec<String>, u64) {
        (lines.into_iter().map(|line| line.text.into()).collect(), next)
    }

    /// OP-09
    #[test]
    fn the_last_lines_are_kept_in_order_and_in_number() {
        let mut kept = Kept::new();
        for number in 0..LINES_MAX + 5 {
            kept.push(7, &format!("line {number}"));
        }
        assert_eq!((kept.lines.len(), kept.next), (LINES_MAX, 1_005));
        assert_eq!(texts(kept.part(Start::Number(0), 2)), (vec!["line 5".to_owned(), "line 6".to_owned()], 7));
        assert_eq!(texts(kept.part(Start::Last(1), 9)), (vec!["line 1004".to_owned()], 1_005));
        assert_eq!(texts(kept.part(Start::Number(1_005), 9)), (vec![], 1_005));
        assert_eq!(texts(kept.part(Start::Number(9_999), 9)), (vec![], 1_005), "of another life");
    }

    #[test]
    fn bytes_are_bounded_too() {
        let mut kept = Kept::new();
        for _ in 0..100 {
            kept.push(7, &"ü".repeat(LINE_BYTES_MAX));
        }
        assert!(kept.bytes <= BYTES_MAX && kept.lines.len() > 20, "{}", kept.bytes);
        assert!(kept.lines.iter().all(|line| line.text.len() <= LINE_BYTES_MAX + 3 && line.text.ends_with("...")));
        assert_eq!(kept.bytes, kept.lines.iter().map(|line| line.text.len()).sum::<usize>());
    }

    #[test]
    fn colours_are_left_out() {
        assert_eq!(without_colours("\x1b[2m2026\x1b[0m \x1b[32m INFO\x1b[0m mm"), "2026  INFO mm");
        assert_eq!(without_colours("plain m"), "plain m");
    }
}
