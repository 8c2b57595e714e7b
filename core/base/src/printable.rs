//! Text of strangers (client ids, topics, payloads) for a log or a terminal: nothing in it moves the cursor, begins a line or hides.

use std::borrow::Cow;
use std::fmt::{self, Write};

/// `text` with an escape in place of each character that a terminal obeys or that nobody sees. Line ends are such, too.
///
/// `\n`, `\r`, `\t`, `\x1b` and, above U+007F, `\u{202e}`. A backslash stays as it is.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    // A `String` takes everything.
    let _ = Printable(&mut safe).write_str(text);
    Cow::Owned(safe)
}

/// The same for text of several lines: line ends and tabs stay.
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    let is_unsafe = |c: char| !matches!(c, '\n' | '\t') && is_unsafe(c);
    if !text.contains(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        let _ = if is_unsafe(c) { escape(&mut safe, c) } else { safe.write_char(c) };
    }
    Cow::Owned(safe)
}

/// The same for a text that is JSON, whose meaning stays the same: unsafe characters can only stand within strings.
pub fn printable_json(json: &str) -> Cow<'_, str> {
    // JSON itself has white space, and allows no other character below U+0020.
    let is_unsafe = |c: char| c > ' ' && is_unsafe(c);
    if !json.contains(is_unsafe) {
        return Cow::Borrowed(json);
    }
    let mut safe = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if is_unsafe(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(safe, "\\u{unit:04x}");
            }
        } else {
            safe.push(c);
        }
    }
    Cow::Owned(safe)
}

/// Writes what [`printable`] makes of a text.
#[derive(Debug)]
pub struct Printable<W>(pub W);

impl<W: Write> Write for Printable<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some(at) = rest.find(is_unsafe) {
            let (plain, tail) = rest.split_at(at);
            self.0.write_str(plain)?;
            let mut tail = tail.chars();
            if let Some(c) = tail.next() {
                escape(&mut self.0, c)?;
            }
            rest = tail.as_str();
        }
        self.0.write_str(rest)
    }
}

fn escape(out: &mut impl Write, c: char) -> fmt::Result {
    match c {
        '\n' => out.write_str("\\n"),
        '\r' => out.write_str("\\r"),
        '\t' => out.write_str("\\t"),
        '\0'..='\x7f' => write!(out, "\\x{:02x}", u32::from(c)),
        _ => write!(out, "\\u{{{:x}}}", u32::from(c)),
    }
}

/// Control characters (C0, DEL, C1), line separators, and characters that reorder text or show nothing. Joiners, which scripts need, are not.
const fn is_unsafe(c: char) -> bool {
    matches!(c,
        '\0'..='\x1f' | '\x7f'..='\u{9f}' | '\u{ad}' | '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}'
        | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_obeys_is_escaped() {
        let id = "a\r\n\x1b]0;b\x07\u{9b}2J\u{202e}c\tü 👩\u{200d}🔬\\";
        assert_eq!(printable(id), "a\\r\\n\\x1b]0;b\\x07\\u{9b}2J\\u{202e}c\\tü 👩\u{200d}🔬\\");
        assert_eq!(printable_lines("a\n\tb\r\u{85}\n"), "a\n\tb\\r\\u{85}\n");
        assert!(matches!(printable("plain"), Cow::Borrowed(_)) && matches!(printable_lines("a\nb"), Cow::Borrowed(_)));
    }

    #[test]
    fn json_means_the_same() {
        assert_eq!(
            printable_json("{\n\"a\": \"\u{9b}\u{7f}\u{e0041}\"}"),
            "{\n\"a\": \"\\u009b\\u007f\\udb40\\udc41\"}"
        );
        assert!(matches!(printable_json("{\"a\": \"ü\"}\n"), Cow::Borrowed(_)));
    }
}
