//! Watches the brokers, phase by phase: their processes here, their metrics elsewhere.

use crate::clock::Clock;
use crate::host::{self, Usage};
use crate::metrics::Metrics;
use crate::num;

use super::Process;
use super::outcome::{Phase, ProcessSamples, Sample};

/// Time between two looks at processes in ns.
const EVERY: u64 = 250_000_000;
/// Time between two looks at pages of metrics in ns: they cost brokers something.
const EVERY_PAGE: u64 = 1_000_000_000;

/// Watches the brokers, phase by phase.
#[derive(Debug)]
pub(super) struct Watch {
    clock: Clock,
    pids: Vec<u32>,
    metrics: Metrics,
    began: u64,
    next: u64,
    phase: Option<(&'static str, u64, Option<Usage>, u64)>,
    pub(super) phases: Vec<Phase>,
    pub(super) samples: Vec<Sample>,
    /// Each process that has a name, alone.
    pub(super) processes: Vec<(u32, ProcessSamples)>,
}

impl Watch {
    pub(super) fn new(clock: Clock, pids: Vec<u32>, metrics: Metrics) -> Self {
        let began = clock.now();
        let (phases, samples, processes) = (Vec::new(), Vec::new(), Vec::new());
        Self { clock, pids, metrics, began, next: began, phase: None, phases, samples, processes }
    }

    /// Watches each of these alone, too.
    pub(super) fn with(self, processes: &[Process]) -> Self {
        let none = |process: &Process| {
            let samples = ProcessSamples { name: process.name.clone(), samples: Vec::new() };
            (process.pid, samples)
        };
        Self { processes: processes.iter().map(none).collect(), ..self }
    }

    /// Ends the phase that is on, and begins the next if it has a name.
    pub(super) fn enter(&mut self, name: Option<&'static str>) {
        let usage = self.look(self.clock.now());
        // Pages of metrics take a while to come; what they say is of the end of it.
        let now = self.clock.now();
        if let Some((name, began, before, most)) = self.phase.take() {
            let cpu_s = usage.zip(before).map(|(now, before)| (now.cpu_s - before.cpu_s).max(0.0));
            let rss_kib = usage.map(|usage| usage.rss_kib.max(most));
            let at_s = self.since_began(began);
            self.phases.push(Phase { name, at_s, seconds: num::seconds(now - began), cpu_s, rss_kib });
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

    /// Failures of the requests for the brokers' metrics.
    pub(super) fn warnings(&self) -> impl Iterator<Item = String> {
        self.metrics.warnings()
    }

    fn look(&mut self, now: u64) -> Option<Usage> {
        for (pid, process) in &mut self.processes {
            // One that was killed is listed without memory until its parent has collected it.
            if let Some(usage) = host::usage(&[*pid]).filter(|usage| usage.rss_kib > 0) {
                let at_s = num::seconds(self.clock.now().saturating_sub(self.began));
                process.samples.push(Sample { at_s, usage });
            }
        }
        self.next = now + if self.metrics.is_empty() { EVERY } else { EVERY_PAGE };
        let usage = match (host::usage(&self.pids), self.metrics.usage()) {
            (Some(here), Some(there)) => here.and(there),
            (here, there) => here.or(there)?,
        };
        self.samples.push(Sample { at_s: self.since_began(self.clock.now()), usage });
        if let Some((.., most)) = &mut self.phase {
            *most = (*most).max(usage.rss_kib);
        }
        Some(usage)
    }
}
