//! QoS 1 and 2 messages on their way to one client (MQTT 5.0 sections 4.3 and 4.4).

use std::collections::VecDeque;

use sedge_base::mix;
use sedge_mqtt::PacketId;

use crate::outgoing::Outgoing;
use crate::stragglers::Stragglers;

/// Number of packet identifiers.
const IDS: u32 = 65_535;

/// So many identifiers are left out at once at most while others are in use.
const MAX_LEFT_OUT: usize = 256;

/// A window longer than this leaves its oldest flows behind if no more than one slot of [`SPARSE`] is open.
const SPARSE_FROM: usize = 1_024;

/// See [`SPARSE_FROM`].
const SPARSE: usize = 8;

/// A window that has come to rest keeps at most this much room.
const IDLE_CAPACITY: usize = 8;

/// How far one message has come.
#[derive(Debug)]
pub(crate) enum Slot {
    /// Its flow is complete, but not that of an earlier one.
    Done,
    /// PUBLISH was sent; PUBACK or PUBREC is missing.
    Sent(Outgoing),
    /// PUBREL was sent; PUBCOMP is missing.
    Released,
}

impl Slot {
    /// Makes a message fit for waiting long.
    pub(crate) fn keep(&mut self) {
        if let Self::Sent(item) = self {
            item.keep();
        }
    }
}

/// A window over the packet identifiers: slot `i` has the identifier `first + i`, so that an acknowledgement finds its message
/// without a search. Flows that stay open while later ones complete are left behind, and the window moves on without them.
#[derive(Debug)]
pub(crate) struct Inflight {
    slots: VecDeque<Slot>,
    /// Older than everything in the window; few sessions have any.
    behind: Option<Box<Stragglers>>,
    /// Packet identifier of the first slot, 1 to 65,535.
    first: u16,
    /// Flows that are not complete.
    open: u16,
    /// Open flows that were sent, or sent again, on the present connection.
    outstanding: u16,
    /// Slots from here on were not sent on the present connection.
    unsent: u16,
    /// Bytes that the messages take of the limit for all sessions.
    bytes: usize,
}

impl Default for Inflight {
    fn default() -> Self {
        Self { slots: VecDeque::new(), behind: None, first: 1, open: 0, outstanding: 0, unsent: 0, bytes: 0 }
    }
}

impl Inflight {
    /// Open flows.
    pub(crate) const fn len(&self) -> usize {
        self.open as usize
    }

    /// Bytes that the messages take of the limit for all sessions.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether one more PUBLISH may be sent to a client that takes `window` of them.
    pub(crate) fn has_room(&self, window: u16) -> bool {
        self.outstanding < window && u32::from(self.open) < IDS
    }

    /// Whether something of an earlier connection waits to be sent again.
    pub(crate) fn is_resending(&self) -> bool {
        usize::from(self.unsent) < self.slots.len()
            || self.behind.as_ref().is_some_and(|old| old.peek_resend().is_some())
    }

    /// The packet identifier that [`Inflight::push`] will use: the next one that is free.
    pub(crate) fn next_id(&self) -> PacketId {
        self.id_at(self.next_index())
    }

    /// Enters a message whose PUBLISH has just been sent with [`Inflight::next_id`].
    pub(crate) fn push(&mut self, item: Outgoing) {
        let index = self.next_index();
        self.bytes += item.footprint();
        self.slots.resize_with(index, || Slot::Done);
        self.slots.push_back(Slot::Sent(item));
        self.unsent = u16::try_from(self.slots.len()).unwrap_or(u16::MAX);
        self.open += 1;
        self.outstanding += 1;
        self.leave_behind();
    }

    /// The slot of an identifier, if its flow is open.
    pub(crate) fn get(&self, id: PacketId) -> Option<&Slot> {
        let found = self.slots.get(self.index(id)).filter(|slot| !matches!(slot, Slot::Done));
        found.or_else(|| self.behind.as_ref()?.get(id))
    }

