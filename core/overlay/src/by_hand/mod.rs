//! Links that operators choose: publications go over them and over no others, whichever algorithm knows the interest of the nodes.
//!
//! Each node tells all others which links its operator has chosen and which it has ended. So every node knows the whole graph,
//! and sends a publication over the shortest way to each node that wants it. A node to which no chosen links lead gets none.

mod graph;
mod machine;
mod signal;

pub use machine::{ByHand, Chosen};
