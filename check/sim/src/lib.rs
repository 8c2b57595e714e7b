//! Deterministic simulator of a Sedge cluster: the very machines that the daemon drives, on a virtual clock, with virtual links,
//! datagrams, mailboxes and MQTT clients, everything drawn from one seed.
//!
//! A run has two phases. In the first, faults happen while clients work: nothing of `invariant` that must *never* be true may be
//! (safety). Then everything is healed, clients come back, and within a bound the cluster has to agree with itself (liveness).
//! Which faults happen at all is drawn, too, so that each run has a mix of its own.

mod churn;
mod client;
mod disk;
mod host;
pub mod invariant;
mod network;
mod options;
mod oracle;
mod report;
mod schedule;
mod trace;
mod workload;
mod world;

pub use churn::{ChurnOptions, Delivery, Figures, Traffic, churn};
pub use options::{Draw, KINDS, Options, Sabotage};
pub use oracle::Excused;
pub use report::{Report, Violation};
pub use trace::Tracing;
pub use world::run;
