//! The listing of a log: which segments there are, behind which batch each begins, and up to which batch all are kept. It is a text
//! file beside the log's directory, so that it is seen when the directory, or something in it, is gone.
//!
//! ```text
//! sedge-segments 1 <crc>
//! segment <number> after <last batch before it> <crc>
//! needed from <number of a segment> <crc>
//! kept <last batch that was kept> <crc>
//! ```
//!
//! Lines are appended; each has the CRC-32 of the text before it in the line, in hexadecimal digits.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::recover::Damage;
use crate::{Files, Segment, SegmentFound};

/// A listing that has reached this length is written anew with the segments that are still there.
const LENGTH_MAX: u64 = 64 * 1024;
/// Most bytes of a segment between two notes of the last batch that was kept; a short segment has notes more often.
const NOTE_EVERY: u64 = 256 * 1024;
const HEADER: &str = "sedge-segments 1";

/// Content of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Listed {
    /// Segments that have to be there, and the last batch before each.
    pub(crate) segments: BTreeMap<u64, u64>,
    /// Batches up to this one were kept.
    pub(crate) kept: u64,
}

impl Listed {
    /// Reads the sound lines; `damaged` is told of every other line: where it begins, its length, and whether the file ends in it.
    pub(crate) fn parse(bytes: &[u8], mut damaged: impl FnMut(usize, usize, bool)) -> Self {
        let mut found = Self::default();
        let mut at = 0;
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            if found.read(line).is_none() {
                damaged(at, line.len(), !line.ends_with(b"\n"));
            }
            at += line.len();
        }
        found
    }

    fn read(&mut self, line: &[u8]) -> Option<()> {
        let line = str::from_utf8(line.strip_suffix(b"\n")?).ok()?;
        let (text, crc) = line.rsplit_once(' ')?;
        if crc.len() != 8 || u32::from_str_radix(crc, 16).ok()? != crc32fast::hash(text.as_bytes()) {
            return None;
        }
        let words: Vec<&str> = text.split(' ').collect();
        match *words {
            ["segment", number, "after", batch] => {
                self.segments.insert(number.parse().ok()?, batch.parse().ok()?);
            }
            ["needed", "from", number] => self.segments = self.segments.split_off(&number.parse().ok()?),
            ["kept", batch] => self.kept = batch.parse().ok()?,
            _ => return (text == HEADER).then_some(()),
        }
        Some(())
    }
}

fn line(text: &str) -> String {
    format!("{text} {:08x}\n", crc32fast::hash(text.as_bytes()))
}

/// Where the listing of the log in `dir` is.
pub(crate) fn path(dir: &Path) -> PathBuf {
    dir.with_extension("segments")
}

/// Content of the listing of the log in `dir`; `None` if there is no listing.
pub(crate) fn read(files: &dyn Files, dir: &Path, damage: &mut Vec<Damage>) -> io::Result<Option<Listed>> {
    let path = path(dir);
    let bytes = match files.read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let listed = Listed::parse(&bytes, |offset, bytes, is_last| {
        let what = if is_last { "an unfinished write" } else { "damaged" };
        damage.push(Damage { file: path.clone(), offset: offset as u64, bytes: bytes as u64, what });
    });
    Ok(Some(listed))
}

/// The file that lines are appended to, shared with the thread that carries it to the medium.
#[derive(Debug, Default)]
struct Tail {
    file: Mutex<Option<Arc<dyn Segment>>>,
    /// Lines that were written, and those of them that are on the medium. Without a file none are awaited.
    written: AtomicU64,
    synced: AtomicU64,
}

impl Tail {
    fn set(&self, file: Option<Arc<dyn Segment>>) {
        let lines = self.written.fetch_add(1, Ordering::AcqRel) + 1;
        if file.is_none() {
            self.synced.fetch_max(lines, Ordering::AcqRel);
        }
        *self.file.lock().unwrap_or_else(PoisonError::into_inner) = file;
    }

    fn get(&self) -> Option<Arc<dyn Segment>> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note_line(&self) {
        self.written.fetch_add(1, Ordering::AcqRel);
    }

