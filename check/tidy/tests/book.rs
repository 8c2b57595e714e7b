//! The documents are a book: every page is in its table of contents, and every link to a part of a page finds that part.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").canonicalize().expect("the documents")
}

fn pages_below(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
        if entry.is_dir() {
            pages_below(&entry, found);
        } else if entry.extension().is_some_and(|ending| ending == "md") && !entry.ends_with("SUMMARY.md") {
            found.push(entry);
        }
    }
}

/// Targets of `[text](target)`, without those inside of code.
fn links(text: &str) -> Vec<String> {
    let mut in_code = false;
    let mut found = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if !in_code {
            found.extend(
                line.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link.to_owned()),
            );
        }
    }
    found.retain(|link| !link.contains("://") && !link.contains(' '));
    found
}

/// The anchor of a heading, as GitHub and mdbook make it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    kept.chars()
        .filter(|letter| letter.is_alphanumeric() || [' ', '-', '_'].contains(letter))
        .map(|letter| if letter == ' ' { '-' } else { letter })
        .collect()
}

fn anchors(text: &str) -> BTreeSet<String> {
    let mut in_code = false;
    let mut found = BTreeSet::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if !in_code && line.starts_with('#') {
            found.insert(anchor(line.trim_start_matches('#')));
        }
    }
    found
}

#[test]
fn every_page_is_in_the_table_of_contents() {
    let summary = fs::read_to_string(docs().join("SUMMARY.md")).expect("SUMMARY.md");
    let mut listed: Vec<PathBuf> = links(&summary).iter().map(|link| docs().join(link)).collect();
    let mut pages = Vec::new();
    pages_below(&docs(), &mut pages);
    listed.sort();
    pages.sort();
    assert!(pages.len() > 30, "the search for pages is broken");
    let missing: Vec<&PathBuf> = pages.iter().filter(|page| !listed.contains(page)).collect();
    assert!(missing.is_empty(), "add to docs/SUMMARY.md: {missing:?}");
    let gone: Vec<&PathBuf> = listed.iter().filter(|page| !pages.contains(page)).collect();
    assert!(gone.is_empty(), "docs/SUMMARY.md names pages that are not there: {gone:?}");
    assert_eq!(listed.len(), pages.len(), "docs/SUMMARY.md names a page twice");
}

#[test]
fn every_link_to_a_part_of_a_page_finds_it() {
    let mut pages = Vec::new();
    pages_below(&docs(), &mut pages);
    pages.push(docs().join("../README.md"));
    let (mut broken, mut followed) = (Vec::new(), 0);
    for page in &pages {
        let text = fs::read_to_string(page).expect("a page");
        for link in links(&text) {
            let Some((file, part)) = link.split_once('#') else { continue };
            let target = if file.is_empty() { page.clone() } else { page.with_file_name("").join(file) };
            let Ok(target) = fs::read_to_string(&target) else { continue };
            followed += 1;
            if !anchors(&target).contains(part) {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(followed > 10, "the search for links is broken");
    assert_eq!(broken, Vec::<String>::new());
}
