//! How nodes are found.

use std::sync::atomic::Ordering;

use super::exposition::{Exposition, Kind};
use crate::discovery::Discovered;

pub(super) fn write(out: &mut Exposition, discovered: &Discovered) {
    let states = discovered.states();
    let mut family = out.family("discovery_addresses", Kind::Gauge, "Addresses of nodes that each source knows.");
    for (source, state) in &states {
        family.labelled(&[("source", source.name())], state.addresses.len() as u64);
    }
    let mut family = out.family("discovery_failing", Kind::Gauge, "Whether a source could not be asked the last time.");
    for (source, state) in &states {
        family.labelled(&[("source", source.name())], u64::from(state.failure.is_some()));
    }
    let help = "Times that a source could not be asked.";
    let mut family = out.family("discovery_failures_total", Kind::Counter, help);
    for (source, state) in &states {
        family.labelled(&[("source", source.name())], state.failures);
    }
    let help = "Beacons that were not heard: of strangers, without sense, or of more nodes than there is room for.";
    out.single("discovery_refused_total", Kind::Counter, help, discovered.refused.load(Ordering::Relaxed));
    let help = "Addresses left out for want of room.";
    out.single("discovery_over_limit_total", Kind::Counter, help, discovered.over_limit.load(Ordering::Relaxed));
}
