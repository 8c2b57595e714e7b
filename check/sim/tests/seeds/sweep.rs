//! Many runs, each with faults of its own.

use sedge_cluster::OVERLAYS;
use sedge_sim::{Draw, Options, Tracing, run};

/// How many seeds, where the environment names no other number.
const SEEDS: u64 = 30;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}

/// Runs `count` seeds, where the environment names no others.
fn no_violation(kind: Draw, first: u64, count: u64) {
    let from = number("SEDGE_SIM_FROM", first);
    for seed in from..from + number("SEDGE_SIM_SEEDS", count) {
        let report = run(kind(seed), Tracing::Off);
        assert!(report.violations.is_empty(), "{report}");
    }
}

/// `SEDGE_SIM_SEEDS` and `SEDGE_SIM_FROM` choose other seeds.
#[test]
fn no_seed_violates_an_invariant() {
    let from = number("SEDGE_SIM_FROM", 1);
    for seed in from..from + number("SEDGE_SIM_SEEDS", SEEDS) {
        let report = run(Options::from_seed(seed), Tracing::Off);
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
    no_violation(Options::crashing, 1, CRASHING);
}

/// How many seeds with crashes amid moves.
const MOVING: u64 = 12;

/// MQ-05, MQ-06, MQ-11, FT-20: the same while sessions are on their way from node to node.
#[test]
fn no_crash_amid_moves_loses_anything() {
    no_violation(Options::moving, 1, MOVING);
}

/// How many seeds with all that is not a partition.
const SWARMING: u64 = 10;

/// FT-20 to FT-24, FT-29, MQ-05, MQ-06, MQ-11: crashes amid moves, with pauses, ways that are cut in one direction, repeated datagrams,
/// wrong clocks, and journals to start again from, in a mix of each seed's own.
#[test]
fn no_swarm_of_faults_loses_anything() {
    no_violation(Options::swarm, 1, SWARMING);
}

/// How many seeds with several connections between two nodes.
const LANED: u64 = 6;

/// IL-20, FT-17, FT-18: several connections between two nodes, cut one by one amid a swarm of faults; whatever was acknowledged comes, once
/// and in order.
#[test]
fn no_lost_lane_loses_anything() {
    no_violation(Options::laned, 1, LANED);
}

/// How many seeds with nodes that stand still until after they were declared dead.
const FREEZING: u64 = 4;

/// FT-24, FT-26, FT-31, MQ-05, MQ-06: a node stands still, the others take its sessions over, and it goes on; whatever was acknowledged comes,
/// once.
#[test]
fn no_freeze_loses_anything() {
    no_violation(Options::freezing, 4, FREEZING);
}

/// How many seeds with power cuts of the whole site.
const CUTTING_POWER: u64 = 4;

/// FT-26, FT-28, MQ-05, MQ-06: all nodes die at once and start again from their journals, together, one late, or twice in a row; whatever
/// was acknowledged comes, once.
#[test]
fn no_power_cut_loses_anything() {
    no_violation(Options::site_restart, 1, CUTTING_POWER);
}

/// How many seeds with power cuts and clients that do not wait.
const HASTY: u64 = 4;

/// FT-26, MQ-09, MQ-11: all nodes die and start again, and clients that get no CONNACK try one node after the other: when the nodes let
/// clients in, each client has claims at several of them.
#[test]
fn no_hasty_client_loses_its_session() {
    no_violation(Options::hasty_restart, 1, HASTY);
}

/// How many seeds with nodes that start again from their journals.
const RESTARTING: u64 = 4;

/// FT-20, FT-28, MQ-05, MQ-06: one node dies after the other and starts again from its journal, before or after it is declared dead.
#[test]
fn no_restart_from_a_journal_loses_anything() {
    no_violation(Options::journal_restart, 4, RESTARTING);
}

/// How many seeds with disks that take their time.
const SLOW: u64 = 4;

/// MQ-05, MQ-06, FT-26: the medium has a batch of a journal later than the process has written it, disks stall and fail, and what the medium does not
/// have is gone when a process ends.
#[test]
fn no_slow_disk_loses_anything() {
    no_violation(Options::slow_disk, 1, SLOW);
}

/// How many seeds with clocks that are apart.
const APART: u64 = 4;

/// MQ-11, FT-20: clocks are up to a day apart and drift, and publications have an expiry; no client sees a difference.
#[test]
fn no_clock_changes_what_clients_see() {
    no_violation(Options::apart, 1, APART);
}

/// How many seeds with nodes that are emptied or told to stop.
const DRAINING: u64 = 4;

/// FT-29, MQ-05, MQ-06, MQ-11: one node after the other is emptied or told to stop, and comes back; whatever was acknowledged comes,
/// once, and nobody ever has two owners.
#[test]
fn no_node_that_is_emptied_or_stopped_loses_anything() {
    no_violation(Options::draining, 1, DRAINING);
}

/// How many seeds with a shared subscription.
const SHARING: u64 = 8;

/// MQ-14, FT-20: members of a shared subscription come and go, and nodes crash; whatever was acknowledged comes to one of them.
#[test]
fn no_share_is_lost() {
    no_violation(Options::sharing, 1, SHARING);
}

/// How many seeds with partitions.
const PARTING: u64 = 2;

/// FT-31, MQ-05, MQ-06: the nodes fall apart into two sides and find each other again, one pair after the other; whatever was
/// acknowledged comes, for all that was subscribed before.
#[test]
fn no_partition_loses_anything() {
    no_violation(Options::parting, 19, PARTING);
}

/// FT-21, MQ-05, MQ-06, MQ-13, TR-26: the same over every other overlay, and over one that sends publications astray.
#[test]
fn no_overlay_violates_an_invariant() {
    for overlay in OVERLAYS.into_iter().skip(1).chain(["detour"]) {
        let plain = [2, 4, 5].map(Options::from_seed);
        for options in plain.into_iter().chain([Options::crashing(2), Options::harsh(8), Options::draining(48)]) {
            let report = run(options.over(overlay), Tracing::Off);
            assert!(report.violations.is_empty(), "{report}");
        }
    }
}
