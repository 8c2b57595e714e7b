//! Many runs, each with faults of its own.

use sedge_cluster::OVERLAYS;
use sedge_sim::{Options, run};

/// How many seeds, where the environment names no other number.
const SEEDS: u64 = 30;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}

/// `SEDGE_SIM_SEEDS` and `SEDGE_SIM_FROM` choose other seeds.
#[test]
fn no_seed_violates_an_invariant() {
    let from = number("SEDGE_SIM_FROM", 1);
    for seed in from..from + number("SEDGE_SIM_SEEDS", SEEDS) {
        let report = run(Options::from_seed(seed), false);
        assert!(report.violations.is_empty(), "{report}");
        assert!(report.deliveries > 0, "nothing was delivered: {report}");
    }
}

/// How many seeds with crashes.
const CRASHING: u64 = 7;

/// FT-20 to FT-24, FT-29, MQ-05, MQ-06: one node dies after the other, for good or for a moment, silently or not; whatever was
/// acknowledged comes, once.
#[test]
fn no_crash_loses_anything() {
    let from = number("SEDGE_SIM_FROM", 1);
    for seed in from..from + number("SEDGE_SIM_SEEDS", CRASHING) {
        let report = run(Options::crashing(seed), false);
        assert!(report.violations.is_empty(), "{report}");
    }
}

/// How many seeds with nodes that are emptied or told to stop.
const DRAINING: u64 = 4;

/// FT-29, MQ-05, MQ-06, MQ-11: one node after the other is emptied or told to stop, and comes back; whatever was acknowledged comes,
/// once, and nobody ever has two owners.
#[test]
fn no_node_that_is_emptied_or_stopped_loses_anything() {
    let from = number("SEDGE_SIM_FROM", 1);
    for seed in from..from + number("SEDGE_SIM_SEEDS", DRAINING) {
        let report = run(Options::draining(seed), false);
        assert!(report.violations.is_empty(), "{report}");
    }
}

/// FT-21, MQ-05, MQ-06, MQ-13, TR-26: the same over every other overlay, and over one that sends publications astray.
#[test]
fn no_overlay_violates_an_invariant() {
    for overlay in OVERLAYS.into_iter().skip(1).chain(["detour"]) {
        let plain = [2, 4, 5].map(Options::from_seed);
        for options in plain.into_iter().chain([Options::crashing(2), Options::harsh(7), Options::draining(48)]) {
            let report = run(options.over(overlay), false);
            assert!(report.violations.is_empty(), "{report}");
        }
    }
}

/// Seeds that once found a bug.
const KEPT: &[u64] = &[294, 375, 404];

/// Seeds that found one with crashes.
const KEPT_CRASHING: &[u64] = &[37, 68, 119];

/// Seeds that found one with nodes that are emptied or stopped.
const KEPT_DRAINING: &[u64] = &[11, 45, 48];

/// Seeds that found one with every fault there is; 8 and 26 found what is promised of no session.
const KEPT_HARSH: &[u64] = &[7, 8, 26, 32, 59];

/// Seeds that found one with crashes where publications go astray.
const KEPT_ASTRAY: &[u64] = &[7];

#[test]
fn seeds_that_found_a_bug_stay_clean() {
    let drawn = KEPT.iter().map(|seed| Options::from_seed(*seed));
    let crashing = KEPT_CRASHING.iter().map(|seed| Options::crashing(*seed));
    let draining = KEPT_DRAINING.iter().map(|seed| Options::draining(*seed));
    let harsh = KEPT_HARSH.iter().map(|seed| Options::harsh(*seed));
    let astray = KEPT_ASTRAY.iter().map(|seed| Options::crashing(*seed).over("detour"));
    for options in astray.chain(drawn).chain(crashing).chain(draining).chain(harsh) {
        let report = run(options, false);
        assert!(report.violations.is_empty(), "{report}");
    }
}
