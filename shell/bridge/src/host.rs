//! Services that a bridge needs from the node it runs in.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use sedge_mqtt::{TopicFilter, TopicName};

use crate::acks::Answered;

/// Which node runs a bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Runner {
    /// This one.
    Here,
    /// The node with this name.
    Elsewhere(String),
    /// No node yet: this one has only just begun, or is being emptied and alone.
    Nobody,
}

impl Runner {
    /// Notes in `here` whether this node runs the bridge or rule with this client id. Returns the runner if it is another one.
    pub(crate) fn observe(host: &impl Host, client_id: &str, here: &AtomicBool) -> Option<Self> {
        // While the node is too busy to answer, its last answer holds.
        let runner = host.runner(client_id)?;
        here.store(runner == Self::Here, Ordering::Release);
        (runner != Self::Here).then_some(runner)
    }
}

/// The session of a bridge, as the broker sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionView {
    /// Filters it is subscribed to.
    pub filters: Vec<String>,
    /// Messages that wait in it, those on their way to the other end included.
    pub messages: u64,
    /// Bytes that wait in its queue.
    pub bytes: u64,
    /// How long the oldest of them has waited, those that were retained aside.
    pub waits: Duration,
    /// How old the oldest is, those that were retained included.
    pub waits_stored: Duration,
    /// It has almost as much as all sessions together leave it.
    pub is_tight: bool,
    /// Identifiers of QoS 2 publications that came from the other end and were not released.
    pub unreleased: Vec<u16>,
}

/// Some of the retained messages that were asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetainedPage {
    /// Topics and payloads.
    pub messages: Vec<(TopicName, Bytes)>,
    /// Where to go on; `None`: that was all.
    pub next: Option<usize>,
}

/// The node that bridges run in.
pub trait Host: Send + Sync + 'static {
    /// A connection to the broker, on which the caller speaks MQTT as the client `client_id`; no password is asked for. An error if the
    /// system gives no sockets.
    fn connect(&self, client_id: &str) -> io::Result<UnixStream>;

    /// Which node runs the bridge with this client id; `None` if the node does not answer.
    fn runner(&self, client_id: &str) -> Option<Runner>;

    /// The session of this client at this node; `None`: it is not here, or the node does not answer.
    fn session(&self, client_id: &str) -> Option<SessionView>;

    /// Retained messages of this filter, from the place on that an earlier answer has named; and the next place, if there are more. `None`: the
    /// node does not answer.
    fn retained(&self, filter: &TopicFilter, place: usize) -> Option<RetainedPage>;

    /// QoS 1 and 2 publications to topics of these filters, and of no others, are refused at every node from now on: there is no room for
    /// them here.
    fn close_topics(&self, filters: Vec<TopicFilter>);

    /// Acknowledges those publications of this node's clients that are gone from the session of this client, wherever in the cluster it is.
    fn answer_awaited(&self, client_id: &str) -> Answered;
}
