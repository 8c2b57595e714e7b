//! The networks of this process, so that a signal that ends it does not leave them behind.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use super::space::remove;
use crate::error::BenchError;

/// Namespaces and files that have to be removed with a network.
pub(super) struct Belongings {
    pub(super) namespaces: Vec<String>,
    /// Removed last: as long as they are there, the network counts as there.
    pub(super) files: Vec<PathBuf>,
}

static LIVE: Mutex<Vec<Arc<Belongings>>> = Mutex::new(Vec::new());

fn live() -> MutexGuard<'static, Vec<Arc<Belongings>>> {
    // A list is whole whatever its last user met.
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A network that is removed when SIGINT or SIGTERM end this process, until this value is dropped.
pub(super) struct Guard(Arc<Belongings>);

impl Guard {
    pub(super) fn new(belongings: Belongings) -> Result<Self, BenchError> {
        static WATCHED: Mutex<bool> = Mutex::new(false);
        let mut watched = WATCHED.lock().unwrap_or_else(PoisonError::into_inner);
        if !*watched {
            watch()?;
            *watched = true;
        }
        let belongings = Arc::new(belongings);
        live().push(Arc::clone(&belongings));
        Ok(Self(belongings))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        live().retain(|other| !Arc::ptr_eq(other, &self.0));
    }
}

/// Waits for signals: removes what is there, then ends this process as they would have.
fn watch() -> Result<(), BenchError> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(BenchError::system("waiting for signals"))?;
    std::thread::spawn(move || {
        for signal in signals.forever() {
            for network in live().iter() {
                // A namespace that cannot be removed stays listed as stale.
                if network.namespaces.iter().all(|name| remove(name).is_ok()) {
                    for file in &network.files {
                        let _ = std::fs::remove_file(file);
                    }
                }
            }
            let _ = emulate_default_handler(signal);
        }
    });
    Ok(())
}
