//! One level of a tree of topics: the names directly below a prefix. Costs one search for each line, however many topics there are.

use core::ops::Bound;

use bytes::Bytes;
use sedge_base::ClientId;
use sedge_mqtt::{Message, QoS, TopicTree};

/// Topics that one page looks at: a few milliseconds of a thread.
pub const LEVEL_EXAMINES: usize = 20_000;
/// Topics that are counted below one line.
const COUNTED_MAX: usize = 100;

/// Which part of which level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LevelQuery {
    /// The beginning of the topics: empty, or levels with a `/` behind each.
    pub below: String,
    /// The key of the last line that is known; lines behind it are wanted.
    pub after: Option<String>,
    /// Most lines.
    pub limit: usize,
}

/// A page of a level.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Level {
    /// In the order of the keys' bytes.
    pub lines: Vec<LevelLine>,
    /// Where to go on; `None` at the end of the level.
    pub next: Option<String>,
}

/// A topic, or topics that begin alike.
#[derive(Clone, Debug, PartialEq)]
pub struct LevelLine {
    /// The name of the level; behind the name of levels with others below a `/`. A name may come twice: as a topic, and with topics below.
    pub key: String,
    /// Topics in it.
    pub topics: usize,
    /// Whether it may have more.
    pub has_more: bool,
    /// Publications a second, of as many topics as are counted.
    pub rate: f64,
    /// The value; `None` where topics are below.
    pub last: Option<LastValue>,
}

/// The last publication to a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastValue {
    /// When, in milliseconds since 1970 of the cluster's time.
    pub at_ms: u64,
    /// Its QoS.
    pub qos: QoS,
    /// Whether it is, or was to be, retained.
    pub retain: bool,
    /// Bytes of the payload.
    pub bytes: usize,
    /// The payload; `None` if it is too long to be kept.
    pub payload: Option<Bytes>,
    /// The client that published it.
    pub publisher: Option<ClientId>,
}

impl LastValue {
    pub(crate) fn of(message: &Message) -> Self {
        Self {
            at_ms: message.stamp.millis,
            qos: message.qos,
            retain: message.retain,
            bytes: message.payload.len(),
            payload: Some(message.payload.clone()),
            publisher: message.publisher.clone(),
        }
    }
}

/// Where the next search begins.
struct Place {
    bytes: Vec<u8>,
    is_known: bool,
}

impl Place {
    /// The first place of a page.
    fn first(asked: &LevelQuery) -> Self {
        let LevelQuery { below, after, .. } = asked;
        match after.as_deref() {
            None => Self { bytes: below.clone().into_bytes(), is_known: false },
            Some(key) => match key.strip_suffix('/') {
                Some(name) => Self::behind(&[below, name]),
                None => Self { bytes: [below, key].concat().into_bytes(), is_known: true },
            },
        }
    }

    /// Behind all topics that have this name and a `/` at their beginning: `0` follows `/`.
    fn behind(name: &[&str]) -> Self {
        Self { bytes: [&name.concat(), "0"].concat().into_bytes(), is_known: false }
    }

    fn bound(&self) -> Bound<&[u8]> {
        if self.is_known { Bound::Excluded(&self.bytes) } else { Bound::Included(&self.bytes) }
    }
}

