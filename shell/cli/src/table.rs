//! Plain aligned tables. A cell stays on its line, whatever it holds.

use sedge_base::printable;

/// Columns are as wide as their widest cell; the last one is not filled up.
pub(crate) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let safe = |row: &Vec<String>| row.iter().map(|cell| printable(cell).into_owned()).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(safe).collect();
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain(head.get(column).map(|name| name.chars().count())).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let head: Vec<String> = head.iter().map(|name| (*name).to_owned()).collect();
    let line = |cells: &Vec<String>| {
        let padded: Vec<String> = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        padded.join("  ").trim_end().to_owned()
    };
    std::iter::once(&head).chain(&rows).map(line).collect::<Vec<_>>().join("\n")
}

/// Names with their values, one pair a line.
pub(crate) fn pairs(pairs: &[(&str, String)]) -> String {
    let width = pairs.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let line = |(name, value): &(&str, String)| format!("{name:<width$}  {}", printable(value)).trim_end().to_owned();
    pairs.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_lines_end_clean() {
        let rows = [vec!["a".to_owned(), "1".to_owned()], vec!["größer".to_owned(), String::new()]];
        assert_eq!(table(&["NAME", "N"], &rows), "NAME    N\na       1\ngrößer");
        assert_eq!(table(&["NAME"], &[]), "NAME");
        assert_eq!(table(&["A", "B"], &[vec!["\x1b\n".to_owned(), "1".to_owned()]]), "A       B\n\\x1b\\n  1");
        assert_eq!(pairs(&[("a", "1\r2".to_owned())]), "a  1\\r2");
        assert_eq!(pairs(&[("a", "1".to_owned()), ("bcd", "2".to_owned())]), "a    1\nbcd  2");
    }
}
