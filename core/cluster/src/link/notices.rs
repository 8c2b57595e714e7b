//! Log lines about others' mistakes, at a rate that others cannot raise.

use sedge_base::{Duration, Instant};
use std::collections::BTreeMap;

use crate::NodeEvent;

/// Shortest time between two lines of one kind.
const PAUSE: Duration = Duration::from_secs(10);

/// The subject of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// A connection that does not talk as nodes do.
    Stranger,
    /// A node of another cluster.
    Cluster,
    /// A node with another cooperation algorithm.
    Overlay,
    /// A node of a version that has nothing in common with ours.
    Version,
    /// A node with our own id.
    Identity,
    /// A former life of a node.
    Stale,
    /// No key, one only, or two different.
    Key,
    /// One side wants an encrypted link, the other a plain one, or its certificate is not accepted.
    Encryption,
    /// The other side has refused us.
    Refused,
    /// Nobody answers where a node should be.
    Unreachable,
    /// A node is linked through another one.
    Carried,
    /// A neighbour broke the protocol.
    Protocol,
    /// Too many connections at once.
    Crowd,
}

/// When each kind of line was last said.
#[derive(Debug, Default)]
pub(super) struct Notices(BTreeMap<Kind, (Instant, u64)>);

impl Notices {
    /// The warning, unless one of its kind was said a moment ago; then it is counted and mentioned by the next.
    pub(super) fn warn(&mut self, now: Instant, kind: Kind, message: String) -> Option<NodeEvent> {
        let silent = match self.0.get_mut(&kind) {
            Some((said, silent)) if now.since(*said) < PAUSE => {
                *silent += 1;
                return None;
            }
            Some((_, silent)) => *silent,
            None => 0,
        };
        self.0.insert(kind, (now, 0));
        let message = if silent == 0 { message } else { format!("{message} ({silent} more like it before)") };
        Some(NodeEvent { warning: true, message })
    }
}

/// Text of a stranger, fit for a log: short, on one line, in quotes.
pub(super) fn quoted(text: &str) -> String {
    const MOST: usize = 80;
    let short: String = text.chars().take(MOST).collect();
    format!("{short:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_one_kind_are_rare() {
        let mut notices = Notices::default();
        let mut warn = |millis, kind| notices.warn(Instant::from_millis(millis), kind, "x".to_owned());
        assert!(warn(0, Kind::Key).is_some());
        assert!(warn(1, Kind::Version).is_some());
        assert_eq!(warn(9_999, Kind::Key), None);
        assert_eq!(warn(10_000, Kind::Key).unwrap().message, "x (1 more like it before)");
        assert_eq!(warn(20_000, Kind::Key).unwrap().message, "x");
    }

    #[test]
    fn strangers_cannot_forge_lines() {
        assert_eq!(quoted("a\nb"), "\"a\\nb\"");
        assert!(quoted(&"x".repeat(1_000)).len() < 100);
    }
}