    fn get_mut(&mut self, id: PacketId) -> Option<&mut Slot> {
        let index = self.index(id);
        let found = self.slots.get_mut(index).filter(|slot| !matches!(slot, Slot::Done));
        found.or_else(|| self.behind.as_mut()?.get_mut(id))
    }

    /// PUBREC has come: keeps the identifier, forgets the message.
    pub(crate) fn release(&mut self, id: PacketId) {
        if let Some(slot @ Slot::Sent(_)) = self.get_mut(id) {
            let freed = footprint(slot);
            *slot = Slot::Released;
            self.bytes -= freed;
        }
    }

    /// The flow is complete.
    pub(crate) fn complete(&mut self, id: PacketId) {
        let index = self.index(id);
        let Some(slot @ (Slot::Sent(_) | Slot::Released)) = self.slots.get_mut(index) else {
            return self.complete_behind(id);
        };
        self.bytes -= footprint(slot);
        *slot = Slot::Done;
        self.open -= 1;
        if index < usize::from(self.unsent) {
            self.outstanding = self.outstanding.saturating_sub(1);
        }
        self.skip_done();
        if self.slots.is_empty() && self.slots.capacity() > IDLE_CAPACITY {
            self.slots = VecDeque::new();
        }
    }

    fn complete_behind(&mut self, id: PacketId) {
        let Some(behind) = &mut self.behind else { return };
        let Some((slot, was_sent)) = behind.remove(id) else { return };
        if behind.len() == 0 {
            self.behind = None;
        }
        self.bytes -= footprint(&slot);
        self.open -= 1;
        self.outstanding = self.outstanding.saturating_sub(u16::from(was_sent));
    }

    fn skip_done(&mut self) {
        while let Some(Slot::Done) = self.slots.front() {
            self.pop_front();
        }
    }

    fn pop_front(&mut self) -> Option<Slot> {
        let slot = self.slots.pop_front()?;
        self.first = next(self.first);
        self.unsent = self.unsent.saturating_sub(1);
        Some(slot)
    }

    /// Takes the oldest flows out of a long window that has few open ones, or that leaves no identifier free.
    fn leave_behind(&mut self) {
        loop {
            let behind = self.behind.as_ref().map_or(0, |behind| behind.len());
            let (slots, open) = (self.slots.len(), usize::from(self.open) - behind);
            let is_sparse = slots > SPARSE_FROM && slots / SPARSE > open;
            let is_short = slots + behind >= IDS as usize && usize::from(self.open) < IDS as usize;
            if !is_sparse && !is_short {
                return;
            }
            self.leave_first_behind();
        }
    }

    fn leave_first_behind(&mut self) {
        let (id, was_sent) = (self.id_at(0), self.unsent > 0);
        if let Some(slot @ (Slot::Sent(_) | Slot::Released)) = self.pop_front() {
            self.behind.get_or_insert_default().push(id, slot, was_sent);
        }
        self.skip_done();
    }

    /// The connection is lost: everything has to be sent again, and may wait long.
    pub(crate) fn disconnect(&mut self) {
        self.outstanding = 0;
        self.unsent = 0;
        self.slots.iter_mut().for_each(Slot::keep);
        if let Some(behind) = &mut self.behind {
            behind.disconnect();
        }
    }

    /// The flow to send again next: identifier and slot.
    pub(crate) fn peek_resend(&mut self) -> Option<(PacketId, &Slot)> {
        if let Some(found) = self.behind.as_ref().and_then(|behind| behind.peek_resend()) {
            return Some(found);
        }
        while let Some(Slot::Done) = self.slots.get(usize::from(self.unsent)) {
            self.unsent += 1;
        }
        let id = self.id_at(usize::from(self.unsent));
        self.slots.get(usize::from(self.unsent)).map(|slot| (id, slot))
    }

    /// The flow that [`Inflight::peek_resend`] showed was sent.
    pub(crate) fn resent(&mut self) {
        if let Some(behind) = self.behind.as_mut().filter(|behind| behind.peek_resend().is_some()) {
            behind.resent();
        } else if usize::from(self.unsent) < self.slots.len() {
            self.unsent += 1;
        } else {
            return;
        }
        self.outstanding += 1;
    }

