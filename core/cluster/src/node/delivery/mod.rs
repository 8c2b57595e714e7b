//! The way of a publication through the node: interest, acknowledgements, duplicates, retained messages.

pub(in crate::node) mod agreement;
pub(in crate::node) mod contacts;
pub(in crate::node) mod copied;
pub(in crate::node) mod duplicates;
mod here;
pub(in crate::node) mod interest;
mod moved;
pub(in crate::node) mod pending_acks;
pub(in crate::node) mod publish;
pub(in crate::node) mod received;
pub(in crate::node) mod relay;
pub(in crate::node) mod retained;
pub(in crate::node) mod waiters;
