//! The journal of one thread: batches, checkpoints, and what happens when there is no room.

use std::sync::Arc;

use bytes::BytesMut;
use sedge_base::{Duration, Instant};
use sedge_cluster::{Node, Shard};
use sedge_journal::{AppendError, Files, Log, Segment, Syncer};

use crate::config::Durability;

/// Bytes of a checkpoint written in one turn, about.
const CHECKPOINT_BYTES: u64 = 256 * 1024;
/// How often the room is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Batches of the journal for which nobody waits are carried to the medium after this time.
const CARRY_AFTER: Duration = Duration::from_millis(100);
/// Room of the file system that is left for acknowledgements and other things that free room; less if it is small.
const RESERVE_BYTES: u64 = 16 * 1024 * 1024;
/// A batch that cannot be written grows up to this; then nothing more is read.
const BACKLOG_BYTES: usize = 8 * 1024 * 1024;

/// State of a journal, for operators; present numbers except for the counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeeperStats {
    pub(crate) bytes: u64,
    pub(crate) segments: u64,
    /// Count of batches.
    pub(crate) batches: u64,
    /// Count of bytes of batches.
    pub(crate) written: u64,
    /// Count of calls that carried batches to the medium, the time they took in microseconds, and the slowest.
    pub(crate) commits: (u64, u64, u64),
    /// Count of checkpoints that are complete.
    pub(crate) checkpoints: u64,
    /// Whether there is no room.
    pub(crate) full: bool,
    /// Count of times that there was none.
    pub(crate) times_full: u64,
    /// Bytes that wait to be written.
    pub(crate) waiting: u64,
}

/// Where a checkpoint is.
#[derive(Clone, Copy, Debug)]
enum Checkpoint {
    /// The shard and the node write.
    Writing { first: u64, shard_is_done: bool },
    /// Everything is in the batches up to this one; the segments before the first are not needed when they are kept.
    Written { first: u64, sequence: u64 },
    /// They are kept, and the listing that says so is on its way to the medium.
    Listed { first: u64, lines: u64 },
}

/// See the module.
pub(crate) struct Keeper {
    log: Log,
    files: Arc<dyn Files>,
    /// With `fsync` only.
    syncer: Option<Syncer>,
    /// The last batch that the syncer was asked for.
    requested: u64,
    /// When what was written after it is to be carried to the medium at the latest.
    carry_at: Option<Instant>,
    batch: BytesMut,
    checkpoint: Option<Checkpoint>,
    /// A checkpoint is due whatever the size: something was damaged.
    is_checkpoint_due: bool,
    segment_bytes: u64,
    max_bytes: u64,
    /// The last attempt to write failed for want of room.
    is_stuck: bool,
    next_look: Instant,
    /// The last batch of former lives, which is kept.
    first_sequence: u64,
    stats: KeeperStats,
}

/// Parts of a [`Keeper`].
pub(crate) struct KeeperParts {
    pub(crate) log: Log,
    pub(crate) files: Arc<dyn Files>,
    pub(crate) durability: Durability,
    pub(crate) segment_bytes: u64,
    /// Largest size of the log; 0: any.
    pub(crate) max_bytes: u64,
    pub(crate) is_checkpoint_due: bool,
}

impl Keeper {
    /// `wake` is called when batches have reached the medium.
    pub(crate) fn new(parts: KeeperParts, name: String, wake: impl Fn() + Send + 'static) -> std::io::Result<Self> {
        let KeeperParts { log, files, durability, segment_bytes, max_bytes, is_checkpoint_due } = parts;
        let syncer = if durability == Durability::Fsync { Some(Syncer::start(name, wake)?) } else { None };
        let first_sequence = log.sequence();
        Ok(Self {
            first_sequence,
            log,
            files,
            syncer,
            requested: first_sequence,
            carry_at: None,
            batch: BytesMut::new(),
            checkpoint: None,
            is_checkpoint_due,
            segment_bytes,
            max_bytes,
            is_stuck: false,
            next_look: Instant::ZERO,
            stats: KeeperStats::default(),
        })
    }

