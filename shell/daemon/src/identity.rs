//! Identity of a node: its id, its incarnation, and the sole use of its data directory.

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use sedge_base::{Incarnation, NodeId, Timestamp};

use crate::StartError;
use crate::config::NodeConfig;
use crate::private;

/// Name of the file with the id.
const ID_FILE: &str = "node-id";
/// Name of the file with the incarnation of the last start.
const INCARNATION_FILE: &str = "incarnation";
/// A quarter of an hour in milliseconds: how much later a life may seem to begin whose number cannot be written down.
const LONGEST_STEP: u64 = 900_000;
/// Name of the file that is locked while a process uses the directory.
pub(crate) const LOCK_FILE: &str = "lock";

/// See the module.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) node: NodeId,
    pub(crate) incarnation: Incarnation,
    /// Keeps the lock; the system frees it, too, when the process dies.
    _lock: Option<File>,
}

impl Identity {
    /// Takes the data directory, if there is one, and reads or makes what it holds.
    pub(crate) fn take(config: &NodeConfig, wall: Timestamp) -> Result<Self, StartError> {
        let Some(dir) = &config.data_dir else {
            let node = config.id.map_or_else(random_id, Ok)?;
            return Ok(Self { node, incarnation: Incarnation::new(wall.as_millis()), _lock: None });
        };
        private::make_dir(dir).map_err(failed(dir))?;
        if private::is_open_to_others(dir).unwrap_or(false) {
            tracing::warn!(
                dir = %dir.display(),
                "others can look into node.data_dir, though not into the journal; to close it: chmod 700 {}", dir.display(),
            );
        }
        let lock = lock(dir)?;
        let node = node_id(dir, config.id)?;
        let incarnation = next_incarnation(dir, wall)?;
        Ok(Self { node, incarnation, _lock: Some(lock) })
    }
}

/// Makes the data directory, if it is missing, and locks it for something else than a node.
pub(crate) fn hold(dir: &Path) -> Result<File, StartError> {
    private::make_dir(dir).map_err(failed(dir))?;
    lock(dir)
}

/// Random bits of the operating system.
pub(crate) fn random_u64() -> Result<u64, StartError> {
    getrandom::u64().map_err(|error| StartError::System { what: "get random numbers", source: io::Error::other(error) })
}

fn random_id() -> Result<NodeId, StartError> {
    // 0 means nobody.
    Ok(NodeId::new(random_u64()?.max(1)))
}

