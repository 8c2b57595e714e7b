//! Sparkplug B, version 3.0 of its specification: topics ([`Topic`]), payloads ([`Payload`]), and the knowledge about both from the births
//! of edge nodes ([`Births`]). [`Decoder`] puts the three together: publications go in, JSON comes out, with the births to ask for.

mod births;
mod decoder;
mod error;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod json;
mod message;
mod topic;
mod value;
mod weight;

pub use births::Births;
pub use decoder::{Decoded, Decoder, rebirth_request};
pub use error::PayloadError;
pub use message::{Metric, Payload};
pub use topic::{CERTIFICATES, Kind, NAMESPACE, Topic, certificate};
