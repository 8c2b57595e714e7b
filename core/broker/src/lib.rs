//! MQTT semantics of one shard, without I/O: connections, sessions, local matching, acknowledgements, wills, timers.
//!
//! [`Broker`] is a deterministic machine: the same inputs at the same times with the same seed give the same outputs. Its owner
//! carries client bytes in and out and does what [`Output`] asks for.

mod api;
mod broker;
mod config;
mod counters;
mod detach;
mod listing;
mod retained;
mod state;

pub use api::{Deliver, Event, Input, InterestChange, InterestOp, Output, Ticket};
pub use broker::{Broker, Place};
pub use config::{BrokerConfig, RetainedConfig};
pub use counters::{Counters, Dropped};
pub use detach::{DETACH_BELOW_BYTES, detach};
pub use listing::{SessionInfo, SubscriptionInfo};
pub use retained::{BUCKETS, RetainedStore, SetOutcome};
pub use state::{InboundState, InflightPhase, InflightState, QueuedState, SessionState, SubscriptionState, WillState};
