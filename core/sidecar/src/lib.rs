//! The engine of a node that stands before a foreign broker (the ILDM node of Banno's thesis, chapter 5; spec `interworking.md`).
//!
//! Sedge ends the MQTT session of each client itself, so that sessions keep the promises of the cluster. For each client the
//! [`Sidecar`] holds one *conversation* with the broker behind it, under the client's identifier, user name and password (IL-03):
//! what the client publishes and subscribes to goes to the broker, and the broker's deliveries come back. Publications of other
//! nodes enter the broker through a few *inlets*, conversations that subscribe to nothing.
//!
//! The machine knows which deliveries it expects from the broker ([`Publication::receivers`]). A delivery that comes is matched with the
//! publication that caused it, so that the cluster's name, properties and QoS of that publication are not lost. Where the broker goes away
//! before it has delivered, the sidecar's own copy takes the place of the delivery ([`Output::Delivered`]).

mod api;
mod config;
mod conversation;
mod counters;
mod expected;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod incoming;
mod machine;
mod mirror;
mod outgoing;
mod reading;
mod sniff;
mod status;
mod upkeep;

pub use api::{Answer, Attach, Event, Input, LinkId, Origin, Output, Publication, Receiver, Request, Share};
pub use config::SidecarConfig;
pub use counters::SidecarCounters;
pub use machine::Sidecar;
pub use mirror::{Delivered, Difference, DifferenceKind, Mirror, MirrorConfig, MirrorCounters, MirrorInput, Side};
pub use outgoing::EXACT_311;
pub use sniff::{Segment, SegmentError, SniffConfig, SniffCounters, SniffOutput, Sniffer};
pub use status::{BrokerStatus, ConversationStatus};
