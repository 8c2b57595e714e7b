//! jq programs of rules (DP-02), run by a process of their own.
//!
//! A program may loop without an end, take all memory or recurse until the stack is full, and the library that runs it cannot be interrupted.
//! So it runs in a child process, which has bounds of its own ([`serve`]) and is killed when a message takes too long ([`Worker`]).

mod frame;
mod process;
mod serve;

pub use process::Worker;
pub use serve::serve;

/// The hidden command of the program that becomes a worker.
pub const COMMAND: &str = "jq-worker";
