//! Sessions that come at a moment when this node cannot tell what to do with them: before the home's word that they are to be here, or while
//! the session here leaves for another node.

use std::collections::VecDeque;

use sedge_base::{ClientId, NodeId};

use crate::node::Node;
use crate::node::sessions::claims::Session;

/// Sessions that are kept; the oldest is dropped first.
const EARLY_LIMIT: usize = 1024;

/// See the module.
#[derive(Debug, Default)]
pub(in crate::node) struct Early {
    arrived: VecDeque<Arrived>,
    /// Sessions that nodes which have restarted are about to send from their journals, although others have taken them over.
    restored: VecDeque<(ClientId, NodeId)>,
}

#[derive(Debug)]
struct Arrived {
    from: NodeId,
    client: ClientId,
    epoch: u64,
    session: Session,
    /// See [`Early::note_restored`].
    is_restored: bool,
}

impl Early {
    /// Sessions that are kept.
    pub(in crate::node) fn len(&self) -> usize {
        self.arrived.len()
    }

    /// Node `from` is about to send the session of its journal, which another node has taken over since.
    pub(in crate::node) fn note_restored(&mut self, client: &ClientId, from: NodeId) {
        if self.restored.len() >= EARLY_LIMIT {
            self.restored.pop_front();
        }
        self.restored.push_back((client.clone(), from));
    }

    /// Whether the session that has come from node `from` is the one of its journal, which another node has taken over since.
    pub(in crate::node) fn takes_restored(&mut self, client: &ClientId, from: NodeId) -> bool {
        let before = self.restored.len();
        self.restored.retain(|(known, node)| known != client || *node != from);
        self.restored.len() < before
    }

    /// The session that came under this epoch, and the node that sent it. Only `owner` can say that there is none. A session of a journal that was
    /// taken over since counts only as an answer of `owner`.
    pub(in crate::node) fn take(
        &mut self,
        client: &ClientId,
        epoch: u64,
        owner: Option<NodeId>,
    ) -> Option<(NodeId, Session)> {
        let is_current = |early: &Arrived| early.session.is_some() && !early.is_restored;
        let is_answer = |early: &Arrived| is_current(early) || Some(early.from) == owner;
        let is_wanted = |early: &Arrived| early.client == *client && early.epoch == epoch && is_answer(early);
        let at = self.arrived.iter().position(is_wanted)?;
        self.arrived.remove(at).map(|early| (early.from, early.session))
    }

    /// The first session that came from an owner that has had one, under this epoch.
    fn take_filled(&mut self, client: &ClientId, epoch: u64) -> Option<(NodeId, Session)> {
        let is_wanted = |early: &Arrived| early.client == *client && early.epoch == epoch && early.session.is_some();
        let at = self.arrived.iter().position(is_wanted)?;
        self.arrived.remove(at).map(|early| (early.from, early.session))
    }

    fn take_all(&mut self, client: &ClientId) -> Vec<Arrived> {
        let (of_client, others) = self.arrived.drain(..).partition(|early| early.client == *client);
        self.arrived = others;
        VecDeque::into(of_client)
    }
}

impl Node {
    pub(in crate::node) fn keep_early(
        &mut self,
        from: NodeId,
        client: &ClientId,
        epoch: u64,
        session: Session,
        is_restored: bool,
    ) {
        let early = &mut self.claims.early.arrived;
        if early.len() >= EARLY_LIMIT {
            early.pop_front();
            self.counters.sessions_discarded += 1;
        }
        early.push_back(Arrived { from, client: client.clone(), epoch, session, is_restored });
    }

    /// The node that was asked for a session has none, or does not answer: another owner's session, if one has come, is the one. False if none has.
    pub(in crate::node) fn takes_early(&mut self, client: &ClientId, epoch: u64) -> bool {
        let Some((from, session)) = self.claims.early.take_filled(client, epoch) else { return false };
        self.claims.asks(client, epoch, from);
        self.session_arrived(from, client, epoch, session);
        true
    }

    /// The owner of the session is known by now.
    pub(in crate::node) fn look_at_early(&mut self, client: &ClientId) {
        for Arrived { from, epoch, session, is_restored, .. } in self.claims.early.take_all(client) {
            if is_restored {
                self.claims.early.note_restored(client, from);
            }
            self.session_arrived(from, client, epoch, session);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MQ-09: a former owner that has none left does not speak for the owner that was asked.
    #[test]
    fn only_the_owner_says_that_there_is_no_session() {
        let (client, owner, other) = (ClientId::new("c"), NodeId::new(1), NodeId::new(2));
        let arrived = |from| Arrived { from, client: client.clone(), epoch: 7, session: None, is_restored: false };
        let mut early = Early { arrived: VecDeque::from([arrived(other)]), ..Early::default() };
        assert!(early.take(&client, 7, Some(owner)).is_none());
        early.arrived.push_back(arrived(owner));
        assert!(early.take(&client, 6, Some(owner)).is_none(), "that was another claim");
        assert!(matches!(early.take(&client, 7, Some(owner)), Some((from, None)) if from == owner));
        assert_eq!(early.len(), 1);
    }
}
