//! Publishers that wait for the other end of a bridge: `ack = "remote"`.
//!
//! Each node looks again and again whether the messages that its publishers wait for are gone from the bridge's session, which forgets a message
//! when the other end has acknowledged it. Nothing is told that could be lost: after a crash the next look finds what the last one did not.

use std::time::Duration;

use crate::config::Ack;
use crate::crew::{Roll, rest};
use crate::host::Host;
use crate::supervisor::Shared;

/// Pause between two looks while publishers are being answered.
const SHORT: Duration = Duration::from_millis(10);
/// The same while nobody waits.
const IDLE: Duration = Duration::from_millis(25);
/// The same while the other end takes nothing.
const LONG: Duration = Duration::from_millis(500);

/// Publications that one check found gone from the session or still in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answered {
    /// Publications that are gone from the session, so that their publishers are answered.
    pub gone: usize,
    /// Publications that are still in the session, as far as the check went.
    pub left: usize,
}

/// Looks until the bridges are to end.
pub(crate) fn watch(roll: &Roll<Shared>, host: &impl Host) {
    let mut pause = IDLE;
    while !roll.ends() {
        let mut bridges = roll.jobs();
        bridges.retain(|shared| shared.config.ack == Ack::Remote && shared.config.direction.goes_out());
        let mut all = Answered::default();
        for shared in &bridges {
            let Answered { gone, left } = host.answer_awaited(&shared.session);
            all.gone += gone;
            all.left += left;
        }
        pause = match all {
            Answered { gone: 0, left: 0 } => IDLE,
            Answered { gone: 0, .. } => (pause * 2).min(LONG),
            Answered { .. } => SHORT,
        };
        rest(bridges.is_empty(), pause);
    }
}
