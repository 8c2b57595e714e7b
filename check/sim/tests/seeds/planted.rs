//! Bugs put into the world on purpose are found: otherwise a clean sweep would mean nothing.

use sedge_sim::{Options, Sabotage, Tracing, run};

/// Seeds that may find a bug.
const SEEDS: std::ops::RangeInclusive<u64> = 1..=8;
/// The first seed of [`Options::far`] that finds an acknowledgement ahead of the copies; the others after it are tried when it no longer does.
const AHEAD: u64 = 70;

/// Whether some seed finds the bug by this invariant.
fn found(sabotage: Sabotage, invariant: &str) -> bool {
    SEEDS.into_iter().any(|seed| {
        let report = run(Options::calm(seed, sabotage), Tracing::Off);
        report.violations.iter().any(|violation| violation.invariant == invariant)
    })
}

/// Without a planted bug the same seeds find nothing.
#[test]
fn the_same_seeds_without_a_bug_are_clean() {
    for seed in SEEDS {
        let clean = run(Options::calm(seed, Sabotage::None), Tracing::Off);
        assert!(clean.violations.is_empty(), "without a planted bug: {clean}");
    }
}

/// FT-21: an acknowledgement that does not wait for copies is found, by messages that are lost or come twice when nodes die while sessions move.
/// Where none move, messages on their way to the copies mostly arrive although their node dies.
#[test]
fn an_acknowledgement_ahead_of_the_copies_is_found() {
    let with = |sabotage, seed| run(Options { sabotage, ..Options::far(seed) }, Tracing::Off).violations;
    let violated = |seed| {
        let violations = with(Sabotage::BelieveCopied, seed);
        violations.iter().any(|violation| ["not_lost", "once"].contains(&violation.invariant))
    };
    let first = (AHEAD..AHEAD + 100).find(|seed| violated(*seed) && with(Sabotage::None, *seed).is_empty());
    assert!(first.is_some());
}

#[test]
fn a_lost_message_is_found() {
    assert!(found(Sabotage::LoseMail, "not_lost"));
}

#[test]
fn a_repeated_message_is_found() {
    assert!(found(Sabotage::RepeatMail, "once"));
}

#[test]
fn a_message_that_overtakes_is_found() {
    assert!(found(Sabotage::ReorderMail, "order"));
}

#[test]
fn a_lost_route_is_found() {
    assert!(found(Sabotage::LoseTable, "not_lost"));
}

/// MQ-05: an acknowledgement that leaves before the medium has the batch it rests on is found when the power fails.
#[test]
fn an_acknowledgement_ahead_of_the_medium_is_found() {
    let with = |sabotage, seed| run(Options { sabotage, ..Options::slow_disk(seed) }, Tracing::Off).violations;
    let violated = |seed| {
        let violations = with(Sabotage::BelieveKept, seed);
        violations.iter().any(|violation| ["not_lost", "once", "kept"].contains(&violation.invariant))
    };
    let first = (1..=20).find(|seed| violated(*seed) && with(Sabotage::None, *seed).is_empty());
    assert!(first.is_some());
}
