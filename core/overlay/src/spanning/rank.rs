//! The choice of the root.

use core::cmp::{Ordering, Reverse};
use core::net::{IpAddr, SocketAddr};

use sedge_base::NodeId;

/// Rank of a node: the member with the greatest one becomes the root of a tree (overlay-trees section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rank {
    /// Capacity of the node: more is greater.
    pub capability: u64,
    /// Address at which the node listens for links: the lower one is greater, compared as numbers, then by port (TR-08). All members have
    /// to know the same address of a node.
    pub address: SocketAddr,
    /// Id of the node: the lower one is greater.
    pub node: NodeId,
}

impl Rank {
    /// Key that decides between equals: less is preferred. An IPv4 address counts as the IPv6 address it is mapped to.
    pub(super) fn tie_break(&self) -> (u128, u16, NodeId) {
        let ip = match self.address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        (ip.to_bits(), self.address.port(), self.node)
    }
}

impl Ord for Rank {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.capability, Reverse(self.tie_break())).cmp(&(other.capability, Reverse(other.tie_break())))
    }
}

impl PartialOrd for Rank {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
