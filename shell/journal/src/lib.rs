//! An append-only log of batches, in segments: one for each shard of a node.
//!
//! A batch is everything that one turn of an event loop has to remember. It is written with one system call and read back as a
//! whole or not at all: its checksum covers length, position and content. A listing beside the log says which segments and batches there
//! are, so that a loss is noticed. [`recover`] reads the sound batches and reports the damage; [`Log`] appends; [`Syncer`] carries batches
//! to the medium in a thread of its own, many with one system call.

mod files;
mod format;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod listing;
mod log;
mod recover;
mod syncer;

pub use files::{Disk, Files, Segment};
pub use log::{AppendError, Log, LogOptions};
pub use recover::{Damage, Hole, RecoverError, Recovered, SegmentFound, recover};
pub use syncer::{Synced, Syncer};
