//! Models of the rules that Sedge's guarantees rest on, small enough that every order of events can be tried.
//!
//! The models say what the code is meant to do, not what it does: the simulator (`check/sim`) runs the code itself, along random orders of
//! events. A model shows that the rules are right; a planted [`copies::Flaw`] or [`directory::Flaw`] shows that its properties would
//! notice if they were not.
//!
//! Common ground of all nodes here: a node that is dead is known to be dead sooner or later, no node is taken for dead by mistake
//! unless a partition cuts it off, and messages from one node to another arrive in order until one of the two is gone.

pub mod copies;
pub mod directory;
mod wires;

/// Number of a node.
pub type NodeIndex = usize;