    fn lines(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    fn has_synced(&self, lines: u64) -> bool {
        self.synced.load(Ordering::Acquire) >= lines
    }

    fn sync(&self) -> io::Result<()> {
        let lines = self.lines();
        if !self.has_synced(lines) {
            self.get().map_or(Ok(()), |file| file.sync())?;
            self.synced.fetch_max(lines, Ordering::AcqRel);
        }
        Ok(())
    }
}

/// A segment whose name in the listing is carried to the medium with it.
#[derive(Debug)]
struct ListedSegment {
    segment: Arc<dyn Segment>,
    tail: Arc<Tail>,
}

impl Segment for ListedSegment {
    fn append(&self, bytes: &[u8]) -> io::Result<usize> {
        self.segment.append(bytes)
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.segment.truncate(length)
    }

    fn sync(&self) -> io::Result<()> {
        self.segment.sync()?;
        self.tail.sync()
    }
}

/// A listing that is open for appending. Lines that cannot be written, for want of room, are written with everything else at the next occasion.
#[derive(Debug)]
pub(crate) struct Listing {
    files: Arc<dyn Files>,
    path: PathBuf,
    tail: Arc<Tail>,
    length: u64,
    /// Segments that are there.
    segments: VecDeque<(u64, u64)>,
    kept: u64,
    /// Segment, and its length, when the last kept batch was last noted.
    noted: (u64, u64),
}

impl Listing {
    /// Writes the listing of the log in `dir` anew.
    pub(crate) fn open(files: Arc<dyn Files>, dir: &Path, found: &[SegmentFound], kept: u64) -> io::Result<Self> {
        let segments = found.iter().map(|segment| (segment.number, segment.after)).collect();
        let (tail, noted) = (Arc::default(), (0, 0));
        let mut listing = Self { files, path: path(dir), tail, length: 0, segments, kept, noted };
        let written = listing.write_anew().and_then(|()| listing.sync());
        match written {
            Err(error) if !crate::log::is_full(&error) => return Err(error),
            Err(_) => listing.tail.set(None),
            Ok(()) => {}
        }
        Ok(listing)
    }

    /// A new segment.
    pub(crate) fn add(&mut self, number: u64, after: u64, segment: Arc<dyn Segment>) -> Arc<dyn Segment> {
        self.segments.push_back((number, after));
        self.append(&format!("segment {number} after {after}"));
        Arc::new(ListedSegment { segment, tail: Arc::clone(&self.tail) })
    }

    /// Segments before `number` may be gone, as soon as [`Listing::has_synced`] holds for the number that is returned.
    pub(crate) fn let_go_before(&mut self, number: u64) -> u64 {
        let before = self.segments.len();
        self.segments.retain(|(first, _)| *first >= number);
        if self.segments.len() < before {
            self.append(&format!("needed from {number}"));
        }
        self.tail.lines()
    }

    /// Batches up to `kept` are kept; the segment that is written has this length. Not every call is written down, but so many of them
    /// that the loss of a fifth of a segment cannot go unnoticed.
    pub(crate) fn note_kept(&mut self, kept: u64, (number, length): (u64, u64), is_last: bool) {
        let (segment, noted) = self.noted;
        let is_due = is_last || number != segment || length >= (noted + noted / 4).min(noted + NOTE_EVERY);
        if is_due && kept > self.kept {
            self.kept = kept;
            self.noted = (number, length);
            self.append(&format!("kept {kept}"));
        }
    }

    /// Whether so many lines are on the medium.
    pub(crate) fn has_synced(&self, lines: u64) -> bool {
        self.tail.has_synced(lines)
    }

    /// Carries it to the medium.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.tail.sync()
    }

    fn append(&mut self, text: &str) {
        let line = line(text);
        let written = match self.tail.get().filter(|_| self.length < LENGTH_MAX) {
            Some(file) => write(&*file, line.as_bytes()),
            // It has everything that the line says.
            None => self.write_anew(),
        };
        if written.is_err() {
            return self.tail.set(None);
        }
        self.length += line.len() as u64;
        self.tail.note_line();
    }

    fn write_anew(&mut self) -> io::Result<()> {
        let mut text = line(HEADER);
        for (number, after) in &self.segments {
            text.push_str(&line(&format!("segment {number} after {after}")));
        }
        text.push_str(&line(&format!("kept {}", self.kept)));
        let fresh = self.path.with_extension("segments-new");
        match self.files.remove(&fresh) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let file = self.files.create(&fresh)?;
        write(&*file, text.as_bytes())?;
        self.files.rename(&fresh, &self.path)?;
        self.length = text.len() as u64;
        self.tail.set(Some(file));
        Ok(())
    }
}

fn write(file: &dyn Segment, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.append(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
