//! A node as membership knows it.

use std::net::{IpAddr, SocketAddr};

use foca::Identity;
use sedge_base::{Incarnation, NodeId};

/// One life of a node and where it can be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Which node.
    pub node: NodeId,
    /// Which life of it. A later life takes the place of an earlier one, so it has to grow at every start (the owner keeps the
    /// last one where clocks may step back).
    pub incarnation: Incarnation,
    /// UDP address for membership.
    pub swim: SocketAddr,
    /// TCP address for links.
    pub link: SocketAddr,
    /// How often this life has renewed its identity after it was declared dead by mistake. 0 at start.
    pub generation: u32,
    /// The node has said farewell.
    pub departed: bool,
}

impl Member {
    /// A node at the start of a life. Flow labels and scopes of IPv6 addresses are dropped, for they mean nothing to others.
    pub fn new(node: NodeId, incarnation: Incarnation, swim: SocketAddr, link: SocketAddr) -> Self {
        Self { node, incarnation, swim: plain(swim), link: plain(link), generation: 0, departed: false }
    }

    /// The unknown node that listens at this address; only for announcing to it.
    pub(crate) fn unknown_at(swim: SocketAddr) -> Self {
        Self::new(ANYONE, Incarnation::new(0), swim, swim)
    }

    /// Whether this stands for whoever listens at the address.
    pub(crate) fn is_anyone(&self) -> bool {
        self.node == ANYONE
    }

    fn rank(&self) -> (Incarnation, u32, bool, SocketAddr, SocketAddr) {
        (self.incarnation, self.generation, self.departed, self.swim, self.link)
    }
}

/// The id that no node has.
pub(crate) const ANYONE: NodeId = NodeId::new(0);

pub(crate) fn plain(addr: SocketAddr) -> SocketAddr {
    SocketAddr::new(IpAddr::to_canonical(&addr.ip()), addr.port())
}

impl Identity for Member {
    // Not the socket address: a node that returns under a new one must replace its old self at once, and two processes that
    // follow each other at one address are two nodes unless they say otherwise.
    type Addr = NodeId;

    fn renew(&self) -> Option<Self> {
        if self.departed {
            return None;
        }
        Some(Self { generation: self.generation.checked_add(1)?, ..self.clone() })
    }

    fn addr(&self) -> NodeId {
        self.node
    }

    fn win_addr_conflict(&self, adversary: &Self) -> bool {
        self.rank() > adversary.rank()
    }
}
