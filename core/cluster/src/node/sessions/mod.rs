//! Owners of sessions, and the way of a session from node to node.

pub(in crate::node) mod adoption;
pub(in crate::node) mod ahead;
pub(in crate::node) mod claims;
pub(in crate::node) mod contents;
pub(in crate::node) mod directory;
pub(in crate::node) mod early;
pub(in crate::node) mod epoch;
pub(in crate::node) mod forwards;
pub(in crate::node) mod handed_over;
pub(in crate::node) mod home;
pub(in crate::node) mod leaving;
pub(in crate::node) mod reclaim;
pub(in crate::node) mod reunion;
pub(in crate::node) mod transfer;
pub(in crate::node) mod unanswered;
