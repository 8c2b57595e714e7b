//! One level of a rule's filter.

use crate::Who;

/// A level that holds `%c` or `%u`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Template(Vec<Piece>);

/// Piece of a [`Template`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Piece {
    Text(Box<str>),
    Client,
    User,
}

impl Template {
    /// `None` if nothing in `level` stands for something else.
    pub(crate) fn parse(level: &str) -> Option<Self> {
        let mut pieces = Vec::new();
        let mut rest = level;
        while let Some((before, behind)) = rest.split_once('%') {
            let piece = match behind.as_bytes().first() {
                Some(b'c') => Piece::Client,
                Some(b'u') => Piece::User,
                _ => return None,
            };
            if !before.is_empty() {
                pieces.push(Piece::Text(before.into()));
            }
            pieces.push(piece);
            rest = behind.get(1..).unwrap_or_default();
        }
        if pieces.is_empty() {
            return None;
        }
        if !rest.is_empty() {
            pieces.push(Piece::Text(rest.into()));
        }
        Some(Self(pieces))
    }

    /// Whether `level` is this with the names of `who` put in. Without a user name nothing with `%u` matches.
    pub(crate) fn matches(&self, level: &str, who: Who<'_>) -> bool {
        let mut rest = level;
        for piece in &self.0 {
            let text = match piece {
                Piece::Text(text) => text,
                Piece::Client => who.client,
                Piece::User => match who.user {
                    Some(user) => user,
                    None => return false,
                },
            };
            // An empty name would turn `+`-like gaps into matches for everybody.
            if text.is_empty() {
                return false;
            }
            match rest.strip_prefix(text) {
                Some(behind) => rest = behind,
                None => return false,
            }
        }
        rest.is_empty()
    }
}

/// The fault of a filter; `None` if it has none (MQTT 5.0 section 4.7).
pub(crate) fn wrong_filter(filter: &str) -> Option<&'static str> {
    if filter.is_empty() || filter.contains('\0') {
        return Some("a topic filter has at least one character, and no U+0000");
    }
    if filter.len() > usize::from(u16::MAX) {
        return Some("a topic filter has at most 65,535 bytes");
    }
    if filter.starts_with("$share/") {
        return Some("a shared subscription is judged by its filter: leave out $share and the group");
    }
    let mut levels = filter.split('/').peekable();
    while let Some(level) = levels.next() {
        if level.contains('#') && (level != "#" || levels.peek().is_some()) {
            return Some("'#' stands alone in the last level");
        }
        if level.contains('+') && level != "+" {
            return Some("'+' stands alone in its level");
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_is_filled_in_and_nothing_else() {
        let who = Who { user: Some("anna"), client: "c1" };
        let dev = Template::parse("dev-%c").expect("a template");
        assert!(dev.matches("dev-c1", who));
        assert!(!dev.matches("dev-c2", who) && !dev.matches("dev-c1x", who) && !dev.matches("dev-", who));
        let both = Template::parse("%u%c!").expect("a template");
        assert!(both.matches("annac1!", who));
        assert!(!both.matches("annac1!", Who { user: None, client: "c1" }));
        assert!(!Template::parse("%c").expect("a template").matches("", Who { user: None, client: "" }));
        assert_eq!(Template::parse("100%"), None);
        assert_eq!(Template::parse("plain"), None);
    }
}
