//! Threads for work that takes long, with a bounded queue before them.

use std::thread;

use crossbeam_channel::{Sender, TrySendError, bounded};

use super::hash::Workspace;
use crate::StartError;

type Job = Box<dyn FnOnce(&mut Workspace) + Send>;

/// A few threads; they end when this is dropped.
pub(super) struct Pool {
    jobs: Sender<Job>,
}

impl Pool {
    pub(super) fn start(name: &str, threads: usize, waiting_max: usize) -> Result<Self, StartError> {
        let (jobs, queue) = bounded::<Job>(waiting_max);
        for number in 0..threads {
            let queue = queue.clone();
            let run = move || {
                let mut workspace = Workspace::default();
                while let Ok(job) = queue.recv() {
                    job(&mut workspace);
                }
            };
            let thread = thread::Builder::new().name(format!("sedge-{name}-{number}")).spawn(run);
            drop(thread.map_err(StartError::system("start a thread"))?);
        }
        Ok(Self { jobs })
    }

    /// Has a thread do it in its turn; `false` if the queue is full.
    pub(super) fn run(&self, job: impl FnOnce(&mut Workspace) + Send + 'static) -> bool {
        match self.jobs.try_send(Box::new(job)) {
            Ok(()) => true,
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
        }
    }

    /// Jobs that wait.
    pub(super) fn waiting(&self) -> usize {
        self.jobs.len()
    }
}
