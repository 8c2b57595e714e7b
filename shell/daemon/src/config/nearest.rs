//! The valid name that a mistyped one probably meant.

/// The candidate nearest to `name`, if any is near enough to be a slip of the hand.
pub(super) fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (name.chars().count() / 3).max(1);
    let scored = candidates.into_iter().map(|candidate| (distance(name, candidate), candidate));
    scored.filter(|&(distance, _)| distance <= limit).min().map(|(_, candidate)| candidate)
}

/// Insertions, deletions and replacements that make `a` into `b`; two neighbours swapped count once.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    rows[0] = (0..=b.len()).collect();
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_recognised_and_strangers_are_not() {
        let names = ["mqtt.port", "mqtt.bind", "http.port", "cluster.seeds"];
        assert_eq!(nearest("mqtt.prot", names), Some("mqtt.port"));
        assert_eq!(nearest("htp.port", names), Some("http.port"));
        assert_eq!(nearest("cluster.seed", names), Some("cluster.seeds"));
        assert_eq!(nearest("tls.certificate", names), None);
        assert_eq!(nearest("", names), None);
    }

    #[test]
    fn neighbours_swapped_count_once() {
        assert_eq!(distance("prot", "port"), 1);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("abc", "abc"), 0);
    }
}
