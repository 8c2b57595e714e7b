//! The default algorithm: every node knows every node's subscriptions, and a publication needs one hop.
//!
//! When a link comes up, each side sends a snapshot of the subscriptions of its own clients, then every change. The other side installs
//! them, has its shards route by them and only then confirms; so a change is settled when all neighbours have confirmed it. Every ten
//! seconds a digest of the whole table follows: it renews the lease on all subscriptions told before, and a difference is repaired by a new
//! snapshot.
//!
//! ```text
//!  A                                        B          A link comes up; the same goes on from B to A.
//!  │ snapshot begin, chunk ..., end 7       │
//!  ├───────────────────────────────────────►│ Table ..., Barrier
//!  │                      ack 7, sync-ok    │ BarrierReached
//!  │◄───────────────────────────────────────┤
//!  │ Local { token }                        │
//!  │ adv 8                                  │
//!  ├───────────────────────────────────────►│ Table ..., Barrier
//!  │                               ack 8    │ BarrierReached
//!  │◄───────────────────────────────────────┤
//!  │ Settled(token)                         │
//! ```

mod config;
mod confirm;
mod forward;
mod local;
mod machine;
mod peer;
mod settle;
mod signal;
mod table;

pub use config::MeshConfig;
pub(crate) use confirm::{Answers, Confirmation, Confirmations};
pub use machine::{Mesh, MeshCounters};
pub(crate) use settle::Settle;
#[cfg(any(test, fuzzing))]
pub(crate) use signal::fuzz_decode;
pub(crate) use signal::promises;
