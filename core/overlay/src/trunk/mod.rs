//! The tree over all nodes of the cluster: `flood` and `tree` send publications along it.
//!
//! It keeps a [`crate::spanning::Spanning`] up to date with membership, links and round trips, and exchanges claims with all nodes to which there is
//! a link. Two nodes that have no link between them hear each other's claims through those that have links to both: each node
//! says which members it cannot hear.
//!
//! ```text
//!  A                            B                            C       no link between A and C
//!  │ claim of A, deaf to C      │                            │
//!  ├───────────────────────────►│ claim of B, passed on: A   │
//!  │                            ├───────────────────────────►│
//!  │                            │ claim of C, deaf to A      │
//!  │ claim of B, passed on: C   │◄───────────────────────────┤
//!  │◄───────────────────────────┤                            │
//! ```
//!
//! Every ten seconds everything is said once more, and a node looks whether the tree should be computed anew because round trips
//! or strengths have changed for good. It has to find that twice in a row; so a node begins an epoch on its own at most every twenty
//! seconds.

mod machine;
mod signal;
#[cfg(test)]
mod tests;

pub(crate) use machine::Trunk;
pub use machine::TrunkCounters;
#[cfg(any(test, fuzzing))]
pub(crate) use signal::fuzz_decode;