    /// Writes what the machines have to keep. An error is final: nothing that depends on it may leave.
    pub(crate) fn commit(
        &mut self,
        now: Instant,
        shard: &mut Shard,
        mut node: Option<&mut Node>,
    ) -> Result<(), AppendError> {
        self.log.note_kept(self.kept());
        self.go_on_with_checkpoint(shard, node.as_deref_mut());
        shard.write_records(&mut self.batch);
        if let Some(node) = node.as_deref_mut() {
            node.write_records(&mut self.batch);
        }
        if now >= self.next_look {
            self.next_look = now + LOOK_EVERY;
            self.is_stuck = false;
            self.look_for_room(shard, node);
        }
        if self.batch.is_empty() || self.is_stuck {
            return Ok(());
        }
        let segment = self.log.current().cloned();
        match self.log.append(&self.batch) {
            Ok(sequence) => {
                if let (Some(before), Some(segment)) = (segment, self.log.current())
                    && !Arc::ptr_eq(&before, segment)
                {
                    self.request(&before, sequence - 1);
                }
                self.stats.batches += 1;
                self.stats.written += self.batch.len() as u64;
                self.batch.clear();
                self.log.note_kept(self.kept());
            }
            Err(AppendError::Full(error)) => {
                self.is_stuck = true;
                self.set_full(true, &error.to_string());
            }
            Err(error @ AppendError::Failed { .. }) => return Err(error),
        }
        Ok(())
    }

    /// Has what was written carried to the medium: at once if anything `is_awaited` or a checkpoint waits, otherwise a little later,
    /// so that what nobody waits for does not keep the disk from what somebody does.
    pub(crate) fn carry(&mut self, now: Instant, is_awaited: bool) {
        if self.syncer.is_none() || self.requested == self.log.sequence() {
            return;
        }
        let carry_at = *self.carry_at.get_or_insert(now + CARRY_AFTER);
        if is_awaited || now >= carry_at || matches!(self.checkpoint, Some(Checkpoint::Written { .. })) {
            self.request_all();
        }
    }

    /// Asks for everything that was written.
    fn request_all(&mut self) {
        if let Some(segment) = self.log.current().cloned() {
            self.request(&segment, self.log.sequence());
        }
    }

    fn request(&mut self, segment: &Arc<dyn Segment>, sequence: u64) {
        if let Some(syncer) = self.syncer.as_ref().filter(|_| sequence > self.requested) {
            syncer.request(segment, sequence);
            (self.requested, self.carry_at) = (sequence, None);
        }
    }

    /// The batch that everything so far is in.
    pub(crate) fn sequence(&self) -> u64 {
        self.log.sequence() + u64::from(!self.batch.is_empty())
    }

    /// Batches up to this one are kept.
    pub(crate) fn kept(&self) -> u64 {
        let synced = |syncer: &Syncer| syncer.synced().sequence().max(self.first_sequence);
        self.syncer.as_ref().map_or_else(|| self.log.sequence(), synced)
    }

    /// Whether everything the machines had to keep is written; carries it to the medium.
    pub(crate) fn sync_now(&self) -> std::io::Result<bool> {
        self.log.current().map_or(Ok(()), |segment| segment.sync())?;
        Ok(self.batch.is_empty())
    }

    /// Why batches do not reach the medium.
    pub(crate) fn failure(&self) -> Option<std::io::Error> {
        self.syncer.as_ref().and_then(|syncer| syncer.synced().take_failure())
    }

    /// Whether there is no room for new publications.
    pub(crate) const fn is_full(&self) -> bool {
        self.stats.full
    }

    /// Whether so much waits for room that nothing more should be read.
    pub(crate) fn is_choked(&self) -> bool {
        self.is_stuck && self.batch.len() >= BACKLOG_BYTES
    }

    /// Whether the next turn has something to do at once.
    pub(crate) const fn is_busy(&self) -> bool {
        matches!(self.checkpoint, Some(Checkpoint::Writing { .. })) && !self.is_stuck
    }

