//! Both indexes against the reference matcher.

use std::collections::BTreeMap;

use proptest::prelude::*;
use sedge_base::{Rng, Seed};

use super::{SubscriptionTrie, TopicTree};
use crate::{TopicFilter, TopicName};

fn filter(text: &str) -> TopicFilter {
    TopicFilter::new(text).unwrap()
}

fn name(text: &str) -> TopicName {
    TopicName::new(text).unwrap()
}

fn found(trie: &SubscriptionTrie<u32, u32>, topic: &str) -> Vec<u32> {
    let mut found = Vec::new();
    trie.matches(topic, |key, _| found.push(*key));
    found.sort_unstable();
    found
}

/// Topics from few short levels, so that names and filters meet often.
fn any_level() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        4 => Just("a"), 3 => Just("b"), 1 => Just(""), 1 => Just("a!"), 1 => Just("a0"), 1 => Just("$x"), 1 => Just("ab")
    ]
}

fn any_topic() -> impl Strategy<Value = TopicName> {
    prop::collection::vec(any_level(), 1..5)
        .prop_map(|levels| levels.join("/"))
        .prop_filter_map("empty", |text| TopicName::new(&text).ok())
}

fn any_filter() -> impl Strategy<Value = TopicFilter> {
    let level = prop_oneof![3 => any_level(), 2 => Just("+")];
    let share = prop_oneof![4 => Just(""), 1 => Just("$share/g/")];
    (share, prop::collection::vec(level, 0..5), any::<bool>()).prop_filter_map("empty", |(share, mut levels, open)| {
        if open {
            levels.push("#");
        }
        TopicFilter::new(&format!("{share}{}", levels.join("/"))).ok()
    })
}

proptest! {
    /// MQ-03, FT-11
    #[test]
    fn a_trie_agrees_with_the_reference_matcher(
        steps in prop::collection::vec((any_filter(), 0_u32..4, any::<bool>()), 1..80),
        topics in prop::collection::vec(any_topic(), 1..20),
    ) {
        let mut trie = SubscriptionTrie::new();
        let mut model = BTreeMap::new();
        for (number, (filter, key, add)) in steps.into_iter().enumerate() {
            let plain = self::filter(filter.filter());
            if add || number % 3 == 0 {
                prop_assert_eq!(trie.insert(&filter, key, number), model.insert((plain, key), number));
            } else {
                prop_assert_eq!(trie.remove(&filter, &key), model.remove(&(plain, key)));
            }
        }
        prop_assert_eq!(trie.len(), model.len());
        for ((filter, key), value) in &model {
            prop_assert_eq!(trie.get(filter, key), Some(value));
        }
        for topic in topics {
            let mut found = Vec::new();
            trie.matches(&topic, |key, value| found.push((*value, *key)));
            found.sort_unstable();
            let matching = model.iter().filter(|((filter, _), _)| filter.matches(&topic));
            let mut expected: Vec<_> = matching.map(|((_, key), value)| (*value, *key)).collect();
            expected.sort_unstable();
            prop_assert_eq!(found, expected);
        }
        for (filter, key) in model.keys() {
            prop_assert!(trie.remove(filter, key).is_some());
        }
        prop_assert_eq!(trie.size(), (0, 0, 0));
    }

    /// MQ-03, MQ-07
    #[test]
    fn a_tree_agrees_with_the_reference_matcher(
        steps in prop::collection::vec((any_topic(), any::<bool>()), 1..80),
        filters in prop::collection::vec(any_filter(), 1..20),
    ) {
        let mut tree = TopicTree::new();
        let mut model = BTreeMap::new();
        for (number, (topic, add)) in steps.into_iter().enumerate() {
            if add || number % 3 == 0 {
                prop_assert_eq!(tree.insert(&topic, number), model.insert(topic, number));
            } else {
                prop_assert_eq!(tree.remove(&topic), model.remove(&topic));
            }
        }
        prop_assert!(tree.iter().eq(&model));
        for filter in filters {
            let mut found = Vec::new();
            tree.matching(&filter, |topic, value| found.push((topic.clone(), *value)));
            let matching = model.iter().filter(|(topic, _)| filter.matches(topic));
            prop_assert_eq!(found, matching.map(|(topic, value)| (topic.clone(), *value)).collect::<Vec<_>>());
        }
    }
}

/// MQ-03: ten thousand random pairs.
#[test]
fn ten_thousand_pairs_agree_with_the_reference_matcher() {
    const LEVELS: [&str; 6] = ["a", "b", "", "$s", "c1", "ab"];
    let mut rng = Rng::new(3);
    let mut positive = 0;
    for _ in 0..10_000 {
        let depth = 1 + rng.index(4);
        let mut topic: Vec<&str> = (0..depth).map(|_| *rng.pick(&LEVELS).unwrap()).collect();
        if topic == [""] {
            topic = vec!["a"];
        }
        let mut pattern: Vec<&str> = topic.iter().map(|level| if rng.chance(1, 3) { "+" } else { level }).collect();
        if rng.chance(1, 3) {
            let other = rng.index(pattern.len());
            pattern[other] = rng.pick(&LEVELS).unwrap();
        }
        if rng.chance(1, 3) {
            pattern.truncate(1 + rng.index(pattern.len()));
            pattern.push("#");
        }
        let Ok(pattern) = TopicFilter::new(&pattern.join("/")) else { continue };
        let topic = name(&topic.join("/"));
        let mut trie = SubscriptionTrie::new();
        trie.insert(&pattern, 1, ());
        let mut hits = 0;
        trie.matches(&topic, |_, ()| hits += 1);
        assert_eq!(hits, u32::from(pattern.matches(&topic)), "{pattern} {topic}");
        positive += hits;
    }
    assert!(positive > 3_000, "{positive}");
}

