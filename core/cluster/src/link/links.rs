//! All links of a node.

use core::net::SocketAddr;
use std::collections::VecDeque;

use bytes::Bytes;
use sedge_base::{Incarnation, Instant, NodeId, Outbox, Rng};

use super::{Frame, FrameSeq, Hello, LinkConfig, LinkCounters, Output, SendError};
use crate::{LinkId, LinkStatus};

/// The links of a node to its neighbours. See the [module](crate::link).
#[derive(Debug)]
pub struct Links {
    config: LinkConfig,
    me: Hello,
    rng: Rng,
    outputs: VecDeque<Output>,
    counters: LinkCounters,
}

impl Links {
    /// No links yet. `rng` jitters redials and feeds nonces.
    pub fn new(config: LinkConfig, me: Hello, rng: Rng) -> Self {
        Self { config, me, rng, outputs: VecDeque::new(), counters: LinkCounters::default() }
    }

    /// Keeps a link to this member from now on. The node with the lower id dials; the other waits for it, but not for ever.
    /// A higher incarnation than known closes the link to the former life and drops its frames; a lower one is ignored.
    pub fn want(&mut self, _now: Instant, _node: NodeId, _incarnation: Incarnation, _addr: SocketAddr) {}

    /// Closes the link to this node and drops everything unsent, without [`Output::Down`]: membership says that it is gone, or the
    /// overlay does not want it. The node may still link by itself: [`Output::Up`].
    pub fn forget(&mut self, _now: Instant, _node: NodeId) {}

    /// Somebody has connected. `link` is at or above [`LinkId::ACCEPTED`].
    pub fn opened(&mut self, _now: Instant, _link: LinkId, _peer: SocketAddr) {}

    /// [`Output::Dial`] has led to a connection.
    pub fn dialled(&mut self, _now: Instant, _link: LinkId) {}

    /// Bytes came, in any pieces. Never panics and keeps no more of a stranger than a few kilobytes.
    pub fn received(&mut self, _now: Instant, _link: LinkId, _bytes: Bytes) {}

    /// The first `bytes` of the link's outbox were taken by the kernel: they are forgotten and the outbox is refilled.
    pub fn written(&mut self, _now: Instant, _link: LinkId, _bytes: usize) {}

    /// The link is gone, or the dial has failed, without the owner having been asked to close it.
    pub fn closed(&mut self, _now: Instant, _link: LinkId) {}

    /// Queues a frame for a neighbour; it waits while the link is down. The number comes back in [`Output::Acked`].
    pub fn send(&mut self, _now: Instant, _to: NodeId, _frame: Frame) -> Result<FrameSeq, SendError> {
        self.counters.frames_refused += 1;
        Err(SendError::NoChannel)
    }

    /// Acknowledges what has come since the last call. To be called by the owner at the end of each turn of its loop, when it
    /// has taken all outputs and before it writes outboxes, so that one acknowledgement covers the whole turn.
    pub fn flush(&mut self, _now: Instant) {}

    /// Takes leave of all neighbours: what fits into the outboxes is written, then all links are closed. Nothing is dialled or
    /// accepted from then on.
    pub fn shutdown(&mut self, _now: Instant) {}

    /// Runs what is due; early or repeated calls do nothing.
    pub fn handle_timeout(&mut self, _now: Instant) {}

    /// When [`Links::handle_timeout`] is next wanted.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let _ = (&self.config, &self.me, &self.rng);
        None
    }

    /// What the owner has to do next.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// What a link has to write; `None` if there is no such link. Report what was written with [`Links::written`].
    pub fn outbox(&mut self, _link: LinkId) -> Option<&mut Outbox> {
        None
    }

    /// The link to this node; `None` if it is not up. `synced` is false: the owner knows.
    pub fn status(&self, _node: NodeId) -> Option<LinkStatus> {
        None
    }

    /// Nodes that are linked now, ascending.
    pub fn linked(&self) -> impl Iterator<Item = NodeId> {
        core::iter::empty()
    }

    /// Publications that wait for acknowledgement, over all neighbours (FT-17).
    pub fn unacknowledged(&self) -> usize {
        0
    }

    /// Sums since the start.
    pub const fn counters(&self) -> &LinkCounters {
        &self.counters
    }
}
