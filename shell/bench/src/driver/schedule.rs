//! Order and times of the publishers' turns in the open loop.

/// The times of the open loop.
#[derive(Clone, Copy, Debug)]
pub(super) struct Beat {
    /// When the open loop begins.
    pub(super) origin: u64,
    /// Times are multiples of this many ns from there, so that a driver wakes up only so often; what falls together is due
    /// together, and counts from then.
    pub(super) tick: u64,
}

impl Beat {
    /// When message `number` of a publisher is due.
    pub(super) fn due_at(self, interval: u64, phase: u64, number: u64) -> u64 {
        let behind = interval.saturating_mul(number).saturating_add(phase);
        self.origin.saturating_add(behind.div_ceil(self.tick.max(1)).saturating_mul(self.tick))
    }
}

/// Publishers with the same interval, in the order of their turns.
#[derive(Debug)]
pub(super) struct Schedule {
    interval: u64,
    /// Phase and number of the connection, ascending.
    members: Vec<(u64, usize)>,
    round: u64,
    turn: usize,
}

impl Schedule {
    pub(super) fn new(interval: u64, mut members: Vec<(u64, usize)>) -> Self {
        members.sort_unstable();
        Self { interval, members, round: 0, turn: 0 }
    }

    /// When the next turn is, if there is anybody.
    pub(super) fn next_due(&self, beat: Beat) -> Option<u64> {
        self.members.get(self.turn).map(|(phase, _)| beat.due_at(self.interval, *phase, self.round))
    }

    /// Visits the connection of each turn up to `now`.
    pub(super) fn run(&mut self, beat: Beat, now: u64, mut visit: impl FnMut(usize)) {
        while let Some((phase, conn)) = self.members.get(self.turn).copied() {
            if beat.due_at(self.interval, phase, self.round) > now {
                return;
            }
            visit(conn);
            self.turn += 1;
            if self.turn == self.members.len() {
                self.turn = 0;
                self.round += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEAT: Beat = Beat { origin: 1_000, tick: 100_000 };

    #[test]
    fn everybody_has_a_turn_in_each_interval() {
        let mut schedule = Schedule::new(10_000_000, vec![(5_000_000, 1), (0, 0), (7_500_000, 2)]);
        let mut turns = Vec::new();
        schedule.run(BEAT, 1_000 + 15_000_000, |conn| turns.push(conn));
        assert_eq!(turns, [0, 1, 2, 0, 1]);
        assert_eq!(schedule.next_due(BEAT), Some(1_000 + 17_500_000));
        schedule.run(BEAT, 1_000 + 15_000_000, |_| panic!("nothing is due twice"));
    }

    #[test]
    fn times_are_rounded_up_and_never_drift() {
        assert_eq!(BEAT.due_at(33_333, 0, 3), 101_000);
        assert_eq!(BEAT.due_at(33_333, 1, 3), 101_000);
        assert_eq!(BEAT.due_at(33_333, 2, 3), 201_000);
        assert_eq!(BEAT.due_at(1_000_000, 0, 1_000_000), 1_000 + 1_000_000_000_000);
        assert_eq!(Schedule::new(1, Vec::new()).next_due(BEAT), None);
    }
}
