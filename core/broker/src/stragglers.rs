//! Open flows that the window of an [`crate::inflight::Inflight`] has left behind.

use std::collections::BTreeMap;

use sedge_mqtt::PacketId;

use crate::inflight::Slot;

/// Flows that stay open while many later ones complete. Each keeps its packet identifier; the others can be used again.
#[derive(Debug, Default)]
pub(crate) struct Stragglers {
    flows: BTreeMap<PacketId, (u64, Slot)>,
    /// In the order they were sent.
    order: BTreeMap<u64, PacketId>,
    /// Number of the next that is left behind.
    next: u64,
    /// Messages from this number on were not sent on the present connection.
    unsent: u64,
}

impl Stragglers {
    pub(crate) fn len(&self) -> usize {
        self.flows.len()
    }

    pub(crate) fn contains(&self, id: PacketId) -> bool {
        self.flows.contains_key(&id)
    }

    pub(crate) fn get(&self, id: PacketId) -> Option<&Slot> {
        self.flows.get(&id).map(|(_, slot)| slot)
    }

    pub(crate) fn get_mut(&mut self, id: PacketId) -> Option<&mut Slot> {
        self.flows.get_mut(&id).map(|(_, slot)| slot)
    }

    /// Leaves a flow behind that was sent after all others here.
    pub(crate) fn push(&mut self, id: PacketId, slot: Slot, was_sent: bool) {
        self.flows.insert(id, (self.next, slot));
        self.order.insert(self.next, id);
        self.next += 1;
        if was_sent {
            self.unsent = self.next;
        }
    }

    /// Takes a flow out, and says whether it was sent on the present connection.
    pub(crate) fn remove(&mut self, id: PacketId) -> Option<(Slot, bool)> {
        let (number, slot) = self.flows.remove(&id)?;
        self.order.remove(&number);
        Some((slot, number < self.unsent))
    }

    /// The connection is lost: everything has to be sent again.
    pub(crate) fn disconnect(&mut self) {
        self.unsent = 0;
        for (_, slot) in self.flows.values_mut() {
            slot.keep();
        }
    }

    /// The flow that has to be sent again next.
    pub(crate) fn peek_resend(&self) -> Option<(PacketId, &Slot)> {
        let (_, id) = self.order.range(self.unsent..).next()?;
        self.get(*id).map(|slot| (*id, slot))
    }

    /// The flow that [`Stragglers::peek_resend`] showed was sent.
    pub(crate) fn resent(&mut self) {
        if let Some((number, _)) = self.order.range(self.unsent..).next() {
            self.unsent = number + 1;
        }
    }

    /// All in the order they were sent.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (PacketId, &Slot)> {
        self.order.values().filter_map(|id| self.get(*id).map(|slot| (*id, slot)))
    }
}
