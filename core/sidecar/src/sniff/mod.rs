//! A node beside a broker that reads its traffic off the wire: what clients publish and subscribe to, without being asked by anybody
//! (Thean's middleware; spec FT-03, build sheet S.3).
//!
//! ```text
//!  captured IP packets -> segment -> stream (one for each direction) -> MQTT packets -> sniffer: publications, filters
//! ```
//!
//! The [`Sniffer`] has no socket, clock or thread: captured packets go in, publications and filters come out.

mod client;
mod segment;
mod sniffer;
mod stream;
#[cfg(test)]
mod tests;

pub use segment::{Segment, SegmentError};
pub use sniffer::{SniffConfig, SniffCounters, SniffOutput, Sniffer};
