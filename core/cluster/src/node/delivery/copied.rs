//! A neighbour's publication is acknowledged when every shard here that got it has copied what it has caused.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use sedge_base::{NodeId, ShardId};

use crate::link::Links;
use crate::mail::{Mark, ToShard};
use crate::node::Node;
use crate::node::delivery::relay::Incoming;

/// Where numbered publications come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::node) enum Source {
    /// Frames of the link to a neighbour.
    Link(NodeId),
    /// A sender's stream, over whatever nodes.
    Stream(NodeId),
}

/// Publications that are not copied yet.
#[derive(Debug, Default)]
pub(in crate::node) struct Marks {
    next: u64,
    /// Shards that have not answered, by mark.
    open: BTreeMap<u64, BTreeSet<ShardId>>,
    /// By source: the first publication that waits for each mark.
    waiting: BTreeMap<Source, VecDeque<(u64, u64)>>,
    /// The publications that have come in this turn.
    shards: BTreeSet<ShardId>,
    first: BTreeMap<Source, u64>,
}

impl Marks {
    /// Publication `number` of a source was handed to this shard.
    pub(in crate::node) fn note(&mut self, from: Source, number: u64, shard: ShardId) {
        self.first.entry(from).or_insert(number);
        self.shards.insert(shard);
    }

    /// The source numbers anew.
    pub(in crate::node) fn forget(&mut self, source: Source) {
        self.waiting.remove(&source);
        self.first.remove(&source);
    }
}

impl Node {
    /// Ends a turn: asks the shards to say when what came in it is copied.
    pub(in crate::node) fn send_marks(&mut self) {
        let marks = &mut self.marks;
        if marks.first.is_empty() {
            marks.shards.clear();
            return;
        }
        marks.next += 1;
        let mark = marks.next;
        let shards = core::mem::take(&mut marks.shards);
        for (source, number) in core::mem::take(&mut marks.first) {
            let waiting = marks.waiting.entry(source).or_default();
            if waiting.is_empty() {
                limit(&mut self.links, &mut self.relay.incoming, source, number - 1);
            }
            waiting.push_back((number, mark));
        }
        for shard in &shards {
            self.tell_shard(*shard, ToShard::Mark(Mark::Node(mark)));
        }
        self.marks.open.insert(mark, shards);
    }

    /// A shard has copied what came before this mark.
    pub(in crate::node) fn marked(&mut self, shard: ShardId, mark: u64) {
        let marks = &mut self.marks;
        let Some(missing) = marks.open.get_mut(&mark) else { return };
        missing.remove(&shard);
        if !missing.is_empty() {
            return;
        }
        marks.open.remove(&mark);
        let (open, links, incoming) = (&marks.open, &mut self.links, &mut self.relay.incoming);
        marks.waiting.retain(|source, waiting| {
            while waiting.front().is_some_and(|(_, mark)| !open.contains_key(mark)) {
                waiting.pop_front();
            }
            let up_to = waiting.front().map_or(u64::MAX, |(number, _)| number - 1);
            limit(links, incoming, *source, up_to);
            !waiting.is_empty()
        });
    }
}

fn limit(links: &mut Links, incoming: &mut Incoming, source: Source, up_to: u64) {
    match source {
        Source::Link(node) => links.limit_acks(node, up_to),
        Source::Stream(node) => incoming.limit_acks(node, up_to),
    }
}
