//! Members that live, as membership says, and to which there is no link: the datagrams of membership pass, and the path of the link is broken.
//!
//! Such a member cannot refresh what it wants, and so its lease ends (FT-16); but interest that is unknown is not absence of interest. Half a
//! lease after the link was lost, this node keeps for it what it wanted last, as for a node that is gone: publishers no longer wait, and the
//! member gets what was kept when it is linked again. For a member that never was linked everything is kept.

use std::collections::BTreeMap;

use sedge_base::{Instant, NodeId};
use sedge_mqtt::TopicFilter;

use crate::mail::{Life, TableChange};
use crate::node::Node;
use crate::node::peers::Peer;
use crate::node::standby::absent::ALL;

/// See the [module](self): since when there is no link to a member that should have one.
#[derive(Debug, Default)]
pub(in crate::node) struct OutOfReach {
    since: BTreeMap<NodeId, Instant>,
    next: Option<Instant>,
}

impl OutOfReach {
    pub(in crate::node) const fn timeout(&self) -> Option<Instant> {
        self.next
    }

    /// The member is linked, or gone.
    pub(in crate::node) fn forget(&mut self, node: NodeId) {
        self.since.remove(&node);
        if self.since.is_empty() {
            self.next = None;
        }
    }
}

impl Node {
    /// A link is lost, or a member is there that has none yet.
    pub(in crate::node) fn watch_reach(&mut self, node: NodeId) {
        if self.is_up(node) {
            return;
        }
        let due = self.now.instant + self.config.mesh.lease / 2;
        self.out_of_reach.since.entry(node).or_insert(self.now.instant);
        self.out_of_reach.next = Some(self.out_of_reach.next.map_or(due, |next| next.min(due)));
    }

    fn is_up(&self, node: NodeId) -> bool {
        self.peers.get(&node).is_some_and(Peer::is_up)
    }

    pub(in crate::node) fn out_of_reach_due(&mut self) {
        let now = self.now.instant;
        if self.out_of_reach.next.is_none_or(|next| now < next) {
            return;
        }
        let patience = self.config.mesh.lease / 2;
        let due: Vec<NodeId> =
            self.out_of_reach.since.extract_if(.., |_, since| now >= *since + patience).map(|(node, _)| node).collect();
        self.out_of_reach.next = self.out_of_reach.since.values().min().map(|since| *since + patience);
        for node in due {
            let is_member = self.membership.member(node).is_some();
            if is_member && self.wanted.contains(&node) && !self.is_up(node) && !self.orphans.has(node) {
                self.set_aside(node);
            }
        }
    }

    /// Keeps for a member the messages on their way to it and those it wants, as for a node that is gone, and begins its link anew.
    fn set_aside(&mut self, node: NodeId) {
        let Some(member) = self.membership.member(node) else { return };
        let life = Life { node, incarnation: member.incarnation };
        self.counters.members_out_of_reach += 1;
        let is_known = self.peers.get(&node).is_some_and(|peer| peer.overlay_synced);
        let what = if is_known { "what it wanted last" } else { "everything" };
        self.event(true, format!("Node {node} lives and cannot be reached from here; {what} is kept for it"));
        let (strays, entries) = self.take_strays(node);
        self.orphan(life, Vec::new(), strays);
        if !is_known {
            self.keep_everything(node);
        }
        let accepted = &mut self.accepted;
        for entry in entries {
            self.acks
                .arrived(entry, |shard, ticket, reason| crate::node::dispatch::note(accepted, shard, ticket, reason));
        }
        self.begin_link_anew(node);
    }

    /// Nothing is known of what this node wants.
    fn keep_everything(&mut self, node: NodeId) {
        if let Ok(all) = TopicFilter::new(ALL)
            && self.orphans.keep_all(node, &all)
        {
            self.table.push(TableChange::Remote { filter: all, wanted: true });
        }
    }
}
