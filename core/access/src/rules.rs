//! All rules, and the decisions that follow from them.

use std::collections::BTreeMap;

use crate::index::{Effects, Index, Meeting};

/// The client whose permission is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Who<'a> {
    /// The user name that was proven; `None`: an anonymous client.
    pub user: Option<&'a str>,
    /// The client id.
    pub client: &'a str,
}

/// Use of a topic that a client asks permission for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send messages there (`write`), wills included.
    Publish,
    /// Get messages from there (`read`).
    Receive,
}

/// Whether something is allowed, and which line of the rules says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Whether the action is allowed.
    pub allowed: bool,
    /// The line that decides, counted from 1; `None`: no line matches, and a topic that no line allows is forbidden.
    pub line: Option<u32>,
}

/// The part of a filter's publications that may be received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Nothing.
    Nothing,
    /// Perhaps something: each message has to be decided on.
    Some,
    /// Everything.
    All,
}

/// Access rules: the lines of a user and of a client id decide first, then the patterns for everybody. Among lines of one stage `deny`
/// wins; a topic that no line allows is forbidden.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Lines before the first section: for clients without a user name.
    pub(crate) anonymous: Index,
    pub(crate) users: BTreeMap<Box<str>, Index>,
    pub(crate) clients: BTreeMap<Box<str>, Index>,
    pub(crate) patterns: Index,
}

impl Rules {
    /// Whether `who` may do `action` with `topic`, a topic name.
    pub fn decide(&self, who: Who<'_>, action: Action, topic: &str) -> Verdict {
        let mut own = Effects::default();
        for index in self.own(who) {
            own.merge(&index.decide(topic, who));
        }
        let decided = verdict(&own, action).or_else(|| verdict(&self.patterns.decide(topic, who), action));
        decided.unwrap_or(Verdict { allowed: false, line: None })
    }

    /// The part of the publications matched by `filter` that `who` may receive. `filter` is the part that matches: without `$share/group/`.
    pub fn judge(&self, who: Who<'_>, filter: &str) -> Reach {
        let mut own = Meeting::default();
        for index in self.own(who) {
            own.merge(&index.judge(filter, who));
        }
        if own.cover.deny.is_some() {
            return Reach::Nothing;
        }
        let own_all = own.cover.receive.is_some() && own.overlap.deny.is_none();
        if own_all {
            return Reach::All;
        }
        let everybody = self.patterns.judge(filter, who);
        let denied = own.overlap.deny.or(everybody.overlap.deny).is_some();
        if everybody.cover.receive.is_some() && !denied {
            return Reach::All;
        }
        let some =
            own.overlap.receive.is_some() || (everybody.overlap.receive.is_some() && everybody.cover.deny.is_none());
        if some { Reach::Some } else { Reach::Nothing }
    }

    /// The rules for `who` and nobody else.
    fn own(&self, who: Who<'_>) -> impl Iterator<Item = &Index> {
        let by_user = match who.user {
            Some(user) => self.users.get(user),
            None => Some(&self.anonymous),
        };
        // Mostly there are none, and then no name need be looked for.
        let by_client = if self.clients.is_empty() { None } else { self.clients.get(who.client) };
        by_user.into_iter().chain(by_client)
    }
}

fn verdict(effects: &Effects, action: Action) -> Option<Verdict> {
    let denied = effects.deny.map(|line| Verdict { allowed: false, line: Some(line) });
    denied.or_else(|| effects.allow(action).map(|line| Verdict { allowed: true, line: Some(line) }))
}
