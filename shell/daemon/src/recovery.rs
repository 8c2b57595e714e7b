//! The journals of a node at its start: read back, dealt out to the shards, opened for what comes.
//!
//! ```text
//! <data_dir>/journal/current                  generation and number of shards
//! <data_dir>/journal/<generation>/shard-<k>/  segments of shard k
//! ```
//!
//! A generation lasts as long as the number of shards. With another number everything is written to a new one first.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use sedge_base::{Now, Timestamp};
use sedge_cluster::{Node, Recovery, RestoredNode, RestoredShard, Shard};
use sedge_journal::{Disk, Files, Log, LogOptions, RecoverError, Recovered, recover};

use crate::config::{Durability, NodeConfig};
use crate::identity::replace;
use crate::runtime::{Keeper, KeeperParts};
use crate::{StartError, http};

/// Length of a segment.
const SEGMENT_BYTES: u64 = 16 * 1024 * 1024;
/// Shortest segment, for journals with a small limit.
const SEGMENT_BYTES_MIN: u64 = 64 * 1024;
/// Damage that is named in the log.
const DAMAGE_NAMED: usize = 20;

/// What was found, for the log, for metrics and for `GET /api/v1/status`.
pub(crate) type Report = http::RecoveryReport;

/// The journals of a node.
pub(crate) struct Journals {
    dir: PathBuf,
    generation: u64,
    /// Whether the journals go on; otherwise everything has to be written once, then [`Journals::seal`] is called.
    pub(crate) goes_on: bool,
    durability: Durability,
    segment_bytes: u64,
    max_bytes: u64,
    logs: Vec<(Log, bool)>,
    shards: Vec<RestoredShard>,
    node: RestoredNode,
    pub(crate) report: Report,
}

/// Which generation is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Current {
    generation: u64,
    shards: u16,
}

impl std::str::FromStr for Current {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (generation, shards) = text.split_once(' ').ok_or(())?;
        let (generation, shards) = (generation.parse().ok().ok_or(())?, shards.parse().ok().ok_or(())?);
        Ok(Self { generation, shards })
    }
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
        fs::create_dir_all(&dir).map_err(failed(&dir))?;
        let shards = config.shard_count();
        let found = crate::identity::read::<Current>(&dir.join("current"), "a generation and a number of shards")?;
        let goes_on = found.is_some_and(|found| found.shards == shards);
        let generation = found.map_or(1, |found| found.generation + u64::from(!goes_on));
        let begun = Instant::now();
        let mut read = Read::default();
        if let Some(Current { generation, shards }) = found {
            for shard in 0..shards {
                read.shard(&shard_dir(&dir, generation, shard), shard)?;
            }
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
            generation,
            goes_on,
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
        if !self.goes_on {
            // A start that was cut short may have left something of a generation that never came into force.
            remove_dir(&self.dir.join(self.generation.to_string()))?;
        }
        let mut recovered = if self.goes_on { recovered } else { Vec::new() }.into_iter();
        for shard in 0..shards {
            let dir = shard_dir(&self.dir, self.generation, shard);
            let recovered = recovered.next().unwrap_or_default();
            if self.durability == Durability::Fsync {
                sync_all(&dir, &recovered).map_err(failed(&dir))?;
            }
            let files: Arc<dyn Files> = Arc::new(Disk);
            let options = LogOptions { files, dir: dir.clone(), shard, segment_bytes: self.segment_bytes };
            let log = Log::open(options, &recovered).map_err(failed(&dir))?;
            self.logs.push((log, !recovered.damage.is_empty()));
        }
        Ok(())
    }

    /// What the node begins with.
    pub(crate) fn restore_node(&mut self, node: &mut Node) {
        node.keep_journal();
        node.restore(std::mem::take(&mut self.node), self.goes_on);
    }

    /// What a shard begins with, and its journal, which has everything when this returns. Call it for each shard in turn.
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
        let dir = shard_dir(&self.dir, self.generation, number);
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
        if !self.goes_on {
            let written = keeper.commit(now.instant, shard, node).map_err(io::Error::other);
            let is_kept = written.and_then(|()| keeper.sync_now()).map_err(failed(&dir))?;
            if !is_kept {
                return Err(failed(&dir)(ErrorKind::StorageFull.into()));
            }
        }
        Ok(keeper)
    }

    /// All shards are restored: a new generation comes into force, and older ones are removed.
    pub(crate) fn seal(&self, shards: u16) -> Result<(), StartError> {
        if !self.goes_on {
            replace(&self.dir.join("current"), &format!("{} {shards}", self.generation))?;
        }
        let mine = self.generation.to_string();
        for name in Disk.list(&self.dir).map_err(failed(&self.dir))? {
            if name != mine && name.parse::<u64>().is_ok() {
                remove_dir(&self.dir.join(name))?;
            }
        }
        Ok(())
    }

    fn tell(&self) {
        let Report { batches, bytes, sessions, messages, retained, millis, .. } = self.report;
        tracing::info!(dir = %self.dir.display(), batches, bytes, sessions, messages, retained, millis, "journal read");
        if self.report.dropped_bytes > 0 || self.report.missing_batches > 0 || self.report.undelivered > 0 {
            tracing::warn!(
                dir = %self.dir.display(), dropped_bytes = self.report.dropped_bytes,
                missing_batches = self.report.missing_batches, undelivered = self.report.undelivered,
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
    fn shard(&mut self, dir: &Path, shard: u16) -> Result<(), StartError> {
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
        report.batches += found.batches;
        report.bytes += found.bytes;
        report.dropped_bytes += found.dropped_bytes();
        report.missing_batches += found.missing + senseless;
        self.recoveries.push(recovery);
        self.recovered.push(found);
        Ok(())
    }
}

fn shard_dir(dir: &Path, generation: u64, shard: u16) -> PathBuf {
    dir.join(generation.to_string()).join(format!("shard-{shard}"))
}

/// What a former life has written may still be on its way to the medium.
fn sync_all(dir: &Path, recovered: &Recovered) -> io::Result<()> {
    if recovered.segments.is_empty() {
        return Ok(());
    }
    for name in Disk.list(dir)? {
        File::open(dir.join(name))?.sync_data()?;
    }
    File::open(dir)?.sync_all()
}

fn remove_dir(dir: &Path) -> Result<(), StartError> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(failed(dir)(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> StartError {
    let path = path.to_owned();
    move |source| StartError::DataDir { path, source }
}
