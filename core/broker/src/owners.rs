//! How many sessions there are at a node, and how many each user has, where a user may have a limited number of them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use sedge_mqtt::ReasonCode;

use crate::Broker;
use crate::connection::{ConnKey, Side};
use crate::disconnect::Ending;
use crate::session::SessionKey;

/// The sessions of a node, counted by all its shards together. When shards let clients in at the same moment, each may let one more in than there
/// is room for.
#[derive(Debug, Default)]
pub struct Census {
    sessions: AtomicUsize,
    /// Those of each user that outlive their connections.
    of_users: Mutex<BTreeMap<Box<str>, usize>>,
}

/// Settings are compared, not what is counted.
impl PartialEq for Census {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Census {}

impl Census {
    /// How many sessions there are.
    pub(crate) fn sessions(&self) -> usize {
        self.sessions.load(Ordering::Relaxed)
    }

    /// There is one session more.
    pub(crate) fn begins(&self) {
        self.sessions.fetch_add(1, Ordering::Relaxed);
    }

    /// There is one session less.
    pub(crate) fn ends(&self) {
        self.sessions.fetch_sub(1, Ordering::Relaxed);
    }

    /// How many sessions a user has.
    fn of_user(&self, user: &str) -> usize {
        let users = self.of_users.lock().unwrap_or_else(PoisonError::into_inner);
        users.get(user).copied().unwrap_or_default()
    }

    fn add(&self, user: &str) {
        let mut users = self.of_users.lock().unwrap_or_else(PoisonError::into_inner);
        *users.entry(user.into()).or_default() += 1;
    }

    fn remove(&self, user: &str) {
        let mut users = self.of_users.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = users.get_mut(user) {
            *count -= 1;
            if *count == 0 {
                users.remove(user);
            }
        }
    }
}

/// The user of each session here that outlives its connection. One that came from the journal or from another shard or node counts when its
/// client is back: only a client says whose it is.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    of: BTreeMap<SessionKey, Box<str>>,
    census: Arc<Census>,
}

impl Owners {
    /// No sessions yet; the node's shards count together.
    pub(crate) fn new(census: Arc<Census>) -> Self {
        Self { of: BTreeMap::new(), census }
    }

    /// How many sessions a user has at the node.
    pub(crate) fn count(&self, user: &str) -> usize {
        self.census.of_user(user)
    }

    /// A session belongs to this user; `None`: to nobody, or there is none any more.
    pub(crate) fn set(&mut self, session: SessionKey, user: Option<&str>) {
        let before = self.of.get(&session);
        if before.map(|user| &**user) == user {
            return;
        }
        if let Some(before) = self.of.remove(&session) {
            self.census.remove(&before);
        }
        if let Some(user) = user {
            self.of.insert(session, user.into());
            self.census.add(user);
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
        assert!(owners.of.is_empty() && owners.census.of_users.lock().unwrap().is_empty());
    }

    #[test]
    fn shards_count_together() {
        let census = Arc::new(Census::default());
        let (mut one, mut two) = (Owners::new(Arc::clone(&census)), Owners::new(census));
        one.set(1, Some("a"));
        two.set(1, Some("a"));
        assert_eq!((one.count("a"), two.count("a")), (2, 2));
        two.set(1, None);
        assert_eq!((one.count("a"), two.count("a")), (1, 1));
    }
}
