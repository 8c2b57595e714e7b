//! The valid name that a mistyped one probably meant.

/// `; did you mean NAME?` of the candidate nearest to `name`, if one is near enough to be a slip of the hand; else nothing.
pub(crate) fn hint<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    let limit = (name.chars().count() / 3).max(1);
    let scored = candidates.into_iter().map(|candidate| (distance(name, candidate), candidate));
    let best = scored.filter(|&(distance, _)| distance <= limit).min();
    best.map_or_else(String::new, |(_, candidate)| format!("; did you mean {candidate}?"))
}

/// Insertions, deletions and replacements that make `one` into `two`.
fn distance(one: &str, two: &str) -> usize {
    let two: Vec<char> = two.chars().collect();
    let mut row: Vec<usize> = (0..=two.len()).collect();
    for (i, own) in one.chars().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, other) in two.iter().enumerate() {
            let replaced = diagonal + usize::from(own != *other);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[two.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_recognised_and_strangers_are_not() {
        assert_eq!(hint("meen", ["mean", "min"]), "; did you mean mean?");
        assert_eq!(hint("average", ["mean", "min"]), "");
    }
}
