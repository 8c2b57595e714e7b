//! Reading a log after a restart: all sound batches, in order, and a report of the damage.

use std::fmt;
use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use crate::Files;
use crate::format::{self, FRAME_HEADER, Place, SEGMENT_HEADER, VERSION};
use crate::listing::{self, Listed};

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
        /// The file.
        path: PathBuf,
        /// Its format.
        version: u16,
    },
}

/// Bytes that differ from those that were written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub file: PathBuf,
    /// Offset of the first damaged byte.
    pub offset: u64,
    /// Number of damaged bytes.
    pub bytes: u64,
    /// Kind of the damage.
    pub what: &'static str,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}: {} ({} bytes dropped)", self.file.display(), self.offset, self.what, self.bytes)
    }
}

/// A segment that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentFound {
    /// Its number.
    pub number: u64,
    /// Its length.
    pub bytes: u64,
    /// The last batch before it.
    pub after: u64,
}

/// Something that was there and is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hole {
    /// Whole segments.
    Segments {
        /// The first one, and the last one if they are several.
        files: (PathBuf, Option<PathBuf>),
        /// How many.
        count: u64,
        /// Batches that were in them; empty if that is not known, or if there were none.
        batches: RangeInclusive<u64>,
    },
    /// The end of a segment.
    End {
        /// Which file.
        file: PathBuf,
        /// Batches that were there.
        batches: RangeInclusive<u64>,
    },
}

impl Hole {
    /// Segments that are missing.
    pub const fn segments(&self) -> u64 {
        match self {
            Self::Segments { count, .. } => *count,
            Self::End { .. } => 0,
        }
    }
}

impl fmt::Display for Hole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let batches = match self {
            Self::Segments { files: (first, None), batches, .. } => {
                write!(f, "{} is missing", first.display())?;
                batches
            }
            Self::Segments { files: (first, Some(last)), count, batches } => {
                write!(f, "{count} files are missing, {} to {}", first.display(), last.display())?;
                batches
            }
            Self::End { file, batches } => {
                write!(f, "{} ends too early", file.display())?;
                batches
            }
        };
        if batches.is_empty() {
            Ok(())
        } else {
            write!(f, ": without batches {} to {}", batches.start(), batches.end())
        }
    }
}

/// Result of a recovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Segments by number, ascending.
    pub segments: Vec<SegmentFound>,
    /// Batches that were sound.
    pub batches: u64,
    /// Bytes of the sound batches.
    pub bytes: u64,
    /// The last sequence number.
    pub sequence: u64,
    /// Damaged bytes that were dropped.
    pub damage: Vec<Damage>,
    /// Segments and ends of segments that are gone.
    pub holes: Vec<Hole>,
    /// Batches that are missing between those that were found, or before or behind them.
    pub missing: u64,
    /// Whether there is a listing: without one, segments that are missing before the first one or behind the last one are not missed.
    pub is_listed: bool,
}

impl Recovered {
    /// Bytes that were dropped.
    pub fn dropped_bytes(&self) -> u64 {
        self.damage.iter().map(|damage| damage.bytes).sum()
    }

    /// Segments that are gone.
    pub fn missing_segments(&self) -> u64 {
        self.holes.iter().map(Hole::segments).fold(0, u64::saturating_add)
    }

    /// Whether anything is missing that was kept: more than a torn last write.
    pub fn has_holes(&self) -> bool {
        self.missing > 0 || !self.holes.is_empty()
    }
}

/// Callback of [`recover`]: gets the content of a batch, and whether batches are missing before it.
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
    let listed = listing::read(files, dir, &mut found.damage).map_err(failed(&listing::path(dir)))?;
    found.is_listed = listed.is_some();
    let listed = listed.unwrap_or_default();
    let mut holes = Holes::new(dir, &listed, numbers.first().copied());
    found.sequence = holes.start();
    for number in numbers {
        let path = dir.join(format::segment_name(number));
        let bytes = Bytes::from(files.read(&path).map_err(failed(&path))?);
        let before = Before { sequence: found.sequence, damage: found.damage.len() };
        let after = listed.segments.get(&number).copied().unwrap_or(found.sequence);
        found.segments.push(SegmentFound { number, bytes: bytes.len() as u64, after });
        let is_start_known = holes.is_start_known;
        let place = Place { shard, segment: number };
        let first = Scan { place, path, bytes, found: &mut found, is_start_known, first: None }.run(visit)?;
        holes.note(number, first, &before, &mut found);
    }
    holes.finish(&mut found);
    Ok(found)
}

/// State of the recovery before a segment: the last sequence number, and the number of damages.
struct Before {
    sequence: u64,
    damage: usize,
}

/// Compares the segments that are there with those of the listing.
struct Holes<'a> {
    dir: &'a Path,
    listed: &'a Listed,
    /// The segment that comes next if none is missing.
    next: Option<u64>,
    is_start_known: bool,
}

