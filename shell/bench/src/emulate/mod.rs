//! An emulated network: several nodes on one machine with links of a given rate, delay and loss, that can be cut.
//!
//! Every node is a network namespace with two interfaces. `site0` is a TUN device on the site network, a full mesh of
//! links that [`Network`] emulates in user space, so that it needs neither netem nor any other queueing discipline of the kernel.
//! `host0` leads to the namespace this program runs in, at the speed of the machine, for clients and for the HTTP API; nodes do not
//! reach each other by it.

mod args;
mod command;
mod control;
mod engine;
mod fabric;
mod link;
mod live;
mod meter;
mod network;
mod place;
mod request;
mod setting;
mod space;
mod status;

pub(crate) use args::NetArgs;
pub(crate) use command::emulate;
pub use control::ask;
pub use network::{Network, Node};
pub use request::Request;
pub use setting::{Delay, NetworkPlan, Queue, Rate};
pub use status::{Carried, EmulatorStatus, LinkStatus, NetworkStatus, NodeStatus, Passed};
