//! Links that operators choose: by address, and so before anybody knows who is there.

use core::net::SocketAddr;
use std::collections::BTreeMap;

use sedge_base::{NodeId, Now};

use crate::link::LinkOrder;
use crate::node::Node;
use crate::{NeighbourStatus, NeighboursStatus, NodeConfig};

/// Links that may be chosen; those beyond are refused.
pub const NEIGHBOURS_MAX: usize = 1_000;

/// Why a link is not chosen or ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NeighbourError {
    /// [`NodeConfig::by_hand`] is not set.
    #[error("the nodes choose links by themselves; set cluster.links = \"manual\" on all nodes to choose them by hand")]
    NotManual,
    /// The address is that of this node.
    #[error("that is this node's own address; name another node's cluster port")]
    Own,
    /// A node of another machine.
    #[error("without cluster.key only nodes of this machine are linked; set the same cluster.key_file on all nodes")]
    NoKey,
    /// See [`NEIGHBOURS_MAX`].
    #[error("a node has at most {NEIGHBOURS_MAX} neighbours; remove one first")]
    TooMany,
    /// There is nothing to end.
    #[error("there is no such neighbour; sedge neighbours lists those there are")]
    NoNeighbour,
}

/// The choice of the operator.
#[derive(Debug, Default)]
pub(in crate::node) struct Neighbours {
    is_manual: bool,
    /// Which node was found at each address.
    chosen: BTreeMap<SocketAddr, Option<NodeId>>,
    /// The addresses that were found otherwise.
    seeds: Vec<SocketAddr>,
}

impl Neighbours {
    pub(in crate::node) fn new(config: &NodeConfig) -> Self {
        let addresses = config.by_hand.iter().flatten().take(NEIGHBOURS_MAX);
        let chosen = addresses.map(|address| (*address, None)).collect();
        Self { is_manual: config.by_hand.is_some(), chosen, seeds: config.seeds.clone() }
    }

    /// Seeds with the addresses of neighbours, which are asked as well.
    pub(in crate::node) fn with_seeds(&self, mut seeds: Vec<SocketAddr>) -> Vec<SocketAddr> {
        let others: Vec<SocketAddr> = self.chosen.keys().filter(|one| !seeds.contains(one)).copied().collect();
        seeds.extend(others);
        seeds
    }

    /// The other end has ended a link.
    pub(in crate::node) fn ended(&mut self, node: NodeId) {
        self.chosen.retain(|_, found| *found != Some(node));
    }
}

impl Node {
    /// An operator chooses a link to the node at one of these addresses, or ends the one there is. Take the outputs afterwards.
    pub fn neighbour(&mut self, now: Now, addresses: &[SocketAddr], wanted: bool) -> Result<(), NeighbourError> {
        self.begin(now);
        if !self.neighbours.is_manual {
            return Err(NeighbourError::NotManual);
        }
        let is_there = |address: &&SocketAddr| self.is_known_at(**address);
        let Some(address) = addresses.iter().find(is_there).or_else(|| addresses.first()).copied() else {
            return Err(NeighbourError::NoNeighbour);
        };
        if wanted { self.choose_link(address) } else { self.end_link(address) }
    }

    /// How many connections with each neighbour this node dials from here on, and how publications are spread over them. Take the
    /// outputs afterwards.
    pub fn set_connections(&mut self, now: Now, connections: u8, order: LinkOrder) {
        self.begin(now);
        self.links.set_connections(now.instant, connections, order);
    }

    fn choose_link(&mut self, address: SocketAddr) -> Result<(), NeighbourError> {
        if self.is_own_address(address) {
            return Err(NeighbourError::Own);
        }
        if !self.config.links.may_link(address) {
            return Err(NeighbourError::NoKey);
        }
        if self.neighbours.chosen.len() >= NEIGHBOURS_MAX {
            return Err(NeighbourError::TooMany);
        }
        self.neighbours.chosen.entry(address).or_default();
        let seeds = self.neighbours.seeds.clone();
        self.set_seeds(seeds);
        self.find_neighbours();
        Ok(())
    }

    fn end_link(&mut self, address: SocketAddr) -> Result<(), NeighbourError> {
        let known = self.neighbours.chosen.remove(&address);
        let node = known.flatten().or_else(|| self.node_at(address));
        let is_chosen = node.is_some_and(|node| self.overlay.chosen().iter().any(|chosen| chosen.node == node));
        let seeds = self.neighbours.seeds.clone();
        self.set_seeds(seeds);
        if let Some(node) = node.filter(|_| is_chosen) {
            self.neighbours.ended(node);
            self.overlay.choose(node, false);
            self.drain_overlay();
        } else if known.is_none() {
            return Err(NeighbourError::NoNeighbour);
        }
        Ok(())
    }

    fn is_known_at(&self, address: SocketAddr) -> bool {
        self.neighbours.chosen.contains_key(&address) || self.node_at(address).is_some() || self.is_own_address(address)
    }

    /// Members may have come to addresses that were chosen.
    pub(in crate::node) fn find_neighbours(&mut self) {
        if self.neighbours.chosen.is_empty() {
            return;
        }
        for address in self.neighbours.chosen.keys().copied().collect::<Vec<_>>() {
            let Some(node) = self.node_at(address) else { continue };
            let known = self.neighbours.chosen.insert(address, Some(node)).flatten();
            if known == Some(node) {
                continue;
            }
            if let Some(other) = known {
                self.overlay.choose(other, false);
            }
            self.overlay.choose(node, true);
        }
        self.drain_overlay();
    }

    pub(in crate::node) fn note_seeds(&mut self, seeds: &[SocketAddr]) {
        seeds.clone_into(&mut self.neighbours.seeds);
    }

    /// Whether this is where this node itself listens.
    fn is_own_address(&self, address: SocketAddr) -> bool {
        address == self.config.link_addr || address == self.config.swim_addr
    }

    fn node_at(&self, address: SocketAddr) -> Option<NodeId> {
        let is_there = |member: &&sedge_membership::Member| member.link == address || member.swim == address;
        self.membership.members().find(is_there).map(|member| member.node).filter(|node| *node != self.config.node)
    }

    pub(in crate::node) fn neighbours_status(&self) -> Option<NeighboursStatus> {
        if !self.neighbours.is_manual {
            return None;
        }
        let address_of = |node: NodeId| {
            let chosen = self.neighbours.chosen.iter().find(|(_, found)| **found == Some(node));
            let member = self.membership.member(node).map(|member| member.link);
            chosen.map(|(address, _)| *address).or(member)
        };
        let line = |chosen: sedge_overlay::Chosen| NeighbourStatus {
            node: Some(chosen.node),
            address: address_of(chosen.node),
            here: chosen.here,
            there: chosen.there,
            link: self.member_status(chosen.node).and_then(|member| member.link),
        };
        let mut lines: Vec<NeighbourStatus> = self.overlay.chosen().into_iter().map(line).collect();
        let unknown = self.neighbours.chosen.iter().filter(|(_, found)| found.is_none());
        lines.extend(unknown.map(|(address, _)| NeighbourStatus {
            node: None,
            address: Some(*address),
            here: true,
            there: false,
            link: None,
        }));
        Some(NeighboursStatus { lines, agreed: self.overlay.is_agreed() })
    }
}
