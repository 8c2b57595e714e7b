//! Result of a run.

use core::fmt;

use crate::Options;
use crate::oracle::Excused;

/// A violation of an invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Name of the invariant: its file.
    pub invariant: &'static str,
    /// Description of the violation.
    pub detail: String,
}

/// Result of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// Options of the run.
    pub options: Options,
    /// Hash over everything that happened, in order; none where tracing is off.
    pub trace: Option<u64>,
    /// Events that happened.
    pub events: u64,
    /// Publications sent by clients.
    pub publications: usize,
    /// Messages delivered to clients.
    pub deliveries: usize,
    /// Repetitions and disorder that `docs/guarantees.md` names: see [`Excused`].
    pub excused: Excused,
    /// Violations of invariants; empty is good.
    pub violations: Vec<Violation>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:?}", self.options)?;
        if let Some(trace) = self.trace {
            write!(f, "trace {trace:016x}: ")?;
        }
        writeln!(
            f,
            "{} events, {} publications, {} deliveries, excused: {}",
            self.events, self.publications, self.deliveries, self.excused
        )?;
        for violation in self.violations.iter().take(20) {
            writeln!(f, "{}: {}", violation.invariant, violation.detail)?;
        }
        if !self.violations.is_empty() {
            writeln!(
                f,
                "{} violations; repeat with: cargo run -p sedge-sim -- {}run {}",
                self.violations.len(),
                mode(&self.options),
                self.options.seed
            )?;
        }
        Ok(())
    }
}

/// Arguments of the program besides the seed.
fn mode(options: &Options) -> String {
    let over = if options.overlay == "mesh" { String::new() } else { format!("over {} ", options.overlay) };
    let kind = if options.kind.is_empty() { String::new() } else { format!("{} ", options.kind) };
    over + &kind
}
