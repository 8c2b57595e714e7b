//! Whatever grows has a bound: each table in a structure of the node has a line in `tables.toml`, and each bound there a row in the documents.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

/// Types that grow with input from outside. Lists and queues count by what fills them.
const GROWING: &[&str] =
    &["Slab", "BTreeMap", "BTreeSet", "HashMap", "HashSet", "LookupMap", "TopicTree", "SubscriptionTrie", "Deadlines"];
/// The crates of a node; the other crates are tools that end when they are done.
const CRATES: &[&str] = &[
    "core/access",
    "core/base",
    "core/broker",
    "core/cluster",
    "core/membership",
    "core/mqtt",
    "core/overlay",
    "core/rules",
    "core/sidecar",
    "core/sparkplug",
    "shell/bridge",
    "shell/daemon",
    "shell/journal",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace root")
}

fn sources_below(folder: &Path, found: &mut Vec<PathBuf>) {
    for path in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
        let is_test = ["tests", "tests.rs", "fuzz.rs"].iter().any(|name| path.ends_with(name));
        if path.is_dir() && !is_test {
            sources_below(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") && !is_test {
            found.push(path);
        }
    }
}

/// Whether a type has one of the growing ones in it, as a word.
fn grows(kind: &str) -> bool {
    let mut words = kind.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
    words.any(|word| GROWING.contains(&word))
}

/// How many fields of the structures in a source are tables, tests left out.
fn tables_in(text: &str) -> usize {
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let (mut in_structure, mut count) = (false, 0);
    for line in text.lines() {
        let bare = line.strip_prefix("pub(").and_then(|rest| rest.split_once(") ")).map_or(line, |(_, rest)| rest);
        let bare = bare.strip_prefix("pub ").unwrap_or(bare);
        if bare.starts_with("struct ") {
            // `struct Name(Kind);` is over with its line.
            in_structure = line.ends_with('{');
            count += usize::from(!in_structure && grows(line));
        } else if line.starts_with('}') {
            in_structure = false;
        } else if in_structure
            && !line.trim_start().starts_with("//")
            && let Some((_, kind)) = line.split_once(": ")
        {
            count += usize::from(grows(kind));
        }
    }
    count
}

fn tables() -> BTreeMap<String, usize> {
    let mut found = Vec::new();
    for name in CRATES {
        sources_below(&root().join(name).join("src"), &mut found);
    }
    let counted = found.iter().map(|path| {
        let name = path.strip_prefix(root()).expect("below the root").display().to_string();
        (name, tables_in(&fs::read_to_string(path).expect("a source")))
    });
    counted.filter(|(_, count)| *count > 0).collect()
}

/// The bounds that a line names.
fn bounds(line: &Value) -> Vec<String> {
    let words = line.get("bounds").and_then(Value::as_str).unwrap_or_default().split_whitespace();
    words.map(str::to_owned).collect()
}

/// SEC: every table in the process is listed with its bound, and the bound is written down for operators.
#[test]
fn every_table_has_a_bound_that_is_written_down() {
    let text = fs::read_to_string(root().join("check/tidy/tables.toml")).expect("the list");
    let listed: Table = text.parse().expect("TOML");
    let found = tables();
    assert!(found.len() > 100, "the search for tables is broken");
    let wrong: Vec<String> = found
        .iter()
        .filter(|(name, count)| {
            let line = listed.get(*name);
            line.and_then(|line| line.get("tables")).and_then(Value::as_integer) != i64::try_from(**count).ok()
        })
        .map(|(name, count)| format!("{name} has {count} tables: say in check/tidy/tables.toml what bounds each"))
        .collect();
    assert_eq!(wrong, Vec::<String>::new());
    let gone: Vec<&String> = listed.keys().filter(|name| !found.contains_key(*name)).collect();
    assert_eq!(gone, Vec::<&String>::new(), "they have no tables");
    let docs = fs::read_to_string(root().join("docs/operations.md")).expect("the document");
    let section = docs.split("\n### What the process keeps\n").nth(1).and_then(|rest| rest.split("\n## ").next());
    let rows: BTreeSet<String> = section
        .expect("the section of bounds")
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split_once(" | "))
        .map(|(name, _)| name.to_owned())
        .filter(|name| name != "Kind")
        .collect();
    let named: BTreeSet<String> = listed.values().flat_map(bounds).collect();
    assert!(listed.values().all(|line| !bounds(line).is_empty()), "a line without bounds");
    assert_eq!(named, rows, "the bounds of check/tidy/tables.toml and those of docs/operations.md");
}
