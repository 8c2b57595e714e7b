//! Which generation of the journals is in force, and what else is in their directory.
//!
//! Nothing is removed but what the node itself has left there and says so: the generation that the one in force replaces, and one that never
//! came into force, which has a file `unfinished` in it.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::failed;
use crate::StartError;
use crate::identity::{read, replace};
use crate::private;

/// Name of the file that says which generation is in force.
const CURRENT: &str = "current";
/// Name of the file in a generation that is not in force yet.
const UNFINISHED: &str = "unfinished";
/// Beginning of a file of the present format; a file of the first format is two numbers.
const HEADER: &str = "sedge-journal 2";

/// The generation in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Current {
    generation: u64,
    shards: u16,
    /// The former generation, which may still be there.
    replaces: u64,
    /// Whether there are listings of segments.
    is_listed: bool,
}

impl FromStr for Current {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let words: Vec<&str> = text.strip_prefix(HEADER).unwrap_or(text).split_whitespace().collect();
        let is_listed = text.starts_with(HEADER);
        let (generation, shards, replaces) = match *words {
            ["generation", generation, "shards", shards, "replaces", replaces] if is_listed => {
                (generation, shards, replaces.parse().ok().ok_or(())?)
            }
            [generation, shards] if !is_listed => (generation, shards, 0),
            _ => return Err(()),
        };
        let (generation, shards) = (generation.parse().ok().ok_or(())?, shards.parse().ok().ok_or(())?);
        Ok(Self { generation, shards, replaces, is_listed })
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Generations {
    dir: PathBuf,
    current: Option<Current>,
    /// The one to be written.
    mine: u64,
    shards: u16,
}

impl Generations {
    /// Looks into `dir`. Refuses what cannot be explained if the node could lose something by it.
    pub(super) fn open(dir: &Path, shards: u16) -> Result<Self, StartError> {
        private::make_dir(dir).map_err(failed(dir))?;
        if private::close_dir(dir).unwrap_or(false) {
            tracing::warn!(dir = %dir.display(), "others could read the journal: its directory has mode 0700 now");
        }
        let wanted = "a generation and a number of shards of the journal";
        let current = read::<Current>(&dir.join(CURRENT), wanted)?;
        let there = there(dir)?;
        let unfinished = |generation: &u64| dir.join(generation.to_string()).join(UNFINISHED).exists();
        let rest: Vec<u64> = there.iter().copied().filter(|generation| !unfinished(generation)).collect();
        match current {
            None if holds_anything(dir, &rest)? => return Err(without_current(dir, &rest)),
            Some(Current { generation, .. }) if !there.contains(&generation) => {
                return Err(names_another(dir, generation, &rest));
            }
            None | Some(_) => {}
        }
        let known = |generation: &u64| {
            current.is_none_or(|current| *generation == current.generation || *generation == current.replaces)
        };
        for unknown in rest.iter().filter(|generation| !known(generation)) {
            tracing::warn!(
                dir = %dir.join(unknown.to_string()).display(),
                "this is not of the journal that is in force, and nothing says why it is there: it is not read and not removed",
            );
        }
        let next = there.iter().max().map_or(1, |last| last + 1);
        let mine = current.filter(|current| current.shards == shards).map_or(next, |current| current.generation);
        Ok(Self { dir: dir.to_owned(), current, mine, shards })
    }

    /// Whether the journals go on; otherwise all is written anew.
    pub(super) fn goes_on(&self) -> bool {
        self.current.is_some_and(|current| current.generation == self.mine)
    }

    /// Whether there should be listings of segments in what is read.
    pub(super) fn is_listed(&self) -> bool {
        self.current.is_some_and(|current| current.is_listed)
    }

    /// Numbers and directories of the shards to be read.
    pub(super) fn to_read(&self) -> impl Iterator<Item = (u16, PathBuf)> {
        let current = self.current.into_iter();
        current.flat_map(move |current| {
            (0..current.shards).map(move |shard| (shard, self.place(current.generation, shard)))
        })
    }

