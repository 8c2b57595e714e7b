//! Bugs put into the world on purpose are found: otherwise a clean sweep would mean nothing.

use sedge_sim::{Options, Sabotage, run};

/// Whether some seed finds the bug by this invariant; and the same seed without the bug finds nothing.
fn found(sabotage: Sabotage, invariant: &str) -> bool {
    (1..=10).any(|seed| {
        let clean = run(Options::calm(seed, Sabotage::None), false);
        assert!(clean.violations.is_empty(), "without a planted bug: {clean}");
        let report = run(Options::calm(seed, sabotage), false);
        report.violations.iter().any(|violation| violation.invariant == invariant)
    })
}

/// FT-21: an acknowledgement that does not wait for copies is found, by what is lost or comes twice when nodes die while sessions move. Where
/// none move, what is on its way to the copies mostly arrives although its node dies.
#[test]
fn an_acknowledgement_ahead_of_the_copies_is_found() {
    let with = |sabotage, seed| run(Options { sabotage, ..Options::far(seed) }, false).violations;
    let violated = |seed| {
        let violations = with(Sabotage::BelieveCopied, seed);
        violations.iter().any(|violation| ["not_lost", "once"].contains(&violation.invariant))
    };
    assert!((1..=100).any(|seed| violated(seed) && with(Sabotage::None, seed).is_empty()));
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
