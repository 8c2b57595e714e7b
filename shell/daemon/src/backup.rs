//! The data directory of a node that may be running, as it was at one moment.
//!
//! A journal is only ever appended to, and a reader drops a batch that a crash has cut short. So the files are opened within a moment, and
//! their lengths at that moment count: the archive has the state that a `kill -9` would have left. Listings are opened first: they name
//! less than there is, never more.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use crate::StartError;
use crate::identity;

/// How often a journal may be written anew while its files are opened.
const ATTEMPTS: usize = 20;
/// Listings of segments, and what says which generation is in force.
const FIRST: &[&str] = &["segments"];

/// One file as it was.
#[derive(Debug)]
pub struct Part {
    /// Path within the data directory, with `/` between its parts.
    pub name: String,
    /// Its content; more may stand behind [`Part::bytes`] by now.
    pub file: File,
    /// Length at that moment.
    pub bytes: u64,
}

/// All files below `dir`, the ones that say what there is first. Fails if the journal is written anew again and again meanwhile.
pub fn parts(dir: &Path) -> io::Result<Vec<Part>> {
    for _ in 0..ATTEMPTS {
        match attempt(dir) {
            Err(error) if error.kind() == ErrorKind::NotFound && dir.exists() => {}
            result => return result,
        }
    }
    Err(io::Error::new(ErrorKind::WouldBlock, "the journal changes faster than it can be read; try again later"))
}

fn attempt(dir: &Path) -> io::Result<Vec<Part>> {
    let before = names(dir)?;
    let is_first = |name: &&String| name.ends_with("/current") || FIRST.iter().any(|ending| name.ends_with(ending));
    let open = |name: &String| -> io::Result<Part> {
        let file = File::open(dir.join(name))?;
        Ok(Part { name: name.clone(), bytes: file.metadata()?.len(), file })
    };
    let mut found: Vec<Part> = before.iter().filter(is_first).map(open).collect::<io::Result<_>>()?;
    let rest = names(dir)?;
    for name in rest.iter().filter(|name| !is_first(name)) {
        found.push(open(name)?);
    }
    // A segment that went away meanwhile may be one that a listing here still names.
    let after = names(dir)?;
    if before.iter().chain(&rest).all(|name| after.contains(name)) {
        Ok(found)
    } else {
        Err(ErrorKind::NotFound.into())
    }
}

/// Paths of all files below `dir`; not the lock, and nothing that is about to be renamed.
fn names(dir: &Path) -> io::Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    let mut open = vec![PathBuf::new()];
    while let Some(below) = open.pop() {
        for entry in fs::read_dir(dir.join(&below))? {
            let entry = entry?;
            let path = below.join(entry.file_name());
            let kind = entry.file_type()?;
            if kind.is_dir() {
                open.push(path);
            } else if kind.is_file() && path.extension().is_none_or(|ending| ending != "new") {
                found.extend(path.to_str().filter(|name| *name != identity::LOCK_FILE).map(str::to_owned));
            }
        }
    }
    Ok(found)
}

/// The sole use of a data directory. Fails if a node uses it.
#[derive(Debug)]
pub struct Hold(#[expect(dead_code, reason = "the lock lasts as long as the file is open")] File);

impl Hold {
    /// Makes the directory if it is missing, and locks it.
    pub fn take(dir: &Path) -> Result<Self, StartError> {
        identity::hold(dir).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn files_are_as_long_as_they_were_and_listings_come_first() {
        let dir = tempfile::tempdir().unwrap();
        let journal = dir.path().join("journal");
        fs::create_dir_all(journal.join("1/shard-0")).unwrap();
        for (name, text) in [("node-id", "1"), ("lock", ""), ("x.new", "half")] {
            fs::write(dir.path().join(name), text).unwrap();
        }
        for (name, text) in [("current", "c"), ("1/shard-0.segments", "l"), ("1/shard-0/1.log", "old")] {
            fs::write(journal.join(name), text).unwrap();
        }
        let mut found = parts(dir.path()).unwrap();
        fs::write(journal.join("1/shard-0/1.log"), "old and new").unwrap();
        let names: Vec<&str> = found.iter().map(|part| part.name.as_str()).collect();
        assert_eq!(names, ["journal/1/shard-0.segments", "journal/current", "journal/1/shard-0/1.log", "node-id"]);
        let log = &mut found[2];
        let mut text = String::new();
        Read::by_ref(&mut log.file).take(log.bytes).read_to_string(&mut text).unwrap();
        assert_eq!(text, "old");
    }

    #[test]
    fn a_directory_in_use_is_not_taken() {
        let dir = tempfile::tempdir().unwrap();
        let held = Hold::take(dir.path()).unwrap();
        assert!(Hold::take(dir.path()).unwrap_err().to_string().contains("in use"));
        drop(held);
        Hold::take(dir.path()).unwrap();
    }
}
