//! Journals, and the output of a process that waits for them. Output leaves in the order of the daemon (`sedge_cluster::durable`).

use std::collections::BTreeMap;

use bytes::Bytes;
use sedge_base::{ConnId, Instant, Rng, ShardId};
use sedge_cluster::durable::{Allowance, DurableGate, OutgoingMail};
use sedge_cluster::mail::{ToNode, ToShard};
use sedge_cluster::{LinkId, Recovery};

/// The journal of one thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log {
    batches: Vec<Bytes>,
    /// So many batches are on the medium; the others are gone when the power fails.
    kept: usize,
}

impl Log {
    pub(crate) fn write(&mut self, batch: Bytes) {
        self.batches.push(batch);
    }

    /// The number of the last batch.
    pub(crate) fn sequence(&self) -> u64 {
        self.batches.len() as u64
    }

    /// The number of the last batch that the medium has.
    pub(crate) fn kept(&self) -> u64 {
        self.kept as u64
    }

    /// The medium has the batches up to this one.
    pub(crate) fn keep(&mut self, sequence: u64) {
        self.kept = self.kept.max(usize::try_from(sequence).unwrap_or(usize::MAX)).min(self.batches.len());
    }
}

/// State that survives a process: the journal of each thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disk {
    pub(crate) logs: Vec<Log>,
    /// Until when nothing reaches the medium.
    pub(crate) stalls_until: Instant,
}

impl Disk {
    /// Each thread's journal, read back.
    pub(crate) fn read(&self, shards: u16) -> Vec<Recovery> {
        let mut recoveries: Vec<Recovery> = (0..shards).map(|_| Recovery::default()).collect();
        for (recovery, log) in recoveries.iter_mut().zip(&self.logs) {
            for batch in &log.batches {
                recovery.apply(batch.clone()).unwrap_or_else(|error| unreachable!("a journal reads back: {error}"));
            }
        }
        recoveries
    }

    /// The power fails: of the batches that the medium was not known to have, it has the first ones, or none. The value says how many each journal
    /// loses.
    pub(crate) fn lose_power(&mut self, rng: &mut Rng) -> Vec<usize> {
        let lose = |log: &mut Log| {
            let before = log.batches.len();
            log.batches.truncate(log.kept + rng.index(before - log.kept + 1));
            log.kept = log.batches.len();
            before - log.kept
        };
        self.logs.iter_mut().map(lose).collect()
    }
}

/// Mail between the threads of a process.
#[derive(Debug)]
pub(crate) enum Mail {
    Shard(ToShard),
    Node(ShardId, ToNode),
    /// To be answered when the receiver's journal has what came before it.
    Mark(ShardId, u64),
}

/// The output of one thread, which waits for the thread's journal.
#[derive(Debug)]
pub(crate) struct Thread {
    pub(crate) gate: DurableGate<Mail>,
    pub(crate) mail: OutgoingMail<Mail>,
    /// Connections and links with new bytes in this turn.
    pub(crate) conns: Vec<ConnId>,
    pub(crate) links: Vec<LinkId>,
    /// Marks that came in this turn.
    pub(crate) marks: Vec<(ShardId, u64)>,
    /// The last mark that each thread has answered.
    pub(crate) answered: Vec<u64>,
    /// Whether batches are on their way to the medium.
    pub(crate) syncs: bool,
    /// For each client's connection the bytes written, and how many may be.
    pub(crate) written: BTreeMap<ConnId, (u64, Allowance)>,
    /// For each link the bytes written, and the position up to which bytes may be.
    pub(crate) written_links: BTreeMap<LinkId, (u64, u64)>,
}

impl Thread {
    pub(crate) fn new(threads: u16) -> Self {
        let threads = usize::from(threads);
        let mut mail = OutgoingMail::new(threads);
        mail.note_kept(0);
        Self {
            gate: DurableGate::new(threads),
            mail,
            conns: Vec::new(),
            links: Vec::new(),
            marks: Vec::new(),
            answered: vec![0; threads],
            syncs: false,
            written: BTreeMap::new(),
            written_links: BTreeMap::new(),
        }
    }

    /// How many bytes may be written to a client now.
    pub(crate) fn may_write(&self, conn: ConnId) -> u64 {
        self.written.get(&conn).map_or(0, |(written, allowance)| allowance.position().saturating_sub(*written))
    }

    /// Bytes were written to a client.
    pub(crate) fn wrote(&mut self, conn: ConnId, bytes: usize) {
        if let Some((written, _)) = self.written.get_mut(&conn) {
            *written += bytes as u64;
        }
    }

    /// Bytes were written to a link.
    pub(crate) fn wrote_link(&mut self, link: LinkId, bytes: usize) {
        if let Some((written, _)) = self.written_links.get_mut(&link) {
            *written += bytes as u64;
        }
    }

    /// How many bytes may be written to a link now.
    pub(crate) fn may_write_link(&self, link: LinkId) -> u64 {
        self.written_links.get(&link).map_or(0, |(written, allowed)| allowed.saturating_sub(*written))
    }
}
