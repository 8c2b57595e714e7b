//! Filters over topics.

use core::cmp::Ordering;
use core::fmt;
use core::hash::{Hash, Hasher};

use super::TopicName;
use super::name::count_levels;
use crate::{InvalidUtf8, Utf8};

/// Beginning of a shared subscription (MQTT 5.0 section 4.8.2).
const SHARE: &[u8] = b"$share/";

/// Why a text is no topic filter (MQTT 5.0 sections 4.7 and 4.8.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTopicFilter {
    /// The text is empty, or empty behind `$share/group/`.
    #[error("a topic filter has at least one character")]
    Empty,
    /// `#` is not the whole of the last level.
    #[error("'#' stands alone in the last level")]
    MultiLevel,
    /// `+` shares its level with something.
    #[error("'+' stands alone in its level")]
    SingleLevel,
    /// A shared subscription without group or filter, or with a wildcard in the group.
    #[error("a shared subscription reads $share/group/filter, without wildcards in the group")]
    Share,
    /// The text is no MQTT string.
    #[error(transparent)]
    Text(#[from] InvalidUtf8),
}

/// A topic filter (MQTT 5.0 section 4.7), also of a shared subscription, `$share/group/filter` (section 4.8.2): at most
/// 65,535 bytes. Cheap to clone. Compared and hashed by its whole text.
#[derive(Clone)]
pub struct TopicFilter {
    text: Utf8,
    /// Where the part that matches starts: 0, or behind the second `/` of a shared subscription.
    start: u16,
}

impl TopicFilter {
    /// A copy of `text`.
    pub fn new(text: &str) -> Result<Self, InvalidTopicFilter> {
        Self::try_from(Utf8::new(text)?)
    }

    /// The whole text.
    pub fn as_str(&self) -> &str {
        self.text.as_str()
    }

    /// The whole text as MQTT string.
    pub const fn as_utf8(&self) -> &Utf8 {
        &self.text
    }

    /// The group of a shared subscription.
    pub fn share_group(&self) -> Option<&str> {
        let end = usize::from(self.start).checked_sub(1)?;
        self.as_str().get(SHARE.len()..end)
    }

    /// The part that matches: the whole text without `$share/group/`.
    pub fn filter(&self) -> &str {
        self.as_str().get(usize::from(self.start)..).unwrap_or_default()
    }

    /// The part that matches, as bytes.
    pub(crate) fn filter_bytes(&self) -> &[u8] {
        self.text.as_bytes().get(usize::from(self.start)..).unwrap_or_default()
    }

    /// The levels of the part that matches; at least one.
    pub fn levels(&self) -> impl Iterator<Item = &str> {
        self.filter().split('/')
    }

    /// How many levels the part that matches has; at least 1.
    pub fn level_count(&self) -> usize {
        count_levels(self.filter_bytes())
    }

    /// Whether the part that matches holds `+` or `#`.
    pub fn has_wildcard(&self) -> bool {
        self.filter_bytes().iter().any(|&byte| byte == b'+' || byte == b'#')
    }

    /// Whether `topic` matches (MQTT 5.0 section 4.7). A leading wildcard does not match a name that starts with `$`.
    ///
    /// Level by level and in plain words: the yardstick of the indexed matchers.
    pub fn matches(&self, topic: &TopicName) -> bool {
        let mut filter = self.filter_bytes().split(|&byte| byte == b'/');
        let mut levels = topic.as_bytes().split(|&byte| byte == b'/');
        let mut first = true;
        loop {
            let (wanted, level) = (filter.next(), levels.next());
            let hidden = first && topic.is_reserved();
            match (wanted, level) {
                (Some(b"#"), _) => return !hidden,
                (Some(b"+"), Some(_)) if hidden => return false,
                (Some(b"+"), Some(_)) => {}
                (Some(wanted), Some(level)) if wanted == level => {}
                (None, None) => return true,
                _ => return false,
            }
            first = false;
        }
    }

