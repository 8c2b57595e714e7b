//! Overlays on a small scale while nodes come and go. `docs/experiments/churn.md` has the large one.

use sedge_cluster::OVERLAYS;
use sedge_sim::{ChurnOptions, Figures, churn};

/// From 64 nodes on trees are mended without new epochs; the trees of topics are heavier.
fn small(overlay: &'static str, seed: u64) -> Figures {
    let nodes = if overlay == "topic-tree" { 30 } else { 70 };
    churn(ChurnOptions { seed, overlay, nodes, subscriptions: 3, seconds: 3, deaths: 20 })
}

fn check(overlay: &'static str) {
    let figures = small(overlay, 5);
    assert_eq!(figures.errors, 0, "{figures}");
    assert!(figures.deaths >= 2, "{figures}");
    assert!(figures.formed.is_some_and(|millis| millis < 10_000), "{figures}");
    assert!(figures.healed.is_some_and(|millis| millis < 10_000), "{figures}");
    for stable in [figures.first, figures.before, figures.after_first, figures.after] {
        assert!(stable.is_complete(), "{figures}");
    }
    // Flooding goes to every node; the other overlays know by the second publication which nodes want it.
    assert_eq!(figures.before.is_exact() && figures.after.is_exact(), overlay != "flood", "{figures}");
    let during = figures.during;
    assert!(during.publications > 50 && during.expected > 20, "{figures}");
    assert_eq!((during.missing, during.twice), (0, 0), "{figures}");
    assert!(during.reached * 100 >= during.expected * 95, "{figures}");
}

#[test]
fn mesh() {
    check("mesh");
}

#[test]
fn flood() {
    check("flood");
}

#[test]
fn tree() {
    check("tree");
}

#[test]
fn topic_tree() {
    check("topic-tree");
}

#[test]
fn skip_graph() {
    check("skip-graph");
}

#[test]
fn the_same_seed_gives_the_same_figures() {
    for overlay in OVERLAYS {
        let run = |seed| churn(ChurnOptions { seed, overlay, nodes: 20, subscriptions: 2, seconds: 1, deaths: 100 });
        let first = run(1);
        assert_eq!(first, run(1));
        assert_ne!(first, run(2));
    }
}
