//! What waits for one session.

use std::collections::VecDeque;

use sedge_base::Timestamp;
use sedge_mqtt::QoS;

use crate::outgoing::Outgoing;
use crate::{BrokerConfig, Counters};

/// A queue that has come to rest keeps at most this much room.
const IDLE_CAPACITY: usize = 8;

/// Messages in the order they leave. What was dropped from the middle leaves a hole until the holes are worth a sweep.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    items: VecDeque<Option<Outgoing>>,
    messages: usize,
    bytes: usize,
    qos0: usize,
    /// No QoS 0 message lies before this index.
    first_qos0: usize,
    purged_at: Timestamp,
}

impl Queue {
    pub(crate) const fn len(&self) -> usize {
        self.messages
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.messages == 0
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Number of QoS 0 messages.
    pub(crate) const fn qos0(&self) -> usize {
        self.qos0
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Outgoing> {
        self.items.iter_mut().flatten()
    }

    /// Whether a message of `size` bytes is within the limits.
    pub(crate) const fn has_room(&self, size: usize, config: &BrokerConfig) -> bool {
        self.messages < config.queue_limit_messages && self.bytes.saturating_add(size) <= config.queue_limit_bytes
    }

    /// Appends `item`, or drops by the rules: the oldest QoS 0 messages make room; if there are none the newest is lost.
    pub(crate) fn push(&mut self, item: Outgoing, now: Timestamp, config: &BrokerConfig, counters: &mut Counters) {
        let size = item.size();
        if !self.has_room(size, config) && !self.make_room(size, now, config, counters) {
            match item.qos {
                QoS::AtMostOnce => counters.dropped.queue_full_qos0 += 1,
                QoS::AtLeastOnce | QoS::ExactlyOnce => counters.dropped.queue_full += 1,
            }
            return;
        }
        self.messages += 1;
        self.bytes += size;
        if item.qos == QoS::AtMostOnce {
            self.qos0 += 1;
        }
        counters.queued_messages += 1;
        counters.queued_bytes += size as u64;
        self.items.push_back(Some(item));
    }

    /// The message that leaves next.
    pub(crate) fn front(&mut self) -> Option<&Outgoing> {
        while let Some(None) = self.items.front() {
            self.items.pop_front();
            self.first_qos0 = self.first_qos0.saturating_sub(1);
        }
        self.items.front()?.as_ref()
    }

    /// Takes the message that leaves next.
    pub(crate) fn pop(&mut self, counters: &mut Counters) -> Option<Outgoing> {
        self.front()?;
        let item = self.items.pop_front().flatten()?;
        self.first_qos0 = self.first_qos0.saturating_sub(1);
        self.forget(&item, counters);
        if self.items.is_empty() && self.items.capacity() > IDLE_CAPACITY {
            self.items = VecDeque::new();
        }
        Some(item)
    }

    /// Takes everything, in order.
    pub(crate) fn take(&mut self, counters: &mut Counters) -> Vec<Outgoing> {
        core::iter::from_fn(|| self.pop(counters)).collect()
    }

    /// Drops what `keep` does not want; returns how many.
    pub(crate) fn retain(&mut self, counters: &mut Counters, keep: impl Fn(&Outgoing) -> bool) -> u64 {
        let items = core::mem::take(&mut self.items);
        let mut dropped = 0;
        for item in items.into_iter().flatten() {
            if keep(&item) {
                self.items.push_back(Some(item));
            } else {
                dropped += 1;
                self.forget(&item, counters);
            }
        }
        self.first_qos0 = 0;
        dropped
    }

    fn make_room(&mut self, size: usize, now: Timestamp, config: &BrokerConfig, counters: &mut Counters) -> bool {
        if size > config.queue_limit_bytes || config.queue_limit_messages == 0 {
            return false;
        }
        // A sweep looks at every message: no more than one a second.
        if now.since(self.purged_at).as_secs() >= 1 {
            self.purged_at = now;
            let expired = self.retain(counters, |item| item.message.expires_at.is_none_or(|at| at > now));
            counters.dropped.expired += expired;
        }
        while !self.has_room(size, config) {
            if !self.drop_oldest_qos0(counters) {
                return false;
            }
        }
        true
    }

    fn drop_oldest_qos0(&mut self, counters: &mut Counters) -> bool {
        if self.qos0 == 0 {
            return false;
        }
        while let Some(slot) = self.items.get_mut(self.first_qos0) {
            self.first_qos0 += 1;
            if let Some(item) = slot.take_if(|item| item.qos == QoS::AtMostOnce) {
                self.forget(&item, counters);
                counters.dropped.queue_full_qos0 += 1;
                if self.items.len() > self.messages * 2 + 64 {
                    self.items.retain(Option::is_some);
                    self.first_qos0 = 0;
                }
                return true;
            }
        }
        false
    }

    fn forget(&mut self, item: &Outgoing, counters: &mut Counters) {
        let size = item.size();
        self.messages -= 1;
        self.bytes -= size;
        self.qos0 -= usize::from(item.qos == QoS::AtMostOnce);
        counters.queued_messages -= 1;
        counters.queued_bytes -= size as u64;
    }
}
