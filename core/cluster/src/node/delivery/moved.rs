//! The deliveries of one session that has moved to this node: see `received.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sedge_base::{Instant, NodeId};
use sedge_mqtt::MessageId;

use crate::lineage::Lineage;
use crate::mail::{Gaps, Heard, has_come_to, is_in};
use crate::node::delivery::received::{MAX_FILLS, MAX_MARKS};

/// The deliveries of a session that has moved here, as far as this node knows them.
#[derive(Debug, Default)]
pub(super) struct Moved {
    pub(super) until: Instant,
    /// Whether the session has come here, and not only another owner's to the one that is here.
    pub(super) has_come: bool,
    /// When the session came, by the stamps of this node's shards in milliseconds. It has not had earlier publications of their clients, unless they
    /// came with it; the node does not hear of publications that nobody elsewhere wants, so that no gap tells of them. 0: it has had all.
    pub(super) began: u64,
    /// The number of the last publication of each shard that had come for the session at a former node, as each former node says.
    pub(super) said: BTreeMap<NodeId, Arc<Heard>>,
    /// Publications among these that the session has not had.
    pub(super) lacks: BTreeMap<NodeId, Lacks>,
    /// The owners from which the session had come to each former node.
    pub(super) came: BTreeMap<NodeId, Lineage>,
    /// The last publication of each shard that the session had had when it came, as the node says that it came from.
    pub(super) came_with: Arc<Heard>,
    pub(super) gaps: Arc<Gaps>,
    /// The node that it came from.
    pub(super) from: Option<NodeId>,
    /// Another node that goes on from a copy which that one had before it gave the session away.
    pub(super) older_at: Option<NodeId>,
    /// The last publication of each shard that had come here when this node began to catch publications for the session.
    pub(super) caught_behind: Option<Heard>,
    /// Publications caught for the session where it came from, and not here, that came too late to come with it.
    pub(super) owed: BTreeSet<MessageId>,
    /// Publications caught for the session there, as far as it was served with them, or those of the copy if its node is gone.
    pub(super) caught: BTreeSet<MessageId>,
    /// Publications in its gaps that the session has had.
    pub(super) fills: BTreeSet<MessageId>,
    /// Publications that the session has had where it was, and that may come here later than the session.
    pub(super) along: BTreeSet<MessageId>,
    /// Publications that the sessions of other owners have had, and that may come here later than those sessions, as long as these have not come.
    pub(super) along_at: BTreeMap<NodeId, BTreeSet<MessageId>>,
    /// Publications that all sessions have had which came together from a node that is gone.
    pub(super) strays: Arc<BTreeSet<MessageId>>,
    /// Publications that were held back from the session, since another node said that the session had them there, and that have not come from it.
    pub(super) held_back: BTreeSet<MessageId>,
}

/// Publications that came where a session was before, and that the session has not had.
#[derive(Debug, Default)]
pub(super) struct Lacks {
    pub(super) gaps: Gaps,
    /// Publications in these gaps that the session has had all the same.
    pub(super) fills: BTreeSet<MessageId>,
}

/// The deliveries of a session that leaves, as this node tells the new owner.
#[derive(Debug, Default)]
pub(super) struct Parting {
    /// The last one of each shard.
    pub(super) marks: Vec<MessageId>,
    /// The last one before each gap, and the number of the last one of it.
    pub(super) gaps: Vec<(MessageId, u64)>,
    pub(super) fills: Vec<MessageId>,
}

impl Moved {
    pub(super) fn is_in_gap(&self, id: &MessageId) -> bool {
        is_in(&self.gaps, id)
    }

    /// Whether it has had a publication that came to it in some other way than those of this node.
    pub(super) fn has_got(&self, id: &MessageId) -> bool {
        self.fills.contains(id) || self.strays.contains(id) || self.caught.contains(id)
    }

    /// Whether it has had a publication at a node that has said how far it was there.
    pub(super) fn has_had_at(&self, node: NodeId, marks: &Heard, id: &MessageId) -> bool {
        let has_got = |lacks: &Lacks| lacks.fills.contains(id) || self.fills.contains(id);
        let is_lacking = |lacks: &Lacks| is_in(&lacks.gaps, id) && !has_got(lacks);
        has_come_to(marks, id) && !self.lacks.get(&node).is_some_and(is_lacking)
    }

    /// Whether it has had a publication, or another owner's session has, that may come here later than that session.
    pub(super) fn is_along(&self, id: &MessageId) -> bool {
        self.along.contains(id) || self.along_at.values().any(|along| along.contains(id))
    }

    /// It has got a publication that was said to be in the session of another owner.
    pub(super) fn brings_along(&mut self, id: MessageId) {
        let mut is_along = false;
        for along in self.along_at.values_mut() {
            is_along |= along.remove(&id);
        }
        if is_along {
            self.along.insert(id);
        }
    }

    /// Whether the session had a publication when it came here, or got it with what its former node had caught.
    pub(super) fn has_brought(&self, id: &MessageId) -> bool {
        self.along.contains(id) || self.caught.contains(id) || has_come_to(&self.came_with, id)
    }

    /// Publications that were held back from it, and that are still to come with the sessions of other owners, each as a gap of one.
    pub(super) fn awaits_from_others(&self) -> impl Iterator<Item = (MessageId, u64)> {
        let of_former = |id: &MessageId| {
            let said = self.from.and_then(|from| Some((from, self.said.get(&from)?)));
            said.is_some_and(|(from, marks)| self.has_had_at(from, marks, id))
        };
        let awaited = self.held_back.iter().filter(move |id| !self.has_brought(id) && !of_former(id));
        awaited.map(|id| (MessageId { seq: id.seq.saturating_sub(1), ..*id }, id.seq))
    }

    /// Gaps of the session, and the publications in them that it has had. At another node that has said how far it was there, it has had all that.
    pub(super) fn lacks(&self) -> (Vec<(MessageId, u64)>, Vec<MessageId>) {
        let others =
            || self.said.iter().filter(|(node, _)| self.from != Some(**node) && !self.lacks.contains_key(node));
        let gaps = self.gaps.iter().flat_map(|(shard, gaps)| gaps.iter().map(move |gap| (*shard, *gap)));
        let open = gaps.filter_map(|(shard, gap)| {
            let after =
                others().filter_map(|(_, marks)| marks.get(&shard)).fold(gap.after, |after, last| after.max(*last));
            let (node, incarnation, shard) = shard;
            (after < gap.to).then_some((MessageId { node, incarnation, shard, seq: after }, gap.to))
        });
        let owed = self.owed.iter().map(|id| (MessageId { seq: id.seq.saturating_sub(1), ..*id }, id.seq));
        let got = self.fills.iter().chain(self.strays.iter()).chain(&self.caught);
        let fills: BTreeSet<MessageId> = got.filter(|id| self.is_in_gap(id)).copied().collect();
        if fills.len() > MAX_FILLS {
            return (Vec::new(), Vec::new());
        }
        (open.chain(owed).take(MAX_MARKS).collect(), fills.into_iter().collect())
    }
}
