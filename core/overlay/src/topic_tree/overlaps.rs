//! Index of filters that have topics in common.

use core::ops::Bound;
use std::collections::BTreeMap;

use sedge_mqtt::TopicFilter;

use super::interest::Interest;

/// Whether some topic matches both filters (MQTT 5.0 section 4.7).
pub(super) fn overlap(one: &TopicFilter, other: &TopicFilter) -> bool {
    let hides = |a: &TopicFilter, b: &TopicFilter| a.filter().starts_with(['+', '#']) && b.filter().starts_with('$');
    if hides(one, other) || hides(other, one) {
        return false;
    }
    let (mut ones, mut others) = (one.levels(), other.levels());
    loop {
        match (ones.next(), others.next()) {
            (None, None) | (Some("#"), _) | (_, Some("#")) => return true,
            (Some("+"), Some(_)) | (Some(_), Some("+")) => {}
            (Some(a), Some(b)) if a == b => {}
            _ => return false,
        }
    }
}

/// Interests, found by a filter that overlaps theirs.
///
/// Interests are kept by the levels before their first wildcard, each followed by `/`. Of two filters that overlap one has levels that
/// continue the other's, so a search looks at the filters behind its own levels and at those that end on the way there.
#[derive(Debug)]
pub(super) struct Overlaps<V> {
    by_stem: BTreeMap<String, BTreeMap<Interest, V>>,
}

impl<V> Overlaps<V> {
    pub(super) const fn new() -> Self {
        Self { by_stem: BTreeMap::new() }
    }

    pub(super) fn insert(&mut self, interest: Interest, value: V) -> Option<V> {
        self.by_stem.entry(stem(&interest.filter)).or_default().insert(interest, value)
    }

    pub(super) fn get_mut(&mut self, interest: &Interest) -> Option<&mut V> {
        self.by_stem.get_mut(&stem(&interest.filter))?.get_mut(interest)
    }

    pub(super) fn remove(&mut self, interest: &Interest) -> Option<V> {
        let stem = stem(&interest.filter);
        let bucket = self.by_stem.get_mut(&stem)?;
        let value = bucket.remove(interest)?;
        if bucket.is_empty() {
            self.by_stem.remove(&stem);
        }
        Some(value)
    }

    /// Takes out the interests whose value `is_wanted` accepts.
    pub(super) fn extract(&mut self, is_wanted: impl Fn(&V) -> bool) -> Vec<Interest> {
        let mut taken = Vec::new();
        self.by_stem.retain(|_, bucket| {
            taken.extend(bucket.extract_if(.., |_, value| is_wanted(value)).map(|(interest, _)| interest));
            !bucket.is_empty()
        });
        taken
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Interest, &V)> {
        self.by_stem.values().flatten()
    }

    /// All interests whose filters overlap `filter`.
    pub(super) fn matching<'a>(&'a self, filter: &'a TopicFilter) -> impl Iterator<Item = (&'a Interest, &'a V)> {
        let stem = stem(filter);
        let mut ends = vec![0];
        ends.extend(stem.match_indices('/').map(|(at, _)| at + 1));
        // The whole stem is where the second search starts.
        ends.pop();
        let on_the_way: Vec<_> = ends.iter().filter_map(|end| self.by_stem.get(stem.get(..*end)?)).collect();
        let from = (Bound::Included(stem.as_str()), Bound::Unbounded);
        let behind = self.by_stem.range::<str, _>(from);
        let behind = behind.take_while(move |(other, _)| other.starts_with(&stem)).map(|(_, bucket)| bucket);
        let buckets = on_the_way.into_iter().chain(behind);
        buckets.flatten().filter(|(interest, _)| overlap(&interest.filter, filter))
    }

    /// Whether any filter overlaps `filter`.
    pub(super) fn any(&self, filter: &TopicFilter) -> bool {
        self.matching(filter).next().is_some()
    }
}

impl<V> Default for Overlaps<V> {
    fn default() -> Self {
        Self::new()
    }
}

/// The levels before the first wildcard, each followed by `/`.
fn stem(filter: &TopicFilter) -> String {
    let mut stem = String::new();
    for level in filter.levels().take_while(|level| !matches!(*level, "+" | "#")) {
        stem.push_str(level);
        stem.push('/');
    }
    stem
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use sedge_mqtt::TopicName;

    use super::*;

    fn filters() -> impl Strategy<Value = TopicFilter> {
        let text = "[ab+$]{0,1}(/[ab+]{0,1}){0,2}(/#)?|#|\\$a(/b)?";
        text.prop_filter_map("not a filter", |text| TopicFilter::new(&text).ok())
    }

    /// All topics of up to four of these levels: enough to tell the filters above apart.
    fn topics() -> Vec<TopicName> {
        let levels = ["", "a", "b", "$", "$a", "x"];
        let mut texts: Vec<String> = levels.iter().map(ToString::to_string).collect();
        let mut from = 0;
        for _ in 0..3 {
            let (start, end) = (from, texts.len());
            from = end;
            for at in start..end {
                for level in levels {
                    texts.push(format!("{}/{level}", texts[at]));
                }
            }
        }
        texts.iter().filter_map(|text| TopicName::new(text).ok()).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn filters_overlap_if_and_only_if_a_topic_matches_both(one in filters(), other in filters()) {
            // The only topic that both match would be the one without any character, which does not exist: to say yes costs a question.
            let pair = [one.filter(), other.filter()];
            prop_assume!(!pair.contains(&"/#") || !pair.contains(&"+"));
            let common = topics().iter().any(|topic| one.matches(topic) && other.matches(topic));
            prop_assert_eq!(overlap(&one, &other), common, "{} {}", one, other);
        }

        #[test]
        fn a_search_finds_exactly_what_overlaps(all in vec(filters(), 0..30), gone in vec(filters(), 0..10), wanted in filters()) {
            let mut index = Overlaps::new();
            for filter in &all {
                index.insert(Interest::subscriber(filter.clone()), ());
            }
            for filter in &gone {
                index.remove(&Interest::subscriber(filter.clone()));
            }
            let mut expected: Vec<Interest> = all
                .into_iter()
                .filter(|filter| !gone.contains(filter) && overlap(filter, &wanted))
                .map(Interest::subscriber)
                .collect();
            expected.sort_unstable();
            expected.dedup();
            let mut found: Vec<Interest> = index.matching(&wanted).map(|(interest, ())| interest.clone()).collect();
            found.sort_unstable();
            prop_assert_eq!(index.any(&wanted), !found.is_empty());
            prop_assert_eq!(found, expected);
        }
    }
}
