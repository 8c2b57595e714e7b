//! The same seed gives the same run, event for event (DESIGN section 6, 6).

use sedge_sim::{Options, Tracing, run};

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in 1..=2 {
        let (first, second) =
            (run(Options::from_seed(seed), Tracing::Hashed), run(Options::from_seed(seed), Tracing::Hashed));
        assert_eq!((first.trace, first.events), (second.trace, second.events), "seed {seed}");
    }
}

#[test]
fn other_seeds_give_other_traces() {
    assert_ne!(run(Options::from_seed(1), Tracing::Hashed).trace, run(Options::from_seed(2), Tracing::Hashed).trace);
}
