//! One number for everything that happened.

use core::fmt::{Arguments, Write};

use sedge_base::{Instant, StableHash};

/// The way in which a run writes its events down. Each run counts its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tracing {
    /// The run only counts its events. Writing them all down costs about a quarter of its time.
    Off,
    /// The run makes one number of its events; equal runs have equal numbers.
    Hashed,
    /// The run prints its events to standard error, too.
    Printed,
}

/// FNV-1a over all events in order.
#[derive(Debug)]
pub(crate) struct Trace {
    hash: Hash,
    events: u64,
    tracing: Tracing,
}

#[derive(Debug)]
struct Hash(StableHash);

impl Write for Hash {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        self.0.add(text.as_bytes());
        Ok(())
    }
}

impl Trace {
    pub(crate) fn new(tracing: Tracing) -> Self {
        Self { hash: Hash(StableHash::new()), events: 0, tracing }
    }

    /// Notes one event.
    #[expect(clippy::print_stderr, reason = "the only way to look at a run step by step")]
    pub(crate) fn note(&mut self, now: Instant, line: Arguments<'_>) {
        self.events += 1;
        if self.tracing == Tracing::Off {
            return;
        }
        self.hash.0.add(&now.as_nanos().to_le_bytes());
        // A hash takes any text.
        let _ = self.hash.write_fmt(line);
        if self.tracing == Tracing::Printed {
            eprintln!("{now} {line}");
        }
    }

    /// The number of the run, unless tracing is off.
    pub(crate) fn hash(&self) -> Option<u64> {
        (self.tracing != Tracing::Off).then(|| self.hash.0.get())
    }

    pub(crate) fn events(&self) -> u64 {
        self.events
    }
}