impl<'a> Holes<'a> {
    fn new(dir: &'a Path, listed: &'a Listed, first: Option<u64>) -> Self {
        let first_listed = listed.segments.keys().next().copied();
        let next = first.into_iter().chain(first_listed).min();
        let is_start_known = next.is_some_and(|next| listed.segments.contains_key(&next));
        Self { dir, listed, next, is_start_known }
    }

    /// The last batch before all segments, as far as it is known.
    fn start(&self) -> u64 {
        self.next.and_then(|next| self.listed.segments.get(&next)).copied().unwrap_or(0)
    }

    fn path(&self, number: u64) -> PathBuf {
        self.dir.join(format::segment_name(number))
    }

    /// Segment `number` was read; `first` is the first batch in it.
    fn note(&mut self, number: u64, first: Option<u64>, before: &Before, found: &mut Recovered) {
        let begins = self.listed.segments.get(&number).copied().or_else(|| first.map(|first| first - 1));
        if let Some(missing) = self.next.filter(|next| *next < number) {
            let end = begins.unwrap_or(before.sequence);
            self.segments_missing(missing, number - 1, before.sequence, end, found);
        }
        self.next = number.checked_add(1);
        // The next listed segment says where this one has ended.
        let next = number.checked_add(1).and_then(|next| self.listed.segments.range(next..).next());
        let end = next.map_or(self.listed.kept, |(_, after)| *after);
        if end > found.sequence && self.listed.segments.contains_key(&number) {
            let file = self.path(number);
            let torn = found.damage.iter_mut().skip(before.damage).rfind(|damage| damage.file == file);
            if let Some(damage) = torn.filter(|damage| damage.what == UNFINISHED) {
                damage.what = "cut short";
            }
            found.holes.push(Hole::End { file, batches: found.sequence.max(begins.unwrap_or(0)) + 1..=end });
        }
    }

    fn finish(&self, found: &mut Recovered) {
        let last = self.listed.segments.last_key_value();
        if let (Some(missing), Some((last, after))) = (self.next, last)
            && missing <= *last
        {
            let begins = self.listed.segments.get(&missing).copied().unwrap_or(found.sequence);
            self.segments_missing(missing, *last, begins, self.listed.kept.max(*after), found);
        }
        let end = self.listed.kept.max(last.map_or(0, |(_, after)| *after));
        found.missing = found.missing.saturating_add(end.saturating_sub(found.sequence));
    }

    fn segments_missing(&self, first: u64, last: u64, after: u64, end: u64, found: &mut Recovered) {
        let files = (self.path(first), (last > first).then(|| self.path(last)));
        let count = (last - first).saturating_add(1);
        found.holes.push(Hole::Segments { files, count, batches: after.saturating_add(1)..=end });
    }
}

/// Kind of the damage if a file ends in a part of a frame, and nothing says that there was more.
const UNFINISHED: &str = "an unfinished write";

struct Scan<'a> {
    place: Place,
    path: PathBuf,
    bytes: Bytes,
    found: &'a mut Recovered,
    /// Whether the sequence number before the first batch of the log is known.
    is_start_known: bool,
    /// The first sound batch.
    first: Option<u64>,
}

impl Scan<'_> {
    fn run(mut self, visit: &mut Visit<'_>) -> Result<Option<u64>, RecoverError> {
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
        Ok(self.first)
    }

    /// Takes the frame at `at`; returns where the next one is.
    fn frame(&mut self, at: usize, visit: &mut Visit<'_>) -> usize {
        let rest = self.bytes.slice(at..);
        let Some(header) = format::read_frame_header(self.place, &rest) else {
            return self.skip(at, if rest.len() < FRAME_HEADER { UNFINISHED } else { "damaged" });
        };
        let begin = FRAME_HEADER;
        let Some(end) = begin.checked_add(header.length).filter(|end| *end <= rest.len()) else {
            return self.skip(at, UNFINISHED);
        };
        let content = rest.slice(begin..end);
        if !format::is_sound(self.place, header, &content) {
            // A hole that was never filled may hide the frames behind it, so that the length is not believed.
            return self.skip(at, "damaged");
        }
        let sequence = header.sequence;
        if sequence <= self.found.sequence {
            self.dropped(at, at + end, "out of order");
            return at + end;
        }
        // The first batches of a log are not those with the first numbers: older segments were removed.
        let is_first = self.found.batches == 0 && !self.is_start_known;
        let missing = match (sequence - self.found.sequence - 1, is_first, self.found.damage.len()) {
            (missing, true, damage) => missing.min(damage as u64),
            (missing, ..) => missing,
        };
        let hole = missing > 0;
        self.first.get_or_insert(sequence);
        self.found.missing += missing;
        self.found.sequence = sequence;
        self.found.batches += 1;
        self.found.bytes += end as u64;
        visit(content, hole);
        at + end
    }

    /// Drops all bytes up to the next possible frame.
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
