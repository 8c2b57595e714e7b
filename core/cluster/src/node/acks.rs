//! The acknowledgement table (FT-17): which publishers wait for which neighbours.

use std::collections::{BTreeMap, VecDeque};

use sedge_base::{NodeId, ShardId};
use sedge_broker::Ticket;
use sedge_mqtt::ReasonCode;

use crate::link::FrameSeq;

#[derive(Debug)]
struct Entry {
    shard: ShardId,
    ticket: Ticket,
    reason: ReasonCode,
    missing: usize,
}

/// Publications that neighbours have yet to take.
#[derive(Debug, Default)]
pub(super) struct AckTable {
    next: u64,
    entries: BTreeMap<u64, Entry>,
    /// Frames by neighbour, in the order sent, with the entry that waits.
    frames: BTreeMap<NodeId, VecDeque<(FrameSeq, u64)>>,
}

impl AckTable {
    /// The publisher behind `ticket` waits for these frames, at least one, and is told `reason` then.
    pub(super) fn wait(&mut self, shard: ShardId, ticket: Ticket, reason: ReasonCode, frames: &[(NodeId, FrameSeq)]) {
        self.next += 1;
        for (node, seq) in frames {
            self.frames.entry(*node).or_default().push_back((*seq, self.next));
        }
        self.entries.insert(self.next, Entry { shard, ticket, reason, missing: frames.len() });
    }

    /// The neighbour has taken, or will never take, the frames up to this one. Visits the publishers that wait no longer.
    pub(super) fn taken(
        &mut self,
        node: NodeId,
        up_to: FrameSeq,
        mut accepted: impl FnMut(ShardId, Ticket, ReasonCode),
    ) {
        let Some(frames) = self.frames.get_mut(&node) else { return };
        while let Some((seq, number)) = frames.front().copied()
            && seq <= up_to
        {
            frames.pop_front();
            let Some(entry) = self.entries.get_mut(&number) else { continue };
            entry.missing -= 1;
            if entry.missing == 0 {
                accepted(entry.shard, entry.ticket, entry.reason);
                self.entries.remove(&number);
            }
        }
        if frames.is_empty() {
            self.frames.remove(&node);
        }
    }

    /// The neighbour is gone for good: nobody waits for it any more.
    pub(super) fn gone(&mut self, node: NodeId, accepted: impl FnMut(ShardId, Ticket, ReasonCode)) {
        self.taken(node, FrameSeq(u64::MAX), accepted);
    }

    /// Publications that wait.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}
