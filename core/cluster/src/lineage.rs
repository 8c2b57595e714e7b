//! The former owners of a session, as far as it came from one to the next with all messages that were caught for it.
//!
//! A copy of such an owner, whose node dies later, has nothing for the session (FT-20): it is older than the session, or as old.

use std::sync::Arc;

use sedge_base::NodeId;

/// Owners that are remembered; a copy of an older one is gone by the time the session has moved so often.
pub(crate) const MAX_OWNERS: usize = 4;

/// The node that has given a session up, and the epoch: another epoch than that of the claim if the home had given the session away before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Given {
    pub(crate) from: NodeId,
    pub(crate) epoch: u64,
}

impl Given {
    /// Whether the node gave the session up after it had it under this epoch.
    fn succeeds(self, owner: NodeId, epoch: u64) -> bool {
        self.from == owner && self.epoch > epoch
    }
}

/// The owners of a session before the present one, the last owner first: see the module. Most sessions have never moved, and have none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lineage(Option<Arc<[Given]>>);

impl Lineage {
    /// As another node says; further ones than [`MAX_OWNERS`] are left out.
    pub(crate) fn new(owners: impl IntoIterator<Item = Given>) -> Self {
        let owners: Arc<[Given]> = owners.into_iter().take(MAX_OWNERS).collect();
        Self((!owners.is_empty()).then_some(owners))
    }

    /// After it was given away once more.
    pub(crate) fn then(&self, given: Given) -> Self {
        Self::new(core::iter::once(given).chain(self.owners()))
    }

    pub(crate) fn owners(&self) -> impl Iterator<Item = Given> {
        self.0.iter().flat_map(|owners| owners.iter().copied())
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Whether a session under this epoch is one that its owner gave away, and that went on from there.
    pub(crate) fn succeeds(&self, owner: NodeId, epoch: u64) -> bool {
        self.owners().any(|given| given.succeeds(owner, epoch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FT-20
    #[test]
    fn the_last_owners_are_remembered() {
        let given = |node| Given { from: NodeId::new(node), epoch: node * 10 };
        let lineage = (1..=5).fold(Lineage::default(), |lineage, node| lineage.then(given(node)));
        assert_eq!(lineage.owners().map(|given| given.from.get()).collect::<Vec<_>>(), [5, 4, 3, 2]);
        assert!(lineage.succeeds(NodeId::new(3), 29) && !lineage.succeeds(NodeId::new(3), 30));
        assert!(!lineage.succeeds(NodeId::new(1), 0), "forgotten");
        assert!(!lineage.is_empty() && Lineage::default().is_empty());
    }
}