    /// Whether every topic that matches `other` matches this, too, as far as their levels tell: `+/#` does not cover `#`, although it matches
    /// no less. Only the parts that match count.
    pub fn covers(&self, other: &Self) -> bool {
        let mut own = self.filter_bytes().split(|&byte| byte == b'/');
        let mut levels = other.filter_bytes().split(|&byte| byte == b'/');
        let mut hidden = other.filter_bytes().starts_with(b"$");
        loop {
            match (own.next(), levels.next()) {
                (Some(b"#"), _) => return !hidden,
                (Some(b"+"), Some(level)) if level != b"#" && !hidden => {}
                (Some(wanted), Some(level)) if wanted == level => {}
                (None, None) => return true,
                _ => return false,
            }
            hidden = false;
        }
    }

    /// A copy that shares no buffer with anything: for what is kept longer than the packet it came in.
    #[must_use]
    pub fn detached(&self) -> Self {
        Self { text: self.text.detached(), start: self.start }
    }
}

/// Offset of the part that matches.
fn matching_part(text: &[u8]) -> Result<usize, InvalidTopicFilter> {
    let Some(rest) = text.strip_prefix(SHARE) else { return Ok(0) };
    let group = rest.iter().position(|&byte| byte == b'/').ok_or(InvalidTopicFilter::Share)?;
    if group == 0 || rest.iter().take(group).any(|&byte| byte == b'+' || byte == b'#') {
        return Err(InvalidTopicFilter::Share);
    }
    Ok(SHARE.len() + group + 1)
}

fn check_levels(filter: &[u8]) -> Result<(), InvalidTopicFilter> {
    if filter.is_empty() {
        return Err(InvalidTopicFilter::Empty);
    }
    let mut levels = filter.split(|&byte| byte == b'/').peekable();
    while let Some(level) = levels.next() {
        if level.contains(&b'#') && (level != b"#" || levels.peek().is_some()) {
            return Err(InvalidTopicFilter::MultiLevel);
        }
        if level.contains(&b'+') && level != b"+" {
            return Err(InvalidTopicFilter::SingleLevel);
        }
    }
    Ok(())
}

impl TryFrom<Utf8> for TopicFilter {
    type Error = InvalidTopicFilter;

    fn try_from(text: Utf8) -> Result<Self, InvalidTopicFilter> {
        let start = matching_part(text.as_bytes())?;
        check_levels(text.as_bytes().get(start..).unwrap_or_default())?;
        let start = u16::try_from(start).ok().ok_or(InvalidUtf8::TooLong)?;
        Ok(Self { text, start })
    }
}

impl TryFrom<&str> for TopicFilter {
    type Error = InvalidTopicFilter;

    fn try_from(text: &str) -> Result<Self, InvalidTopicFilter> {
        Self::new(text)
    }
}

impl PartialEq for TopicFilter {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for TopicFilter {}

impl PartialOrd for TopicFilter {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for TopicFilter {
    fn cmp(&self, other: &Self) -> Ordering {
        self.text.cmp(&other.text)
    }
}

impl Hash for TopicFilter {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl fmt::Debug for TopicFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

impl fmt::Display for TopicFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.text, f)
    }
}

impl AsRef<str> for TopicFilter {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(filter: &str, topic: &str) -> bool {
        TopicFilter::new(filter).unwrap().matches(&TopicName::new(topic).unwrap())
    }

    /// MQ-03
    #[test]
    fn the_examples_of_the_standard_hold() {
        for topic in ["sport/tennis/player1", "sport/tennis/player1/ranking", "sport/tennis/player1/score/wimbledon"] {
            assert!(matches("sport/tennis/player1/#", topic), "{topic}");
        }
        for (filter, topic, expected) in [
            ("sport/#", "sport", true),
            ("#", "sport", true),
            ("sport/tennis/+", "sport/tennis/player1", true),
            ("sport/tennis/+", "sport/tennis/player1/ranking", false),
            ("sport/+", "sport", false),
            ("sport/+", "sport/", true),
            ("+/+", "/finance", true),
            ("/+", "/finance", true),
            ("+", "/finance", false),
            ("#", "$SYS/", false),
            ("+/monitor/Clients", "$SYS/monitor/Clients", false),
            ("$SYS/#", "$SYS/", true),
            ("$SYS/monitor/+", "$SYS/monitor/Clients", true),
            ("a/#", "a/$x", true),
            ("a/+", "a/$x", true),
            ("ACCOUNTS", "Accounts", false),
            ("/", "/", true),
            ("a//b", "a/b", false),
            ("+/#", "a", true),
            ("a/+/#", "a/b", true),
            ("a/+/#", "a", false),
        ] {
            assert_eq!(matches(filter, topic), expected, "{filter} {topic}");
        }
    }

