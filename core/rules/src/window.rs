//! Which messages of a group belong together.

use crate::expression::Expression;

/// Shortest and longest window in milliseconds.
pub(crate) const LENGTH_MIN: u64 = 1;
/// A week: what lies longer in a window than that belongs into a database.
pub(crate) const LENGTH_MAX: u64 = 7 * 86_400_000;
/// Most windows that one message of a hopping window belongs to.
pub(crate) const OVERLAP_MAX: u64 = 100;
/// Most messages of a window by count.
pub(crate) const COUNT_MAX: u64 = 1_000_000;

/// A window of a rule. Times are milliseconds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Windowing {
    pub(crate) shape: Shape,
    /// The time of a message; `None`: when it arrives.
    pub(crate) event_time: Option<Expression>,
    /// How long after its end a window waits for messages that come late; only with `event_time`.
    pub(crate) lateness: u64,
    /// After how long without a message a group's windows close although no later message says that their time is over; only with
    /// `event_time`.
    pub(crate) idle: u64,
    /// How far the time of a message may lie ahead of the clock; only with `event_time`.
    pub(crate) ahead: u64,
}

/// How windows are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Windows of one length, each beginning where the last ended.
    Tumbling { length: u64 },
    /// Windows of one length, one beginning every so often.
    Hopping { length: u64, every: u64 },
    /// Until no message has come for so long, or the window is as long as `longest`.
    Session { gap: u64, longest: u64 },
    /// So many messages, or what has come when the window is as old as `longest`.
    Count { count: u64, longest: u64 },
}

impl Shape {
    /// Begin of each window that holds `time`, the latest first, with its end.
    pub(crate) fn windows_of(self, time: u64) -> impl Iterator<Item = (u64, u64)> {
        let (length, every) = match self {
            Self::Tumbling { length } => (length, length),
            Self::Hopping { length, every } => (length, every),
            // Sessions and counts are not cut by the clock.
            Self::Session { .. } | Self::Count { .. } => (0, 1),
        };
        let last = time - time % every;
        let begins = (0..).map_while(move |step| last.checked_sub(step * every));
        begins.map(move |begin| (begin, begin + length)).take_while(move |(_, end)| *end > time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows(shape: Shape, time: u64) -> Vec<(u64, u64)> {
        shape.windows_of(time).collect()
    }

    /// DP-02
    #[test]
    fn a_message_at_a_boundary_belongs_to_the_window_that_begins_there() {
        let tumbling = Shape::Tumbling { length: 10 };
        assert_eq!(windows(tumbling, 19), [(10, 20)]);
        assert_eq!(windows(tumbling, 20), [(20, 30)]);
        assert_eq!(windows(tumbling, 0), [(0, 10)]);
    }

    #[test]
    fn hopping_windows_overlap() {
        let hopping = Shape::Hopping { length: 10, every: 4 };
        assert_eq!(windows(hopping, 12), [(12, 22), (8, 18), (4, 14)]);
        assert_eq!(windows(hopping, 14), [(12, 22), (8, 18)]);
        assert_eq!(windows(hopping, 3), [(0, 10)]);
    }
}
