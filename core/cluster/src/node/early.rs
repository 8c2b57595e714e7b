//! Sessions that come at a moment when this node cannot tell what to do with them: before the home's word that they are to be here, or while
//! what is here leaves for somebody else.

use std::collections::VecDeque;

use sedge_base::{ClientId, NodeId};

use super::Node;
use super::claims::Session;

/// Sessions that are kept; the oldest is dropped first.
const EARLY_LIMIT: usize = 1024;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Early(VecDeque<Arrived>);

#[derive(Debug)]
struct Arrived {
    from: NodeId,
    client: ClientId,
    epoch: u64,
    session: Session,
}

impl Early {
    /// Sessions that are kept.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The session that came under this epoch.
    pub(super) fn take(&mut self, client: &ClientId, epoch: u64) -> Option<Session> {
        let at = self.0.iter().position(|early| early.client == *client && early.epoch == epoch)?;
        self.0.remove(at).map(|early| early.session)
    }

    fn take_all(&mut self, client: &ClientId) -> Vec<Arrived> {
        let (of_client, others) = self.0.drain(..).partition(|early| early.client == *client);
        self.0 = others;
        VecDeque::into(of_client)
    }
}

impl Node {
    pub(super) fn keep_early(&mut self, from: NodeId, client: &ClientId, epoch: u64, session: Session) {
        let early = &mut self.claims.early.0;
        if early.len() >= EARLY_LIMIT {
            early.pop_front();
            self.counters.sessions_discarded += 1;
        }
        early.push_back(Arrived { from, client: client.clone(), epoch, session });
    }

    /// It is known by now who has the session.
    pub(super) fn look_at_early(&mut self, client: &ClientId) {
        for Arrived { from, epoch, session, .. } in self.claims.early.take_all(client) {
            self.session_arrived(from, client, epoch, session);
        }
    }
}
