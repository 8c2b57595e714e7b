//! Rules about who may publish to and receive from which topics.
//!
//! [`Rules`] are read from a text (the format of Mosquitto's `acl_file`, and sections for client ids) and answer two questions:
//! [`Rules::decide`] whether somebody may publish to or receive from a topic, and [`Rules::judge`] how much of a filter somebody
//! may receive. Neither allocates. With [`scram`], a client proves who it is without sending its password.

#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod index;
mod parse;
mod pattern;
mod rules;
pub mod scram;

pub use parse::{ParseRulesError, RuleError};
pub use rules::{Action, Reach, Rules, Verdict, Who};
