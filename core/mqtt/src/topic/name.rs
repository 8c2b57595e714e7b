//! Names of topics.

use core::borrow::Borrow;
use core::fmt;

use crate::{InvalidUtf8, Utf8};

/// Why a text is no topic name (MQTT 5.0 section 4.7.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTopicName {
    /// The text is empty.
    #[error("a topic name has at least one character")]
    Empty,
    /// The text holds `+` or `#`.
    #[error("a topic name holds no wildcard")]
    Wildcard,
    /// The text is no MQTT string.
    #[error(transparent)]
    Text(#[from] InvalidUtf8),
}

/// The name of a topic (MQTT 5.0 section 4.7): 1 to 65,535 bytes, levels separated by `/`, no wildcards. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicName(Utf8);

impl TopicName {
    /// A copy of `text`.
    pub fn new(text: &str) -> Result<Self, InvalidTopicName> {
        Self::try_from(Utf8::new(text)?)
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// The text as MQTT string.
    pub const fn as_utf8(&self) -> &Utf8 {
        &self.0
    }

    /// The text as bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// The levels, which may be empty; at least one.
    pub fn levels(&self) -> impl Iterator<Item = &str> {
        self.as_str().split('/')
    }

    /// How many levels there are; at least 1.
    pub fn level_count(&self) -> usize {
        count_levels(self.as_bytes())
    }

    /// Whether the name starts with `$`: a leading wildcard does not match it (MQTT 5.0 section 4.7.2).
    pub fn is_reserved(&self) -> bool {
        self.as_bytes().starts_with(b"$")
    }

    /// A copy that shares no buffer with anything: for what is kept longer than the packet it came in.
    #[must_use]
    pub fn detached(&self) -> Self {
        Self(self.0.detached())
    }
}

/// One more than the separators in `text`.
pub(crate) fn count_levels(text: &[u8]) -> usize {
    text.split(|&byte| byte == b'/').count()
}

impl TryFrom<Utf8> for TopicName {
    type Error = InvalidTopicName;

    fn try_from(text: Utf8) -> Result<Self, InvalidTopicName> {
        if text.is_empty() {
            return Err(InvalidTopicName::Empty);
        }
        if text.as_bytes().iter().any(|&byte| byte == b'+' || byte == b'#') {
            return Err(InvalidTopicName::Wildcard);
        }
        Ok(Self(text))
    }
}

impl TryFrom<&str> for TopicName {
    type Error = InvalidTopicName;

    fn try_from(text: &str) -> Result<Self, InvalidTopicName> {
        Self::new(text)
    }
}

impl fmt::Debug for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl Borrow<str> for TopicName {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

impl AsRef<[u8]> for TopicName {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl AsRef<str> for TopicName {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MQ-12
    #[test]
    fn wildcards_and_emptiness_are_refused() {
        assert_eq!(TopicName::new(""), Err(InvalidTopicName::Empty));
        for bad in ["#", "+", "a/#", "a/+/b", "a+b", "a#"] {
            assert_eq!(TopicName::new(bad), Err(InvalidTopicName::Wildcard), "{bad}");
        }
        assert_eq!(TopicName::new("a\0"), Err(InvalidTopicName::Text(InvalidUtf8::Nul)));
    }

    /// MQ-03
    #[test]
    fn levels_may_be_empty() {
        let name = TopicName::new("/a//b/").unwrap();
        assert_eq!(name.levels().collect::<Vec<_>>(), ["", "a", "", "b", ""]);
        assert_eq!(name.level_count(), 5);
        assert_eq!(TopicName::new("/").unwrap().level_count(), 2);
        assert!(TopicName::new("$SYS/x").unwrap().is_reserved());
        assert!(!name.is_reserved());
    }
}
