//! Every node gets every publication, along one tree: for full replication, and the baseline of the other algorithms.
//!
//! Nodes do not tell each other what their clients subscribe to, so there is nothing to wait for before a subscription is acknowledged. Two
//! kinds of interest cannot be flooded and are told to everyone as in the mesh: members of shared subscriptions, because each publication
//! goes to one of them, and filters that begin with `$`, because no wildcard matches their topics. `docs/protocol/tree.md` draws the
//! signals.

mod machine;

pub use machine::{Flood, FloodCounters};
