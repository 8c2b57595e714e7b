//! Arrows point only downward, and nothing in `core/` can touch the world (DESIGN section 3).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use toml::Table;

/// Height of every crate. A crate may use crates that lie strictly lower, nothing else.
const LAYERS: &[(&str, &str, u8)] = &[
    ("core/base", "sedge-base", 0),
    ("core/access", "sedge-access", 1),
    ("core/jq", "sedge-jq", 1),
    ("core/mqtt", "sedge-mqtt", 1),
    ("core/sparkplug", "sedge-sparkplug", 1),
    ("core/broker", "sedge-broker", 2),
    ("core/membership", "sedge-membership", 2),
    ("core/overlay", "sedge-overlay", 2),
    ("core/rules", "sedge-rules", 2),
    ("core/scale", "sedge-scale", 2),
    ("core/sidecar", "sedge-sidecar", 2),
    ("core/cluster", "sedge-cluster", 3),
    ("shell/bridge", "sedge-bridge", 3),
    ("shell/journal", "sedge-journal", 3),
    ("shell/daemon", "sedge-daemon", 4),
    ("shell/bench", "sedge-bench", 4),
    ("shell/scale", "sedge-controller", 4),
    ("check/graph", "sedge-graph", 3),
    ("check/sim", "sedge-sim", 4),
    ("shell/cli", "sedge", 5),
    ("check/model", "sedge-model", 0),
    ("check/tidy", "sedge-tidy", 0),
];

/// Crates from outside that crates in `core/` may use: no crate there opens a socket or a file, reads a clock or starts a thread.
const CORE_MAY_USE: &[&str] = &[
    "base64",
    "bytes",
    "foca",
    "hashbrown",
    "hmac",
    "jaq-core",
    "jaq-json",
    "jaq-std",
    "proptest",
    "prost",
    "rand_core",
    "serde",
    "serde_json",
    "sha2",
    "slab",
    "smallvec",
    "subtle",
    "thiserror",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace root")
}

fn table(path: &Path) -> Table {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.parse().unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Names of everything a manifest depends on, with whether it is needed by tests only.
fn dependencies(manifest: &Table) -> Vec<(String, bool)> {
    let mut found = Vec::new();
    let mut sections: Vec<&Table> = vec![manifest];
    if let Some(targets) = manifest.get("target").and_then(|value| value.as_table()) {
        sections.extend(targets.values().filter_map(|value| value.as_table()));
    }
    for section in sections {
        for (key, dev) in [("dependencies", false), ("build-dependencies", false), ("dev-dependencies", true)] {
            let Some(listed) = section.get(key).and_then(|value| value.as_table()) else { continue };
            for (name, value) in listed {
                let package = value.as_table().and_then(|value| value.get("package")).and_then(|value| value.as_str());
                found.push((package.unwrap_or(name).to_owned(), dev));
            }
        }
    }
    found
}

/// Every arrow that does not point downward, and every crate of `core/` that uses more than it may, as sentences.
fn violations(manifests: &[(&str, Table)]) -> Vec<String> {
    let heights: BTreeMap<&str, u8> = LAYERS.iter().map(|&(_, name, height)| (name, height)).collect();
    let folders: BTreeMap<&str, &str> = LAYERS.iter().map(|&(folder, name, _)| (name, folder)).collect();
    let mut wrong = Vec::new();
    for (name, manifest) in manifests {
        let Some(height) = heights.get(name) else {
            wrong.push(format!("{name} has no layer: give it one in check/tidy/tests/layers.rs"));
            continue;
        };
        let in_core = folders.get(name).is_some_and(|folder| folder.starts_with("core/"));
        for (used, _) in dependencies(manifest) {
            match heights.get(used.as_str()) {
                Some(below) if below < height => {
                    let core = folders.get(used.as_str()).is_some_and(|folder| folder.starts_with("core/"));
                    if in_core && !core {
                        wrong.push(format!("{name} is in core/ and uses {used}, which is not"));
                    }
                }
                Some(_) => wrong.push(format!("{name} uses {used}, which does not lie below it")),
                None if in_core && !CORE_MAY_USE.contains(&used.as_str()) => {
                    wrong.push(format!(
                        "{name} is in core/ and uses {used}, which is not on the list of crates without I/O"
                    ));
                }
                None => {}
            }
        }
    }
    wrong
}

fn manifests() -> Vec<(String, Table)> {
    let workspace = table(&root().join("Cargo.toml"));
    let members = workspace["workspace"]["members"].as_array().expect("members");
    members
        .iter()
        .map(|member| {
            let manifest = table(&root().join(member.as_str().expect("a path")).join("Cargo.toml"));
            (manifest["package"]["name"].as_str().expect("a name").to_owned(), manifest)
        })
        .collect()
}

#[test]
fn arrows_point_only_downward() {
    let manifests = manifests();
    let borrowed: Vec<(&str, Table)> = manifests.iter().map(|(name, table)| (name.as_str(), table.clone())).collect();
    assert_eq!(violations(&borrowed), Vec::<String>::new());
    assert_eq!(manifests.len(), LAYERS.len(), "a crate in LAYERS is no member of the workspace");
}

#[test]
fn an_upward_arrow_would_be_found() {
    let planted =
        "[dependencies]\nsedge-broker = {}\ntokio = '1'\n[dev-dependencies]\nsedge-sim = {}\n".parse().expect("TOML");
    let found = violations(&[("sedge-mqtt", planted)]);
    assert_eq!(found.len(), 3, "{found:?}");
}

#[test]
fn every_core_crate_is_covered_by_the_bans_on_clock_threads_and_files() {
    let bans = fs::read_to_string(root().join("core/clippy.toml")).expect("core/clippy.toml");
    for banned in [
        "std::time::Instant::now",
        "std::thread::spawn",
        "std::collections::HashMap",
        "std::net::TcpStream",
        "std::fs::File",
    ] {
        assert!(bans.contains(banned), "core/clippy.toml no longer bans {banned}");
    }
    for &(folder, _, _) in LAYERS.iter().filter(|(folder, _, _)| folder.starts_with("core/")) {
        assert!(
            !root().join(folder).join("clippy.toml").exists(),
            "{folder}/clippy.toml would replace the bans of core/clippy.toml"
        );
        let manifest = table(&root().join(folder).join("Cargo.toml"));
        assert_eq!(
            manifest["lints"]["workspace"].as_bool(),
            Some(true),
            "{folder} does not take the lints of the workspace"
        );
    }
}
