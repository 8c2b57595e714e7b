//! Operations of a file system that the journal needs, as traits, so that tests can let them fail.

use std::fmt;
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A segment that is being written.
pub trait Segment: fmt::Debug + Send + Sync {
    /// Appends some of `bytes`; returns how many.
    fn append(&self, bytes: &[u8]) -> io::Result<usize>;
    /// Cuts the file behind its first `length` bytes; the next bytes are appended there.
    fn truncate(&self, length: u64) -> io::Result<()>;
    /// Returns when all appended bytes are on the medium, and the file's name, too.
    fn sync(&self) -> io::Result<()>;
}

/// A file system.
pub trait Files: fmt::Debug + Send + Sync {
    /// Makes a file that does not exist yet, for the user of the process only.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn Segment>>;
    /// Names of the files in a directory, in any order; none if there is no such directory.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;
    /// Everything in a file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Gives a file another name; one that has the name is replaced.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Makes a directory and all above it, if they are not there, for the user of the process only.
    fn make_dir(&self, dir: &Path) -> io::Result<()>;
    /// Bytes that may still be written where `dir` is.
    fn free_bytes(&self, dir: &Path) -> io::Result<u64>;
}

/// The real one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disk;

#[derive(Debug)]
struct DiskSegment {
    file: File,
    /// Open from the beginning: when it is to be synced there may be no descriptor left.
    dir: File,
    /// Whether the directory has to be carried to the medium with the next [`Segment::sync`].
    is_new: AtomicBool,
}

impl Segment for DiskSegment {
    fn append(&self, bytes: &[u8]) -> io::Result<usize> {
        (&self.file).write(bytes)
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.file.set_len(length)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()?;
        if self.is_new.load(Ordering::Acquire) {
            self.dir.sync_all()?;
            self.is_new.store(false, Ordering::Release);
        }
        Ok(())
    }
}

impl Files for Disk {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn Segment>> {
        // The directory first: without a descriptor for it, nothing is made.
        let dir =
            File::open(path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or_else(|| Path::new(".")))?;
        let file = File::options().append(true).create_new(true).mode(0o600).open(path)?;
        Ok(Arc::new(DiskSegment { file, dir, is_new: AtomicBool::new(true) }))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut names = Vec::new();
        for entry in entries {
            names.extend(entry?.file_name().into_string().ok());
        }
        Ok(names)
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        fs::read(path)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn make_dir(&self, dir: &Path) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        let found = rustix::fs::statvfs(dir)?;
        Ok(found.f_bavail.saturating_mul(found.f_frsize))
    }
}
