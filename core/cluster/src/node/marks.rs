//! A neighbour's publication is acknowledged when every shard here that got it has copied what it has caused.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use sedge_base::{NodeId, ShardId};

use super::Node;
use crate::mail::{Mark, ToShard};

/// Publications that are not copied yet.
#[derive(Debug, Default)]
pub(super) struct Marks {
    next: u64,
    /// Shards that have not answered, by mark.
    open: BTreeMap<u64, BTreeSet<ShardId>>,
    /// By neighbour: the first publication that waits for each mark.
    waiting: BTreeMap<NodeId, VecDeque<(u64, u64)>>,
    /// What has come in this turn.
    shards: BTreeSet<ShardId>,
    first: BTreeMap<NodeId, u64>,
}

impl Marks {
    /// Frame `number` of a neighbour was handed to this shard.
    pub(super) fn note(&mut self, from: NodeId, number: u64, shard: ShardId) {
        self.first.entry(from).or_insert(number);
        self.shards.insert(shard);
    }

    /// The neighbour numbers its frames anew.
    pub(super) fn forget(&mut self, node: NodeId) {
        self.waiting.remove(&node);
        self.first.remove(&node);
    }
}

impl Node {
    /// Ends a turn: asks the shards to say when what came in it is copied.
    pub(super) fn send_marks(&mut self) {
        let marks = &mut self.marks;
        if marks.first.is_empty() {
            marks.shards.clear();
            return;
        }
        marks.next += 1;
        let mark = marks.next;
        let shards = core::mem::take(&mut marks.shards);
        for (node, number) in core::mem::take(&mut marks.first) {
            let waiting = marks.waiting.entry(node).or_default();
            if waiting.is_empty() {
                self.links.limit_acks(node, number - 1);
            }
            waiting.push_back((number, mark));
        }
        for shard in &shards {
            self.tell_shard(*shard, ToShard::Mark(Mark::Node(mark)));
        }
        self.marks.open.insert(mark, shards);
    }

    /// A shard has copied what came before this mark.
    pub(super) fn marked(&mut self, shard: ShardId, mark: u64) {
        let marks = &mut self.marks;
        let Some(missing) = marks.open.get_mut(&mark) else { return };
        missing.remove(&shard);
        if !missing.is_empty() {
            return;
        }
        marks.open.remove(&mark);
        let (open, links) = (&marks.open, &mut self.links);
        marks.waiting.retain(|node, waiting| {
            while waiting.front().is_some_and(|(_, mark)| !open.contains_key(mark)) {
                waiting.pop_front();
            }
            links.limit_acks(*node, waiting.front().map_or(u64::MAX, |(number, _)| number - 1));
            !waiting.is_empty()
        });
    }
}
