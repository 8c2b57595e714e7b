//! The journals of a node at its start: read back, dealt out to the shards, opened for what comes.
//!
//! ```text
//! <data_dir>/journal/current                          which generation is in force, and its number of shards
//! <data_dir>/journal/<generation>/shard-<k>/          segments of shard k
//! <data_dir>/journal/<generation>/shard-<k>.segments  what should be there
//! ```
//!
//! A generation lasts as long as the number of shards. With another number everything is written to a new one first.

mod generations;

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use sedge_base::{Now, Timestamp};
use sedge_cluster::{Node, Recovery, RestoredNode, RestoredShard, Shard};
use sedge_journal::{Disk, Files, Log, LogOptions, RecoverError, Recovered, recover};

use self::generations::Generations;
use crate::config::{Durability, NodeConfig};
use crate::runtime::{Keeper, KeeperParts};
use crate::{StartError, http};

/// Length of a segment.
const SEGMENT_BYTES: u64 = 16 * 1024 * 1024;
/// Shortest segment, for journals with a small limit.
const SEGMENT_BYTES_MIN: u64 = 64 * 1024;
/// How much damage is named in the log.
const DAMAGE_NAMED: usize = 20;

/// Findings of the recovery, for the log, for metrics and for `GET /api/v1/status`.
pub(crate) type Report = http::RecoveryReport;

/// The journals of a node.
pub(crate) struct Journals {
    dir: PathBuf,
    generations: Generations,
    durability: Durability,
    segment_bytes: u64,
    max_bytes: u64,
    logs: Vec<(Log, bool)>,
    shards: Vec<RestoredShard>,
    node: RestoredNode,
    pub(crate) report: Report,
}

impl Journals {
    /// Reads what there is; `None` without durability.
    pub(crate) fn open(config: &NodeConfig, wall: Timestamp) -> Result<Option<Self>, StartError> {
        let durability = config.durability();
        let dir = match (&config.data_dir, durability) {
            (_, Durability::Memory) => return Ok(None),
            (Some(data_dir), _) => data_dir.join("journal"),
            (None, _) => {
                let what = "needs node.data_dir: the journal has to be somewhere".to_owned();
                return Err(StartError::Setting { key: "node.durability", what });
            }
        };
        let shards = config.shard_count();
        let generations = Generations::open(&dir, shards)?;
        let begun = Instant::now();
        let mut read = Read::default();
        for (shard, dir) in generations.to_read() {
            read.shard(&dir, shard, generations.is_listed())?;
        }
        let Read { recoveries, recovered, mut report } = read;
        report.undelivered = recoveries.iter().map(Recovery::missing).sum();
        let (restored, node) = Recovery::deal(recoveries, wall, shards);
        report.sessions = restored.iter().map(RestoredShard::sessions).sum();
        report.messages = restored.iter().map(RestoredShard::messages).sum();
        report.retained = node.retained();
        report.millis = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let max_bytes = config.max_journal_bytes / u64::from(shards);
        let segment_bytes = if max_bytes == 0 { SEGMENT_BYTES } else { max_bytes / 4 };
        let segment_bytes = segment_bytes.clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES);
        let mut journals = Self {
            dir,
            generations,
            durability,
            segment_bytes,
            max_bytes,
            logs: Vec::new(),
            shards: restored,
            node,
            report,
        };
        journals.open_logs(shards, recovered)?;
        journals.tell();
        Ok(Some(journals))
    }

    fn open_logs(&mut self, shards: u16, recovered: Vec<Recovered>) -> Result<(), StartError> {
        self.generations.begin()?;
        let mut recovered = if self.generations.goes_on() { recovered } else { Vec::new() }.into_iter();
        for shard in 0..shards {
            let dir = self.generations.shard_dir(shard);
            let recovered = recovered.next().unwrap_or_default();
            if self.durability == Durability::Fsync {
                sync_all(&dir, &recovered).map_err(failed(&dir))?;
            }
            let files: Arc<dyn Files> = Arc::new(Disk);
            let options = LogOptions { files, dir: dir.clone(), shard, segment_bytes: self.segment_bytes };
            let log = Log::open(options, &recovered).map_err(failed(&dir))?;
            self.logs.push((log, !recovered.damage.is_empty() || recovered.has_holes()));
        }
        Ok(())
    }

    /// Restores the state with which the node begins.
    pub(crate) fn restore_node(&mut self, node: &mut Node) {
        node.keep_journal();
        node.restore(std::mem::take(&mut self.node), self.generations.goes_on());
    }

    /// Restores the state with which a shard begins, and returns its journal, which has everything then. Call it for each shard in turn.
    pub(crate) fn restore_shard(
        &mut self,
        now: Now,
        number: u16,
        shard: &mut Shard,
        node: Option<&mut Node>,
        wake: impl Fn() + Send + 'static,
    ) -> Result<Keeper, StartError> {
        let restored = self.shards.get_mut(usize::from(number)).map(std::mem::take).unwrap_or_default();
        shard.keep_journal();
        shard.restore(now, restored);
        let dir = self.generations.shard_dir(number);
        if self.logs.is_empty() {
            return Err(failed(&dir)(ErrorKind::NotFound.into()));
        }
        let (log, is_checkpoint_due) = self.logs.remove(0);
        let parts = KeeperParts {
            log,
            files: Arc::new(Disk),
            durability: self.durability,
            segment_bytes: self.segment_bytes,
            max_bytes: self.max_bytes,
            is_checkpoint_due,
        };
        let mut keeper =
            Keeper::new(parts, format!("sedge-sync-{number}"), wake).map_err(StartError::system("start a thread"))?;
        if !self.generations.goes_on() {
            let written = keeper.commit(now.instant, shard, node).map_err(io::Error::other);
            let is_kept = written.and_then(|()| keeper.sync_now()).map_err(failed(&dir))?;
            if !is_kept {
                return Err(failed(&dir)(ErrorKind::StorageFull.into()));
            }
        }
        Ok(keeper)
    }

    /// All shards are restored: a new generation comes into force, and what it replaces is removed.
    pub(crate) fn seal(&self) -> Result<(), StartError> {
        self.generations.seal()
    }

    fn tell(&self) {
        let Report { batches, bytes, sessions, messages, retained, millis, .. } = self.report;
        tracing::info!(dir = %self.dir.display(), batches, bytes, sessions, messages, retained, millis, "journal read");
        let Report { missing_shards, missing_segments, missing_batches, undelivered, .. } = self.report;
        if missing_shards > 0 || missing_segments > 0 || missing_batches > 0 || undelivered > 0 {
            tracing::error!(
                dir = %self.dir.display(), missing_shards, missing_segments, missing_batches, undelivered,
                "parts of the journal are missing: the node goes on without what they held. To restore them from a backup, stop it, put \
                 back the whole directory, and start it again",
            );
        } else if self.report.dropped_bytes > 0 {
            tracing::warn!(
                dir = %self.dir.display(), dropped_bytes = self.report.dropped_bytes,
                "parts of the journal were not sound and are dropped; a write that the end of the process has cut short is one of \
                 them, and nobody was told that it had happened",
            );
        }
    }
}

