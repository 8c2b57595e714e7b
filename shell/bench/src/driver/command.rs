//! Messages between the coordinator and a driver.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::measure::{Delivery, SentRange, Tally, Window};

/// Commands of the coordinator to a driver.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Command {
    /// Connect all clients.
    Connect,
    /// Subscribe all subscribers.
    Subscribe,
    /// Publish from `origin` on; measure the messages sent within the window; stop at its end.
    Publish {
        /// When the open loop begins.
        origin: u64,
        /// The window that is measured.
        window: Window,
    },
    /// Report the messages sent; the driver sends no more. The window ends at `end` at the latest.
    Report {
        /// End of the window.
        end: u64,
    },
    /// Count the messages lost, given the messages that all drivers sent, and report all counts.
    Settle(Arc<Vec<SentRange>>),
    /// Disconnect all clients, remove their sessions unless they are to be kept, and end.
    Finish,
}

/// Events that a driver reports to the coordinator.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Event {
    /// All clients are connected.
    Connected,
    /// All subscribers are subscribed.
    Subscribed,
    /// All messages to be published are published.
    Published,
    /// The driver's progress.
    Progress(Progress),
    /// Messages sent within the window.
    Sent(Vec<SentRange>),
    /// Deliveries as they came, if they are asked for; all of them before the tally.
    Raw(Vec<Delivery>),
    /// Counts of the driver.
    Tally(Box<Tally>),
    /// The driver ends; so many sessions are still in brokers that could not be reached.
    Finished(u64),
    /// A reason to doubt the figures.
    Warning(String),
    /// A failure after which the driver cannot go on.
    Failed(String),
}

/// How far a driver is.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Progress {
    /// Clients that are connected.
    pub(crate) connected: u64,
    /// Messages sent.
    pub(crate) sent: u64,
    /// Deliveries that these should cause.
    pub(crate) expected: u64,
    /// Deliveries that came.
    pub(crate) received: u64,
    /// Of these, how many came again.
    pub(crate) duplicates: u64,
    /// Messages not yet acknowledged.
    pub(crate) inflight: u64,
}

impl Progress {
    pub(crate) const fn merge(self, other: Self) -> Self {
        Self {
            connected: self.connected + other.connected,
            sent: self.sent + other.sent,
            expected: self.expected + other.expected,
            received: self.received + other.received,
            duplicates: self.duplicates + other.duplicates,
            inflight: self.inflight + other.inflight,
        }
    }
}
