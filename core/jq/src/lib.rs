//! jq programs (DP-02) over one JSON document, and their outputs, within bounds that count outputs and bytes.
//!
//! A program reads nothing but its document: there is no `input`, `env`, `now`, `debug`, `halt`, local time or `import`. Nothing here
//! bounds the time, the memory or the depth of a program; a caller that runs programs of others does that in a process of its own.

mod compile;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod run;

pub use compile::{Fault, PROGRAM_BYTES_MAX, Program, STACK_BYTES};
pub use run::{Bounds, Failure, Output};
