//! How many clients of each user are connected.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sedge_base::ClientId;

/// Connections of each client of a user. Two of one client are one: the newer one takes the session over.
type Clients = HashMap<ClientId, usize>;

/// See the module. Shared by the threads of a node; as large as the number of connections at most.
#[derive(Debug)]
pub(crate) struct Users {
    clients_max: usize,
    table: Mutex<HashMap<Box<str>, Clients>>,
    /// Clients refused because there were too many.
    pub(crate) over_limit: AtomicU64,
}

/// A client that counts until this is dropped.
#[derive(Debug)]
pub(crate) struct UserSeat {
    users: Arc<Users>,
    user: Box<str>,
    client: ClientId,
}

impl Users {
    /// For so many clients of each user; `None` if there may be any number.
    pub(crate) fn new(clients_max: usize) -> Option<Arc<Self>> {
        let users = || Self { clients_max, table: Mutex::default(), over_limit: AtomicU64::new(0) };
        (clients_max > 0).then(|| Arc::new(users()))
    }

    /// One more connection of this user, if it may have one.
    pub(crate) fn enter(self: &Arc<Self>, user: &str, client: &ClientId) -> Option<UserSeat> {
        let mut table = self.table();
        let clients = table.entry(user.into()).or_default();
        if !clients.contains_key(client) && clients.len() >= self.clients_max {
            self.over_limit.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        *clients.entry(client.clone()).or_default() += 1;
        Some(UserSeat { users: Arc::clone(self), user: user.into(), client: client.clone() })
    }

    fn table(&self) -> MutexGuard<'_, HashMap<Box<str>, Clients>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for UserSeat {
    fn drop(&mut self) {
        let mut table = self.users.table();
        let Some(clients) = table.get_mut(&self.user) else { return };
        if let Some(connections) = clients.get_mut(&self.client) {
            *connections -= 1;
            if *connections == 0 {
                clients.remove(&self.client);
            }
        }
        if clients.is_empty() {
            table.remove(&self.user);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_so_many_clients_and_each_may_come_again() {
        let users = Users::new(2).unwrap();
        let client = |name: &str| ClientId::new(name);
        let first = users.enter("u", &client("a")).unwrap();
        let again = users.enter("u", &client("a")).unwrap();
        let second = users.enter("u", &client("b")).unwrap();
        assert!(users.enter("u", &client("c")).is_none());
        assert!(users.enter("v", &client("c")).is_some());
        drop(first);
        assert!(users.enter("u", &client("c")).is_none(), "a is still there");
        drop(again);
        drop((users.enter("u", &client("c")).unwrap(), second));
        assert!(users.table().is_empty());
        assert_eq!(users.over_limit.load(Ordering::Relaxed), 2);
        assert!(Users::new(0).is_none());
    }
}
