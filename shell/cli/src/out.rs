//! Standard output and standard error. Locked and flushed per call, so that lines stay whole and pipes see them at once.
//!
//! Texts of others (client ids, topics, answers of a server) reach a terminal through here only, with their control
//! characters escaped. A value that must stay on its line goes through `sedge_base::printable` before, as cells of tables do.

use std::io::{self, IsTerminal, Write};

use sedge_base::{printable_json, printable_lines};
use serde::Serialize;

use crate::failure::Failure;

/// To the upper left corner of the terminal.
const HOME: &str = "\x1b[H";
/// Lines that are too long are cut from here on.
const NO_WRAP: &str = "\x1b[?7l";
/// They go on in the next line again.
const WRAP: &str = "\x1b[?7h";
/// Clears the rest of the line and goes to the next one.
const LINE_END: &str = "\x1b[K\r\n";
/// Clears the lines below.
const BELOW: &str = "\x1b[J";

/// Writes `bytes` to standard output as they are.
pub(crate) fn raw(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(|error| Failure::output(&error))
}

/// Writes a message that a client sent to standard output: as it is, unless a person at a terminal reads it.
pub(crate) fn message(bytes: &[u8]) -> Result<(), Failure> {
    if io::stdout().is_terminal() { raw(for_terminal(bytes).as_bytes()) } else { raw(bytes) }
}

/// Text of several lines; a byte that is no text may be a control character of a terminal that knows no UTF-8.
fn for_terminal(bytes: &[u8]) -> String {
    let mut safe = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        safe.push_str(&printable_lines(chunk.valid()));
        safe.push_str(&chunk.invalid().escape_ascii().to_string());
    }
    safe
}

/// Whether a person at a terminal reads standard output.
pub(crate) fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Shows `text` in place of all that the terminal shows, cut to its size.
pub(crate) fn screen(text: &str) -> Result<(), Failure> {
    let rows = rustix::termios::tcgetwinsize(io::stdout()).map_or(0, |size| usize::from(size.ws_row));
    raw(frame(text, if rows == 0 { usize::MAX } else { rows }).as_bytes())
}

/// A screen of so many `rows`: drawn over the last one line by line, which flickers less than a cleared one. The terminal cuts long lines.
fn frame(text: &str, rows: usize) -> String {
    let safe = printable_lines(text);
    let lines: Vec<&str> = safe.lines().collect();
    // The last row stays free for the cursor.
    let room = rows.saturating_sub(1).max(1);
    let (shown, rest) = lines.split_at_checked(room).unwrap_or((&lines, &[]));
    let mut frame = format!("{HOME}{NO_WRAP}");
    let cut = (!rest.is_empty()).then(|| format!("... {} more lines", rest.len() + 1));
    let shown = if cut.is_some() { shown.split_last().map_or(shown, |(_, before)| before) } else { shown };
    for line in shown.iter().copied().chain(cut.as_deref()) {
        frame.push_str(line);
        frame.push_str(LINE_END);
    }
    frame + WRAP + BELOW
}

/// Writes `text` and a line end to standard output.
pub(crate) fn line(text: &str) -> Result<(), Failure> {
    raw(format!("{}\n", printable_lines(text)).as_bytes())
}

/// Writes a text of JSON and a line end to standard output.
pub(crate) fn json_text(text: &str) -> Result<(), Failure> {
    raw(format!("{}\n", printable_json(text)).as_bytes())
}

/// Writes `value` as one line of JSON to standard output.
pub(crate) fn json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(value).map_err(|error| Failure::failed(format!("cannot write JSON: {error}")))?;
    json_text(&text)
}

/// Writes `text` and a line end to standard error. That nobody reads it is no reason to fail.
pub(crate) fn note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{}", printable_lines(text));
}

/// Standard output or standard error for a report of several lines with texts of others in it.
pub(crate) struct Report<W>(pub(crate) W);

impl<W: Write> Write for Report<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write_all(for_terminal(bytes).as_bytes()).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_gets_nothing_that_it_obeys() {
        assert_eq!(for_terminal(b"a\x1b[2J\n\tb\x9b2J \xc3\xbc\xc2\x9b"), "a\\x1b[2J\n\tb\\x9b2J ü\\u{9b}");
    }

    /// OP-09
    #[test]
    fn a_screen_has_room_for_what_it_shows_and_strangers_do_not_draw_on_it() {
        let start = format!("{HOME}{NO_WRAP}");
        assert_eq!(frame("a\nb\x1b[2J", 3), format!("{start}a{LINE_END}b\\x1b[2J{LINE_END}{WRAP}{BELOW}"));
        assert_eq!(frame("a\nb\nc\nd", 3), format!("{start}a{LINE_END}... 3 more lines{LINE_END}{WRAP}{BELOW}"));
        assert!(frame("a\nb\nc", usize::MAX).contains("c\x1b[K"));
    }
}
