//! Appending.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::format::{self, FRAME_HEADER, Place, SEGMENT_HEADER};
use crate::listing::Listing;
use crate::{Files, Recovered, Segment};

/// Where a log is and how it is cut.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// The file system.
    pub files: Arc<dyn Files>,
    /// The directory of this log alone.
    pub dir: PathBuf,
    /// Number of the shard.
    pub shard: u16,
    /// A segment that has reached this length is followed by another.
    pub segment_bytes: u64,
}

/// Why a batch was not appended.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// There is no room, or no file descriptor for a new segment. Nothing of the batch was kept; the same batch may be tried again.
    #[error("no room: {0}")]
    Full(io::Error),
    /// The content of the file is unknown: nothing may be acknowledged that this log was to hold.
    #[error("{}: {source}", path.display())]
    Failed {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// A log that is open for appending.
#[derive(Debug)]
pub struct Log {
    options: LogOptions,
    listing: Listing,
    /// Segments that are complete, with their lengths.
    sealed: VecDeque<(u64, u64)>,
    number: u64,
    file: Option<Arc<dyn Segment>>,
    length: u64,
    sealed_bytes: u64,
    sequence: u64,
    frame: Vec<u8>,
}

impl Log {
    /// Goes on behind the batches that were `recovered`, in a new segment. Only the listing is written before the first batch, if there is room.
    pub fn open(options: LogOptions, recovered: &Recovered) -> io::Result<Self> {
        options.files.make_dir(&options.dir)?;
        let (files, sequence) = (Arc::clone(&options.files), recovered.sequence);
        let listing = Listing::open(files, &options.dir, &recovered.segments, sequence)?;
        let sealed: VecDeque<_> = recovered.segments.iter().map(|found| (found.number, found.bytes)).collect();
        let sealed_bytes = sealed.iter().map(|(_, length)| length).sum();
        let number = sealed.back().map_or(0, |(number, _)| *number);
        Ok(Self { options, listing, sealed, number, file: None, length: 0, sealed_bytes, sequence, frame: Vec::new() })
    }

    /// Writes a batch; returns its sequence number. It survives the process when this returns.
    pub fn append(&mut self, batch: &[u8]) -> Result<u64, AppendError> {
        if self.length >= self.options.segment_bytes {
            self.roll();
        }
        let file = match &self.file {
            Some(file) => Arc::clone(file),
            None => self.create()?,
        };
        let place = Place { shard: self.options.shard, segment: self.number };
        let sequence = self.sequence + 1;
        let Some(header) = format::frame_header(place, sequence, batch) else {
            return Err(self.failed(io::Error::from(ErrorKind::FileTooLarge)));
        };
        self.frame.clear();
        self.frame.extend_from_slice(&header);
        self.frame.extend_from_slice(batch);
        let frame = std::mem::take(&mut self.frame);
        let written = self.write(&*file, &frame);
        self.frame = frame;
        self.frame.shrink_to(FRAME_KEPT);
        written?;
        self.length += (FRAME_HEADER + batch.len()) as u64;
        self.sequence = sequence;
        Ok(sequence)
    }

    /// The next batch goes to a new segment.
    pub fn roll(&mut self) {
        if self.file.take().is_some() {
            self.sealed.push_back((self.number, self.length));
            self.sealed_bytes += self.length;
            self.length = 0;
        }
    }

    /// Says in the listing that the segments before `number` are not needed. The caller may remove them when [`Log::is_listed`] holds for the
    /// number that is returned, lest a loss of power leaves a listing that misses them.
    pub fn let_go_before(&mut self, number: u64) -> u64 {
        self.listing.let_go_before(number)
    }

    /// Whether the listing is on the medium as far as [`Log::let_go_before`] has written it; it gets there with the current segment.
    pub fn is_listed(&self, lines: u64) -> bool {
        self.listing.has_synced(lines)
    }

    /// Batches up to this one are kept: they will be missed if they are gone.
    pub fn note_kept(&mut self, sequence: u64) {
        if self.file.is_some() {
            self.listing.note_kept(sequence, (self.number, self.length), false);
        }
    }

    /// Everything is kept, and nothing more comes.
    pub fn close(&mut self, kept: u64) -> io::Result<()> {
        self.listing.note_kept(kept, (self.number, self.length), true);
        self.listing.sync()
    }

    /// Removes the segments before `number`. One that cannot be removed stays listed, and is tried again next time.
    pub fn remove_before(&mut self, number: u64) -> io::Result<()> {
        self.let_go_before(number);
        while let Some(&(first, length)) = self.sealed.front().filter(|(first, _)| *first < number) {
            match self.options.files.remove(&self.path(first)) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
            self.sealed.pop_front();
            self.sealed_bytes -= length;
        }
        Ok(())
    }

    /// Number that the next batch's segment has if [`Log::roll`] was called before it.
    pub const fn next_segment(&self) -> u64 {
        self.number + 1
    }

    /// The segment that was written last, to be synced.
    pub const fn current(&self) -> Option<&Arc<dyn Segment>> {
        self.file.as_ref()
    }

    /// Bytes in all segments.
    pub const fn bytes(&self) -> u64 {
        self.sealed_bytes + self.length
    }

    /// Number of segments.
    pub fn segments(&self) -> usize {
        self.sealed.len() + usize::from(self.file.is_some())
    }

    /// Sequence number of the last batch.
    pub const fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.options.dir
    }

    fn path(&self, number: u64) -> PathBuf {
        self.options.dir.join(format::segment_name(number))
    }

    fn create(&mut self) -> Result<Arc<dyn Segment>, AppendError> {
        let number = self.number + 1;
        let path = self.path(number);
        let file = match self.options.files.create(&path) {
            Ok(file) => file,
            Err(error) if is_full(&error) || lacks_descriptors(&error) => return Err(AppendError::Full(error)),
            Err(source) => return Err(AppendError::Failed { path, source }),
        };
        self.number = number;
        let header = format::segment_header(Place { shard: self.options.shard, segment: number });
        let file = self.listing.add(number, self.sequence, file);
        self.file = Some(Arc::clone(&file));
        self.length = 0;
        let written = self.write(&*file, &header);
        if let Err(error) = written {
            // An empty file is no harm, but the next attempt has to begin with a header: it gets a file of its own.
            self.roll();
            return Err(error);
        }
        self.length = SEGMENT_HEADER as u64;
        Ok(file)
    }

    /// Appends all or nothing.
    fn write(&self, file: &dyn Segment, mut bytes: &[u8]) -> Result<(), AppendError> {
        while !bytes.is_empty() {
            let error = match file.append(bytes) {
                Ok(0) => io::Error::from(ErrorKind::WriteZero),
                Ok(written) => {
                    bytes = bytes.get(written..).unwrap_or_default();
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => error,
            };
            // A part of the bytes in the file would be in the way of the next attempt.
            file.truncate(self.length).map_err(|source| self.failed(source))?;
            return Err(if is_full(&error) { AppendError::Full(error) } else { self.failed(error) });
        }
        Ok(())
    }

    fn failed(&self, source: io::Error) -> AppendError {
        AppendError::Failed { path: self.path(self.number), source }
    }
}

/// Room that the buffer of frames keeps.
const FRAME_KEPT: usize = 1024 * 1024;

/// Whether the process or the machine has no file descriptors left: nothing is wrong with the disk, and the next attempt may succeed.
fn lacks_descriptors(error: &io::Error) -> bool {
    let errno = rustix::io::Errno::from_io_error(error);
    errno.is_some_and(|errno| errno == rustix::io::Errno::MFILE || errno == rustix::io::Errno::NFILE)
}

pub(crate) fn is_full(error: &io::Error) -> bool {
    use ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull, WriteZero};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge | WriteZero)
}
