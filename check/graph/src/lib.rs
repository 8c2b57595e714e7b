//! The experiments that the Skip Graph overlay comes from, with the machines that brokers run ([`sedge_overlay::skip_graph`]) and a
//! Scribe as its source compares with: `sedge sim skip-graph`.
//!
//! Messages between nodes are moved through one queue in memory, in order; there is no clock but in the experiment with crashes.
//! Everything is drawn from one seed.

mod assignment;
mod bases;
mod crash;
mod hops;
mod load;
mod messages;
mod paths;
mod report;
mod run;
mod scribe;
mod spreading;
mod stats;
mod tables;
mod world;

pub use assignment::{Advice, Site};
pub use run::{Experiment, Options, run};
