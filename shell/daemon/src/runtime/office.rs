//! Outgoing mail of one thread: collected during a turn, posted at its end or when the journal has what it rests on.

use sedge_base::ShardId;
use sedge_cluster::durable::{Haste, OutgoingMail, haste_to_node, haste_to_shard, is_publication};

use super::mailbox::Room;
use super::{Letter, Shared, WorkerStats};

/// The outgoing mail of one thread.
pub(crate) struct Office {
    me: usize,
    mail: OutgoingMail<Letter>,
    /// Receivers whose mailbox was full.
    full: Vec<bool>,
}

impl Office {
    pub(crate) fn new(me: ShardId, shards: usize) -> Self {
        Self { me: usize::from(me.0), mail: OutgoingMail::new(shards), full: vec![false; shards] }
    }

    /// Mail waits for a journal from now on, of which the batches up to `kept` are kept.
    pub(crate) fn note_kept(&mut self, kept: u64) {
        self.mail.note_kept(kept);
    }

    /// Keeps a letter for the end of the turn.
    pub(crate) fn put(&mut self, to: ShardId, letter: Letter) {
        if self.mail.put(to, letter, haste).is_err() {
            tracing::error!(shard = to.0, "mail for a shard that does not exist");
        }
    }

    /// Whether there is anything to post.
    pub(crate) fn is_empty(&self) -> bool {
        self.mail.is_empty()
    }

    /// Whether there is anything that has to wait for a journal.
    pub(crate) fn has_to_wait(&self) -> bool {
        self.mail.has_to_wait()
    }

    /// Posts what waits for no journal: everything, if there is none.
    pub(crate) fn post(&mut self, shared: &Shared, stats: &mut WorkerStats) {
        post(self.mail.free(), &mut self.full, self.me, shared, stats);
    }

    /// Takes out what waits for batch `sequence` of the journal, one batch of mail for each receiver; `mark` gives what to put behind
    /// one with publications.
    pub(crate) fn take(&mut self, sequence: u64, mark: impl FnMut(usize) -> Letter) -> Vec<Vec<Letter>> {
        let publishes = |letter: &Letter| matches!(letter, Letter::Shard(mail) if is_publication(mail));
        self.mail.take(sequence, publishes, mark)
    }

    /// Posts what [`Office::take`] took.
    pub(crate) fn post_taken(&mut self, mut taken: Vec<Vec<Letter>>, shared: &Shared, stats: &mut WorkerStats) {
        post(&mut taken, &mut self.full, self.me, shared, stats);
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

fn post(batches: &mut [Vec<Letter>], full: &mut [bool], me: usize, shared: &Shared, stats: &mut WorkerStats) {
    for ((batch, full), mailbox) in batches.iter_mut().zip(full).zip(&shared.boxes) {
        if batch.is_empty() {
            continue;
        }
        stats.letters += batch.len() as u64;
        stats.batches += 1;
        if mailbox.post(batch, me) == Room::No && !*full {
            *full = true;
            stats.mailbox_full += 1;
        }
    }
}

fn haste(letter: &Letter) -> Haste {
    if let Letter::Shard(mail) = letter {
        haste_to_shard(mail)
    } else if let Letter::Node(_, mail) = letter {
        haste_to_node(mail)
    } else {
        Haste::Waits
    }
}