/// MQ-03
#[test]
fn wildcards_do_not_see_reserved_topics() {
    let mut trie = SubscriptionTrie::new();
    for (key, text) in ["#", "+/a", "$SYS/#", "$SYS/+", "+/#"].iter().enumerate() {
        trie.insert(&filter(text), u32::try_from(key).unwrap(), 0);
    }
    assert_eq!(found(&trie, "$SYS/a"), [2, 3]);
    assert_eq!(found(&trie, "x/a"), [0, 1, 4]);
    assert_eq!(found(&trie, "$SYS"), [2]);
}

/// MQ-02
#[test]
fn removed_filters_leave_nothing() {
    let mut trie = SubscriptionTrie::with_seed(Seed::from_rng(&mut Rng::new(9)));
    trie.insert(&filter("a/b/c/+/#"), 1, 10);
    trie.insert(&filter("a/b/+"), 1, 15);
    trie.insert(&filter("a/b"), 1, 20);
    trie.insert(&filter("$share/g/a/b"), 2, 30);
    assert_eq!(trie.size(), (6, 3, 1));
    assert_eq!(trie.remove(&filter("a/b/c/+/#"), &2), None);
    assert_eq!(trie.remove(&filter("a/b/c/+/#"), &1), Some(10));
    assert_eq!(trie.size(), (3, 2, 1));
    assert_eq!(trie.remove(&filter("a/b/+"), &1), Some(15));
    assert_eq!(trie.size(), (0, 0, 1));
    assert_eq!(trie.remove(&filter("a/b/c"), &1), None);
    *trie.get_mut(&filter("a/b"), &1).unwrap() = 21;
    assert_eq!(trie.get(&filter("a/b"), &1), Some(&21));
    assert_eq!(trie.remove(&filter("a/b"), &2), Some(30));
    trie.insert(&filter("x/+"), 5, 50);
    trie.insert(&filter("c"), 6, 60);
    assert_eq!(trie.size(), (2, 1, 2));
    assert_eq!(trie.remove(&filter("c"), &6), Some(60));
    assert_eq!(trie.size(), (2, 1, 1));
    assert_eq!(found(&trie, "a/b"), [1]);
    assert_eq!(found(&trie, "x/y"), [5]);
}

#[test]
fn the_deepest_topic_is_no_danger() {
    let deep = "/".repeat(65_535);
    let half = "/".repeat(32_767);
    let open = "/".repeat(65_534) + "#";
    let plus = vec!["+"; 32_768].join("/");
    let mut trie = SubscriptionTrie::new();
    let mut tree = TopicTree::new();
    tree.insert(&name(&deep), ());
    tree.insert(&name(&half), ());
    for (key, text) in [&deep, "#", &plus, &open].into_iter().enumerate() {
        trie.insert(&filter(text), u32::try_from(key).unwrap(), 0);
        let mut count = 0;
        tree.matching(&filter(text), |_, ()| count += 1);
        assert_eq!(count, [1, 2, 1, 1][key], "{key}");
    }
    assert_eq!(found(&trie, &deep), [0, 1, 3]);
    assert_eq!(found(&trie, &half), [1, 2]);
}

/// FT-11: among 100,000 filters, with the result of a linear scan.
#[test]
#[expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "measures time")]
fn a_match_among_many_filters_is_quick() {
    const MATCHES: u32 = 1_000;
    let bound_micros = if cfg!(debug_assertions) { 2_000 } else { 100 };
    let mut trie = SubscriptionTrie::new();
    let mut all = Vec::new();
    for number in 0..100_000_u32 {
        let (site, room, kind) = (number / 1_000, number / 10 % 100, number % 10);
        let text = match number % 20 {
            0 => format!("site/{site}/+/{kind}/state"),
            1 => format!("site/{site}/{room}/#"),
            2 => format!("site/+/{room}/{kind}/{site}"),
            _ => format!("site/{site}/{room}/{kind}/state"),
        };
        let filter = filter(&text);
        trie.insert(&filter, number, number);
        all.push((filter, number));
    }
    assert_eq!(trie.len(), 100_000);
    let topics: Vec<_> =
        (0..MATCHES).map(|n| name(&format!("site/{}/{}/{}/state", n % 100, n * 7 % 100, n * 3 % 10))).collect();
    let mut found = 0_u64;
    let start = std::time::Instant::now();
    for topic in &topics {
        trie.matches(topic, |_, _| found += 1);
    }
    let mean = start.elapsed() / MATCHES;
    for topic in topics.iter().step_by(100) {
        let scan = all.iter().filter(|(filter, _)| filter.matches(topic)).map(|(_, number)| *number);
        assert_eq!(self::found(&trie, topic.as_str()), scan.collect::<Vec<_>>(), "{topic}");
    }
    println!("{found} found, mean {mean:?}");
    assert!(found >= u64::from(MATCHES));
    assert!(mean.as_micros() < bound_micros, "{mean:?}");
}
