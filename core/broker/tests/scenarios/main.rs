//! Clients against one broker, with a cluster of one behind it.

#![expect(clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "a test that panics has failed")]

mod access;
mod awaiting;
mod behind;
mod bridges;
mod connecting;
mod deadlines;
mod delivery;
mod enhanced;
mod explaining;
mod harness;
mod journal;
mod latency;
mod malformed;
mod merging;
mod order;
mod qos;
mod queueing;
mod random;
mod rates;
mod retained;
mod sessions;
mod shared;
mod sparkplug;
mod tracing;
mod transfer;
mod version5;
mod wills;
