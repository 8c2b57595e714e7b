//! Backups that live, as others say, and that this node cannot reach: a path between two hosts is broken, and nobody is dead.
//!
//! Membership holds on to such a node, and so nothing would leave the shards until the path is mended. Another node takes its place.
//!
//! ```text
//! link lost       PATIENCE         LOOK
//!     |----------------|------------|
//!                    probe, also   has it shown since the first look that it lives, it is given up;
//!                    through others   if not, membership finds out what is the matter
//! ```

use std::collections::BTreeSet;

use sedge_base::{Duration, Instant, NodeId};

use crate::node::Node;

/// How long a backup may be without a link, and nothing leaves the shards. It does not hear that it is given up, and may take over what it
/// had until then if it loses sight of this node altogether: so a path has to be broken for longer than a usual partition lasts.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often it is looked at then.
const LOOK: Duration = Duration::from_millis(500);

/// See the [module](self).
#[derive(Debug, Default)]
pub(in crate::node) struct Unreached {
    next: Option<Instant>,
    /// Nodes that were given up and do not know it.
    given_up: BTreeSet<NodeId>,
}

impl Unreached {
    pub(in crate::node) const fn timeout(&self) -> Option<Instant> {
        self.next
    }

    /// A node is gone. Should it come back, it is told in any case.
    pub(in crate::node) fn forget(&mut self, node: NodeId) {
        self.given_up.remove(&node);
    }
}

impl Node {
    /// A link is lost.
    pub(in crate::node) fn watch_backup(&mut self, node: NodeId) {
        let missed_at = self.now.instant + PATIENCE;
        if let Some(peer) = self.peers.get_mut(&node) {
            peer.missed_at = Some(missed_at);
        }
        let next = self.copies.unreached.next.map_or(missed_at, |known| known.min(missed_at));
        self.copies.unreached.next = Some(next);
    }

    pub(in crate::node) fn backups_due(&mut self) {
        let now = self.now.instant;
        if self.copies.unreached.next.is_none_or(|next| now < next) {
            return;
        }
        let missed_at = |node: &NodeId| self.peers.get(node).and_then(|peer| peer.missed_at);
        let missed: Vec<(NodeId, Instant)> =
            self.backups().filter_map(|node| Some((node, missed_at(&node)?))).collect();
        self.copies.unreached.next = if missed.is_empty() { None } else { Some(now + LOOK) };
        for (node, missed_at) in missed {
            if self.membership.last_sign(node).is_some_and(|sign| sign >= missed_at) {
                self.give_up_backup(node);
            } else {
                self.membership.handle(self.now, sedge_membership::Input::Probe { node });
            }
        }
    }

    fn give_up_backup(&mut self, node: NodeId) {
        self.event(true, format!("Node {node} lives and cannot be reached from here; copies go elsewhere"));
        self.counters.backups_unreached += 1;
        self.copies.unreached.given_up.insert(node);
        self.backup_restarts(node);
        self.choose_backups();
    }

    /// The link to a node stands again: if it was given up, it hears that it has no copy any more.
    pub(in crate::node) fn end_given_up(&mut self, node: NodeId) {
        if self.copies.unreached.given_up.remove(&node) {
            self.end_stale_backup(node);
        }
    }
}
