//! The common part of algorithms with one tree for everything: the tree, and the information that every node tells every other.
//!
//! ```text
//! signal   part u8: 0 shared | signal of the mesh
//!                   1 tree   | claims
//!                   2 ...    | the algorithm's own
//! ```

use core::net::SocketAddr;
use std::collections::VecDeque;

use bytes::{BufMut, Bytes, BytesMut};
use sedge_base::{NodeId, Now, Rng};
use sedge_mqtt::TopicName;

use crate::trunk::Trunk;
use crate::{Input, Mesh, MeshConfig, Output, Overlay, RouteEntry};

const SHARED: u8 = 0;
const TREE: u8 = 1;
/// The first byte of the algorithm's own signals.
pub(crate) const OWN: u8 = 2;

/// The tree over all nodes and the filters that all nodes have to know of: those that begin with `$`.
#[derive(Debug)]
pub(crate) struct Backbone {
    me: NodeId,
    pub(crate) trunk: Trunk,
    pub(crate) shared: Mesh,
    outputs: VecDeque<Output>,
}

impl Backbone {
    pub(crate) fn new(me: NodeId, address: SocketAddr, config: MeshConfig, mut rng: Rng) -> Self {
        let trunk = Trunk::new(me, address, rng.split(1));
        Self { me, trunk, shared: Mesh::reserved_only(me, config, rng.split(2)), outputs: VecDeque::new() }
    }

    /// Feeds one event. A signal that is the algorithm's own is handed back.
    pub(crate) fn handle(&mut self, now: Now, input: Input) -> Option<(NodeId, Bytes)> {
        self.trunk.tick(now.instant);
        match &input {
            Input::NeighbourUp(neighbour) if neighbour.node != self.me => self.trunk.link_up(now.instant, neighbour),
            Input::NeighbourDown { node, gone } => {
                self.trunk.link_down(*node);
                if *gone {
                    self.trunk.member_down(*node);
                }
            }
            Input::MemberUp(member) => self.trunk.member_up(now.instant, member),
            Input::MemberDown { node } => self.trunk.member_down(*node),
            Input::RoundTrip { node, micros } => self.trunk.round_trip(*node, *micros),
            Input::Load { capacity, .. } => self.trunk.set_capacity(*capacity),
            Input::Signal { from, bytes } => return self.on_signal(now, *from, bytes),
            Input::NeighbourUp(_) | Input::Local { .. } | Input::BarrierReached(_) => {}
        }
        self.shared.handle(now, input);
        None
    }

    fn on_signal(&mut self, now: Now, from: NodeId, bytes: &Bytes) -> Option<(NodeId, Bytes)> {
        if !self.trunk.is_linked(from) {
            return None;
        }
        let (part, rest) = (bytes.first().copied(), bytes.slice(bytes.len().min(1)..));
        match part {
            Some(SHARED) => self.shared.handle(now, Input::Signal { from, bytes: rest }),
            Some(TREE) => {
                if let Err(error) = self.trunk.hear(from, &rest) {
                    self.refuse(now, from, error.to_string());
                }
            }
            Some(OWN) => return Some((from, rest)),
            _ => self.refuse(now, from, "a signal of no known part".to_owned()),
        }
        None
    }

    /// The neighbour has said something that cannot be: nothing more is said or heard on this link.
    pub(crate) fn refuse(&mut self, now: Now, node: NodeId, detail: String) {
        self.outputs.push_back(Output::Protocol { node, detail });
        self.trunk.link_down(node);
        self.shared.handle(now, Input::NeighbourDown { node, gone: false });
    }

    pub(crate) fn poll_output(&mut self) -> Option<Output> {
        if let Some(output) = self.outputs.pop_front() {
            return Some(output);
        }
        if let Some((to, bytes)) = self.trunk.poll_signal() {
            return Some(Output::Signal { to, bytes: with_part(TREE, &bytes) });
        }
        let output = self.shared.poll_output()?;
        if let Output::Protocol { node, .. } = &output {
            self.trunk.link_down(*node);
        }
        let Output::Signal { to, bytes } = output else { return Some(output) };
        Some(Output::Signal { to, bytes: with_part(SHARED, &bytes) })
    }

    /// Whether a signal promises something ([`Overlay::promises`]); the algorithm's own signals are left to it.
    pub(crate) fn promises(signal: &[u8], own: impl FnOnce(&[u8]) -> bool) -> bool {
        match signal.split_first() {
            Some((&SHARED, rest)) => crate::mesh::promises(rest),
            Some((&OWN, rest)) => own(rest),
            Some(_) => false,
            None => true,
        }
    }

    /// The neighbour towards `destination`.
    pub(crate) fn way(&self, destination: NodeId) -> NodeId {
        self.trunk.way(destination)
    }

    /// Adds the nodes that want a topic which begins with `$`.
    pub(crate) fn reserved_destinations(&mut self, topic: &TopicName, nodes: &mut Vec<NodeId>) {
        self.shared.destinations(topic, nodes);
    }

    /// Lines of the routing table: those of filters that begin with `$` and `others`, both in order.
    pub(crate) fn routes(&self, others: impl Iterator<Item = RouteEntry>) -> impl Iterator<Item = RouteEntry> {
        let mut shared = self.shared.route_lines().peekable();
        let mut others = others.peekable();
        core::iter::from_fn(move || match (shared.peek(), others.peek()) {
            (Some(one), Some(other)) if one < other => shared.next(),
            (_, Some(_)) => others.next(),
            (_, None) => shared.next(),
        })
    }
}

/// Puts the part in front of a signal.
pub(crate) fn with_part(part: u8, bytes: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(1 + bytes.len());
    out.put_u8(part);
    out.put_slice(bytes);
    out.freeze()
}