    /// When a turn is wanted although nothing happens.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let look = (self.stats.full || !self.batch.is_empty()).then_some(self.next_look);
        look.into_iter().chain(self.carry_at).min()
    }

    pub(crate) fn stats(&self) -> KeeperStats {
        let commits = self.syncer.as_ref().map_or((0, 0, 0), |syncer| syncer.synced().commits());
        let (bytes, segments) = (self.log.bytes(), self.log.segments() as u64);
        let waiting = self.batch.len() as u64;
        KeeperStats { bytes, segments, commits, waiting, ..self.stats.clone() }
    }

    /// Carries everything to the medium.
    pub(crate) fn close(&mut self) {
        self.request_all();
        let synced = self.syncer.take().map(|syncer| Arc::clone(syncer.synced()));
        // The thread has ended.
        let is_kept = synced.is_none_or(|synced| !synced.has_failed());
        if is_kept && let Err(error) = self.log.close(self.log.sequence()) {
            tracing::warn!(dir = %self.log.dir().display(), %error, "cannot note where the journal ends");
        }
    }

    fn go_on_with_checkpoint(&mut self, shard: &mut Shard, node: Option<&mut Node>) {
        if self.is_stuck {
            return;
        }
        match self.checkpoint {
            None => {
                let live = live_bytes(shard, node.as_deref());
                if self.is_checkpoint_due || self.log.bytes() > live * 2 + self.segment_bytes {
                    self.begin_checkpoint(shard, node);
                }
            }
            Some(Checkpoint::Writing { first, shard_is_done: false }) => {
                let shard_is_done = shard.checkpoint(CHECKPOINT_BYTES);
                self.checkpoint = Some(Checkpoint::Writing { first, shard_is_done });
            }
            Some(Checkpoint::Writing { first, shard_is_done: true }) => {
                if node.is_none_or(|node| node.checkpoint(CHECKPOINT_BYTES)) {
                    self.checkpoint = Some(Checkpoint::Written { first, sequence: self.log.sequence() + 1 });
                }
            }
            Some(Checkpoint::Written { first, sequence }) => {
                if self.kept() >= sequence || (self.batch.is_empty() && self.kept() >= self.log.sequence()) {
                    let lines = self.log.let_go_before(first);
                    self.checkpoint = Some(Checkpoint::Listed { first, lines });
                    match (&self.syncer, self.log.current()) {
                        // Whoever carries a segment there takes the listing along.
                        (Some(syncer), Some(segment)) => syncer.request(segment, self.requested),
                        _ => self.end_checkpoint(first),
                    }
                }
            }
            Some(Checkpoint::Listed { first, lines }) => {
                if self.log.is_listed(lines) {
                    self.end_checkpoint(first);
                }
            }
        }
    }

    fn end_checkpoint(&mut self, first: u64) {
        if let Err(error) = self.log.remove_before(first) {
            tracing::warn!(dir = %self.log.dir().display(), %error, "cannot remove an old segment of the journal");
        }
        self.stats.checkpoints += 1;
        self.checkpoint = None;
    }

    fn begin_checkpoint(&mut self, shard: &mut Shard, node: Option<&mut Node>) {
        self.is_checkpoint_due = false;
        // The segment is not the current one any more afterwards.
        self.request_all();
        self.log.roll();
        let first = self.log.next_segment();
        shard.begin_checkpoint();
        if let Some(node) = node {
            node.begin_checkpoint();
        }
        self.checkpoint = Some(Checkpoint::Writing { first, shard_is_done: false });
    }

    /// Decides whether there is room. A log that has reached its limit is shortened first, if that helps.
    fn look_for_room(&mut self, shard: &mut Shard, node: Option<&mut Node>) {
        let over = self.max_bytes > 0 && self.log.bytes() >= self.max_bytes;
        let live = live_bytes(shard, node.as_deref());
        let free = self.files.free_bytes(self.log.dir()).unwrap_or(u64::MAX);
        let reserve = RESERVE_BYTES.min((free.saturating_add(self.log.bytes())) / 8);
        let helps = live < self.log.bytes() / 2 && live < free;
        if (over || free < reserve) && self.checkpoint.is_none() && helps {
            self.begin_checkpoint(shard, node);
        }
        if over {
            self.set_full(true, "node.max_journal_bytes is reached");
        } else if free < reserve {
            self.set_full(true, "the file system has hardly any room");
        } else {
            self.set_full(false, "");
        }
    }

    fn set_full(&mut self, full: bool, why: &str) {
        if full && !self.stats.full {
            self.stats.times_full += 1;
            tracing::error!(
                dir = %self.log.dir().display(), bytes = self.log.bytes(), why,
                "no room in the journal: publications with QoS 1 and 2 are refused until there is",
            );
        } else if !full && self.stats.full {
            tracing::info!(dir = %self.log.dir().display(), "there is room in the journal again");
        }
        self.stats.full = full;
    }
}

fn live_bytes(shard: &Shard, node: Option<&Node>) -> u64 {
    shard.live_bytes() + node.map_or(0, Node::live_bytes)
}