    /// All open flows in the order they were sent.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (PacketId, &Slot)> {
        let slots = self.slots.iter().enumerate().filter(|(_, slot)| !matches!(slot, Slot::Done));
        let behind = self.behind.iter().flat_map(|behind| behind.iter());
        behind.chain(slots.map(|(index, slot)| (self.id_at(index), slot)))
    }

    /// Messages sent whose first acknowledgement is missing.
    pub(crate) fn messages(&self) -> impl Iterator<Item = &Outgoing> {
        self.iter().filter_map(|(_, slot)| if let Slot::Sent(item) = slot { Some(item) } else { None })
    }

    /// Enters a flow of another node behind all others. False if its identifier is in use.
    pub(crate) fn restore(&mut self, id: PacketId, slot: Slot) -> bool {
        if self.get(id).is_some() {
            return false;
        }
        let index = self.index(id);
        if index < self.slots.len() || index > self.slots.len() + SPARSE_FROM {
            while !self.slots.is_empty() {
                self.leave_first_behind();
            }
        }
        if self.slots.is_empty() {
            self.first = id.get();
        }
        self.slots.resize_with(self.index(id), || Slot::Done);
        self.bytes += footprint(&slot);
        self.slots.push_back(slot);
        self.open += 1;
        self.leave_behind();
        true
    }

    /// Of a session that comes from elsewhere and has no flow open: its identifiers begin at a place that `seed` chooses. Another owner may have
    /// sent more than is known here, and of a flow that the client has begun with that one it takes every PUBLISH for a repetition.
    pub(crate) fn begin_at(&mut self, seed: u64) {
        if self.open == 0 {
            self.first = u16::try_from(mix(seed) % u64::from(IDS) + 1).unwrap_or(1);
        }
    }

    /// Goes on behind an identifier that another owner of the session has used last, if it lies ahead: the client may have begun a flow with it,
    /// and takes every PUBLISH of that identifier for a repetition.
    pub(crate) fn go_on_behind(&mut self, id: PacketId) {
        let index = self.index(id);
        if self.slots.is_empty() {
            if index < IDS as usize / 2 {
                self.first = next(id.get());
            }
        } else if (self.slots.len()..self.slots.len() + MAX_LEFT_OUT).contains(&index) {
            let was_sent = usize::from(self.unsent) >= self.slots.len();
            self.slots.resize_with(index + 1, || Slot::Done);
            if was_sent {
                self.unsent = u16::try_from(self.slots.len()).unwrap_or(u16::MAX);
            }
            self.leave_behind();
        }
    }

    /// Where the next flow goes: behind all slots, but for identifiers of flows that were left behind.
    fn next_index(&self) -> usize {
        let mut index = self.slots.len();
        if let Some(behind) = &self.behind {
            while behind.contains(self.id_at(index)) {
                index += 1;
            }
        }
        index
    }

    fn index(&self, id: PacketId) -> usize {
        ((u32::from(id.get()) + IDS - u32::from(self.first)) % IDS) as usize
    }

    fn id_at(&self, index: usize) -> PacketId {
        let offset = u32::try_from(index % IDS as usize).unwrap_or(0);
        let id = (u32::from(self.first) - 1 + offset) % IDS + 1;
        u16::try_from(id).ok().and_then(PacketId::new).unwrap_or(PacketId::MIN)
    }
}

fn footprint(slot: &Slot) -> usize {
    match slot {
        Slot::Sent(item) => item.footprint(),
        Slot::Done | Slot::Released => 0,
    }
}

