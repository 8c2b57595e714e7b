//! One thread that owns many connections and one event loop.

mod command;
mod conn;
mod incoming;
mod leaving;
mod outgoing;
mod packets;
mod publisher;
mod schedule;
mod state;
mod ticker;

pub(crate) use command::{Command, Event, Progress};
pub(crate) use state::{Handle, Setup, spawn};
pub(crate) use ticker::Ticker;
