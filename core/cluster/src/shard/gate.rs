//! Clients that connect before their node knows the cluster wait here (FT-26).

use std::collections::VecDeque;

use sedge_base::{ClientId, ConnId, Now};

use super::Shard;
use crate::mail::ToNode;

/// Whether clients are let in.
#[derive(Debug)]
pub(super) enum Gate {
    /// The node does not know the cluster. These clients have sent CONNECT, each on this connection, with or without clean start.
    Closed(VecDeque<(ClientId, ConnId, bool)>),
    /// The node knows the cluster.
    Open,
}

impl Default for Gate {
    fn default() -> Self {
        Self::Closed(VecDeque::new())
    }
}

impl Shard {
    /// Whether clients are let in.
    pub const fn is_open(&self) -> bool {
        matches!(self.gate, Gate::Open)
    }

    /// A client has sent CONNECT: it may claim its session, or waits until the node knows the cluster.
    pub(super) fn claim(&mut self, client: ClientId, conn: ConnId, clean_start: bool) {
        match &mut self.gate {
            Gate::Closed(waiting) => waiting.push_back((client, conn, clean_start)),
            Gate::Open => self.tell_node(ToNode::Claim { client, conn, clean_start }),
        }
    }

    /// The node knows the cluster: clients that are still connected claim their sessions.
    pub(super) fn open(&mut self, now: Now) {
        let Gate::Closed(waiting) = core::mem::replace(&mut self.gate, Gate::Open) else { return };
        for (client, conn, clean_start) in waiting {
            if self.broker.goes_on_claiming(now, &client, conn) {
                self.claim(client, conn, clean_start);
            }
        }
    }
}
