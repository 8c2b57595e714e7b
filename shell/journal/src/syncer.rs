//! Group commit: a thread that carries written batches to the medium, all that wait with one call.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use crate::Segment;

/// How far a [`Syncer`] has come.
#[derive(Debug, Default)]
pub struct Synced {
    sequence: AtomicU64,
    is_failed: AtomicBool,
    failure: Mutex<Option<io::Error>>,
    commits: AtomicU64,
    micros: AtomicU64,
    slowest: AtomicU64,
}

impl Synced {
    /// Batches up to this one are on the medium.
    pub fn sequence(&self) -> u64 {
        self.sequence.load(Ordering::Acquire)
    }

    /// The failure after which nothing more is carried to the medium: it is unknown which bytes are there, so that there is no second
    /// attempt. Given out once.
    pub fn take_failure(&self) -> Option<io::Error> {
        if !self.is_failed.load(Ordering::Acquire) {
            return None;
        }
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Whether it has ended with a failure.
    pub fn has_failed(&self) -> bool {
        self.is_failed.load(Ordering::Acquire)
    }

    /// Calls so far, microseconds they took together, and the slowest.
    pub fn commits(&self) -> (u64, u64, u64) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (read(&self.commits), read(&self.micros), read(&self.slowest))
    }
}

/// The thread.
#[derive(Debug)]
pub struct Syncer {
    requests: Option<Sender<(Arc<dyn Segment>, u64)>>,
    synced: Arc<Synced>,
    thread: Option<JoinHandle<()>>,
}

impl Syncer {
    /// Starts it. `done` is called after each call of the system, in the thread.
    pub fn start(name: String, done: impl Fn() + Send + 'static) -> io::Result<Self> {
        let (requests, receiver) = channel();
        let synced = Arc::new(Synced::default());
        let state = Arc::clone(&synced);
        let thread = thread::Builder::new().name(name).spawn(move || run(&receiver, &state, done))?;
        Ok(Self { requests: Some(requests), synced, thread: Some(thread) })
    }

    /// Everything in `segment` up to batch `sequence` was written.
    pub fn request(&self, segment: &Arc<dyn Segment>, sequence: u64) {
        if let Some(requests) = &self.requests {
            // The thread ends only after a failure, which is noticed elsewhere.
            let _ = requests.send((Arc::clone(segment), sequence));
        }
    }

    /// How far it has come.
    pub const fn synced(&self) -> &Arc<Synced> {
        &self.synced
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        drop(self.requests.take());
        if let Some(thread) = self.thread.take() {
            // A panic in it was told by the panic itself.
            let _ = thread.join();
        }
    }
}

fn run(requests: &Receiver<(Arc<dyn Segment>, u64)>, state: &Synced, done: impl Fn()) {
    while let Ok((mut segment, mut sequence)) = requests.recv() {
        let begun = Instant::now();
        let mut result = Ok(());
        for (next, number) in requests.try_iter() {
            if !Arc::ptr_eq(&next, &segment) {
                result = result.and_then(|()| segment.sync());
                segment = next;
            }
            sequence = number;
        }
        match result.and_then(|()| segment.sync()) {
            Ok(()) => {
                let micros = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
                state.commits.fetch_add(1, Ordering::Relaxed);
                state.micros.fetch_add(micros, Ordering::Relaxed);
                state.slowest.fetch_max(micros, Ordering::Relaxed);
                state.sequence.store(sequence, Ordering::Release);
                done();
            }
            Err(error) => {
                *state.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                state.is_failed.store(true, Ordering::Release);
                done();
                return;
            }
        }
    }
}
