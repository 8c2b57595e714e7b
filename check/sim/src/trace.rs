//! One number for everything that happened.

use sedge_base::{Instant, StableHash};

/// FNV-1a over all events in order; equal runs have equal numbers. With `print`, every line goes to standard error, too.
#[derive(Debug)]
pub(crate) struct Trace {
    hash: StableHash,
    events: u64,
    print: bool,
}

impl Trace {
    pub(crate) fn new(print: bool) -> Self {
        Self { hash: StableHash::new(), events: 0, print }
    }

    /// Notes one event.
    #[expect(clippy::print_stderr, reason = "the only way to look at a run step by step")]
    pub(crate) fn note(&mut self, now: Instant, line: &str) {
        self.events += 1;
        self.hash.add(&now.as_nanos().to_le_bytes());
        self.hash.add(line.as_bytes());
        if self.print {
            eprintln!("{now} {line}");
        }
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash.get()
    }

    pub(crate) fn events(&self) -> u64 {
        self.events
    }
}
