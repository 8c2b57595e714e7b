//! Tables of a report.

use core::fmt::Write;

/// A heading, a table and remarks below it, in Markdown.
pub(crate) fn section(title: &str, head: &[&str], rows: &[Vec<String>], remarks: &str) -> String {
    let mut text = format!("## {title}\n\n");
    let mut line = |cells: &mut dyn Iterator<Item = &str>| {
        for cell in cells {
            // Writing to a text cannot fail.
            let _ = write!(text, "| {cell} ");
        }
        text.push_str("|\n");
    };
    line(&mut head.iter().copied());
    line(&mut head.iter().map(|_| "---"));
    for row in rows {
        line(&mut row.iter().map(String::as_str));
    }
    if !remarks.is_empty() {
        let _ = write!(text, "\n{remarks}\n");
    }
    text
}
