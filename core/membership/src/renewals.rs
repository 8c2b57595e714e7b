//! How fast this node may renew its identity.

use sedge_base::{Duration, Instant};

const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// A node that lived this long after a renewal starts afresh.
const CALM: Duration = Duration::from_secs(20);
/// So many renewals in a row cannot be bad luck.
const OUTRANKED_AT: u32 = 5;

/// A node whose identity cannot win (a twin with the same id runs elsewhere) is refused at each message it sends. Without
/// a pause it would renew, announce and be refused as fast as the network carries.
#[derive(Debug)]
pub(crate) struct Renewals {
    last: Option<Instant>,
    pause: Duration,
    in_a_row: u32,
}

impl Renewals {
    pub(crate) const fn new() -> Self {
        Self { last: None, pause: PAUSE_MIN, in_a_row: 0 }
    }

    /// Whether a verdict against this node may be heard now. What is not heard comes again.
    pub(crate) fn allowed(&self, now: Instant) -> bool {
        self.last.is_none_or(|last| now.since(last) >= self.pause)
    }

    /// Notes a renewal; says whether it is one too many.
    pub(crate) fn renewed(&mut self, now: Instant) -> bool {
        let calm = self.last.is_none_or(|last| now.since(last) >= CALM);
        self.pause = if calm { PAUSE_MIN } else { self.pause.saturating_mul(2).min(PAUSE_MAX) };
        self.in_a_row = if calm { 1 } else { self.in_a_row.saturating_add(1) };
        self.last = Some(now);
        self.in_a_row == OUTRANKED_AT
    }
}
