//! Clients against one broker, with a cluster of one behind it.

mod connecting;
mod delivery;
mod harness;
mod malformed;
mod order;
mod qos;
mod queueing;
mod random;
mod retained;
mod sessions;
mod shared;
mod transfer;
mod version5;
mod wills;
