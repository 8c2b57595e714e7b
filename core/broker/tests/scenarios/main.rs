//! Clients against one broker, with a cluster of one behind it.

mod connecting;
mod harness;
