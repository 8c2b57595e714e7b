//! The queue of one session.

use std::collections::VecDeque;

use sedge_base::Timestamp;
use sedge_mqtt::{QoS, TopicFilter};

use crate::backlog::{Backlog, ENTRY_BYTES, Part};
use crate::order::restore_order;
use crate::outgoing::Outgoing;
use crate::room::{MESSAGE_BYTES, Room};
use crate::urgent::Urgent;
use crate::{Counters, QueueLimits};

/// A queue that has come to rest keeps at most this much room.
const IDLE_CAPACITY: usize = 8;

/// Messages in the order they leave. A message dropped from the middle leaves a hole until the holes are worth a sweep.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    items: VecDeque<Option<Outgoing>>,
    messages: u32,
    bytes: usize,
    qos0: u32,
    /// State that few queues need; boxed, for every session has a queue.
    rare: Option<Box<Rare>>,
}

/// State of a queue that has been full, or has retained messages before it.
#[derive(Debug, Default)]
struct Rare {
    /// No QoS 0 message lies before this index.
    first_qos0: u32,
    /// Second of the last sweep, modulo 2^32.
    purged_at: u32,
    /// Slots that were there before the backlog, and leave before it.
    ahead: u32,
    /// Retained messages that leave before what came later.
    backlog: Backlog,
    /// Messages with deadlines, once there was one.
    urgent: Option<Box<Urgent>>,
}

impl Queue {
    /// Messages, the backlog included.
    pub(crate) fn len(&self) -> usize {
        self.messages as usize + self.backlog_len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.messages == 0 && !self.has_backlog()
    }

    fn backlog_len(&self) -> usize {
        self.rare.as_ref().map_or(0, |rare| rare.backlog.len())
    }

    pub(crate) fn has_backlog(&self) -> bool {
        self.backlog_len() > 0
    }

    /// Adds to the backlog, behind what is there; gives it back if all sessions hold too much already.
    pub(crate) fn put_backlog(&mut self, part: Part, room: Room<'_>, counters: &mut Counters) -> Result<(), Part> {
        let more = part.messages.len() * ENTRY_BYTES;
        if !room.allows(self.footprint(), more, counters) {
            return Err(part);
        }
        if more > 0 {
            let rare = self.rare.get_or_insert_default();
            if rare.backlog.len() == 0 {
                rare.ahead = u32::try_from(self.items.len()).unwrap_or(u32::MAX);
            }
            rare.backlog.add(part);
            counters.queued_bytes += more as u64;
        }
        Ok(())
    }

    /// Takes the next message of the backlog.
    pub(crate) fn pop_backlog(&mut self, counters: &mut Counters) -> Option<Outgoing> {
        let popped = self.rare.as_mut()?.backlog.pop()?;
        counters.queued_bytes -= ENTRY_BYTES as u64;
        self.come_to_rest();
        Some(popped)
    }

    /// A subscription is gone.
    pub(crate) fn forget_backlog(&mut self, filter: &TopicFilter, counters: &mut Counters) {
        let Some(rare) = &mut self.rare else { return };
        let before = rare.backlog.bytes();
        rare.backlog.forget(filter);
        counters.queued_bytes -= (before - rare.backlog.bytes()) as u64;
        self.come_to_rest();
    }

    /// A queue that is empty needs no room.
    fn come_to_rest(&mut self) {
        if !self.items.is_empty() || self.has_backlog() {
            return;
        }
        self.rare = None;
        if self.items.capacity() > IDLE_CAPACITY {
            self.items = VecDeque::new();
        }
    }

    /// Whether the next message is one of the backlog.
    pub(crate) fn backlog_is_next(&mut self) -> bool {
        self.clear_holes();
        self.rare.as_ref().is_some_and(|rare| rare.ahead == 0 && rare.backlog.len() > 0)
    }

