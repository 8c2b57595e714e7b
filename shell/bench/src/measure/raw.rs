//! Every single delivery, for whoever wants to compute figures of his own.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::tracker::Arrival;

/// The first line of a file of deliveries.
pub(crate) const HEAD: &str = "receiver,stream,number,sent_ns,received_ns,arrival,in_latency\n";

/// A delivery as it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Delivery {
    /// Subscriber, or group that shares a subscription.
    pub(crate) receiver: u32,
    /// Publisher and topic.
    pub(crate) stream: u32,
    /// Number of the message within its stream, from 0.
    pub(crate) sequence: u64,
    /// When it was sent, in ns of the run's clock.
    pub(crate) sent: u64,
    /// When it came.
    pub(crate) received: u64,
    pub(crate) arrival: Arrival,
    /// Whether its latency is in the figures.
    pub(crate) in_latency: bool,
}

impl Delivery {
    /// Appends the delivery as a line of comma-separated values.
    pub(crate) fn write(&self, text: &mut String) {
        let Self { receiver, stream, sequence, sent, received, arrival, in_latency } = self;
        let arrival = match arrival {
            Arrival::InOrder => "in-order",
            Arrival::Late => "late",
            Arrival::Again => "again",
        };
        let in_latency = u8::from(*in_latency);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{receiver},{stream},{sequence},{sent},{received},{arrival},{in_latency}");
    }
}
