//! Rules over publications (DP-02): what is selected, how it is grouped, over which window it is aggregated, and what comes out.
//!
//! A [`Rule`] is compiled from its keys ([`Rule::compile`]); a [`Machine`] runs it: [`Machine::handle`] takes a publication,
//! [`Machine::handle_timeout`] closes what is due, [`Machine::poll_output`] yields what the rule puts out, and
//! [`Machine::poll_timeout`] says when it wants to be called next. The state of a machine is bytes where its owner wants them:
//! whole ([`Machine::snapshot`]) or group by group ([`Machine::take_changes`]).

mod aggregate;
mod codec;
mod counters;
mod definition;
mod error;
mod expression;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod input;
mod json;
mod ledger;
mod limits;
mod machine;
mod nearest;
mod template;
mod transform;
mod value;
mod window;

pub use counters::Counters;
pub use definition::{Item, Jq, KEYS, Rule};
pub use error::RuleError;
pub use input::{CHAIN_MAX, Input, Output, RULE_PROPERTY};
pub use ledger::{Ledger, RECEIVE_MAX, RecordError, Safe, Taken};
pub use limits::{Limits, Overflow};
pub use machine::{Change, Machine, RestoreError};
pub use transform::{Made, Transform, TransformError};
