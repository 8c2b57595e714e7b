//! One other node as the mesh knows it.

use sedge_base::NodeId;

use super::forward::Forward;
use super::signal::SignalError;
use super::table::{Effect, Table};
use crate::{Advert, AdvertOp};

/// How far the neighbour's snapshot has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Incoming {
    #[default]
    Nothing,
    Snapshot,
    Complete,
}

/// State that lasts as long as one link.
#[derive(Debug, Default)]
pub(super) struct Session {
    /// Number of the link: no two links have the same.
    pub(super) link: u64,
    /// The highest number of this node's signals that the neighbour has confirmed.
    pub(super) acked: u64,
    pub(super) snapshot_due: bool,
    pub(super) sync_ok_sent: bool,
    pub(super) sync_ok_received: bool,
    /// The highest number of the neighbour's own signals.
    number: u64,
    incoming: Incoming,
}

/// Another node: its table of subscriptions, and the link to it if there is one.
#[derive(Debug, Default)]
pub(super) struct Peer {
    pub(super) table: Table,
    pub(super) session: Option<Session>,
    /// Membership has lost the node although a link stands: the node's interest is forgotten with the link.
    pub(super) lost: bool,
}

impl Peer {
    pub(super) fn link_up(&mut self, link: u64) {
        self.session = Some(Session { link, snapshot_due: true, ..Session::default() });
    }

    pub(super) fn begin_snapshot(&mut self) {
        if let Some(session) = &mut self.session {
            session.incoming = Incoming::Snapshot;
            self.table.begin_snapshot();
        }
    }

    pub(super) fn chunk(&mut self, node: NodeId, changes: &[Advert], forward: &mut Forward) -> Result<(), SignalError> {
        if self.session.as_ref().is_none_or(|session| session.incoming != Incoming::Snapshot) {
            return Err(SignalError::Value("order: chunk outside of a snapshot"));
        }
        self.apply(node, changes, forward);
        Ok(())
    }

    pub(super) fn end_snapshot(&mut self, node: NodeId, number: u64, forward: &mut Forward) -> Result<(), SignalError> {
        let Some(session) = self.session.as_mut().filter(|session| session.incoming == Incoming::Snapshot) else {
            return Err(SignalError::Value("order: end without a snapshot"));
        };
        if number < session.number {
            return Err(SignalError::Value("number"));
        }
        session.number = number;
        session.incoming = Incoming::Complete;
        for ((_, filter), entry) in self.table.end_snapshot() {
            forward.apply(node, &filter, Effect::Removed { online: entry.online });
        }
        Ok(())
    }

    pub(super) fn adv(
        &mut self,
        node: NodeId,
        number: u64,
        changes: &[Advert],
        forward: &mut Forward,
    ) -> Result<(), SignalError> {
        let Some(session) = self.session.as_mut().filter(|session| session.incoming != Incoming::Nothing) else {
            return Err(SignalError::Value("order: adv before a snapshot"));
        };
        if number <= session.number {
            return Err(SignalError::Value("number"));
        }
        session.number = number;
        self.apply(node, changes, forward);
        Ok(())
    }

    /// Whether its digest can be compared: the whole table is here.
    pub(super) fn is_complete(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.incoming == Incoming::Complete)
    }

    /// Forgets the interest of the node.
    pub(super) fn forget(&mut self, node: NodeId, forward: &mut Forward) {
        for ((_, filter), entry) in self.table.clear() {
            forward.apply(node, &filter, Effect::Removed { online: entry.online });
        }
    }

    fn apply(&mut self, node: NodeId, changes: &[Advert], forward: &mut Forward) {
        for change in changes {
            let effect = self.table.apply(change);
            forward.apply(node, &change.filter, effect);
        }
    }
}

/// The change that adds a table entry.
pub(super) fn as_advert(key: &super::table::Key, online: bool) -> Advert {
    Advert { client: key.0.clone(), filter: key.1.clone(), op: AdvertOp::Add { online } }
}
