//! Many runs, each with faults of its own.

use sedge_sim::{Options, run};

/// How many seeds, where the environment names no other number.
const SEEDS: u64 = 60;

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

/// Seeds that once found a bug.
const KEPT: &[u64] = &[];

#[test]
fn seeds_that_found_a_bug_stay_clean() {
    for &seed in KEPT {
        let report = run(Options::from_seed(seed), false);
        assert!(report.violations.is_empty(), "{report}");
    }
}
