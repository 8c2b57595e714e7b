//! Ctrl-C and SIGTERM, noticed instead of obeyed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::failure::{FAILED, Failure};

/// Whether the program was told to end. A second signal ends it at once.
#[derive(Clone, Debug)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Notices signals from now on.
    pub(crate) fn on_signals() -> Result<Self, Failure> {
        let told = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // The order matters: the first signal must find the flag unset.
            flag::register_conditional_shutdown(signal, i32::from(FAILED), Arc::clone(&told))
                .and_then(|_| flag::register(signal, Arc::clone(&told)))
                .map_err(|error| Failure::failed(format!("cannot handle signals: {error}")))?;
        }
        Ok(Self(told))
    }

    /// Whether a signal has come.
    pub(crate) fn told(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
