//! The lines of a `mosquitto.conf` and of the files it includes, as Mosquitto reads them.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Where a line is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) file: Rc<str>,
    pub(super) number: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.number)
    }
}

/// An option and what was set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) at: Place,
    pub(super) name: String,
    /// May hold spaces; empty if there was none.
    pub(super) value: String,
}

/// All lines of a file; at each `include_dir` those of the files there.
pub(super) fn read(path: &Path) -> io::Result<Vec<Line>> {
    let mut lines = Vec::new();
    for line in lines_of(path)? {
        if line.name != "include_dir" || line.value.is_empty() {
            lines.push(line);
            continue;
        }
        for file in files_in(Path::new(&line.value)).map_err(|error| in_file(&line.at.to_string(), &error))? {
            lines.extend(lines_of(&file)?);
        }
    }
    Ok(lines)
}

fn in_file(place: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{place}: {error}"))
}

fn lines_of(path: &Path) -> io::Result<Vec<Line>> {
    let name = path.display().to_string();
    let bytes = fs::read(path).map_err(|error| in_file(&name, &error))?;
    let file: Rc<str> = name.into();
    let text = String::from_utf8_lossy(&bytes);
    let line = |(at, text): (usize, &str)| parse(text).map(|(name, value)| (at + 1, name, value));
    let found = text.lines().enumerate().filter_map(line);
    let line = |(number, name, value)| Line { at: Place { file: Rc::clone(&file), number }, name, value };
    Ok(found.map(line).collect())
}

/// Name and value of a line that is neither empty nor a comment. A `#` later in the line is no comment.
fn parse(text: &str) -> Option<(String, String)> {
    let text = text.trim();
    if text.is_empty() || text.starts_with('#') {
        return None;
    }
    let (name, value) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    Some((name.to_owned(), value.trim_start().to_owned()))
}

/// Files whose names end with `.conf`: alphabetically, upper case of a letter before lower case.
fn files_in(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).map_err(|error| in_file(&directory.display().to_string(), &error))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "conf") {
            files.push(path);
        }
    }
    files.sort_by_cached_key(|path| {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        (name.to_lowercase(), name)
    });
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_spaces_and_values() {
        let parsed = |text| parse(text).map(|(name, value)| format!("{name}={value}"));
        for (text, want) in [
            ("", None),
            ("  # x", None),
            ("port 1883\r", Some("port=1883")),
            ("  log_dest   file /a b.log  ", Some("log_dest=file /a b.log")),
            ("user", Some("user=")),
            ("topic a/# out", Some("topic=a/# out")),
        ] {
            assert_eq!(parsed(text).as_deref(), want, "{text:?}");
        }
    }

    #[test]
    fn included_files_come_in_their_order_where_they_are_included() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        for name in ["b.conf", "A.conf", "01.conf", "a.conf", "B.conf", "00.conf", "c.txt"] {
            write(name, &format!("port {}\ninclude_dir nowhere\n", name.trim_end_matches(".conf")));
        }
        let main = dir.path().join("main");
        fs::write(&main, format!("user x\ninclude_dir {}\nuser y\n", dir.path().display())).unwrap();
        let lines = read(&main).unwrap();
        let values: Vec<&str> =
            lines.iter().filter(|line| line.name != "include_dir").map(|line| line.value.as_str()).collect();
        assert_eq!(values, ["x", "00", "01", "A", "a", "B", "b", "y"]);
        assert_eq!(lines.iter().filter(|line| line.name == "include_dir").count(), 6, "only the main file includes");
        assert!(read(&dir.path().join("none")).unwrap_err().to_string().contains("none: "));
    }
}
