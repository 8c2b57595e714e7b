//! Sparkplug B, version 3.0 of its specification: what topics say ([`Topic`]), what payloads say ([`Payload`]), and what the births of edge
//! nodes say of both ([`Births`]). [`Decoder`] puts the three together: publications go in, JSON comes out, with the births to ask for.

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
