//! A place for an emulated network among those of this machine: numbers, names and addresses that no other has.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::error::BenchError;

/// Where networks of this machine are listed: one file each, locked by the process that emulates it.
const FOLDER: &str = "/run/sedge-net";
/// Most networks at a time: each has a third byte of its addresses to itself.
const PLACES: u8 = u8::MAX;

/// A place that nobody else has while this value lives.
pub(super) struct Place {
    number: u8,
    folder: PathBuf,
    /// Its lock ends with the process, however that ends.
    _lock: File,
}

impl Place {
    /// Takes the first free place, and notes there which namespaces it will have.
    pub(super) fn take(namespaces: impl Fn(u8) -> Vec<String>) -> Result<Self, BenchError> {
        Self::take_in(Path::new(FOLDER), namespaces)
    }

    fn take_in(folder: &Path, namespaces: impl Fn(u8) -> Vec<String>) -> Result<Self, BenchError> {
        let failed = |source| BenchError::File { path: folder.to_owned(), source };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
        for number in 0..PLACES {
            let path = list(folder, number);
            if let Some(mut lock) = lock(&path)? {
                let mut left = String::new();
                let failed = |source| BenchError::File { path: path.clone(), source };
                lock.read_to_string(&mut left).map_err(failed)?;
                if !left.is_empty() {
                    // Remains of a dead process may still be there: its names and addresses are not free.
                    continue;
                }
                lock.write_all(namespaces(number).join("\n").as_bytes()).map_err(failed)?;
                return Ok(Self { number, folder: folder.to_owned(), _lock: lock });
            }
        }
        Err(BenchError::Usage(format!("{PLACES} emulated networks are there already: see {}", folder.display())))
    }

    /// Where requests are taken.
    pub(super) fn socket(&self) -> PathBuf {
        self.folder.join(format!("{}.sock", self.number))
    }

    /// The files that are there as long as this place is taken.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        vec![self.socket(), list(&self.folder, self.number)]
    }

    /// Beginning of the names of devices and, unless another is wished for, of namespaces.
    pub(super) fn prefix(number: u8) -> String {
        format!("sedge{number}n")
    }

    pub(super) const fn number(&self) -> u8 {
        self.number
    }

    /// The address of a node, counted from 1, on the emulated network.
    ///
    /// 198.18.0.0/15 is set aside for benchmarks (RFC 2544), so that no address of a real network is hidden.
    pub(super) const fn site(&self, node: u8) -> Ipv4Addr {
        Ipv4Addr::new(198, 19, self.number, node)
    }

    /// The address of a node for clients on this machine.
    pub(super) const fn host(&self, node: u8) -> Ipv4Addr {
        Ipv4Addr::new(198, 18, self.number, node)
    }

    /// The address that nodes see clients on this machine come from.
    pub(super) const fn outside(&self) -> Ipv4Addr {
        Ipv4Addr::new(198, 18, self.number, 254)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Nobody is left to be told; a file that stays is reported as stale by the next network.
        for file in self.files() {
            let _ = fs::remove_file(file);
        }
    }
}

fn list(folder: &Path, number: u8) -> PathBuf {
    folder.join(format!("{number}.list"))
}

/// Opens and locks a file, unless somebody else has it.
fn lock(path: &Path) -> Result<Option<File>, BenchError> {
    let failed = |source| BenchError::File { path: path.to_owned(), source };
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(source)) => return Err(failed(source)),
    }
    // Its owner may have removed it between the two: then the lock is on a file that nobody else will see.
    let same = fs::metadata(path).is_ok_and(|there| file.metadata().is_ok_and(|own| own.ino() == there.ino()));
    Ok(same.then_some(file))
}

/// Remains of networks of dead processes: the namespaces of each, with the file that lists them.
pub(super) fn stale() -> Vec<(PathBuf, Vec<String>)> {
    stale_in(Path::new(FOLDER))
}

fn stale_in(folder: &Path) -> Vec<(PathBuf, Vec<String>)> {
    let mut found = Vec::new();
    for number in 0..PLACES {
        let path = list(folder, number);
        if !path.exists() {
            continue;
        }
        let Ok(Some(mut file)) = lock(&path) else { continue };
        let mut text = String::new();
        if file.read_to_string(&mut text).is_ok() && !text.is_empty() {
            found.push((path, text.lines().map(str::to_owned).collect()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_taken_once_and_given_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let take = || Place::take_in(folder.path(), |number| vec![format!("n{number}")]).expect("a place");
        let (first, second) = (take(), take());
        assert_eq!((first.number(), second.number()), (0, 1));
        assert_ne!(first.site(1), second.site(1));
        drop(first);
        assert_eq!(take().number(), 0);
        drop(second);
        assert_eq!(fs::read_dir(folder.path()).expect("the folder").count(), 0, "nothing is left");
    }

    #[test]
    fn what_a_dead_process_left_is_found_and_not_taken() {
        let folder = tempfile::tempdir().expect("a folder");
        // A file with names and without a lock is what a killed process leaves.
        fs::write(list(folder.path(), 0), "a1\na2").expect("a file");
        let place = Place::take_in(folder.path(), |_| vec!["b1".to_owned()]).expect("a place");
        assert_eq!(place.number(), 1);
        let found: Vec<Vec<String>> = stale_in(folder.path()).into_iter().map(|(_, names)| names).collect();
        assert_eq!(found, [["a1", "a2"]]);
    }
}