    /// Quality of service of the message that leaves next.
    pub(crate) fn next_qos(&mut self, now: Timestamp) -> Option<QoS> {
        if self.backlog_is_next() {
            return self.rare.as_ref()?.backlog.next_qos();
        }
        if let Some(slot) = self.urgent_slot(now) {
            return self.items.get(slot)?.as_ref().map(|outgoing| outgoing.qos);
        }
        self.front().map(|outgoing| outgoing.qos)
    }

    fn clear_holes(&mut self) {
        while let Some(None) = self.items.front() {
            self.items.pop_front();
            self.slot_is_gone();
        }
    }

    /// The first slot is gone.
    fn slot_is_gone(&mut self) {
        if let Some(rare) = &mut self.rare {
            rare.first_qos0 = rare.first_qos0.saturating_sub(1);
            rare.ahead = rare.ahead.saturating_sub(1);
            if let Some(urgent) = &mut rare.urgent {
                urgent.slot_is_gone();
            }
        }
    }

    /// The slot whose message leaves before older ones. Nothing passes retained messages: an urgent message may be newer than they are.
    fn urgent_slot(&mut self, now: Timestamp) -> Option<usize> {
        let rare = self.rare.as_mut().filter(|rare| rare.backlog.len() == 0)?;
        rare.urgent.as_mut()?.next(now, &self.items)
    }

    /// Takes the message that leaves next: of the flow with the earliest deadline if there is one, or else the oldest.
    pub(crate) fn pop_next(&mut self, now: Timestamp, counters: &mut Counters) -> Option<Outgoing> {
        self.clear_holes();
        let slot = self.urgent_slot(now).filter(|slot| *slot > 0);
        if let Some(urgent) = self.urgent() {
            counters.deadlines_missed += urgent.take_missed();
        }
        let Some(slot) = slot else { return self.pop(counters) };
        let item = self.items.get_mut(slot)?.take()?;
        counters.deadlines_first += 1;
        if let Some(urgent) = self.urgent() {
            urgent.forget(slot, &item.message);
        }
        self.forget(&item, counters);
        self.sweep();
        Some(item)
    }

    fn urgent(&mut self) -> Option<&mut Urgent> {
        self.rare.as_mut()?.urgent.as_deref_mut()
    }

    /// The slots have moved.
    fn read_urgent(&mut self) {
        if let Some(urgent) = self.rare.as_mut().and_then(|rare| rare.urgent.as_mut()) {
            urgent.read(&self.items);
        }
    }

    /// A message is about to wait in the slot behind the last.
    fn note_urgent(&mut self, item: &Outgoing, room: Room<'_>) {
        let Some(deadlines) = room.deadlines() else { return };
        let index = self.items.len();
        if let Some(urgent) = self.urgent() {
            urgent.add(index, &item.message);
        } else if let Some(mut urgent) = Urgent::begin(deadlines, &self.items, &item.message) {
            urgent.add(index, &item.message);
            self.rare.get_or_insert_default().urgent = Some(urgent);
        }
    }

