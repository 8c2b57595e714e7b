//! Watches the processes of the brokers, phase by phase.

use crate::clock::Clock;
use crate::host::{self, Usage};
use crate::num;

use super::outcome::{Phase, Sample};

/// Time between two looks in ns.
const EVERY: u64 = 250_000_000;

/// Watches the processes of the brokers, phase by phase.
#[derive(Debug)]
pub(super) struct Watch {
    clock: Clock,
    pids: Vec<u32>,
    began: u64,
    next: u64,
    phase: Option<(&'static str, u64, Option<Usage>, u64)>,
    pub(super) phases: Vec<Phase>,
    pub(super) samples: Vec<Sample>,
}

impl Watch {
    pub(super) fn new(clock: Clock, pids: Vec<u32>) -> Self {
        let began = clock.now();
        Self { clock, pids, began, next: began, phase: None, phases: Vec::new(), samples: Vec::new() }
    }

    /// Ends the phase that is on, and begins the next if it has a name.
    pub(super) fn enter(&mut self, name: Option<&'static str>) {
        let now = self.clock.now();
        let usage = self.look(now);
        if let Some((name, began, before, most)) = self.phase.take() {
            let cpu_s = usage.zip(before).map(|(now, before)| (now.cpu_s - before.cpu_s).max(0.0));
            let rss_kib = usage.map(|usage| usage.rss_kib.max(most));
            self.phases.push(Phase { name, seconds: num::seconds(now - began), cpu_s, rss_kib });
        }
        self.phase = name.map(|name| (name, now, usage, 0));
    }

    /// Looks if it is time to.
    pub(super) fn tick(&mut self) {
        let now = self.clock.now();
        if now >= self.next {
            self.look(now);
        }
    }

    /// When it is time to look again.
    pub(super) const fn next(&self) -> u64 {
        self.next
    }

    /// Seconds from the beginning to `time`.
    pub(super) fn since_began(&self, time: u64) -> f64 {
        num::seconds(time.saturating_sub(self.began))
    }

    fn look(&mut self, now: u64) -> Option<Usage> {
        self.next = now + EVERY;
        let usage = host::usage(&self.pids)?;
        self.samples.push(Sample { at_s: self.since_began(now), usage });
        if let Some((.., most)) = &mut self.phase {
            *most = (*most).max(usage.rss_kib);
        }
        Some(usage)
    }
}
