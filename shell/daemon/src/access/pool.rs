//! Threads for work that takes long. The addresses for which they work take turns, and their queue is bounded.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use super::hash::Workspace;
use super::turns::{Turns, Waits};
use crate::StartError;

/// Called once: with a thread's workspace in its turn, or with `None` if there is no room for it.
type Job = Box<dyn FnOnce(Option<&mut Workspace>) + Send>;

/// A few threads; they end when this is dropped.
pub(super) struct Pool {
    queue: Arc<Queue>,
}

struct Queue {
    waiting: Mutex<Waiting>,
    /// A job came, or the end.
    changed: Condvar,
}

struct Waiting {
    turns: Turns<Job>,
    ended: bool,
}

impl Pool {
    pub(super) fn start(name: &str, threads: usize, waiting_max: usize) -> Result<Self, StartError> {
        let waiting = Mutex::new(Waiting { turns: Turns::new(waiting_max), ended: false });
        let queue = Arc::new(Queue { waiting, changed: Condvar::new() });
        for number in 0..threads {
            let queue = Arc::clone(&queue);
            let run = move || {
                let mut workspace = Workspace::default();
                while let Some(job) = queue.next() {
                    job(Some(&mut workspace));
                }
            };
            let thread = thread::Builder::new().name(format!("sedge-{name}-{number}")).spawn(run);
            drop(thread.map_err(StartError::system("start a thread"))?);
        }
        Ok(Self { queue })
    }

    /// Has a thread do it when it is the turn of `source`. If the queue is full, the last job of whoever has most of it makes room.
    pub(super) fn run(&self, source: Box<str>, job: impl FnOnce(Option<&mut Workspace>) + Send + 'static) {
        let outcome = self.queue.lock().turns.push(source, Box::new(job));
        match outcome {
            Waits::All => {}
            Waits::AllBut(job) => job(None),
        }
        self.queue.changed.notify_one();
    }

    /// Jobs that wait.
    pub(super) fn waiting(&self) -> usize {
        self.queue.lock().turns.len()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.queue.lock().ended = true;
        self.queue.changed.notify_all();
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next job, when there is one; `None`: no more come.
    fn next(&self) -> Option<Job> {
        let mut waiting = self.lock();
        loop {
            if let Some(job) = waiting.turns.pop() {
                return Some(job);
            }
            if waiting.ended {
                return None;
            }
            waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