    /// Closes the holes once they are worth it.
    fn sweep(&mut self) {
        let Some(rare) = self.rare.as_mut().filter(|_| self.items.len() > self.messages as usize * 2 + 64) else {
            return;
        };
        let ahead = self.items.iter().take(rare.ahead as usize).flatten().count();
        (rare.ahead, rare.first_qos0) = (u32::try_from(ahead).unwrap_or(u32::MAX), 0);
        self.items.retain(Option::is_some);
        self.read_urgent();
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Number of QoS 0 messages.
    pub(crate) const fn qos0(&self) -> usize {
        self.qos0 as usize
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Outgoing> {
        self.items.iter().flatten()
    }

    /// The slot at `index`: a message or a hole.
    pub(crate) fn get(&self, index: usize) -> Option<&Option<Outgoing>> {
        self.items.get(index)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Outgoing> {
        self.items.iter_mut().flatten()
    }

    /// Whether a message of `size` bytes is within the limits.
    pub(crate) fn has_room(&self, size: usize, room: Room<'_>, counters: &Counters) -> bool {
        self.is_within(size, room.limits) && room.allows(self.footprint(), size + MESSAGE_BYTES, counters)
    }

    /// The same for its own limits only.
    const fn is_within(&self, size: usize, limits: QueueLimits) -> bool {
        (self.messages as usize) < limits.messages && self.bytes.saturating_add(size) <= limits.bytes
    }

    /// Bytes that the queue takes of the limit for all sessions.
    pub(crate) fn footprint(&self) -> usize {
        let backlog = self.backlog_len() * ENTRY_BYTES;
        self.bytes + self.messages as usize * MESSAGE_BYTES + backlog
    }

    /// Appends `item`, or drops messages: expired ones first, then the oldest of QoS 0; if none are left, `item` itself is lost or the oldest of all
    /// make room, as [`crate::BrokerConfig::queue_drops_oldest`] says. `gone` is told of each dropped message. Returns whether the item waits.
    pub(crate) fn push(
        &mut self,
        item: Outgoing,
        now: Timestamp,
        room: Room<'_>,
        counters: &mut Counters,
        gone: impl FnMut(&Outgoing),
    ) -> bool {
        let size = item.size();
        let room = if room.limits.refuses && item.qos > QoS::AtMostOnce { room.of_all() } else { room };
        if !self.has_room(size, room, counters) && !self.make_room(size, now, room, counters, gone) {
            let is_within = self.is_within(size, room.limits);
            count_dropped(item.qos, is_within, counters);
            return false;
        }
        self.messages += 1;
        self.bytes += size;
        if item.qos == QoS::AtMostOnce {
            self.qos0 += 1;
        }
        counters.queued_messages += 1;
        counters.queued_bytes += size as u64;
        self.note_urgent(&item, room);
        self.items.push_back(Some(item));
        true
    }

    /// The message that leaves next.
    pub(crate) fn front(&mut self) -> Option<&Outgoing> {
        self.clear_holes();
        self.items.front()?.as_ref()
    }

    /// Takes the message that leaves next.
    pub(crate) fn pop(&mut self, counters: &mut Counters) -> Option<Outgoing> {
        self.front()?;
        let item = self.items.pop_front().flatten()?;
        if let Some(urgent) = self.urgent() {
            urgent.forget(0, &item.message);
        }
        self.slot_is_gone();
        self.forget(&item, counters);
        self.come_to_rest();
        Some(item)
    }

    /// Takes everything but the backlog, in order; that is forgotten.
    pub(crate) fn take(&mut self, counters: &mut Counters) -> Vec<Outgoing> {
        while self.pop_backlog(counters).is_some() {}
        core::iter::from_fn(|| self.pop(counters)).collect()
    }

    /// Drops what `keep` does not want; returns how many.
    pub(crate) fn retain(&mut self, counters: &mut Counters, mut keep: impl FnMut(&Outgoing) -> bool) -> u64 {
        let items = core::mem::take(&mut self.items);
        let mut rare = self.rare.take().unwrap_or_default();
        let (mut dropped, ahead) = (0, core::mem::take(&mut rare.ahead));
        for (slot, item) in items.into_iter().enumerate().filter_map(|(slot, item)| Some((slot, item?))) {
            if keep(&item) {
                rare.ahead += u32::from(slot < ahead as usize);
                self.items.push_back(Some(item));
            } else {
                dropped += 1;
                self.forget(&item, counters);
            }
        }
        rare.first_qos0 = 0;
        self.rare = Some(rare);
        self.read_urgent();
        self.come_to_rest();
        dropped
    }

    /// Puts the messages into the order of publication; returns whether any moved.
    pub(crate) fn restore_order(&mut self) -> bool {
        if let Some(rare) = &mut self.rare {
            rare.first_qos0 = 0;
        }
        let moved = restore_order(self.items.make_contiguous(), |outgoing| &outgoing.message);
        self.read_urgent();
        moved
    }

    fn make_room(
        &mut self,
        size: usize,
        now: Timestamp,
        room: Room<'_>,
        counters: &mut Counters,
        mut gone: impl FnMut(&Outgoing),
    ) -> bool {
        let limits = room.limits;
        if size > limits.bytes || limits.messages == 0 {
            return false;
        }
        // A sweep looks at every message: no more than one a second.
        let second = u32::try_from(now.as_millis() / 1_000 % (1 << 32)).unwrap_or(0);
        if self.rare.get_or_insert_default().purged_at != second {
            self.rare.get_or_insert_default().purged_at = second;
            let expired = self.retain(counters, |item| {
                let keeps = item.message.expires_at.is_none_or(|at| at > now);
                if !keeps {
                    gone(item);
                }
                keeps
            });
            counters.dropped.expired += expired;
        }
        while !self.has_room(size, room, counters) {
            let is_within = self.is_within(size, limits);
            if self.drop_oldest_qos0(is_within, counters) {
                continue;
            }
            let oldest = if limits.drops_oldest { self.pop(counters) } else { None };
            let Some(oldest) = oldest else { return false };
            count_dropped(oldest.qos, is_within, counters);
            gone(&oldest);
        }
        true
    }

    fn drop_oldest_qos0(&mut self, is_within: bool, counters: &mut Counters) -> bool {
        if self.qos0 == 0 {
            return false;
        }
        let rare = self.rare.get_or_insert_default();
        while let Some(slot) = self.items.get_mut(rare.first_qos0 as usize) {
            rare.first_qos0 += 1;
            let Some(item) = slot.take_if(|item| item.qos == QoS::AtMostOnce) else { continue };
            self.sweep();
            self.forget(&item, counters);
            count_dropped(item.qos, is_within, counters);
            return true;
        }
        false
    }

    fn forget(&mut self, item: &Outgoing, counters: &mut Counters) {
        let size = item.size();
        self.messages -= 1;
        self.bytes -= size;
        self.qos0 -= u32::from(item.qos == QoS::AtMostOnce);
        counters.queued_messages -= 1;
        counters.queued_bytes -= size as u64;
    }
}

/// Counts a message that found no room: because of the queue's own limits, or because all hold too much.
fn count_dropped(qos: QoS, is_within: bool, counters: &mut Counters) {
    match qos {
        _ if is_within => counters.dropped.buffers_full += 1,
        QoS::AtMostOnce => counters.dropped.queue_full_qos0 += 1,
        QoS::AtLeastOnce | QoS::ExactlyOnce => counters.dropped.queue_full += 1,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::BrokerConfig;
    use crate::outgoing::{Buffer, Ids};
    use crate::testing::message;

    fn item(number: u32, qos: QoS) -> Outgoing {
        let message = Arc::new(message("t", &number.to_string()));
        Outgoing { message, ids: Ids::NONE, group: 0, qos, retain: false, buffer: Buffer::Read }
    }

    fn payloads(queue: &mut Queue, counters: &mut Counters) -> Vec<String> {
        let items = queue.take(counters);
        items.iter().map(|item| String::from_utf8_lossy(&item.message.payload).into_owned()).collect()
    }

    /// MQ-09
    #[test]
    fn the_oldest_qos_0_makes_room_wherever_it_is() {
        let config = BrokerConfig { queue_limit_messages: 4, ..BrokerConfig::default() };
        let (mut queue, mut counters) = (Queue::default(), Counters::default());
        let now = Timestamp::default();
        for (number, qos) in [(0, 1), (1, 0), (2, 1), (3, 0), (4, 1), (5, 0), (6, 1), (7, 1)] {
            let qos = if qos == 0 { QoS::AtMostOnce } else { QoS::AtLeastOnce };
            queue.push(item(number, qos), now, Room::whole(&config, None), &mut counters, |_| {});
            assert!(queue.len() <= 4);
        }
        assert_eq!((queue.qos0(), counters.dropped.queue_full_qos0, counters.dropped.queue_full), (0, 3, 1));
        assert_eq!(payloads(&mut queue, &mut counters), ["0", "2", "4", "6"]);
        assert_eq!((queue.bytes(), counters.queued_bytes, counters.queued_messages), (0, 0, 0));
    }

    /// MQ-09
    #[test]
    fn the_oldest_of_all_makes_room_where_that_is_wanted() {
        let config = BrokerConfig { queue_limit_messages: 3, queue_drops_oldest: true, ..BrokerConfig::default() };
        let (mut queue, mut counters) = (Queue::default(), Counters::default());
        let mut gone = Vec::new();
        for (number, qos) in [(0, 1), (1, 2), (2, 0), (3, 1), (4, 1), (5, 2)] {
            let item = item(number, QoS::from_u8(qos).expect("a QoS"));
            let waits = queue.push(item, Timestamp::default(), Room::whole(&config, None), &mut counters, |item| {
                gone.push(item.message.payload.to_vec());
            });
            assert!(waits && queue.len() <= 3);
        }
        assert_eq!(gone, [b"0", b"1"], "the journal has no QoS 0");
        assert_eq!((counters.dropped.queue_full_qos0, counters.dropped.queue_full), (1, 2));
        assert_eq!(payloads(&mut queue, &mut counters), ["3", "4", "5"]);
        // A message that never fits drops nothing.
        let config = BrokerConfig { queue_limit_bytes: 200, ..config };
        queue.push(item(6, QoS::AtLeastOnce), Timestamp::default(), Room::whole(&config, None), &mut counters, |_| {});
        let message = Arc::new(message("t", &"x".repeat(300)));
        let large = Outgoing { message, ..item(7, QoS::AtLeastOnce) };
        assert!(!queue.push(large, Timestamp::default(), Room::whole(&config, None), &mut counters, |_| {}));
        assert_eq!(payloads(&mut queue, &mut counters), ["6"]);
    }

    /// MQ-09: a queue that drops all the time stays as small as its limit.
    #[test]
    fn holes_are_swept() {
        let config = BrokerConfig { queue_limit_messages: 10, ..BrokerConfig::default() };
        let (mut queue, mut counters) = (Queue::default(), Counters::default());
        queue.push(item(0, QoS::AtLeastOnce), Timestamp::default(), Room::whole(&config, None), &mut counters, |_| {});
        for number in 1..10_000 {
            queue.push(
                item(number, QoS::AtMostOnce),
                Timestamp::default(),
                Room::whole(&config, None),
                &mut counters,
                |_| {},
            );
        }
        assert!(queue.items.len() <= 2 * 10 + 65, "{}", queue.items.len());
        assert_eq!(queue.pop(&mut counters).map(|item| item.message.payload.len()), Some(1));
        assert_eq!(payloads(&mut queue, &mut counters).first().map(String::as_str), Some("9991"));
        assert!(queue.items.capacity() <= IDLE_CAPACITY);
    }

    /// MQ-09
    #[test]
    fn a_message_above_the_byte_limit_drops_nothing_else() {
        let config = BrokerConfig { queue_limit_bytes: 200, ..BrokerConfig::default() };
        let (mut queue, mut counters) = (Queue::default(), Counters::default());
        queue.push(item(1, QoS::AtMostOnce), Timestamp::default(), Room::whole(&config, None), &mut counters, |_| {});
        let message = Arc::new(message("t", &"x".repeat(300)));
        let large = Outgoing { message, ..item(2, QoS::AtLeastOnce) };
        queue.push(large, Timestamp::default(), Room::whole(&config, None), &mut counters, |_| {});
        assert_eq!((queue.len(), counters.dropped.queue_full), (1, 1));
    }
}
