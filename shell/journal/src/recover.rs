//! Reading a log after a restart: everything that is sound, in order, and a report of what is not.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use crate::Files;
use crate::format::{self, FRAME_HEADER, Place, SEGMENT_HEADER, VERSION};

/// Why a log cannot be read at all.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    /// The file system does not give a file out.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which file or directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The segment is of a later version of the program.
    #[error("{}: format {version} of the journal, but this program reads format {VERSION}: use the version that has written it", path.display())]
    Version {
        /// Which file.
        path: PathBuf,
        /// Its format.
        version: u16,
    },
}

/// Bytes that are not what was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// In which file.
    pub file: PathBuf,
    /// From where in it.
    pub offset: u64,
    /// How many.
    pub bytes: u64,
    /// What is wrong with them.
    pub what: &'static str,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}: {} ({} bytes dropped)", self.file.display(), self.offset, self.what, self.bytes)
    }
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Segments by number, ascending, with their lengths in bytes.
    pub segments: Vec<(u64, u64)>,
    /// Batches that were sound.
    pub batches: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// The last sequence number.
    pub sequence: u64,
    /// What was dropped.
    pub damage: Vec<Damage>,
    /// Batches that are missing between those that were found.
    pub missing: u64,
}

impl Recovered {
    /// Bytes that were dropped.
    pub fn dropped_bytes(&self) -> u64 {
        self.damage.iter().map(|damage| damage.bytes).sum()
    }

    /// Whether anything may be missing before the end: damage that is not a torn last write.
    pub fn has_holes(&self) -> bool {
        self.missing > 0
    }
}

/// What [`recover`] is told of a batch.
type Visit<'a> = dyn FnMut(Bytes, bool) + 'a;

/// Reads the log of a shard in `dir` from its beginning. `visit` gets the content of each sound batch, and whether batches are
/// missing between it and the one before. There need not be a log.
pub fn recover(files: &dyn Files, dir: &Path, shard: u16, visit: &mut Visit<'_>) -> Result<Recovered, RecoverError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| RecoverError::Io { path, source }
    };
    let names = files.list(dir).map_err(failed(dir))?;
    let mut numbers: Vec<u64> = names.iter().filter_map(|name| format::segment_number(name)).collect();
    numbers.sort_unstable();
    let mut found = Recovered::default();
    for number in numbers {
        let path = dir.join(format::segment_name(number));
        let bytes = Bytes::from(files.read(&path).map_err(failed(&path))?);
        found.segments.push((number, bytes.len() as u64));
        Scan { place: Place { shard, segment: number }, path, bytes, found: &mut found }.run(visit)?;
    }
    Ok(found)
}

struct Scan<'a> {
    place: Place,
    path: PathBuf,
    bytes: Bytes,
    found: &'a mut Recovered,
}

impl Scan<'_> {
    fn run(mut self, visit: &mut Visit<'_>) -> Result<(), RecoverError> {
        let mut at = 0;
        match format::segment_version(&self.bytes) {
            Some(VERSION) => at = SEGMENT_HEADER,
            Some(version) => return Err(RecoverError::Version { path: self.path, version }),
            None if self.bytes.is_empty() => {}
            None => {
                let end = format::find_frame(&self.bytes, 0).unwrap_or(self.bytes.len());
                self.dropped(0, end, "no header of a segment");
                at = end;
            }
        }
        while at < self.bytes.len() {
            at = self.frame(at, visit);
        }
        Ok(())
    }

    /// Takes the frame at `at`; returns where the next one is.
    fn frame(&mut self, at: usize, visit: &mut Visit<'_>) -> usize {
        let rest = self.bytes.slice(at..);
        let Some(header) = format::read_frame_header(self.place, &rest) else {
            return self.skip(at, if rest.len() < FRAME_HEADER { "an unfinished write" } else { "damaged" });
        };
        let begin = FRAME_HEADER;
        let Some(end) = begin.checked_add(header.length).filter(|end| *end <= rest.len()) else {
            return self.skip(at, "an unfinished write");
        };
        let content = rest.slice(begin..end);
        if !format::is_sound(self.place, header, &content) {
            // A hole that was never filled may hide what follows, so that the length is not believed.
            return self.skip(at, "damaged");
        }
        let sequence = header.sequence;
        if sequence <= self.found.sequence {
            self.dropped(at, at + end, "out of order");
            return at + end;
        }
        // The first batches of a log are not those with the first numbers: older segments were removed.
        let missing = match (sequence - self.found.sequence - 1, self.found.batches, self.found.damage.len()) {
            (missing, 0, damage) => missing.min(damage as u64),
            (missing, ..) => missing,
        };
        let hole = missing > 0;
        self.found.missing += missing;
        self.found.sequence = sequence;
        self.found.batches += 1;
        self.found.bytes += end as u64;
        visit(content, hole);
        at + end
    }

    /// Drops everything up to what may be a frame.
    fn skip(&mut self, at: usize, what: &'static str) -> usize {
        let mut next = at + 1;
        loop {
            let Some(candidate) = format::find_frame(&self.bytes, next) else {
                self.dropped(at, self.bytes.len(), what);
                return self.bytes.len();
            };
            if format::read_frame_header(self.place, &self.bytes.slice(candidate..)).is_some() {
                self.dropped(at, candidate, "damaged");
                return candidate;
            }
            next = candidate + 1;
        }
    }

    fn dropped(&mut self, from: usize, to: usize, what: &'static str) {
        let (offset, bytes) = (from as u64, (to - from) as u64);
        self.found.damage.push(Damage { file: self.path.clone(), offset, bytes, what });
    }
}
