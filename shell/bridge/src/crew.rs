//! Threads with one job each, which come and go with the configuration, and threads that watch over all of them.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How long a watcher sleeps while there is nobody to watch, unless somebody comes.
const NOBODY: Duration = Duration::from_mins(1);

/// State that the threads of one job share.
pub(crate) trait Job: Send + Sync + 'static {
    /// Name of its thread.
    fn name(&self) -> String;

    /// The job is to end, within a second.
    fn tell_to_stop(&self);
}

/// Everybody with a job at present.
#[derive(Debug)]
pub(crate) struct Roll<J> {
    jobs: Mutex<Vec<Arc<J>>>,
    ends: AtomicBool,
}

impl<J> Roll<J> {
    /// The jobs there are now.
    pub(crate) fn jobs(&self) -> Vec<Arc<J>> {
        locked(&self.jobs).clone()
    }

    /// Whether all of it is over.
    pub(crate) fn ends(&self) -> bool {
        self.ends.load(Ordering::Acquire)
    }
}

/// A watcher sleeps; for long if there is nobody to watch.
pub(crate) fn rest(is_idle: bool, pause: Duration) {
    thread::park_timeout(if is_idle { NOBODY } else { pause });
}

/// The work of a new thread.
pub(crate) type Work = Box<dyn FnOnce() + Send>;

#[derive(Debug)]
struct Threads<J> {
    of_jobs: Vec<(Arc<J>, JoinHandle<()>)>,
    watchers: Vec<JoinHandle<()>>,
}

/// See the module. Dropping it ends the threads.
#[derive(Debug)]
pub(crate) struct Crew<J> {
    roll: Arc<Roll<J>>,
    threads: Mutex<Threads<J>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn join(thread: JoinHandle<()>) {
    thread.thread().unpark();
    if thread.join().is_err() {
        tracing::error!("the thread of a bridge or a rule did not end in order");
    }
}

impl<J: Job> Crew<J> {
    pub(crate) fn new() -> Self {
        let roll = Arc::new(Roll { jobs: Mutex::default(), ends: AtomicBool::new(false) });
        Self { roll, threads: Mutex::new(Threads { of_jobs: Vec::new(), watchers: Vec::new() }) }
    }

    pub(crate) fn jobs(&self) -> Vec<Arc<J>> {
        self.roll.jobs()
    }

    /// Adds a thread that watches, for as long as the crew lives.
    pub(crate) fn watch(&self, name: &str, run: impl FnOnce(Arc<Roll<J>>) + Send + 'static) -> io::Result<()> {
        let roll = Arc::clone(&self.roll);
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || run(roll))?;
        locked(&self.threads).watchers.push(thread);
        Ok(())
    }

    /// Ends the jobs that `keeps` does not want, then begins these. The error is that of the system if it gives no threads.
    pub(crate) fn change(&self, keeps: impl Fn(&J) -> bool, new: Vec<(Arc<J>, Work)>) -> io::Result<()> {
        let mut threads = locked(&self.threads);
        let (kept, ended): (Vec<_>, Vec<_>) = threads.of_jobs.drain(..).partition(|(job, _)| keeps(job));
        threads.of_jobs = kept;
        for (job, _) in &ended {
            job.tell_to_stop();
        }
        // The successor of a job begins when the job has ended: both have the same session.
        for (_, thread) in ended {
            join(thread);
        }
        let mut all: Vec<_> = threads.of_jobs.iter().map(|(job, _)| Arc::clone(job)).collect();
        let mut failure = Ok(());
        for (job, run) in new {
            match thread::Builder::new().name(job.name()).spawn(run) {
                Ok(thread) => {
                    all.push(Arc::clone(&job));
                    threads.of_jobs.push((job, thread));
                }
                Err(error) => failure = Err(error),
            }
        }
        all.sort_by_key(|job| job.name());
        *locked(&self.roll.jobs) = all;
        for watcher in &threads.watchers {
            watcher.thread().unpark();
        }
        failure
    }

    /// Tells all threads to end. They do within a second.
    pub(crate) fn tell_to_stop(&self) {
        self.roll.ends.store(true, Ordering::Release);
        let threads = locked(&self.threads);
        for (job, thread) in &threads.of_jobs {
            job.tell_to_stop();
            thread.thread().unpark();
        }
        for watcher in &threads.watchers {
            watcher.thread().unpark();
        }
    }
}

impl<J> Drop for Crew<J> {
    fn drop(&mut self) {
        self.roll.ends.store(true, Ordering::Release);
        let threads = self.threads.get_mut().unwrap_or_else(PoisonError::into_inner);
        for thread in threads.of_jobs.drain(..).map(|(_, thread)| thread).chain(threads.watchers.drain(..)) {
            join(thread);
        }
    }
}
