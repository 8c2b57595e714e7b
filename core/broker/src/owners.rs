//! The user of each session, where a user may have a limited number of them.

use std::collections::BTreeMap;

use sedge_mqtt::ReasonCode;

use crate::Broker;
use crate::connection::{ConnKey, Side};
use crate::disconnect::Ending;
use crate::session::SessionKey;

/// The sessions of each user that outlive their connections. One that came from the journal or from another shard or node counts when its
/// client is back: only a client says whose it is.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    of: BTreeMap<SessionKey, Box<str>>,
    sessions: BTreeMap<Box<str>, usize>,
}

impl Owners {
    /// How many sessions a user has.
    pub(crate) fn count(&self, user: &str) -> usize {
        self.sessions.get(user).copied().unwrap_or_default()
    }

    /// A session belongs to this user; `None`: to nobody, or there is none any more.
    pub(crate) fn set(&mut self, session: SessionKey, user: Option<&str>) {
        let before = self.of.get(&session);
        if before.map(|user| &**user) == user {
            return;
        }
        if let Some(before) = self.of.remove(&session)
            && let Some(count) = self.sessions.get_mut(&before)
        {
            *count -= 1;
            if *count == 0 {
                self.sessions.remove(&before);
            }
        }
        if let Some(user) = user {
            self.of.insert(session, user.into());
            *self.sessions.entry(user.into()).or_default() += 1;
        }
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
        self.owners.set(session, user.filter(|_| expiry_secs > 0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_counts_for_one_user_as_long_as_it_is_there() {
        let mut owners = Owners::default();
        owners.set(1, Some("a"));
        owners.set(1, Some("a"));
        owners.set(2, Some("a"));
        assert_eq!((owners.count("a"), owners.count("b")), (2, 0));
        owners.set(2, Some("b"));
        assert_eq!((owners.count("a"), owners.count("b")), (1, 1));
        owners.set(1, None);
        owners.set(2, None);
        owners.set(3, None);
        assert!(owners.of.is_empty() && owners.sessions.is_empty());
    }
}
