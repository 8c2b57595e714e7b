//! Outgoing mail of one thread: collected during a turn, posted at its end, one batch for each receiver.

use sedge_base::ShardId;
use sedge_cluster::mail::ToShard;

use super::mailbox::Room;
use super::{Letter, Shared, WorkerStats};

/// See the module.
pub(crate) struct Office {
    me: usize,
    batches: Vec<Vec<Letter>>,
    /// Receivers whose mailbox was full.
    full: Vec<bool>,
}

impl Office {
    pub(crate) fn new(me: ShardId, shards: usize) -> Self {
        let batches = (0..shards).map(|_| Vec::new()).collect();
        Self { me: usize::from(me.0), batches, full: vec![false; shards] }
    }

    /// Keeps a letter for the end of the turn.
    pub(crate) fn put(&mut self, to: ShardId, letter: Letter) {
        if let Some(batch) = self.batches.get_mut(usize::from(to.0)) {
            batch.push(letter);
        } else {
            tracing::error!(shard = to.0, "mail for a shard that does not exist");
        }
    }

    /// Whether there is anything to post.
    pub(crate) fn is_empty(&self) -> bool {
        self.batches.iter().all(Vec::is_empty)
    }

    /// Takes everything out, one batch for each receiver; `mark` gives what to put behind a batch with publications.
    pub(crate) fn take(&mut self, mut mark: impl FnMut(usize) -> Letter) -> Vec<Vec<Letter>> {
        let mut taken: Vec<_> = self.batches.iter_mut().map(std::mem::take).collect();
        for (to, batch) in taken.iter_mut().enumerate() {
            let publishes = |letter: &Letter| matches!(letter, Letter::Shard(ToShard::Plain(_) | ToShard::Share(_)));
            if batch.iter().any(publishes) {
                batch.push(mark(to));
            }
        }
        taken
    }

    /// Posts what [`Office::take`] took, behind which nothing was put yet.
    pub(crate) fn post_taken(&mut self, taken: Vec<Vec<Letter>>, shared: &Shared, stats: &mut WorkerStats) {
        let later = std::mem::replace(&mut self.batches, taken);
        self.post(shared, stats);
        self.batches = later;
    }

    /// Posts everything.
    pub(crate) fn post(&mut self, shared: &Shared, stats: &mut WorkerStats) {
        for ((batch, full), mailbox) in self.batches.iter_mut().zip(&mut self.full).zip(&shared.boxes) {
            if batch.is_empty() {
                continue;
            }
            stats.letters += batch.len() as u64;
            stats.batches += 1;
            if mailbox.post(batch, self.me) == Room::No && !*full {
                *full = true;
                stats.mailbox_full += 1;
            }
        }
    }

    /// Whether some receiver cannot follow, so that nothing more is to be read from clients. Looks again at those that could
    /// not; this thread is woken when that changes.
    pub(crate) fn is_jammed(&mut self, shared: &Shared) -> bool {
        for (full, mailbox) in self.full.iter_mut().zip(&shared.boxes) {
            *full = *full && mailbox.room(self.me) == Room::No;
        }
        self.full.contains(&true)
    }
}
