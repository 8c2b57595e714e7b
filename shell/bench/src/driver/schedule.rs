//! Whose turn it is when, in the open loop.

/// Times are multiples of this many ns, so that a driver wakes up at most ten thousand times a second; what falls together
/// is due together, and counts from then.
const TICK: u64 = 100_000;

/// When message `number` of a publisher is due.
pub(super) fn due_at(origin: u64, interval: u64, phase: u64, number: u64) -> u64 {
    let behind = interval.saturating_mul(number).saturating_add(phase);
    origin.saturating_add(behind.div_ceil(TICK).saturating_mul(TICK))
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
    pub(super) fn next_due(&self, origin: u64) -> Option<u64> {
        self.members.get(self.turn).map(|(phase, _)| due_at(origin, self.interval, *phase, self.round))
    }

    /// Visits the connection of each turn up to `now`.
    pub(super) fn run(&mut self, origin: u64, now: u64, mut visit: impl FnMut(usize)) {
        while let Some((phase, conn)) = self.members.get(self.turn).copied() {
            if due_at(origin, self.interval, phase, self.round) > now {
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

    #[test]
    fn everybody_has_a_turn_in_each_interval() {
        let mut schedule = Schedule::new(10_000_000, vec![(5_000_000, 1), (0, 0), (7_500_000, 2)]);
        let mut turns = Vec::new();
        schedule.run(1_000, 1_000 + 15_000_000, |conn| turns.push(conn));
        assert_eq!(turns, [0, 1, 2, 0, 1]);
        assert_eq!(schedule.next_due(1_000), Some(1_000 + 17_500_000));
        schedule.run(1_000, 1_000 + 15_000_000, |_| panic!("nothing is due twice"));
    }

    #[test]
    fn times_are_rounded_up_and_never_drift() {
        assert_eq!(due_at(0, 33_333, 0, 3), 100_000);
        assert_eq!(due_at(0, 33_333, 1, 3), 100_000);
        assert_eq!(due_at(0, 33_333, 2, 3), 200_000);
        assert_eq!(due_at(7, 1_000_000, 0, 1_000_000), 7 + 1_000_000_000_000);
        assert_eq!(Schedule::new(1, Vec::new()).next_due(0), None);
    }
}