#[derive(Default)]
struct Read {
    recoveries: Vec<Recovery>,
    recovered: Vec<Recovered>,
    report: Report,
}

impl Read {
    fn shard(&mut self, dir: &Path, shard: u16, should_be_listed: bool) -> Result<(), StartError> {
        let mut recovery = Recovery::default();
        let mut senseless = 0;
        let mut visit = |batch: bytes::Bytes, hole: bool| {
            if hole {
                recovery.note_hole();
            }
            senseless += u64::from(recovery.apply(batch).is_err());
        };
        let found = recover(&Disk, dir, shard, &mut visit).map_err(|error| match error {
            RecoverError::Io { path, source } => StartError::DataDir { path, source },
            RecoverError::Version { ref path, .. } => {
                let (path, what) = (path.clone(), error.to_string());
                StartError::DataDir { path, source: io::Error::new(ErrorKind::Unsupported, what) }
            }
        })?;
        for damage in found.damage.iter().take(DAMAGE_NAMED) {
            tracing::warn!("{damage}");
        }
        let report = &mut self.report;
        if !dir.is_dir() {
            report.missing_shards += 1;
            report.note_hole(format!("{} is missing", dir.display()));
        }
        found.holes.iter().for_each(|hole| report.note_hole(hole.to_string()));
        if should_be_listed && !found.is_listed {
            let listing = dir.with_extension("segments");
            report
                .note_hole(format!("{} is missing: it is not known whether all segments are there", listing.display()));
        }
        report.missing_segments += found.missing_segments();
        report.batches += found.batches;
        report.bytes += found.bytes;
        report.dropped_bytes += found.dropped_bytes();
        report.missing_batches += found.missing + senseless;
        self.recoveries.push(recovery);
        self.recovered.push(found);
        Ok(())
    }
}

/// Carries the journal's files to the medium: writes of a former life may still be on their way.
fn sync_all(dir: &Path, recovered: &Recovered) -> io::Result<()> {
    if recovered.segments.is_empty() {
        return Ok(());
    }
    for name in Disk.list(dir)? {
        File::open(dir.join(name))?.sync_data()?;
    }
    File::open(dir)?.sync_all()
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> StartError {
    let path = path.to_owned();
    move |source| StartError::DataDir { path, source }
}

impl Report {
    /// Something is missing.
    fn note_hole(&mut self, what: String) {
        if self.holes.len() < DAMAGE_NAMED {
            tracing::error!("{what}");
            self.holes.push(what);
        }
    }
}
