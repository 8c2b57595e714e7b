//! How many sessions there are at a node, and how many each user has, where a user may have a limited number of them.
//!
//! Each shard counts its own and tells the others ([`Census`]). When shards let clients in at the same moment, each may let one more in than there is
//! room for.

use std::collections::BTreeMap;

use sedge_base::ShardId;
use sedge_mqtt::ReasonCode;

use crate::connection::{ConnKey, Side};
use crate::disconnect::Ending;
use crate::session::SessionKey;
use crate::{Broker, Output};

/// A shard's number of sessions does not matter to the others below this part of its share of the limit.
const TELLS_FROM: u64 = 4;

/// The numbers of sessions that one shard tells the other shards of its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Census {
    /// Which shard.
    pub shard: ShardId,
    /// How many sessions it has.
    pub sessions: u64,
    /// A user, and how many of them are the user's and outlive their connections.
    pub user: Option<(Box<str>, usize)>,
}

/// The sessions of the node and of each user. A session that came from the journal or from another shard or node counts for a user when its
/// client is back: only a client says whose it is.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    of: BTreeMap<SessionKey, Box<str>>,
    here: BTreeMap<Box<str>, usize>,
    /// The number of sessions of each user in each other shard.
    elsewhere: BTreeMap<(Box<str>, ShardId), usize>,
    /// How many sessions the other shards have.
    sessions: BTreeMap<ShardId, u64>,
    /// How many the others know of here.
    told: u64,
}

impl Owners {
    /// How many sessions a user has at the node.
    pub(crate) fn count(&self, user: &str) -> usize {
        let all = (user.into(), ShardId(0))..=(user.into(), ShardId(u16::MAX));
        self.count_here(user) + self.elsewhere.range(all).map(|(_, count)| count).sum::<usize>()
    }

    fn count_here(&self, user: &str) -> usize {
        self.here.get(user).copied().unwrap_or_default()
    }

    /// How many sessions other shards have, as far as it matters.
    pub(crate) fn sessions_elsewhere(&self) -> u64 {
        self.sessions.values().sum()
    }

    /// A session belongs to this user; `None`: to nobody, or there is none any more. Returns whose sessions are other ones than before.
    fn set(&mut self, session: SessionKey, user: Option<&str>) -> [Option<Box<str>>; 2] {
        let before = self.of.get(&session);
        if before.map(|user| &**user) == user {
            return [None, None];
        }
        let before = self.of.remove(&session);
        if let Some(before) = &before
            && let Some(count) = self.here.get_mut(before)
        {
            *count -= 1;
            if *count == 0 {
                self.here.remove(before);
            }
        }
        if let Some(user) = user {
            self.of.insert(session, user.into());
            *self.here.entry(user.into()).or_default() += 1;
        }
        [before, user.map(Into::into)]
    }

    /// Another shard has counted.
    fn note(&mut self, census: Census) {
        self.sessions.insert(census.shard, census.sessions);
        match census.user {
            Some((user, 0)) => self.elsewhere.remove(&(user, census.shard)),
            Some((user, count)) => self.elsewhere.insert((user, census.shard), count),
            None => None,
        };
    }
}

impl Broker {
    /// Why a client may not have a new session: its user has as many as a user may have.
    pub(crate) fn refuse_owner(&self, key: ConnKey) -> Option<Ending> {
        let connection = self.connections.get(key)?;
        let is_kept = connection.pending.as_ref().is_some_and(|pending| pending.expiry_secs > 0);
        let (user, limit) = (connection.peer.user.as_deref()?, self.config.max_sessions_per_user);
        let is_over = limit > 0 && is_kept && connection.peer.side == Side::Outside && self.owners.count(user) >= limit;
        is_over.then(|| {
            let ending = Ending::server(ReasonCode::QuotaExceeded, "the user has as many sessions as one may have");
            ending.decided_by("limits.max_sessions_per_user")
        })
    }

    /// A client has its session: from here on that counts for its user, if it outlives the connection.
    pub(crate) fn note_owner(&mut self, session: SessionKey, key: ConnKey, expiry_secs: u32) {
        if self.config.max_sessions_per_user == 0 {
            return;
        }
        let user = self.connections.get(key).and_then(|connection| connection.peer.user.as_deref());
        let user: Option<Box<str>> = user.filter(|_| expiry_secs > 0).map(Into::into);
        self.set_owner(session, user.as_deref());
    }

    /// A session belongs to this user; `None`: to nobody, or there is none any more.
    pub(crate) fn set_owner(&mut self, session: SessionKey, user: Option<&str>) {
        for user in self.owners.set(session, user).into_iter().flatten() {
            let count = self.owners.count_here(&user);
            self.tell_shards(Some((user, count)));
        }
    }

    /// There is one session more or less than before.
    pub(crate) fn note_session_count(&mut self) {
        let share = self.config.max_sessions as u64 / u64::from(self.place.shards.max(1));
        if self.counters.sessions >= share / TELLS_FROM || self.owners.told > 0 {
            self.owners.told = self.counters.sessions;
            self.tell_shards(None);
        }
    }

    fn tell_shards(&mut self, user: Option<(Box<str>, usize)>) {
        if self.place.shards > 1 {
            let census = Census { shard: self.place.shard, sessions: self.owners.told, user };
            self.outputs.push_back(Output::Census(Box::new(census)));
        }
    }

    pub(crate) fn on_census(&mut self, census: Census) {
        self.owners.note(census);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_counts_for_one_user_as_long_as_it_is_there() {
        let mut owners = Owners::default();
        assert_eq!(owners.set(1, Some("a")), [None, Some("a".into())]);
        assert_eq!(owners.set(1, Some("a")), [None, None]);
        owners.set(2, Some("a"));
        assert_eq!((owners.count("a"), owners.count("b")), (2, 0));
        assert_eq!(owners.set(2, Some("b")), [Some("a".into()), Some("b".into())]);
        assert_eq!((owners.count("a"), owners.count("b")), (1, 1));
        owners.set(1, None);
        owners.set(2, None);
        owners.set(3, None);
        assert!(owners.of.is_empty() && owners.here.is_empty());
    }

    #[test]
    fn sessions_in_other_shards_count() {
        let mut owners = Owners::default();
        owners.set(1, Some("a"));
        let census =
            |shard, sessions, count| Census { shard: ShardId(shard), sessions, user: Some(("a".into(), count)) };
        owners.note(census(1, 7, 2));
        owners.note(census(2, 8, 3));
        owners.note(Census { user: Some(("aa".into(), 5)), ..census(1, 9, 0) });
        assert_eq!((owners.count("a"), owners.count("aa"), owners.sessions_elsewhere()), (6, 5, 17));
        owners.note(census(1, 6, 0));
        owners.note(Census { user: None, ..census(2, 1, 0) });
        assert_eq!((owners.count("a"), owners.sessions_elsewhere(), owners.elsewhere.len()), (4, 7, 2));
    }
}
