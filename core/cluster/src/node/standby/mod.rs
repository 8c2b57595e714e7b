//! Copies of sessions, and the work of nodes for others that are absent.

pub(in crate::node) mod absent;
pub(in crate::node) mod backups;
pub(in crate::node) mod copies_of_others;
pub(in crate::node) mod out_of_reach;
pub(in crate::node) mod takeover;
pub(in crate::node) mod unreachable;
