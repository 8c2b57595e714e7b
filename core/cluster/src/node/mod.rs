//! The node: membership, links, overlay, interest, directory and retained messages joined together.

mod config;

use std::collections::VecDeque;

use sedge_base::{Instant, Now, Outbox, Rng};

pub use self::config::{NodeConfig, NodeConfigError};
use crate::{LinkId, NodeInput, NodeOutput, NodeState, NodeStatus, RouteStatus};

/// The machine of one node: feed it [`NodeInput`]s, then take [`NodeOutput`]s until there are none. Call
/// [`Node::handle_timeout`] once right after it was made.
#[derive(Debug)]
pub struct Node {
    config: NodeConfig,
    outputs: VecDeque<NodeOutput>,
    state: NodeState,
}

impl Node {
    /// A node that knows nobody yet.
    pub fn new(config: NodeConfig, _rng: Rng) -> Result<Self, NodeConfigError> {
        Ok(Self { config, outputs: VecDeque::new(), state: NodeState::Recovery })
    }

    /// Takes an event in.
    pub fn handle(&mut self, _now: Now, _input: NodeInput) {}

    /// Does what is due; early or repeated calls do nothing.
    pub fn handle_timeout(&mut self, _now: Now) {}

    /// The next thing to do, `None` if there is nothing for now.
    pub fn poll_output(&mut self) -> Option<NodeOutput> {
        self.outputs.pop_front()
    }

    /// When [`Node::handle_timeout`] is next wanted.
    pub fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// What a link has to write; `None` if the link is forgotten. The driver says how much of it was written with
    /// [`NodeInput::LinkWritten`] and does not advance it itself.
    pub fn link_outbox(&mut self, _link: LinkId) -> Option<&mut Outbox> {
        None
    }

    /// Whether the node serves with full knowledge: for load balancers. Clients are served before that, too.
    pub fn is_ready(&self) -> bool {
        self.state == NodeState::Normal
    }

    /// The node as a whole.
    pub fn status(&self) -> NodeStatus {
        unreachable!("{:?}", self.config)
    }

    /// At most `limit` lines of the subscription routing table (FT-10) from the `offset`th on: what other nodes want.
    pub fn routes(&self, _offset: usize, _limit: usize) -> Vec<RouteStatus> {
        Vec::new()
    }

    /// At most `limit` lines of the local subscription table (FT-09) from the `offset`th on: what clients of this node want.
    pub fn local_routes(&self, _offset: usize, _limit: usize) -> Vec<RouteStatus> {
        Vec::new()
    }
}
