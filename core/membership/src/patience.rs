//! How late this node is itself: one that does not get a processor when it wants one must not take the silence of others, who may be
//! as badly off, for their death.

use sedge_base::{Duration, Instant};

/// Lateness below this is nothing special.
const NOTABLE: Duration = Duration::from_millis(50);
/// How long it is borne in mind.
const MEMORY: Duration = Duration::from_secs(10);
/// Turns that a suspect has more than otherwise: to hear of it, to object, and for the objection to be heard, with one to spare.
const TURNS: u32 = 4;
/// Most additional time.
const EXTRA_MAX: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    worst: Duration,
    until: Instant,
}

impl Patience {
    /// This node does something now that was due at `due`.
    pub(crate) fn note(&mut self, now: Instant, due: Instant) {
        let late = now.since(due);
        if now >= self.until {
            self.worst = Duration::ZERO;
        }
        if late >= NOTABLE {
            self.worst = self.worst.max(late);
            self.until = now + MEMORY;
        }
    }

    /// How much longer than otherwise a suspect may take to object.
    pub(crate) fn extra(&self, now: Instant) -> Duration {
        if now >= self.until { Duration::ZERO } else { (self.worst * TURNS).min(EXTRA_MAX) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lateness_gives_time_and_is_forgotten() {
        let at = Instant::from_millis;
        let mut patience = Patience::default();
        patience.note(at(1_049), at(1_000));
        assert_eq!(patience.extra(at(1_049)), Duration::ZERO);
        patience.note(at(2_000), at(1_500));
        patience.note(at(2_100), at(2_000));
        assert_eq!(patience.extra(at(2_100)), Duration::from_secs(2));
        assert_eq!(patience.extra(at(12_100)), Duration::ZERO);
        patience.note(at(13_000), at(12_900));
        assert_eq!(patience.extra(at(13_000)), Duration::from_millis(400));
        patience.note(at(70_000), at(20_000));
        assert_eq!(patience.extra(at(70_000)), EXTRA_MAX);
    }
}
