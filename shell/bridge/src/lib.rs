//! Bridges: what leaves a cluster for another service and comes from one (MQ-18, DP-01 to DP-06). And rules, which run on sessions of
//! their own as bridges do ([`Rules`]).
//!
//! A bridge is an ordinary persistent session of the broker, `$bridge/NAME`, and a thread that relays between it and the other end. The
//! session's queue is the buffer: a message leaves it when the other end has acknowledged it, so that copies on other nodes, the journal,
//! limits and takeover are those of every session. The bridge itself keeps nothing that has to survive.

mod acks;
mod config;
mod crew;
mod error;
mod host;
#[cfg(feature = "jq")]
pub mod jq;
#[cfg(feature = "kafka")]
mod kafka;
mod lag;
mod map;
mod mirror;
mod mqtt;
mod rule;
mod session;
mod sniff;
mod status;
mod supervisor;
mod talk;
mod template;
mod wire;

pub use acks::Answered;
pub use config::{Ack, BridgeConfig, Direction, Full, Key, Kind, Problem, Protocol, Sasl, Secret, Tls};
pub use host::{Host, RetainedPage, Runner, SessionView};
pub use lag::Lag;
pub use map::Transform;
pub use mirror::{MirrorLine, MirrorStatus, Mirroring};
pub use rule::{RuleState, RuleStatus, Rules};
pub use sniff::{SniffStatus, Sniffing};
pub use status::{BridgeState, BridgeStatus, Counts};
pub use supervisor::Bridges;