    /// Directory of the journal that a shard writes.
    pub(super) fn shard_dir(&self, shard: u16) -> PathBuf {
        self.place(self.mine, shard)
    }

    fn place(&self, generation: u64, shard: u16) -> PathBuf {
        self.dir.join(generation.to_string()).join(format!("shard-{shard}"))
    }

    /// Before the first byte of a new generation is written.
    pub(super) fn begin(&self) -> Result<(), StartError> {
        if self.goes_on() {
            return Ok(());
        }
        let dir = self.dir.join(self.mine.to_string());
        private::make_dir(&dir).map_err(failed(&dir))?;
        let marker = dir.join(UNFINISHED);
        private::make_file(&marker).map(drop).map_err(failed(&marker))
    }

    /// Everything is written: a new generation comes into force, and what the node has left behind is removed.
    pub(super) fn seal(&self) -> Result<(), StartError> {
        let (generation, shards) = (self.mine, self.shards);
        let replaces = match self.current {
            Some(current) if self.goes_on() => current.replaces,
            Some(current) => current.generation,
            None => 0,
        };
        let path = self.dir.join(CURRENT);
        let text = format!("{HEADER} generation {generation} shards {shards} replaces {replaces}");
        match replace_if_needed(&path, &text) {
            Err(error) if !self.goes_on() => return Err(error),
            Err(error) => tracing::warn!(%error, "the journal's format stays the former one until the next start"),
            Ok(()) => {}
        }
        for old in there(&self.dir)? {
            let dir = self.dir.join(old.to_string());
            let marker = dir.join(UNFINISHED);
            if old == generation {
                remove(&marker, |marker| fs::remove_file(marker))?;
            } else if old == replaces || marker.exists() {
                remove(&dir, |dir| fs::remove_dir_all(dir))?;
            }
        }
        Ok(())
    }
}

/// Writes a file, if it does not hold that already.
fn replace_if_needed(path: &Path, text: &str) -> Result<(), StartError> {
    let is_there = fs::read_to_string(path).is_ok_and(|found| found.trim_end() == text);
    if is_there { Ok(()) } else { replace(path, text) }
}

fn remove(path: &Path, remove: impl FnOnce(&Path) -> std::io::Result<()>) -> Result<(), StartError> {
    match remove(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(failed(path)(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// The generations that have a directory, ascending.
fn there(dir: &Path) -> Result<Vec<u64>, StartError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed(dir))? {
        let name = entry.map_err(failed(dir))?.file_name();
        found.extend(name.to_str().and_then(|name| name.parse::<u64>().ok()));
    }
    found.sort_unstable();
    Ok(found)
}

/// Whether any of these generations has a segment that is not empty.
fn holds_anything(dir: &Path, generations: &[u64]) -> Result<bool, StartError> {
    for generation in generations {
        let dir = dir.join(generation.to_string());
        for shard in fs::read_dir(&dir).map_err(failed(&dir))? {
            let path = shard.map_err(failed(&dir))?.path();
            let Ok(segments) = fs::read_dir(&path) else { continue };
            for segment in segments {
                if segment.and_then(|segment| segment.metadata()).map_err(failed(&path))?.len() > 0 {
                    return Ok(true);
                }
            }
        }
    }
    Ok(false)
}

fn list(generations: &[u64]) -> String {
    let names: Vec<String> = generations.iter().map(u64::to_string).collect();
    names.join(", ")
}

fn without_current(dir: &Path, there: &[u64]) -> StartError {
    let name = dir.join(CURRENT);
    let restore = if let [generation] = there {
        let entries = fs::read_dir(dir.join(generation.to_string()));
        let shards = entries.map_or(0, |entries| entries.flatten().filter(|entry| entry.path().is_dir()).count());
        let line = format!("{HEADER} generation {generation} shards {shards} replaces 0");
        format!("Restore it, or write it anew: echo '{line}' > {}", name.display())
    } else {
        "Restore it from a backup".to_owned()
    };
    let what = format!(
        "there is a journal ({}), but {} is missing, which says what is in force. {restore}. To give up what the journal holds, move \
         the directory away",
        list(there),
        name.display(),
    );
    StartError::Journal { path: dir.to_owned(), what }
}

fn names_another(dir: &Path, generation: u64, there: &[u64]) -> StartError {
    let name = dir.join(CURRENT);
    let found = if there.is_empty() { "there is none".to_owned() } else { format!("what is there is {}", list(there)) };
    let what = format!(
        "{} says that generation {generation} of the journal is in force, but {found}. Restore the directory {}, or the right {}. To \
         give up what the journal holds, move the directory away",
        name.display(),
        dir.join(generation.to_string()).display(),
        name.display(),
    );
    StartError::Journal { path: dir.to_owned(), what }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(dir: &Path, generation: u64, shards: u16) {
        for shard in 0..shards {
            let dir = dir.join(generation.to_string()).join(format!("shard-{shard}"));
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("00000001.log"), "something").unwrap();
        }
    }

    fn start(dir: &Path, shards: u16) -> Generations {
        let found = Generations::open(dir, shards).unwrap();
        found.begin().unwrap();
        filled(dir, found.mine, shards);
        found.seal().unwrap();
        found
    }

    fn refusal(dir: &Path) -> String {
        let before = there(dir).unwrap();
        let error = Generations::open(dir, 2).unwrap_err().to_string();
        assert_eq!(there(dir).unwrap(), before, "nothing is removed");
        error
    }

    #[test]
    fn a_generation_lasts_as_long_as_the_number_of_shards() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        for (shards, generation, goes_on) in [(2, 1, false), (2, 1, true), (3, 2, false), (3, 2, true), (2, 3, false)] {
            let found = start(dir, shards);
            assert_eq!((found.mine, found.goes_on()), (generation, goes_on));
            assert_eq!(there(dir).unwrap(), [generation]);
            assert!(!dir.join(generation.to_string()).join(UNFINISHED).exists());
        }
    }

    #[test]
    fn a_journal_that_nothing_names_is_not_removed_and_the_way_out_works() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        start(dir, 2);
        fs::remove_file(dir.join(CURRENT)).unwrap();
        let error = refusal(dir);
        let line = "sedge-journal 2 generation 1 shards 2 replaces 0";
        assert!(error.contains("current is missing") && error.contains(line), "{error}");
        fs::write(dir.join(CURRENT), line).unwrap();
        assert!(start(dir, 2).goes_on());
        fs::write(dir.join(CURRENT), line.replace("generation 1", "generation 5")).unwrap();
        let error = refusal(dir);
        assert!(error.contains("generation 5") && error.contains("what is there is 1"), "{error}");
        fs::write(dir.join(CURRENT), "").unwrap();
        assert!(refusal(dir).contains("holds \"\""));
    }

    #[test]
    fn only_what_a_cut_short_start_has_left_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        // A start that was cut short before anything was in force.
        Generations::open(dir, 2).unwrap().begin().unwrap();
        filled(dir, 1, 1);
        assert_eq!((start(dir, 2).mine, there(dir).unwrap()), (2, vec![2]));
        // One that was to write another number of shards.
        Generations::open(dir, 3).unwrap().begin().unwrap();
        filled(dir, 3, 1);
        start(dir, 2);
        assert_eq!(there(dir).unwrap(), [2]);
        // A generation that somebody else put there stays.
        filled(dir, 7, 2);
        filled(dir, 1, 2);
        start(dir, 2);
        assert_eq!((start(dir, 3).mine, there(dir).unwrap()), (8, vec![1, 7, 8]));
    }

    /// A journal of the first format goes on, and is of the present one afterwards.
    #[test]
    fn the_first_format_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        filled(dir, 4, 2);
        fs::write(dir.join(CURRENT), "4 2\n").unwrap();
        let found = start(dir, 2);
        assert!(found.goes_on() && !found.is_listed());
        let found = Generations::open(dir, 2).unwrap();
        assert!(found.goes_on() && found.is_listed());
        assert_eq!(found.to_read().count(), 2);
    }
}
