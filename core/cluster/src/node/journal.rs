//! The node's part of the journal: retained messages; and its steps after a restart until it knows the contents of its shards.

use std::sync::Arc;

use bytes::BytesMut;
use sedge_broker::BUCKETS;
use sedge_mqtt::Message;

use crate::mail::ToShard;
use crate::node::Node;
use crate::wire::{Entry, Remembered, write_entry};
use crate::{NodeState, RestoredNode};

/// Bytes that a record takes beside its message, for estimates.
const RECORD_BYTES: u64 = 128;

/// The records that the node has to write: retained messages, its members, and lives whose sessions went on elsewhere.
#[derive(Debug, Default)]
pub(in crate::node) struct RetainedJournal {
    records: Vec<Arc<Message>>,
    /// Whether the members may have changed since they were written.
    members_changed: bool,
    /// The members that were written last; none if they have to be written in any case.
    members_written: Option<Vec<Remembered>>,
    /// Whether sessions have gone on elsewhere since that was written.
    taken_changed: bool,
    /// The bucket that a checkpoint is to write next.
    cursor: Option<usize>,
}

impl RetainedJournal {
    pub(in crate::node) fn push(&mut self, message: &Arc<Message>) {
        self.records.push(Arc::clone(message));
    }
}

/// How far the shards have come with telling what their journals held.
#[derive(Debug, Default)]
pub(in crate::node) struct Restoration {
    waits_for: u16,
    /// The shards wait to be told that the node knows the cluster.
    is_awaited: bool,
}

impl Restoration {
    pub(in crate::node) const fn shard_is_done(&mut self) {
        self.waits_for = self.waits_for.saturating_sub(1);
    }
}

impl Node {
    /// Begins to write down what changes. The retained messages share the journal of shard 0.
    pub fn keep_journal(&mut self) {
        self.journal = Some(RetainedJournal::default());
    }

    /// Takes in what the journal has held, once and before anything else. Every shard is restored, too, and says so. `is_written`:
    /// the journal goes on; otherwise everything is written to it.
    pub fn restore(&mut self, restored: RestoredNode, is_written: bool) {
        let RestoredNode { retained, clients, members, taken, safe, known, life } = restored;
        self.beginning.restored_life = life;
        if let Some(journal) = self.journal.as_mut().filter(|_| is_written) {
            journal.members_written = Some(members.clone());
        }
        for node in known.into_iter().chain(members.iter().map(|member| member.node)) {
            if node != self.config.node {
                self.agreement.knows(node, self.now.instant);
            }
        }
        self.remember(members);
        self.takeovers.remember(taken, safe);
        if !is_written {
            self.note_members_changed();
            self.note_taken_changed();
        }
        for message in &retained {
            self.retained.set(message);
        }
        if let Some(journal) = self.journal.as_mut().filter(|_| !is_written) {
            journal.records.extend(retained);
        }
        let me = self.config.node;
        for (client, epoch) in clients {
            // The home is this node until it knows others.
            self.directory.home.register(&client, me, epoch, self.directory.home.view());
            self.claims.restore(client, epoch, None);
        }
        self.restoration = Restoration { waits_for: self.config.shards, is_awaited: true };
    }

    /// Whether every shard knows what the others' journals held, so that no publication misses a session.
    pub const fn is_restored(&self) -> bool {
        self.restoration.waits_for == 0
    }

    /// Appends what has to be written since the last call.
    pub fn write_records(&mut self, out: &mut BytesMut) {
        let Some(journal) = &mut self.journal else { return };
        for message in journal.records.drain(..) {
            write_entry(out, &Entry::Retained(message));
        }
        let members = core::mem::take(&mut journal.members_changed);
        let written = if members { journal.members_written.take() } else { None };
        if core::mem::take(&mut journal.taken_changed) {
            write_entry(out, &Entry::Taken(self.takeovers.remembered()));
            write_entry(out, &Entry::SafeElsewhere(self.takeovers.safe_elsewhere()));
        }
        if let Some(known) = self.agreement.take_changed() {
            write_entry(out, &Entry::Known(known));
        }
        if members {
            let members = self.remembered();
            // A disk without room need not take what it holds already.
            if written.as_ref() != Some(&members) {
                write_entry(out, &Entry::Members(members.clone()));
            }
            if let Some(journal) = &mut self.journal {
                journal.members_written = Some(members);
            }
        }
    }

    /// The members have to be written.
    pub(in crate::node) const fn note_members_changed(&mut self) {
        if let Some(journal) = &mut self.journal {
            journal.members_changed = true;
        }
    }

    /// The lives whose sessions went on elsewhere have to be written.
    pub(in crate::node) const fn note_taken_changed(&mut self) {
        if let Some(journal) = &mut self.journal {
            journal.taken_changed = true;
        }
    }

    /// About as many bytes as everything that is alive takes in the journal.
    pub fn live_bytes(&self) -> u64 {
        let entries = (self.retained.len() + self.retained.tombstones()) as u64;
        if self.journal.is_some() {
            (self.retained.bytes() + self.retained.tombstone_bytes()) as u64 + entries * RECORD_BYTES
        } else {
            0
        }
    }

    /// Begins to write everything once more; see [`sedge_broker::Broker::begin_checkpoint`].
    pub fn begin_checkpoint(&mut self) {
        if let Some(journal) = &mut self.journal {
            journal.cursor = Some(0);
            (journal.members_changed, journal.taken_changed) = (true, true);
            self.agreement.note_changed();
            journal.members_written = None;
        }
    }

    /// Writes a part of a checkpoint, about `budget` bytes. True when it is done or there is none.
    pub fn checkpoint(&mut self, budget: u64) -> bool {
        let Some(journal) = &mut self.journal else { return true };
        let Some(mut bucket) = journal.cursor.take() else { return true };
        let mut written = 0;
        while bucket < BUCKETS && written < budget {
            for message in self.retained.bucket(bucket) {
                written += RECORD_BYTES + (message.payload.len() + message.topic.as_str().len()) as u64;
                journal.records.push(message);
            }
            bucket += 1;
        }
        if bucket < BUCKETS {
            journal.cursor = Some(bucket);
        }
        bucket == BUCKETS
    }

    /// Tells the shards when the cluster is known, so that they let clients in, or known again.
    pub(in crate::node) fn check_restoration(&mut self) {
        if !self.is_restored() || self.state == NodeState::Recovery {
            return;
        }
        if self.beginning.opens() {
            self.passes_on();
            self.tell_all_shards(|| ToShard::Open);
            self.reclaim_late();
        }
        if core::mem::take(&mut self.restoration.is_awaited) {
            self.tell_all_shards(|| ToShard::Recovered);
        }
    }
}
