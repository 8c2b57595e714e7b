//! The timers that `foca` asks for.

use std::collections::BTreeMap;

use foca::Timer;
use sedge_base::{Deadlines, Duration, Instant, NodeId};

use crate::Member;

/// At one instant timers run in this order: `foca` wants the indirect stage of a probe before the next probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    IndirectProbe(u64),
    Probe(u64),
    Other(u64),
    // One per node and not per life: a node that flaps for a day costs no more than a quiet one.
    Forget(NodeId),
}

/// Every timer is delivered, stale ones too: `foca` knows them by their tokens.
#[derive(Default)]
pub(crate) struct Timers {
    deadlines: Deadlines<Key>,
    waiting: BTreeMap<Key, Timer<Member>>,
    count: u64,
}

impl Timers {
    pub(crate) fn add(&mut self, now: Instant, after: Duration, timer: Timer<Member>) {
        self.count += 1;
        let key = match &timer {
            Timer::SendIndirectProbe { .. } => Key::IndirectProbe(self.count),
            Timer::ProbeRandomMember(_) => Key::Probe(self.count),
            Timer::RemoveDown(member) => Key::Forget(member.node),
            Timer::ChangeSuspectToDown { .. }
            | Timer::PeriodicAnnounce(_)
            | Timer::PeriodicAnnounceDown(_)
            | Timer::PeriodicGossip(_) => Key::Other(self.count),
        };
        self.deadlines.set(key, now + after);
        self.waiting.insert(key, timer);
    }

    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<Timer<Member>> {
        let key = self.deadlines.pop_due(now)?;
        self.waiting.remove(&key)
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        self.deadlines.next()
    }
}
