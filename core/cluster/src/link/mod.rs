//! The links between nodes: MQTT 5 connections that carry numbered frames, each exactly once and in order, over any number of
//! TCP connections (DESIGN section 5; FT-17, FT-18, FT-21). Wire format and handshake: `docs/protocol/link.md`.
//!
//! [`Links`] is one machine for all links of a node. It has no socket, clock or thread: the owner feeds events, runs
//! [`Links::handle_timeout`] when [`Links::poll_timeout`] says so, and does what [`Links::poll_output`] asks for.

mod auth;
mod binding;
mod carried;
mod channel;
mod closing;
mod config;
mod conn;
mod counters;
mod decode;
mod encode;
mod frame;
mod greeting;
mod handshake;
mod lanes;
mod links;
mod notices;
mod output;
mod peer;
#[cfg(test)]
mod tests;
mod text;
mod traffic;

pub use binding::Binding;
pub use channel::Lost;
pub use config::{Hello, LinkConfig, LinkOrder, Protocol};
pub use counters::LinkCounters;
pub use frame::{ControlTopic, End, Frame, FrameSeq, Publication, Waybill};
pub use lanes::CONNECTIONS_MAX;
pub use links::{Incompatible, Links};
pub use output::{Output, SendError};