/// A page of the level below a prefix: topics that are `alive`, with their `rate` and `last` value.
pub(crate) fn level<V>(
    tree: &TopicTree<V>,
    asked: &LevelQuery,
    alive: impl Fn(&V) -> bool,
    rate: impl Fn(&V) -> f64,
    last: impl Fn(&V) -> LastValue,
) -> Level {
    let below = asked.below.as_str();
    let mut page = Level::default();
    let (mut place, mut examined, mut known) = (Place::first(asked), 0, None);
    loop {
        let Some((topic, value)) = tree.range(place.bound()).next() else { return page };
        let Some(rest) = topic.as_str().strip_prefix(below) else { return page };
        if page.lines.len() == asked.limit || examined >= LEVEL_EXAMINES {
            page.next = known;
            return page;
        }
        examined += 1;
        let Some((name, _)) = rest.split_once('/') else {
            if alive(value) {
                let (key, last) = (rest.to_owned(), Some(last(value)));
                page.lines.push(LevelLine { key, topics: 1, has_more: false, rate: rate(value), last });
            }
            place = Place { bytes: topic.as_bytes().to_vec(), is_known: true };
            known = Some(rest.to_owned());
            continue;
        };
        let key = [name, "/"].concat();
        let begin = [below, &key].concat();
        let mut line = LevelLine { key: key.clone(), topics: 0, has_more: false, rate: 0.0, last: None };
        let mut looked = 0;
        for (topic, value) in tree.range(Bound::Included(begin.as_bytes())) {
            if !topic.as_str().starts_with(&begin) {
                break;
            }
            if looked == COUNTED_MAX {
                line.has_more = true;
                break;
            }
            looked += 1;
            if alive(value) {
                line.topics += 1;
                line.rate += rate(value);
            }
        }
        examined += looked;
        if line.topics > 0 || line.has_more {
            page.lines.push(line);
        }
        place = Place::behind(&[below, name]);
        known = Some(key);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sedge_mqtt::TopicName;

    use super::*;

    fn tree(topics: &[String]) -> TopicTree<bool> {
        let mut tree = TopicTree::new();
        for topic in topics {
            tree.insert(&TopicName::new(topic).unwrap(), !topic.contains("dead"));
        }
        tree
    }

    fn page(tree: &TopicTree<bool>, below: &str, after: Option<&str>, limit: usize) -> Level {
        let asked = LevelQuery { below: below.to_owned(), after: after.map(str::to_owned), limit };
        let value =
            LastValue { at_ms: 0, qos: QoS::AtMostOnce, retain: false, bytes: 0, payload: None, publisher: None };
        level(tree, &asked, |alive| *alive, |_| 0.5, |_| value.clone())
    }

    fn keys(page: &Level) -> Vec<&str> {
        page.lines.iter().map(|line| line.key.as_str()).collect()
    }

    /// OP-02
    #[test]
    fn a_level_has_its_topics_and_what_is_below() {
        let topics = ["a", "a!", "a/b", "a/c/d", "a0", "/x", "dead", "half/dead", "half/x", "gone/dead"];
        let tree = tree(&topics.map(str::to_owned));
        let root = page(&tree, "", None, 100);
        assert_eq!(keys(&root), ["/", "a", "a!", "a/", "a0", "half/"]);
        assert_eq!(root.next, None);
        let counted: Vec<_> = root.lines.iter().map(|line| (line.topics, line.rate)).collect();
        assert_eq!(counted, [(1, 0.5), (1, 0.5), (1, 0.5), (2, 1.0), (1, 0.5), (1, 0.5)]);
        assert_eq!(keys(&page(&tree, "a/", None, 100)), ["b", "c/"]);
        assert_eq!(keys(&page(&tree, "/", None, 100)), ["x"]);
        assert_eq!(keys(&page(&tree, "nobody/", None, 100)), <[&str; 0]>::default());
    }

    /// OP-02: a page costs the same however many topics there are, dead ones included.
    #[test]
    fn a_page_looks_at_a_bounded_part() {
        let mut topics: Vec<String> = (0..50_000).map(|number| format!("dead{number:05}")).collect();
        topics.extend((0..500).map(|number| format!("z/{number:03}")));
        let tree = tree(&topics);
        let first = page(&tree, "", None, 10);
        assert_eq!((first.lines.len(), first.next.as_deref()), (0, Some("dead19999")));
        let last = page(&tree, "", Some("dead49998"), 10);
        assert_eq!((keys(&last), last.next.as_deref()), (vec!["z/"], None));
        assert_eq!((last.lines[0].topics, last.lines[0].has_more), (COUNTED_MAX, true));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// OP-02: pages of any size are the level, and all levels together are the topics.
        #[test]
        fn pages_together_are_the_tree(
            levels in prop::collection::vec(prop::collection::vec(prop_oneof![Just("a"), Just("b"), Just(""), Just("a!"), Just("a0")], 1..4), 1..30),
            limit in 1_usize..5,
        ) {
            let mut topics: Vec<String> = levels.iter().map(|levels| levels.join("/")).filter(|topic| !topic.is_empty()).collect();
            topics.sort();
            topics.dedup();
            let tree = tree(&topics);
            let (mut found, mut below) = (Vec::new(), vec![String::new()]);
            while let Some(prefix) = below.pop() {
                let mut after = None;
                loop {
                    let page = page(&tree, &prefix, after.as_deref(), limit);
                    prop_assert!(page.lines.len() <= limit);
                    for line in &page.lines {
                        let whole = format!("{prefix}{}", line.key);
                        if line.last.is_some() { found.push(whole) } else { below.push(whole) }
                    }
                    after = page.next;
                    if after.is_none() { break }
                }
            }
            found.sort();
            prop_assert_eq!(found, topics);
        }
    }
}
