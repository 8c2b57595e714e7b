//! Nothing leaves a thread of a node with a journal before the journal has what it rests on: acknowledgements, deliveries, mail to other threads.
//!
//! The driver of the machines writes a batch of records at the end of each turn, and says which batches the medium has. The parts here say
//! what may leave then, and in which order.

mod allowance;
mod gate;
mod mail;

pub use allowance::Allowance;
pub use gate::{DurableGate, Held};
pub use mail::{Haste, OutgoingMail, haste_to_node, haste_to_shard, is_publication};
