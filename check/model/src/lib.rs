//! Models of what Sedge's guarantees rest on, small enough that every order of events can be tried.
//!
//! They say what the code is meant to do, not what it does: the simulator (`check/sim`) runs the code itself, along random orders of
//! events. A model shows that the rules are right; a planted [`copies::Flaw`] or [`directory::Flaw`] shows that its properties would
//! notice if they were not.
//!
//! What all nodes have in common here: a node that is dead is known to be dead sooner or later, nobody is taken for dead by mistake
//! unless a partition cuts it off, and what one node sends to another arrives in order until one of the two is gone.

pub mod copies;
pub mod directory;
mod wires;

/// Number of a node.
pub type NodeIndex = usize;
