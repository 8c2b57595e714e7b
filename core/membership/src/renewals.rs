//! How fast this node may renew its identity.

use sedge_base::{Duration, Instant};

const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// A node against which nothing was said for so long starts afresh: it was let in, and has been cut off again since.
const CALM: Duration = Duration::from_secs(3);
/// So many renewals in a row cannot be bad luck.
const OUTRANKED_AT: u32 = 5;

/// A node whose identity cannot win (a twin with the same id runs elsewhere) is refused at each message it sends. Without
/// a pause it would renew, announce and be refused as fast as the network carries.
#[derive(Debug)]
pub(crate) struct Renewals {
    last: Option<Instant>,
    /// When this node was last declared dead by others.
    verdict: Option<Instant>,
    pause: Duration,
    in_a_row: u32,
}

impl Renewals {
    pub(crate) const fn new() -> Self {
        Self { last: None, verdict: None, pause: PAUSE_MIN, in_a_row: 0 }
    }

    /// Whether a verdict against this node may be heard now. The others repeat a verdict that is not heard.
    pub(crate) fn allows(&mut self, now: Instant) -> bool {
        if self.verdict.is_none_or(|verdict| now.since(verdict) >= CALM) {
            (self.pause, self.in_a_row) = (PAUSE_MIN, 0);
        }
        self.verdict = Some(now);
        self.last.is_none_or(|last| now.since(last) >= self.pause)
    }

    /// Notes a renewal; says whether it is one too many.
    pub(crate) fn renewed(&mut self, now: Instant) -> bool {
        self.in_a_row = self.in_a_row.saturating_add(1);
        self.pause = PAUSE_MIN.saturating_mul(1 << (self.in_a_row - 1).min(6)).min(PAUSE_MAX);
        self.last = Some(now);
        self.in_a_row == OUTRANKED_AT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When a node is let renew that is refused every 100 ms in these milliseconds.
    fn renewals(refused: impl Iterator<Item = u64>) -> (Vec<u64>, bool) {
        let mut renewals = Renewals::new();
        let (mut renewed, mut outranked) = (Vec::new(), false);
        for at in refused {
            let now = Instant::from_millis(at);
            if renewals.allows(now) {
                outranked |= renewals.renewed(now);
                renewed.push(at);
            }
        }
        (renewed, outranked)
    }

    /// EL-02
    #[test]
    fn a_node_that_is_refused_again_and_again_slows_down() {
        let (renewed, outranked) = renewals((0..200).map(|number| number * 100));
        assert_eq!(renewed, [0, 100, 300, 700, 1_500, 3_100, 6_300, 11_300, 16_300]);
        assert!(outranked);
    }

    /// EL-02
    #[test]
    fn a_node_that_is_cut_off_now_and_then_is_back_at_once() {
        let (renewed, outranked) = renewals((0..20).map(|number| number * 3_500));
        assert_eq!((renewed.len(), outranked), (20, false));
    }
}
