//! The two-copy rule holds in every order of events within these bounds, and planted mistakes are found.

use sedge_model::copies::{Copies, Flaw};
use stateright::{Checker, Model};

const HELD: &str = "what is acknowledged is held";

fn bounds() -> Copies {
    Copies { nodes: 3, copies: 2, entries: vec![2, 2, 0], crashes: 1, spaced: true, flaw: Flaw::Sound }
}

/// Checks all orders; fails with the shortest story of a violation.
fn sound(model: Copies) {
    model.checker().spawn_bfs().join().assert_properties();
}

/// Whether some order of events violates this property.
fn violates(model: Copies, property: &'static str) -> bool {
    model.checker().spawn_bfs().join().discovery(property).is_some()
}

/// FT-20, FT-21, FT-24: one of three nodes dies, at any moment.
#[test]
fn two_copies_survive_one_crash() {
    sound(bounds());
}

/// FT-30: two of four die at once, or one after the other when all copies are there again.
#[test]
fn three_copies_survive_two_crashes() {
    sound(Copies { nodes: 4, copies: 3, entries: vec![3, 0], crashes: 2, ..bounds() });
}

/// Crashes of more nodes than there are copies, one after the other.
#[test]
fn copies_are_made_anew_after_a_crash() {
    sound(Copies { entries: vec![2, 2], crashes: 2, ..bounds() });
}

/// The window that the decision names: a second crash before the new backup has everything.
#[test]
fn a_second_crash_before_the_copies_are_there_again_may_lose() {
    assert!(violates(Copies { crashes: 2, entries: vec![2], spaced: false, ..bounds() }, HELD));
}

#[test]
fn an_acknowledgement_ahead_of_the_copies_is_found() {
    assert!(violates(Copies { flaw: Flaw::AcceptAhead, ..bounds() }, HELD));
}

#[test]
fn a_backup_that_counts_too_early_is_found() {
    assert!(violates(Copies { flaw: Flaw::CountEmpty, crashes: 2, entries: vec![2], ..bounds() }, HELD));
}

#[test]
fn a_publication_forgotten_too_early_is_found() {
    assert!(violates(Copies { flaw: Flaw::ForgetEarly, ..bounds() }, "living publishers are acknowledged"));
}

#[test]
fn a_publication_taken_twice_is_found() {
    assert!(violates(Copies { flaw: Flaw::TakeTwice, ..bounds() }, "once and in order"));
}
