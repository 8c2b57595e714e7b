//! What the journal needs of a file system, so that tests can let it fail.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A segment that is being written.
pub trait Segment: fmt::Debug + Send + Sync {
    /// Appends some of `bytes`; returns how many.
    fn append(&self, bytes: &[u8]) -> io::Result<usize>;
    /// Cuts what lies behind the first `length` bytes; what is appended next follows there.
    fn truncate(&self, length: u64) -> io::Result<()>;
    /// Returns when everything appended is on the medium, and the file's name, too.
    fn sync(&self) -> io::Result<()>;
}

/// A file system.
pub trait Files: fmt::Debug + Send + Sync {
    /// Makes a file that does not exist yet.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn Segment>>;
    /// Names of the files in a directory, in any order; none if there is no such directory.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;
    /// Everything in a file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Gives a file another name; one that has the name is replaced.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Makes a directory and all above it, if they are not there.
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
    dir: PathBuf,
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
            File::open(&self.dir)?.sync_all()?;
            self.is_new.store(false, Ordering::Release);
        }
        Ok(())
    }
}

impl Files for Disk {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn Segment>> {
        let file = File::options().append(true).create_new(true).open(path)?;
        let dir = path.parent().map_or_else(PathBuf::new, Path::to_owned);
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
        fs::create_dir_all(dir)
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        let found = rustix::fs::statvfs(dir)?;
        Ok(found.f_bavail.saturating_mul(found.f_frsize))
    }
}
