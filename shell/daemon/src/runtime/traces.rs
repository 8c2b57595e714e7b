//! Traces that run: every thread is told of all of them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sedge_base::ShardId;
use sedge_broker::{TRACES_MAX, TraceSpec};

use super::{Letter, Shared};

/// Traces that run at this node, by number.
#[derive(Default)]
pub(crate) struct Traces {
    running: Mutex<BTreeMap<u64, Arc<TraceSpec>>>,
    refused: AtomicU64,
    exported: AtomicU64,
    not_exported: AtomicU64,
    to_export: AtomicU64,
}

impl Traces {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<TraceSpec>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The traces that run.
    pub(crate) fn running(&self) -> Vec<Arc<TraceSpec>> {
        self.lock().values().cloned().collect()
    }

    /// Traces that were not started because as many ran as may.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Spans that a collector has taken, notes and spans that had no room on their way to it, so far; and those that wait.
    #[cfg(feature = "otlp")]
    pub(crate) fn note_export(&self, exported: u64, dropped: u64, waiting: u64) {
        self.exported.store(exported, Ordering::Relaxed);
        self.to_export.store(waiting, Ordering::Relaxed);
        self.not_exported.store(dropped, Ordering::Relaxed);
    }

    /// As [`Self::note_export`] was told last.
    pub(crate) fn exported(&self) -> (u64, u64, u64) {
        let [exported, dropped, waiting] =
            [&self.exported, &self.not_exported, &self.to_export].map(|counter| counter.load(Ordering::Relaxed));
        (exported, dropped, waiting)
    }
}

impl Shared {
    /// Starts a trace at this node; false if as many run as may.
    pub(crate) fn start_trace(&self, spec: TraceSpec) -> bool {
        let mut running = self.traces.lock();
        if running.len() >= TRACES_MAX && !running.contains_key(&spec.id) {
            self.traces.refused.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        running.insert(spec.id, Arc::new(spec));
        self.tell_traces(&running);
        true
    }

    /// Ends a trace at this node; false if it does not run.
    pub(crate) fn end_trace(&self, id: u64) -> bool {
        let mut running = self.traces.lock();
        let ended = running.remove(&id).is_some();
        if ended {
            self.tell_traces(&running);
        }
        ended
    }

    fn tell_traces(&self, running: &BTreeMap<u64, Arc<TraceSpec>>) {
        let specs: Arc<[Arc<TraceSpec>]> = running.values().cloned().collect();
        for shard in 0..self.boxes.len() {
            self.post(ShardId(u16::try_from(shard).unwrap_or(0)), Letter::Traces(Arc::clone(&specs)));
        }
    }
}
