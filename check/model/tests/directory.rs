//! The directory comes to one owner in every order of events within these bounds, and planted mistakes are found.

use sedge_model::directory::{Directory, Flaw};
use stateright::{Checker, Model};

fn bounds() -> Directory {
    Directory { nodes: 3, connects: 2, cut_off: vec![2], crashes: 0, flaw: Flaw::Sound }
}

fn sound(model: Directory) {
    model.checker().spawn_bfs().join().assert_properties();
}

fn violates(model: Directory, property: &'static str) -> bool {
    model.checker().spawn_bfs().join().discovery(property).is_some()
}

/// MQ-11
#[test]
fn claims_without_faults_leave_one_owner() {
    sound(Directory { connects: 3, cut_off: vec![], ..bounds() });
}

/// MQ-11, FT-31: the home is on one side of the partition or on the other.
#[test]
fn a_partition_that_heals_leaves_one_owner() {
    sound(bounds());
    sound(Directory { cut_off: vec![0], ..bounds() });
}

#[test]
fn a_home_that_keeps_the_first_owner_is_found() {
    assert!(violates(Directory { flaw: Flaw::FirstStays, ..bounds() }, "one owner"));
}

#[test]
fn a_tie_that_is_not_broken_is_found() {
    assert!(violates(Directory { flaw: Flaw::TieStays, ..bounds() }, "a loser gives up when it is told once"));
}

#[test]
fn an_owner_that_does_not_register_is_found() {
    assert!(violates(Directory { flaw: Flaw::Unregistered, ..bounds() }, "one owner"));
}

/// MQ-11, FT-20: a node dies, perhaps the home, and some know it earlier than others.
#[test]
fn a_crash_leaves_one_owner() {
    sound(Directory { nodes: 4, cut_off: vec![], crashes: 1, ..bounds() });
}

#[test]
fn a_grant_by_a_node_that_is_not_the_home_yet_is_found() {
    let model = Directory { nodes: 4, cut_off: vec![], crashes: 1, flaw: Flaw::GrantOutsideView, ..bounds() };
    assert!(violates(model, "an owner in view is not overlooked"));
}
