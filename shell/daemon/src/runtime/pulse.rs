//! Whether the process stood still: a stopped process, a stalled virtual machine.
//!
//! The thread that drives the node takes a turn at least every [`EVERY`] while there are other members. When its last turn is longer ago than
//! [`STANDSTILL`], others may have taken the node for dead, and what clients have sent meanwhile is not to be read yet.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sedge_base::Instant;
use sedge_cluster::STANDSTILL;

/// The longest sleep of the thread that drives the node.
pub(crate) const EVERY: Duration = Duration::from_millis(500);
/// There are no other members.
const NEVER: u64 = u64::MAX;

/// When the thread that drives the node took its last turn.
pub(crate) struct Pulse(AtomicU64);

impl Default for Pulse {
    fn default() -> Self {
        Self(AtomicU64::new(NEVER))
    }
}

impl Pulse {
    /// A turn that began at `begun` ends. One in whose middle the process stood still is no beat, so that the next turn notices it.
    /// `is_alone`: there are no other members that could have done anything.
    pub(crate) fn beat(&self, begun: Instant, now: Instant, is_alone: bool) {
        if !is_alone && now > begun + STANDSTILL {
            return;
        }
        let millis = u64::try_from(now.since(Instant::ZERO).as_millis()).unwrap_or(NEVER);
        self.0.store(if is_alone { NEVER } else { millis }, Ordering::Release);
    }

    /// Whether the process has stood still since the last beat.
    pub(crate) fn has_stopped(&self, now: Instant) -> bool {
        let last = self.0.load(Ordering::Acquire);
        last != NEVER && now > Instant::from_millis(last) + STANDSTILL
    }

    /// Whether there are other members, so that turns must not be too far apart.
    pub(crate) fn is_watched(&self) -> bool {
        self.0.load(Ordering::Acquire) != NEVER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_pause_between_two_turns_is_a_standstill_unless_the_node_is_alone() {
        let pulse = Pulse::default();
        let at = Instant::from_millis;
        assert!(!pulse.has_stopped(at(9_000)));
        pulse.beat(at(9_000), at(9_000), false);
        assert!(!pulse.has_stopped(at(10_000)) && pulse.is_watched());
        assert!(pulse.has_stopped(at(10_001)));
        pulse.beat(at(10_001), at(10_001), true);
        assert!(!pulse.has_stopped(at(30_000)) && !pulse.is_watched());
    }

    #[test]
    fn a_pause_in_the_middle_of_a_turn_is_a_standstill_too() {
        let pulse = Pulse::default();
        let at = Instant::from_millis;
        pulse.beat(at(9_000), at(9_001), false);
        pulse.beat(at(9_002), at(12_000), false);
        assert!(pulse.has_stopped(at(12_001)));
    }
}