fn lock(dir: &Path) -> Result<File, StartError> {
    let path = dir.join(LOCK_FILE);
    let file =
        File::options().create(true).truncate(false).write(true).mode(0o600).open(&path).map_err(failed(&path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(StartError::DataDirInUse { path: dir.to_owned() }),
        Err(TryLockError::Error(source)) => Err(StartError::DataDir { path, source }),
    }
}

fn node_id(dir: &Path, configured: Option<NodeId>) -> Result<NodeId, StartError> {
    let path = dir.join(ID_FILE);
    let wanted = "a node id of 1 to 16 hexadecimal digits";
    let stored: Option<NodeId> = read(&path, wanted)?;
    match (stored, configured) {
        (Some(stored), Some(configured)) if stored != configured => Err(StartError::Setting {
            key: "node.id",
            what: format!(
                "is {configured}, but {} belongs to node {stored}; remove node.id or use another directory",
                dir.display()
            ),
        }),
        (Some(stored), _) => Ok(stored),
        (None, configured) => {
            let node = configured.map_or_else(random_id, Ok)?;
            replace(&path, &node.to_string())?;
            Ok(node)
        }
    }
}

/// The wall clock, but more than last time whatever the clock says.
fn next_incarnation(dir: &Path, wall: Timestamp) -> Result<Incarnation, StartError> {
    let path = dir.join(INCARNATION_FILE);
    let last: u64 = read(&path, "a number")?.unwrap_or(0);
    let next = wall.as_millis().max(last.saturating_add(1));
    match replace(&path, &next.to_string()) {
        Err(StartError::DataDir { source, .. }) if last > 0 && is_full(&source) => without_room(&path, next),
        written => written.map(|()| Incarnation::new(next)),
    }
}

/// The file system has no room for a new file: the number goes to the place of the old one, which is as long. Where not even that helps, a
/// step of random length keeps two lives apart that a clock which stands still would give the same number.
fn without_room(path: &Path, next: u64) -> Result<Incarnation, StartError> {
    // The file that the attempt left is empty.
    let _ = fs::remove_file(path.with_extension("new"));
    let write = || -> io::Result<()> {
        let mut file = File::options().write(true).open(path)?;
        file.write_all(format!("{next}\n").as_bytes())?;
        file.sync_all()
    };
    let written = write();
    tracing::warn!(
        path = %path.display(), is_written = written.is_ok(),
        "the file system is full: the node starts, and refuses publications with QoS 1 and 2 while its journal has no room",
    );
    let next = if written.is_ok() { next } else { next.saturating_add(1 + random_u64()? % LONGEST_STEP) };
    Ok(Incarnation::new(next))
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

pub(crate) fn read<T: std::str::FromStr>(path: &Path, wanted: &'static str) -> Result<Option<T>, StartError> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(StartError::DataDir { path: path.to_owned(), source }),
    };
    let value = text.trim().parse().ok().ok_or_else(|| {
        let found = text.chars().take(40).collect();
        StartError::DataDirContent { path: path.to_owned(), found, wanted }
    })?;
    Ok(Some(value))
}

/// Writes a file so that a crash leaves either the old content or the new one.
pub(crate) fn replace(path: &Path, content: &str) -> Result<(), StartError> {
    let fresh = path.with_extension("new");
    let write = || -> io::Result<()> {
        let mut file = private::make_file(&fresh)?;
        file.write_all(content.as_bytes())?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        fs::rename(&fresh, path)?;
        path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
    };
    write().map_err(failed(path))
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> StartError {
    let path = path.to_owned();
    move |source| StartError::DataDir { path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000);

    fn config(dir: &Path) -> NodeConfig {
        NodeConfig { data_dir: Some(dir.to_owned()), ..NodeConfig::default() }
    }

    #[test]
    fn a_node_keeps_its_id_and_grows_older_even_when_the_clock_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let first = Identity::take(&config(dir.path()), NOW).unwrap();
        let (node, incarnation) = (first.node, first.incarnation);
        drop(first);
        let second = Identity::take(&config(dir.path()), Timestamp::from_millis(10)).unwrap();
        assert_eq!(second.node, node);
        assert!(second.incarnation > incarnation);
    }

    #[test]
    fn two_processes_cannot_share_a_directory() {
        let dir = tempfile::tempdir().unwrap();
        let first = Identity::take(&config(dir.path()), NOW).unwrap();
        let second = Identity::take(&config(dir.path()), NOW).unwrap_err();
        assert!(second.to_string().contains("in use by another sedge process"), "{second}");
        drop(first);
        Identity::take(&config(dir.path()), NOW).unwrap();
    }

    #[test]
    fn what_does_not_fit_is_refused_with_a_way_out() {
        let dir = tempfile::tempdir().unwrap();
        drop(Identity::take(&NodeConfig { id: Some(NodeId::new(7)), ..config(dir.path()) }, NOW).unwrap());
        let other = NodeConfig { id: Some(NodeId::new(8)), ..config(dir.path()) };
        let error = Identity::take(&other, NOW).unwrap_err().to_string();
        assert!(error.contains("belongs to node 0000000000000007"), "{error}");
        fs::write(dir.path().join(ID_FILE), "not an id").unwrap();
        let error = Identity::take(&config(dir.path()), NOW).unwrap_err().to_string();
        assert!(error.contains("\"not an id\""), "{error}");
    }

    #[test]
    fn without_a_directory_the_id_is_random_and_never_zero() {
        let (one, two) = (random_id().unwrap(), random_id().unwrap());
        assert_ne!(one, two);
        let given = NodeConfig { id: Some(NodeId::new(5)), ..NodeConfig::default() };
        assert_eq!(Identity::take(&given, NOW).unwrap().node, NodeId::new(5));
    }
}
