//! Files stay short enough to be read, and documents point at things that exist.

use std::fs;
use std::path::{Path, PathBuf};

/// Longest source file in lines.
const MAX_LINES: usize = 800;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace root")
}

fn files_below(folder: &Path, endings: &[&str], found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry")) {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with('.') || ["target", "node_modules", "__pycache__"].contains(&name.as_str()) {
            continue;
        }
        if path.is_dir() {
            files_below(&path, endings, found);
        } else if path.extension().is_some_and(|ending| endings.iter().any(|wanted| ending == *wanted)) {
            found.push(path);
        }
    }
}

#[test]
fn no_source_file_is_longer_than_a_person_can_keep_in_mind() {
    let mut found = Vec::new();
    for folder in ["core", "shell", "check"] {
        files_below(&root().join(folder), &["rs", "py", "js", "sh"], &mut found);
    }
    assert!(found.len() > 20, "the search for source files is broken");
    let too_long: Vec<String> = found
        .iter()
        .map(|path| (path, fs::read_to_string(path).unwrap_or_default().lines().count()))
        .filter(|(_, lines)| *lines > MAX_LINES)
        .map(|(path, lines)| format!("{}: {lines} lines", path.display()))
        .collect();
    assert_eq!(too_long, Vec::<String>::new());
}

/// Targets of `[text](target)` in a Markdown text that point into the tree.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target).filter(|target| {
        !target.starts_with('#') && !target.contains("://") && !target.starts_with("mailto:") && !target.contains(' ')
    })
}

#[test]
fn links_in_documents_lead_somewhere() {
    let mut documents = Vec::new();
    files_below(&root(), &["md"], &mut documents);
    assert!(documents.iter().any(|path| path.ends_with("README.md")), "there is no README.md");
    let mut broken = Vec::new();
    for document in &documents {
        let text = fs::read_to_string(document).expect("a document");
        for link in links(&text) {
            let target = link.split('#').next().unwrap_or_default();
            if !document.parent().expect("a folder").join(target).exists() {
                broken.push(format!("{}: {link}", document.display()));
            }
        }
    }
    assert_eq!(broken, Vec::<String>::new());
}
