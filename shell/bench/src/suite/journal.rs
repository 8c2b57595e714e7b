//! Measurements that are kept while a suite goes on, so that one that was stopped can go on where it was.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::measured::Measured;
use crate::error::BenchError;

/// Subject and setting of a measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Key {
    pub(super) row: String,
    pub(super) broker: String,
    pub(super) version: Option<String>,
    pub(super) round: usize,
    /// Machine, processors and load: measurements in different settings cannot be compared.
    pub(super) setting: serde_json::Value,
}

/// One line of the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Entry {
    #[serde(flatten)]
    key: Key,
    measured: Measured,
}

/// The file, one measurement a line.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    file: File,
    entries: Vec<Entry>,
}

impl Journal {
    /// Opens or creates the file.
    pub(super) fn open(path: &Path) -> Result<Self, BenchError> {
        let failed = |source| BenchError::File { path: path.to_owned(), source };
        let mut text = String::new();
        if path.exists() {
            text = std::fs::read_to_string(path).map_err(failed)?;
        }
        let mut file = OpenOptions::new().append(true).create(true).open(path).map_err(failed)?;
        if !text.is_empty() && !text.ends_with('\n') {
            // The end of a line that was being written.
            file.write_all(b"\n").map_err(failed)?;
        }
        let entries = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        Ok(Self { path: path.to_owned(), file, entries })
    }

    /// The last measurement of `key` without an error; a failed measurement is to be tried again.
    pub(super) fn find(&self, key: &Key) -> Option<&Measured> {
        let found = self.entries.iter().rev().find(|entry| entry.key == *key && entry.measured.error.is_none());
        found.map(|entry| &entry.measured)
    }

    /// Keeps a measurement.
    pub(super) fn add(&mut self, key: &Key, measured: &Measured) -> Result<(), BenchError> {
        let entry = Entry { key: key.clone(), measured: measured.clone() };
        let line = serde_json::to_string(&entry).map_err(std::io::Error::from)? + "\n";
        self.file.write_all(line.as_bytes()).map_err(|source| BenchError::File { path: self.path.clone(), source })?;
        self.entries.push(entry);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_measured_is_found_again_and_what_failed_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("journal");
        let key = |round| Key {
            row: "r".to_owned(),
            broker: "b".to_owned(),
            version: Some("1".to_owned()),
            round,
            setting: serde_json::json!({ "interval": 0.1 }),
        };
        let measured = Measured { egress_per_cpu_s: Some(1.0 / 3.0), lost: 7, ..Measured::default() };
        let failed = Measured { error: Some("gone".to_owned()), ..Measured::default() };
        let mut journal = Journal::open(&path).expect("a journal");
        journal.add(&key(0), &measured).expect("kept");
        journal.add(&key(1), &failed).expect("kept");
        // The program was killed while it wrote.
        let mut text = std::fs::read_to_string(&path).expect("a file");
        text.push_str("{\"row\":\"r");
        std::fs::write(&path, text).expect("a file");
        let mut journal = Journal::open(&path).expect("a journal");
        assert_eq!(journal.find(&key(0)), Some(&measured));
        assert_eq!(journal.find(&key(1)), None);
        journal.add(&key(1), &measured).expect("kept");
        let journal = Journal::open(&path).expect("a journal");
        assert_eq!(journal.find(&key(1)), Some(&measured));
        assert_eq!(journal.find(&Key { setting: serde_json::Value::Null, ..key(0) }), None);
    }
}
