//! Mistakes in a site file and their places.

use core::fmt;

/// A mistake in a site file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub struct SiteError {
    /// Line in the file, from 1.
    pub line: usize,
    /// Path of the field, such as `resources.lb.port`.
    pub field: String,
    /// The mistake in words, and how to mend it.
    pub problem: String,
}

impl SiteError {
    pub(crate) fn new(line: usize, field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { line, field: field.into(), problem: problem.into() }
    }
}

impl fmt::Display for SiteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}: {}", self.line, self.field, self.problem)
    }
}

/// The known name that `given` is most like, if one is close: at most two letters differ.
pub(crate) fn nearest<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|name| (distance(given, name), name))
        .min()
        .filter(|(apart, _)| *apart <= 2)
        .map(|(_, name)| name)
}

/// Letters to insert, delete or replace to make one of the other (Levenshtein).
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.chars().enumerate() {
        let mut diagonal = i;
        let mut before = i + 1;
        for (j, &b) in right.iter().enumerate() {
            let above = row.get(j + 1).copied().unwrap_or(usize::MAX - 1);
            let cost = (diagonal + usize::from(a != b)).min(before + 1).min(above + 1);
            if let Some(cell) = row.get_mut(j) {
                *cell = before;
            }
            diagonal = above;
            before = cost;
        }
        if let Some(cell) = row.last_mut() {
            *cell = before;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_suggested() {
        assert_eq!(nearest("brokerz", ["brokers", "lb"]), Some("brokers"));
        assert_eq!(nearest("leastcon", ["roundrobin", "leastconn"]), Some("leastconn"));
        assert_eq!(nearest("nothing-like-it", ["brokers", "lb"]), None);
        assert_eq!((distance("kitten", "sitting"), distance("", "abc"), distance("abc", "abc")), (3, 3, 0));
    }
}
