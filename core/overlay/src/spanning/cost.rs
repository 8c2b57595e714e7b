//! Round trips, smoothed and rounded so that noise does not change the tree.

/// The cost of a way that does not exist, in place of microseconds.
pub const UNREACHABLE: u32 = u32::MAX;

/// Cost of a link before its first measurement, in microseconds: more than any that has been measured.
pub(super) const UNMEASURED: u32 = 30_000_000;

/// Round trips that differ by less are the same, in microseconds: a relay costs as much, and machines that stand next to each other
/// become a star.
const LEAST_STEP: u32 = 256;

/// The link to one member.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Edge {
    /// The smoothed round trip in eighths of microseconds.
    smoothed: Option<u64>,
    /// Cost of the edge in this epoch.
    frozen: u32,
}

impl Edge {
    pub(crate) const UNMEASURED: Self = Self { smoothed: None, frozen: UNMEASURED };
    pub(super) const DOWN: Self = Self { smoothed: None, frozen: UNREACHABLE };

    pub(crate) const fn cost(self) -> u32 {
        self.frozen
    }

    /// Takes a measurement in; says whether it changed the cost of the edge.
    pub(crate) fn measure(&mut self, micros: u32) -> bool {
        let sample = u64::from(micros) * 8;
        self.smoothed = Some(self.smoothed.map_or(sample, |smoothed| smoothed - smoothed / 8 + sample / 8));
        if self.frozen < UNMEASURED {
            return false;
        }
        self.frozen = self.fresh();
        true
    }

    /// A new epoch begins: counts the present round trip from now on, unless it has hardly changed.
    pub(crate) fn freeze(&mut self) {
        let fresh = self.fresh();
        if self.frozen >= UNMEASURED || fresh.abs_diff(self.frozen) > step(fresh.max(self.frozen)) {
            self.frozen = fresh;
        }
    }

    /// The cost that the edge would have if it were frozen anew.
    pub(super) fn fresh(self) -> u32 {
        let Some(smoothed) = self.smoothed else { return self.frozen };
        let micros = u32::try_from(smoothed / 8).unwrap_or(UNMEASURED).clamp(1, UNMEASURED - 1);
        micros.next_multiple_of(step(micros)).min(UNMEASURED - 1)
    }
}

/// The steps to which round trips of about this length are rounded up: 6 to 12.5 %.
fn step(micros: u32) -> u32 {
    let eighth = 1 << (micros.max(8).ilog2() - 3);
    LEAST_STEP.max(eighth)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_measurement_counts_at_once_and_later_ones_from_the_next_epoch_on() {
        let mut edge = Edge::UNMEASURED;
        assert!(edge.measure(10_000));
        let first = edge.cost();
        assert!((10_000..=11_250).contains(&first), "{first}");
        for _ in 0..50 {
            assert!(!edge.measure(40_000));
        }
        assert_eq!(edge.cost(), first);
        edge.freeze();
        assert!((39_000..=45_000).contains(&edge.cost()), "{edge:?}");
    }

    #[test]
    fn small_changes_do_not_count() {
        let mut edge = Edge::UNMEASURED;
        edge.measure(100);
        assert_eq!(edge.cost(), LEAST_STEP);
        for micros in [20, 400, 250, 90] {
            edge.measure(micros);
            edge.freeze();
            assert_eq!(edge.cost(), LEAST_STEP);
        }
        let mut edge = Edge::UNMEASURED;
        edge.measure(10_000);
        let before = edge.cost();
        for _ in 0..50 {
            edge.measure(10_900);
        }
        edge.freeze();
        assert_eq!(edge.cost(), before);
    }

    #[test]
    fn costs_are_never_less_than_measured_nor_much_more_and_keep_their_order() {
        let mut last = 0;
        for micros in (0..3_000).chain((3_000..29_000_000).step_by(997)).chain([u32::MAX]) {
            let mut edge = Edge::UNMEASURED;
            edge.measure(micros);
            let cost = edge.cost();
            assert!(cost >= last && cost < UNMEASURED);
            let measured = micros.min(UNMEASURED - 1);
            assert!(cost >= measured && cost - measured <= LEAST_STEP.max(measured / 8 + 1), "{micros}: {cost}");
            last = cost;
        }
    }
}
