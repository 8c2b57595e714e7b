//! A file system in memory that fails when it is told to.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use sedge_journal::{Files, Segment};

/// Bytes of a file, whatever its name.
type Content = Arc<Mutex<Vec<u8>>>;

#[derive(Debug, Default)]
struct State {
    files: BTreeMap<PathBuf, Content>,
    /// Bytes that may still be written; `None`: any.
    room: Option<usize>,
    writes_fail: bool,
    syncs_fail: bool,
    /// The system's error for new files.
    creates_fail: Option<i32>,
    unsynced: usize,
}

/// See the module. A write takes at most seven bytes at once.
#[derive(Clone, Debug, Default)]
pub(crate) struct FakeDisk {
    state: Arc<Mutex<State>>,
    syncing: Arc<Mutex<()>>,
}

#[derive(Debug)]
struct FakeSegment {
    disk: FakeDisk,
    content: Content,
}

impl FakeDisk {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic")
    }

    pub(crate) fn content(&self, path: &Path) -> Vec<u8> {
        self.state().files[path].lock().expect("no panic").clone()
    }

    pub(crate) fn put(&self, path: &Path, content: Vec<u8>) {
        self.state().files.insert(path.to_owned(), Arc::new(Mutex::new(content)));
    }

    pub(crate) fn set_room(&self, bytes: usize) {
        self.state().room = Some(bytes);
    }

    pub(crate) fn fail_writes(&self, fail: bool) {
        self.state().writes_fail = fail;
    }

    pub(crate) fn fail_syncs(&self, fail: bool) {
        self.state().syncs_fail = fail;
    }

    pub(crate) fn fail_creates(&self, errno: Option<i32>) {
        self.state().creates_fail = errno;
    }

    /// Syncs wait until the guard is dropped.
    pub(crate) fn hold_syncs(&self) -> MutexGuard<'_, ()> {
        self.syncing.lock().expect("no panic")
    }

    /// Bytes written since the last sync.
    pub(crate) fn unsynced(&self) -> usize {
        self.state().unsynced
    }
}

impl Segment for FakeSegment {
    fn append(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.disk.state();
        if state.writes_fail {
            return Err(io::Error::other("the disk is broken"));
        }
        let wanted = bytes.len().min(7);
        let taken = state.room.map_or(wanted, |room| room.min(wanted));
        if taken == 0 {
            return Err(ErrorKind::StorageFull.into());
        }
        state.room = state.room.map(|room| room - taken);
        state.unsynced += taken;
        self.content.lock().expect("no panic").extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.content.lock().expect("no panic").truncate(usize::try_from(length).expect("short"));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let _turn = self.disk.syncing.lock().expect("no panic");
        let mut state = self.disk.state();
        if state.syncs_fail {
            return Err(io::Error::other("the disk is broken"));
        }
        state.unsynced = 0;
        Ok(())
    }
}

impl Files for FakeDisk {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn Segment>> {
        if let Some(errno) = self.state().creates_fail {
            return Err(io::Error::from_raw_os_error(errno));
        }
        let content = Content::default();
        self.state().files.insert(path.to_owned(), Arc::clone(&content));
        Ok(Arc::new(FakeSegment { disk: self.clone(), content }))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let state = self.state();
        let inside = state.files.keys().filter(|path| path.parent() == Some(dir));
        Ok(inside.filter_map(|path| path.file_name()?.to_str().map(str::to_owned)).collect())
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let content = self.state().files.get(path).cloned().ok_or(ErrorKind::NotFound)?;
        let bytes = content.lock().expect("no panic").clone();
        Ok(bytes)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.state().files.remove(path).map(|_| ()).ok_or_else(|| ErrorKind::NotFound.into())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        let content = state.files.remove(from).ok_or(ErrorKind::NotFound)?;
        state.files.insert(to.to_owned(), content);
        drop(state);
        Ok(())
    }

    fn make_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn free_bytes(&self, _: &Path) -> io::Result<u64> {
        Ok(self.state().room.unwrap_or(usize::MAX) as u64)
    }
}
