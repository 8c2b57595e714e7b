//! SWIM membership (Das, Gupta, Motivala: *SWIM*, DSN 2002), without I/O: the nodes in the cluster, and the life of each.
//!
//! A thin adapter over the `foca` crate. It adds what a cluster of small machines needs besides the protocol itself:
//!
//! * a compact, strict and versioned datagram format ([`wire`]);
//! * seeds that are asked again and again until they answer, under whatever address they are known;
//! * an immediate probe when a closed link is evidence that a node died ([`Input::Suspect`]);
//! * a list of the dead, from which they vanish after some minutes;
//! * calls to dead members for a day, so that both sides of a healed partition find each other;
//! * the difference between a node that died and one that left ([`DownCause`]).
//!
//! Datagrams are neither encrypted nor authenticated here: that is the owner's part, who moves them.
//! The choices and numbers are explained in `docs/adr/0004-membership.md`.

mod api;
mod config;
mod confirm;
mod dead;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod machine;
mod member;
mod patience;
mod random;
mod renewals;
mod seeds;
mod sink;
mod timers;
pub mod wire;

pub use api::{DownCause, Input, Output};
pub use config::{Config, ConfigError};
pub use machine::Membership;
pub use member::Member;
