//! One node's statement about a tree.

use bytes::{Buf, BufMut, BytesMut};
use sedge_base::NodeId;

use super::cost::UNREACHABLE;

/// One node's statement about a tree. As bytes, big-endian:
///
/// ```text
/// claim    epoch u64 | version u32 | capability u64 | root u64 | cost u32 | has parent u8: 0 or 1 | parent u64 if it has one
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Number of the computation of the tree; higher ones replace lower ones.
    pub epoch: u64,
    /// Number that grows with each change of the claim within an epoch.
    pub version: u32,
    /// Capacity of the node, as it was when the node entered the epoch.
    pub capability: u64,
    /// The greatest member that the node has heard of in this epoch.
    pub root: NodeId,
    /// The way from the root, in microseconds of round trips; [`UNREACHABLE`] if there is none yet.
    pub cost: u32,
    /// The next member on the way to the root.
    pub parent: Option<NodeId>,
}

impl Claim {
    /// Writes the claim.
    pub fn put(&self, out: &mut BytesMut) {
        out.put_u64(self.epoch);
        out.put_u32(self.version);
        out.put_u64(self.capability);
        out.put_u64(self.root.get());
        out.put_u32(self.cost);
        out.put_u8(u8::from(self.parent.is_some()));
        if let Some(parent) = self.parent {
            out.put_u64(parent.get());
        }
    }

    /// Reads a claim and takes it off `input`; none if it is cut off or contradicts itself.
    pub fn get(input: &mut &[u8]) -> Option<Self> {
        let epoch = input.try_get_u64().ok()?;
        let version = input.try_get_u32().ok()?;
        let capability = input.try_get_u64().ok()?;
        let root = NodeId::new(input.try_get_u64().ok()?);
        let cost = input.try_get_u32().ok()?;
        let parent = match input.try_get_u8().ok()? {
            0 => None,
            1 => Some(NodeId::new(input.try_get_u64().ok()?)),
            _ => return None,
        };
        // Only the root is at the root, and every other node on the way has a parent.
        let fits = parent.is_some() == (cost != 0 && cost != UNREACHABLE);
        fits.then_some(Self { epoch, version, capability, root, cost, parent })
    }

    /// Whether this was said after `other`, by the same node.
    pub(super) fn is_newer_than(&self, other: &Self) -> bool {
        (self.epoch, self.version) > (other.epoch, other.version)
    }
}