const fn next(id: u16) -> u16 {
    if id == u16::MAX { 1 } else { id + 1 }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sedge_mqtt::QoS;

    use super::*;
    use crate::outgoing::{Buffer, Ids};
    use crate::testing::message;

    fn item(number: u32) -> Outgoing {
        let message = Arc::new(message("t", &number.to_string()));
        Outgoing { message, ids: Ids::NONE, group: 0, qos: QoS::AtLeastOnce, retain: false, buffer: Buffer::Read }
    }

    fn id(number: u16) -> PacketId {
        PacketId::new(number).unwrap()
    }

    /// MQ-05
    #[test]
    fn identifiers_ascend_and_wrap_past_zero() {
        let mut inflight = Inflight::default();
        for number in 0..200_000_u32 {
            let id = inflight.next_id();
            assert_eq!(u32::from(id.get()), number % 65_535 + 1);
            inflight.push(item(number));
            assert!(matches!(inflight.get(id), Some(Slot::Sent(_))));
            inflight.complete(id);
            assert_eq!(inflight.len(), 0);
        }
    }

    /// MQ-06
    #[test]
    fn flows_complete_in_any_order() {
        let mut inflight = Inflight::default();
        for number in 1..=5 {
            inflight.push(item(number));
        }
        assert!(!inflight.has_room(5));
        inflight.release(id(2));
        inflight.complete(id(2));
        inflight.complete(id(2));
        inflight.complete(id(4));
        assert_eq!((inflight.len(), inflight.slots.len()), (3, 5));
        inflight.complete(id(1));
        assert_eq!((inflight.len(), inflight.slots.len()), (2, 3));
        assert!(inflight.get(id(4)).is_none() && inflight.get(id(9)).is_none());
        assert_eq!(inflight.next_id(), id(6));
        inflight.complete(id(3));
        inflight.complete(id(5));
        assert_eq!((inflight.len(), inflight.slots.len(), inflight.bytes()), (0, 0, 0));
        assert_eq!(inflight.next_id(), id(6));
    }

    /// MQ-05
    #[test]
    fn after_a_disconnect_what_is_open_is_sent_again_in_order() {
        let mut inflight = Inflight::default();
        for number in 1..=4 {
            inflight.push(item(number));
        }
        inflight.complete(id(2));
        inflight.release(id(3));
        inflight.disconnect();
        assert!(inflight.is_resending());
        let mut again = Vec::new();
        while let Some((id, _)) = inflight.peek_resend() {
            again.push(id.get());
            inflight.resent();
        }
        assert_eq!(again, [1, 3, 4]);
        assert!(!inflight.is_resending());
        assert!(!inflight.has_room(3));
    }

    /// MQ-11
    #[test]
    fn restored_flows_keep_their_identifiers() {
        let mut inflight = Inflight::default();
        for number in [65_534, 65_535, 3] {
            assert!(inflight.restore(id(number), Slot::Released));
        }
        assert!(!inflight.restore(id(65_535), Slot::Released), "in use");
        assert_eq!(inflight.iter().map(|(id, _)| id.get()).collect::<Vec<_>>(), [65_534, 65_535, 3]);
        assert_eq!((inflight.len(), inflight.next_id()), (3, id(4)));
        assert_eq!(inflight.peek_resend().map(|(id, _)| id.get()), Some(65_534));
    }

    /// MQ-05, emqx#17897: flows that are never completed keep their identifiers, and cost no others theirs.
    #[test]
    fn what_is_never_acknowledged_stops_nothing() {
        let mut inflight = Inflight::default();
        for number in 0..3 {
            inflight.push(item(number));
        }
        inflight.complete(id(2));
        let mut used = std::collections::BTreeSet::new();
        for number in 0..200_000_u32 {
            assert!(inflight.has_room(3), "after {number}");
            let id = inflight.next_id();
            assert!(![1, 3].contains(&id.get()), "{id} is in use");
            inflight.push(item(number));
            used.insert(id.get());
            inflight.complete(id);
            inflight.complete(id);
            assert_eq!((inflight.len(), inflight.slots.len() <= 2 * SPARSE_FROM), (2, true));
        }
        assert_eq!(used.len(), 65_533, "all others");
        inflight.push(item(4));
        let last = inflight.iter().last().map(|(id, _)| id.get());
        assert_eq!(inflight.iter().map(|(id, _)| id.get()).collect::<Vec<_>>(), [1, 3, last.unwrap_or(0)]);
        inflight.release(id(3));
        inflight.disconnect();
        let mut again = Vec::new();
        while let Some((id, _)) = inflight.peek_resend() {
            again.push(id.get());
            inflight.resent();
        }
        assert_eq!(again, [1, 3, last.unwrap_or(0)]);
        assert!(!inflight.is_resending() && !inflight.has_room(3));
        for id in again {
            inflight.complete(PacketId::new(id).unwrap());
        }
        assert_eq!((inflight.len(), inflight.outstanding, inflight.bytes()), (0, 0, 0));
        assert!(inflight.behind.is_none() && inflight.slots.is_empty());
    }

    /// MQ-05: any number of open flows, completed in any order: every identifier is of one flow only, and all 65,535 can be in use.
    #[test]
    fn identifiers_are_unique_whatever_stays_open() {
        for share in [2, 9] {
            let mut inflight = Inflight::default();
            let mut order = Vec::new();
            let mut number = 0;
            while inflight.has_room(u16::MAX) {
                let id = inflight.next_id();
                assert!(inflight.get(id).is_none());
                inflight.push(item(number));
                if number % share == 0 {
                    order.push(id);
                } else {
                    inflight.complete(id);
                }
                number += 1;
                assert!(inflight.slots.len() <= 65_535);
            }
            assert_eq!(inflight.len(), 65_535);
            assert_eq!(inflight.iter().map(|(id, _)| id).collect::<Vec<_>>(), order);
            let mut elsewhere = Inflight::default();
            for (id, _) in inflight.iter() {
                assert!(elsewhere.restore(id, Slot::Released));
            }
            assert_eq!(elsewhere.iter().map(|(id, _)| id).collect::<Vec<_>>(), order);
            assert!(!elsewhere.has_room(u16::MAX));
            for id in order.into_iter().rev() {
                assert!(inflight.get(id).is_some());
                inflight.complete(id);
            }
            assert_eq!((inflight.len(), inflight.bytes()), (0, 0));
        }
    }

    /// FT-21, MQ-06
    #[test]
    fn a_session_from_elsewhere_begins_elsewhere() {
        let starts: std::collections::BTreeSet<u16> = (1..=100)
            .map(|seed| {
                let mut inflight = Inflight::default();
                inflight.begin_at(seed);
                inflight.next_id().get()
            })
            .collect();
        assert!(starts.len() > 95);
        let mut inflight = Inflight::default();
        assert!(inflight.restore(id(7), Slot::Released));
        inflight.begin_at(1);
        assert_eq!(inflight.next_id(), id(8), "behind what is on its way");
    }

    /// FT-21, MQ-06
    #[test]
    fn identifiers_that_another_owner_has_used_are_left_out() {
        let mut inflight = Inflight::default();
        inflight.go_on_behind(id(20));
        assert_eq!(inflight.next_id(), id(21));
        inflight.go_on_behind(id(20));
        assert_eq!(inflight.next_id(), id(21), "it is there already");
        inflight.push(item(1));
        inflight.go_on_behind(id(30));
        assert!(!inflight.is_resending());
        assert_eq!(inflight.next_id(), id(31));
        inflight.push(item(2));
        inflight.go_on_behind(id(30));
        inflight.go_on_behind(id(1_000));
        assert_eq!(inflight.next_id(), id(32), "far away");
        inflight.disconnect();
        assert_eq!(inflight.peek_resend().map(|(id, _)| id.get()), Some(21));
        inflight.resent();
        assert_eq!(inflight.peek_resend().map(|(id, _)| id.get()), Some(31));
        inflight.go_on_behind(id(40));
        assert!(inflight.is_resending());
        inflight.resent();
        assert!(inflight.peek_resend().is_none());
        inflight.complete(id(21));
        inflight.complete(id(31));
        assert_eq!((inflight.len(), inflight.next_id()), (0, id(41)));
        inflight.push(item(3));
        assert!(inflight.get(id(41)).is_some());
    }
}
