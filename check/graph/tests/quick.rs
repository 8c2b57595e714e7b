//! The experiments on a small scale (SG-30).

use sedge_graph::{Experiment, Options, run};

/// The report without the lines that tell how long it took.
fn report(experiments: Vec<Experiment>, seed: u64) -> String {
    let options = Options { seed, quick: true, experiments, threads: 1 };
    let mut out = Vec::new();
    run(&options, &mut out).expect("memory takes everything");
    let text = String::from_utf8(out).expect("text");
    text.lines().filter(|line| !line.contains(" took ") && !line.contains(" s in all")).collect::<Vec<_>>().join("\n")
}

/// The cells of the rows of all tables whose first cell is `first`.
fn rows(report: &str, first: &str) -> Vec<Vec<String>> {
    let cells =
        |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<String>>();
    report.lines().filter(|line| line.starts_with('|')).map(cells).filter(|row| row[0] == first).collect()
}

fn number(cell: &str) -> f64 {
    cell.parse().expect("a number")
}

#[test]
fn the_same_seed_gives_the_same_report() {
    let all = || report(Vec::new(), 3);
    let first = all();
    assert_eq!(first, all());
    assert_eq!(first.matches("## ").count(), 12, "{first}");
    assert_ne!(first, report(Vec::new(), 4));
}

/// SG-10: no copies and no signals without subscribers, while Scribe goes on.
#[test]
fn nothing_is_sent_where_nobody_subscribes() {
    let report = report(vec![Experiment::Messages], 1);
    let silent: Vec<_> = rows(&report, "10").into_iter().filter(|row| row[1] == "0").collect();
    assert_eq!(silent.len(), 1, "{report}");
    assert_eq!((silent[0][2].as_str(), silent[0][3].as_str()), ("0.0", "0"));
    assert!(number(&silent[0][4]) > 0.0);
}

/// SG-20, SG-22, SG-24, SG-25: results that do not depend on the number of nodes hold here as well.
#[test]
fn paths_loads_and_hops_are_those_of_the_source() {
    let report = report(vec![Experiment::Paths, Experiment::Load, Experiment::Hops], 1);
    for pattern in ["δ (1/9)", "ε (5/5)", "ζ (9/1)"] {
        for row in rows(&report, pattern) {
            assert!(number(&row[2]) < 4.0 && number(&row[3]) <= number(&row[2]) && number(&row[4]) > 9.0, "{row:?}");
        }
    }
    let load = &rows(&report, "sending and forwarding, MRF")[0];
    assert!(number(&load[1]) > 0.9999 && number(&load[3]) <= 2.0, "{load:?}");
    assert!(report.contains("Of MRF each subscriber forwards 0, 1 or 2 copies"), "{report}");
    // A Scribe node relays whatever it subscribes to itself: one that hears little may pass on much.
    let scribe = &rows(&report, "receiving and forwarding, Scribe")[0];
    assert!(number(&scribe[1]).abs() < 0.15 && number(&scribe[3]) > 50.0, "{scribe:?}");
    let hops = &rows(&report, "1024")[0];
    assert_eq!((&hops[1], &hops[3]), (&hops[2], &hops[4]), "the formulas");
    assert!(number(&hops[8]) <= 0.7, "{hops:?}");
}

/// SG-26: messages and hops follow the stated orders, from 64 to 256 subscribers.
#[test]
fn other_ways_cost_what_they_are_said_to() {
    let report = report(vec![Experiment::Spreading], 1);
    let row = |subscribers: &str, name: &str| {
        let row = rows(&report, subscribers).into_iter().find(|row| row[1] == name).expect("a row");
        (number(&row[3]), number(&row[4]))
    };
    for name in ["sequential", "MRF", "SFB"] {
        assert!(row("64", name).0 <= 1.0 && row("256", name).0 <= 1.0, "{name}: a message a subscriber");
    }
    assert!(row("256", "sequential").1 > 3.9 * row("64", "sequential").1);
    for name in ["broadcast without memory", "broadcast with memory"] {
        let (small, large) = (row("64", name), row("256", name));
        assert!(large.0 > 1.1 * small.0 && large.0 < 2.0 * small.0, "{name}: {small:?}, {large:?}");
        assert!(large.1 < 2.0 * small.1);
    }
    assert!(row("256", "broadcast with memory").0 < row("256", "broadcast without memory").0);
}

/// SG-21, SG-32
#[test]
fn bases_and_repair_are_as_they_should_be() {
    let report = report(vec![Experiment::Bases, Experiment::Crash], 1);
    let base = |name| rows(&report, name)[0].clone();
    let (two, four) = (base("Two"), base("Four"));
    assert!(number(&four[1]) > number(&two[1]) && number(&four[3]) < number(&two[3]), "{report}");
    let repaired = &rows(&report, "10").into_iter().rfind(|row| row.len() == 3).expect("after ten seconds");
    assert_eq!(repaired[1..], ["100.00 %", "100.00 %"]);
}
