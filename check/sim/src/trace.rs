//! One number for everything that happened.

use sedge_base::Instant;

/// FNV-1a over all events in order; equal runs have equal numbers. With `print`, every line goes to standard error, too.
#[derive(Debug)]
pub(crate) struct Trace {
    hash: u64,
    events: u64,
    print: bool,
}

impl Trace {
    pub(crate) fn new(print: bool) -> Self {
        Self { hash: 0xcbf2_9ce4_8422_2325, events: 0, print }
    }

    /// Notes one event.
    #[expect(clippy::print_stderr, reason = "the only way to look at a run step by step")]
    pub(crate) fn note(&mut self, now: Instant, line: &str) {
        self.events += 1;
        for byte in now.as_nanos().to_le_bytes().iter().chain(line.as_bytes()) {
            self.hash = (self.hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        if self.print {
            eprintln!("{now} {line}");
        }
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn events(&self) -> u64 {
        self.events
    }
}
