//! The machine.

use std::collections::VecDeque;

use sedge_base::{ConnId, Incarnation, Instant, NodeId, Now, Outbox, Rng, ShardId};

use crate::{BrokerConfig, Counters, Input, Output, SessionInfo};

/// Where a broker is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The node.
    pub node: NodeId,
    /// Which life of it.
    pub incarnation: Incarnation,
    /// Which shard of it.
    pub shard: ShardId,
    /// How many shards the node has; a client belongs to shard `stable_hash % shards`.
    pub shards: u16,
}

/// MQTT semantics of one shard: feed it [`Input`]s, then take [`Output`]s until there are none.
#[derive(Debug)]
pub struct Broker {
    config: BrokerConfig,
    place: Place,
    rng: Rng,
    outputs: VecDeque<Output>,
    counters: Counters,
}

impl Broker {
    /// A broker without connections and sessions.
    pub fn new(config: BrokerConfig, place: Place, rng: Rng) -> Self {
        Self { config, place, rng, outputs: VecDeque::new(), counters: Counters::default() }
    }

    /// Takes an event in.
    pub fn handle(&mut self, _now: Now, _input: Input) {}

    /// Does what is due.
    pub fn handle_timeout(&mut self, _now: Now) {}

    /// The next thing to do, `None` if there is nothing for now.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When [`Broker::handle_timeout`] is to be called next.
    pub fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// What a connection has to write; the owner says how much of it was written with [`Input::Written`] and does not advance it
    /// itself. `None` if the connection is forgotten.
    pub fn outbox(&mut self, _conn: ConnId) -> Option<&mut Outbox> {
        None
    }

    /// What was counted.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// All sessions, in an order that depends only on the inputs.
    pub fn sessions(&self) -> impl Iterator<Item = SessionInfo> {
        core::iter::empty()
    }

    /// Number of open connections.
    pub fn connections(&self) -> usize {
        0
    }
}