    /// All texts of up to so many levels.
    fn texts(levels: &[&str], most: usize) -> Vec<String> {
        let mut all: Vec<String> = levels.iter().map(|level| (*level).to_owned()).collect();
        let mut last = all.clone();
        for _ in 1..most {
            last = last.iter().flat_map(|text| levels.iter().map(move |level| format!("{text}/{level}"))).collect();
            all.extend(last.clone());
        }
        all
    }

    /// IL-10
    #[test]
    fn a_filter_covers_what_matches_no_more() {
        let filters = texts(&["a", "$", "+", "#"], 3);
        let filters: Vec<TopicFilter> = filters.iter().filter_map(|text| TopicFilter::new(text).ok()).collect();
        let topics = texts(&["a", "b", "$"], 4);
        let topics: Vec<TopicName> = topics.iter().filter_map(|text| TopicName::new(text).ok()).collect();
        let matched: Vec<Vec<bool>> =
            filters.iter().map(|filter| topics.iter().map(|topic| filter.matches(topic)).collect()).collect();
        for (wide, by_wide) in filters.iter().zip(&matched) {
            for (narrow, by_narrow) in filters.iter().zip(&matched) {
                let is_subset = by_narrow.iter().zip(by_wide).all(|(narrow, wide)| *wide || !*narrow);
                // `a/+/#` has all that `a/#` has but `a`; `#` has no more than `+/#`, which is not looked for.
                let is_same = wide.as_str().contains("+/#") && narrow.as_str().ends_with('#');
                assert_eq!(wide.covers(narrow), is_subset && (!is_same || wide.covers(narrow)), "{wide} {narrow}");
            }
        }
    }

    /// MQ-12
    #[test]
    fn misplaced_wildcards_are_refused() {
        for (text, error) in [
            ("", InvalidTopicFilter::Empty),
            ("sport/tennis#", InvalidTopicFilter::MultiLevel),
            ("sport/tennis/#/ranking", InvalidTopicFilter::MultiLevel),
            ("##", InvalidTopicFilter::MultiLevel),
            ("sport+", InvalidTopicFilter::SingleLevel),
            ("++", InvalidTopicFilter::SingleLevel),
            ("$share/g", InvalidTopicFilter::Share),
            ("$share/", InvalidTopicFilter::Share),
            ("$share//a", InvalidTopicFilter::Share),
            ("$share/g+/a", InvalidTopicFilter::Share),
            ("$share/#", InvalidTopicFilter::Share),
            ("$share/g/", InvalidTopicFilter::Empty),
            ("$share/g/a#", InvalidTopicFilter::MultiLevel),
        ] {
            assert_eq!(TopicFilter::new(text), Err(error), "{text}");
        }
    }

    /// MQ-14
    #[test]
    fn shared_filters_come_apart() {
        let shared = TopicFilter::new("$share/group/a/+").unwrap();
        assert_eq!(shared.share_group(), Some("group"));
        assert_eq!(shared.filter(), "a/+");
        assert_eq!(shared.as_str(), "$share/group/a/+");
        assert_eq!(shared.level_count(), 2);
        assert!(shared.has_wildcard());
        assert!(shared.matches(&TopicName::new("a/b").unwrap()));
        assert_eq!(TopicFilter::new("$share/g//").unwrap().filter(), "/");
        let plain = TopicFilter::new("$shared/x").unwrap();
        assert_eq!((plain.share_group(), plain.filter()), (None, "$shared/x"));
        assert_eq!(TopicFilter::new("$share").unwrap().share_group(), None);
    }
}
