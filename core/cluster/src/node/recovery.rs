//! The way from RECOVERY to NORMAL (DESIGN section 5, "Joining"; FT-26, FT-28).

use sedge_base::{Instant, NodeId};

use crate::NodeState;
use crate::node::Node;
use crate::node::beginning::GRACE;

impl Node {
    /// Seeds that do not answer do not hold up a node for longer than this.
    pub(in crate::node) fn seeds_had_their_time(&self) -> bool {
        let until = self.started.map(|started| started + self.config.seed_timeout);
        self.only_own_seeds || self.beginning.has_begun_before() || until.is_some_and(|until| self.now.instant >= until)
    }

    /// When a node in recovery looks at the clock again.
    pub(in crate::node) fn recovery_timeout(&self) -> Option<Instant> {
        if self.state != NodeState::Recovery {
            return None;
        }
        let began = self.began()?;
        let next = [began + self.config.seed_timeout, began + GRACE]
            .into_iter()
            .chain(self.directory.waits_until())
            .filter(|at| self.now.instant < *at)
            .min();
        Some(next.unwrap_or(began + self.config.recovery_timeout))
    }

    /// Leaves recovery when every member has given all it has, or time is up.
    pub(in crate::node) fn check_recovery(&mut self) {
        let Some(started) = self.began() else { return };
        if self.state != NodeState::Recovery {
            return;
        }
        self.note_met();
        let missing = self.unsynced_members();
        let alone = self.ring.len() <= 1;
        let late = self.now.instant >= started + self.config.recovery_timeout;
        if late
            || !self.awaits_members()
                && if alone { self.seeds_had_their_time() } else { missing.is_empty() && self.knows_owners() }
        {
            self.state = NodeState::Normal;
            self.gives_up_remembered();
            let warning = !missing.is_empty();
            let message = if warning {
                format!("Normal operation, although {} of the members have not sent all they have", missing.len())
            } else {
                format!("Normal operation with {} other members", self.ring.len().saturating_sub(1))
            };
            self.event(warning, message);
        }
    }

    /// Whether it is known which sessions of the node's past belong to others.
    fn knows_owners(&self) -> bool {
        !self.beginning.has_past() || self.has_all_registrations()
    }

    /// Members that have not told all that a joining node needs.
    pub(in crate::node) fn unsynced_members(&self) -> Vec<NodeId> {
        if self.beginning.has_begun_before() {
            // All members that matter are awaited.
            return Vec::new();
        }
        let others = self.ring.iter().copied().filter(|node| *node != self.config.node);
        // A node that cannot be linked because of its version is not waited for.
        let others = others.filter(|node| self.links.incompatible().all(|(other, _)| other != *node));
        others.filter(|node| !self.peers.get(node).is_some_and(crate::node::peers::Peer::is_synced)).collect()
    }
}
