//! The acknowledgement table (FT-17): which publishers wait for which neighbours.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use sedge_base::{NodeId, ShardId};
use sedge_broker::Ticket;
use sedge_mqtt::ReasonCode;

use crate::link::{FrameSeq, Lost};

#[derive(Debug)]
struct Entry {
    shard: ShardId,
    ticket: Ticket,
    reason: ReasonCode,
    missing: usize,
}

/// Publications that neighbours have yet to take.
#[derive(Debug, Default)]
pub(in crate::node) struct AckTable {
    next: u64,
    entries: BTreeMap<u64, Entry>,
    /// The numbers of the entries whose publications are relayed.
    relayed: BTreeSet<u64>,
    /// Frames by neighbour, in the order sent, with the entry that waits.
    frames: BTreeMap<NodeId, VecDeque<(FrameSeq, u64)>>,
    /// The entries that wait for a successor to take over from a node that is gone.
    orphaned: BTreeMap<NodeId, Vec<u64>>,
}

impl AckTable {
    /// A number for an entry.
    pub(in crate::node) const fn reserve(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// The publisher behind `ticket` waits for these frames, for the successors of these nodes, and for so many destinations to which its
    /// publication is relayed, at least one of all, and is told `reason` then.
    pub(in crate::node) fn wait(
        &mut self,
        entry: u64,
        (shard, ticket, reason): (ShardId, Ticket, ReasonCode),
        frames: &[(NodeId, FrameSeq)],
        orphaned: &[NodeId],
        relayed: usize,
    ) {
        for (node, seq) in frames {
            self.frames.entry(*node).or_default().push_back((*seq, entry));
        }
        for node in orphaned {
            self.orphaned.entry(*node).or_default().push(entry);
        }
        if relayed > 0 {
            self.relayed.insert(entry);
        }
        let missing = frames.len() + orphaned.len() + relayed;
        self.entries.insert(entry, Entry { shard, ticket, reason, missing });
    }

    /// The node is gone, and its successor will take what it has not; also of what was relayed to it for these entries.
    pub(in crate::node) fn orphan(&mut self, node: NodeId, relayed: impl Iterator<Item = u64>) {
        let frames = self.frames.remove(&node).unwrap_or_default();
        self.orphaned.entry(node).or_default().extend(frames.into_iter().map(|(_, number)| number).chain(relayed));
    }

    /// A destination to which the publication of this entry was relayed has it, or will never.
    pub(in crate::node) fn arrived(&mut self, entry: u64, mut accepted: impl FnMut(ShardId, Ticket, ReasonCode)) {
        self.done(entry, &mut accepted);
    }

    /// Somebody wants the publication of this entry, which was not known when it was made.
    pub(in crate::node) fn wanted(&mut self, entry: u64) {
        let reason = self.entries.get_mut(&entry).map(|entry| &mut entry.reason);
        if let Some(reason) = reason.filter(|reason| **reason == ReasonCode::NoMatchingSubscribers) {
            *reason = ReasonCode::Success;
        }
    }

    /// A destination of the publication of this entry has no room for it.
    pub(in crate::node) fn refused(
        &mut self,
        entry: u64,
        reason: ReasonCode,
        mut accepted: impl FnMut(ShardId, Ticket, ReasonCode),
    ) {
        if let Some(entry) = self.entries.get_mut(&entry) {
            entry.reason = reason;
        }
        self.done(entry, &mut accepted);
    }

    /// The successor of a node has taken what the node had not, or there is none. Visits the publishers that wait no longer.
    pub(in crate::node) fn found(&mut self, node: NodeId, mut accepted: impl FnMut(ShardId, Ticket, ReasonCode)) {
        for number in self.orphaned.remove(&node).unwrap_or_default() {
            self.done(number, &mut accepted);
        }
    }

    fn done(&mut self, number: u64, accepted: &mut impl FnMut(ShardId, Ticket, ReasonCode)) {
        let Some(entry) = self.entries.get_mut(&number) else { return };
        entry.missing -= 1;
        if entry.missing == 0 {
            accepted(entry.shard, entry.ticket, entry.reason);
            self.entries.remove(&number);
            self.relayed.remove(&number);
        }
    }

    /// The neighbour has taken, or will never take, the frames up to this one. Visits the publishers that wait no longer.
    pub(in crate::node) fn taken(
        &mut self,
        node: NodeId,
        up_to: FrameSeq,
        mut accepted: impl FnMut(ShardId, Ticket, ReasonCode),
    ) {
        while let Some(frames) = self.frames.get_mut(&node)
            && let Some((_, number)) = frames.pop_front_if(|(seq, _)| *seq <= up_to)
        {
            self.done(number, &mut accepted);
        }
        if self.frames.get(&node).is_some_and(VecDeque::is_empty) {
            self.frames.remove(&node);
        }
    }

    /// The neighbour has forgotten frames; some of them are on their way again under other numbers. Visits the publishers that wait no
    /// longer.
    pub(in crate::node) fn lost(
        &mut self,
        node: NodeId,
        lost: &Lost,
        mut accepted: impl FnMut(ShardId, Ticket, ReasonCode),
    ) {
        let mut again = VecDeque::new();
        for (seq, number) in self.frames.remove(&node).unwrap_or_default() {
            if seq > lost.up_to {
                again.push_back((seq, number));
            } else if let Ok(index) = lost.resent.binary_search(&seq) {
                again.push_back((FrameSeq(lost.up_to.0 + 1 + index as u64), number));
            } else {
                self.done(number, &mut accepted);
            }
        }
        if !again.is_empty() {
            self.frames.insert(node, again);
        }
    }

    /// The neighbour is gone for good: nobody waits for it any more.
    pub(in crate::node) fn gone(&mut self, node: NodeId, accepted: impl FnMut(ShardId, Ticket, ReasonCode)) {
        self.taken(node, FrameSeq(u64::MAX), accepted);
    }

    /// The number of the last entry.
    pub(in crate::node) const fn last(&self) -> u64 {
        self.next
    }

    /// Whether no publication up to this entry is on its way over other nodes.
    pub(in crate::node) fn relayed_have_arrived(&self, last: u64) -> bool {
        self.relayed.first().is_none_or(|first| *first > last)
    }

    /// Publications that wait.
    pub(in crate::node) fn len(&self) -> usize {
        self.entries.len()
    }
}
