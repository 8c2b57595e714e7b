//! `jq`: a program in the place of `select`.

use std::sync::Arc;

use super::Item;
use super::read::{Entries, Reader, Unit, kind};
use crate::error::Fault;

/// Keys that bound the time and output of a program.
const BOUNDS: [&str; 3] = ["max_time", "max_outputs", "max_output"];
/// Keys that choose or compare values, which a program does by itself.
const RIVALS: [&str; 5] = ["select", "group_by", "window", "on_change", "deadband"];
/// Default and maximum of a program's bounds for one message: milliseconds of a processor, outputs, bytes of outputs.
const TIME: (u64, u64) = (100, 1_000);
const OUTPUTS: (usize, u64) = (100, 1_000);
const OUTPUT_BYTES: (usize, u64) = (256 << 10, 16 << 20);

/// A program, and its bounds for one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Jq {
    /// Text of the program; it compiles.
    pub program: Arc<str>,
    /// `max_time`: time of a processor, in milliseconds.
    pub millis: u64,
    /// `max_outputs`: most outputs.
    pub outputs: usize,
    /// `max_output`: most bytes of all outputs.
    pub output_bytes: usize,
}

impl Reader {
    pub(super) fn jq(&mut self, entries: &Entries<'_>) -> Option<Jq> {
        let Some(item) = entries.get("jq") else {
            for key in BOUNDS.into_iter().filter(|key| entries.get(key).is_some()) {
                self.wrong(key, "has a meaning only with jq");
            }
            return None;
        };
        let Item::Text(text) = item else {
            self.wrong("jq", format!("is a program in quotes such as \".payload.value\", not {}", kind(item)));
            return None;
        };
        for key in RIVALS.into_iter().filter(|key| entries.get(key).is_some()) {
            self.wrong(key, "jq has the place of select: leave this away, or have another rule take what comes out");
        }
        let time = entries.get("max_time");
        let millis = time.map_or(Some(TIME.0), |item| self.number("max_time", item, (1, TIME.1), Some(Unit::Time)));
        let outputs = self.limit("max_outputs", entries.get("max_outputs"), OUTPUTS.0, OUTPUTS.1, None);
        let bytes = entries.get("max_output");
        let output_bytes = self.limit("max_output", bytes, OUTPUT_BYTES.0, OUTPUT_BYTES.1, Some(Unit::Bytes));
        if let Err(fault) = check(text) {
            self.problems.push(fault.of("jq"));
            return None;
        }
        Some(Jq { program: Arc::from(text.as_str()), millis: millis?, outputs, output_bytes })
    }
}

#[cfg(feature = "jq")]
fn check(text: &str) -> Result<(), Fault> {
    let checked = sedge_jq::Program::compile(text);
    checked.map(|_| ()).map_err(|fault| Fault::new(fault.at, fault.what))
}

#[cfg(not(feature = "jq"))]
fn check(_: &str) -> Result<(), Fault> {
    let what = "this program is built without jq: build it with cargo build --release --features jq --bin sedge, or write select";
    Err(Fault::new(0, what))
}
