//! Retained messages that a subscriber has still to get (MQTT 5.0 section 3.3.1.3).
//!
//! A subscription may match more retained messages than a queue holds. They are not queued: the store's own messages are handed to the client, one
//! after the other, as its connection has room. Publications that arrive meanwhile wait behind them.

use std::collections::VecDeque;
use std::sync::Arc;

use sedge_mqtt::{Message, QoS, TopicFilter};

use crate::outgoing::{Buffer, Ids, Outgoing};

/// Bytes of an entry: the store has the message itself.
pub(crate) const ENTRY_BYTES: usize = 16;

/// The messages that one new subscription is still to get.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) filter: TopicFilter,
    pub(crate) ids: Ids,
    /// Which quality of service the subscription has.
    pub(crate) qos: QoS,
    pub(crate) messages: VecDeque<Arc<Message>>,
}

/// See the [module](self). No part is empty.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    parts: VecDeque<Part>,
    len: usize,
}

impl Part {
    fn outgoing(&self, message: Arc<Message>) -> Outgoing {
        let qos = message.qos.min(self.qos);
        Outgoing { message, ids: self.ids.clone(), group: 0, qos, retain: true, buffer: Buffer::Own }
    }
}

impl Backlog {
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.len * ENTRY_BYTES
    }

    pub(crate) fn add(&mut self, part: Part) {
        self.len += part.messages.len();
        if !part.messages.is_empty() {
            self.parts.push_back(part);
        }
    }

    /// Quality of service of the message that leaves next.
    pub(crate) fn next_qos(&self) -> Option<QoS> {
        let part = self.parts.front()?;
        Some(part.messages.front()?.qos.min(part.qos))
    }

    pub(crate) fn pop(&mut self) -> Option<Outgoing> {
        let part = self.parts.front_mut()?;
        let message = part.messages.pop_front()?;
        self.len -= 1;
        let outgoing = part.outgoing(message);
        if part.messages.is_empty() {
            self.parts.pop_front();
        }
        Some(outgoing)
    }

    /// Forgets what a subscription that is gone was to get.
    pub(crate) fn forget(&mut self, filter: &TopicFilter) {
        self.parts.retain(|part| part.filter != *filter);
        self.len = self.parts.iter().map(|part| part.messages.len()).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::message;

    fn part(filter: &str, qos: QoS, payloads: &[&str]) -> Part {
        let messages = payloads.iter().map(|payload| Arc::new(message("t", payload))).collect();
        Part { filter: TopicFilter::new(filter).unwrap(), ids: Ids::One(7), qos, messages }
    }

    #[test]
    fn parts_leave_one_after_the_other_and_can_be_forgotten() {
        let mut backlog = Backlog::default();
        backlog.add(part("none", QoS::AtMostOnce, &[]));
        assert_eq!((backlog.len(), backlog.next_qos()), (0, None));
        for filter in ["a", "b", "c"] {
            backlog.add(part(filter, QoS::AtMostOnce, &[filter, "x"]));
        }
        assert_eq!(backlog.bytes(), 6 * ENTRY_BYTES);
        backlog.forget(&TopicFilter::new("b").unwrap());
        let left: Vec<_> = core::iter::from_fn(|| backlog.pop()).collect();
        assert!(left.iter().all(|outgoing| outgoing.retain && outgoing.qos == QoS::AtMostOnce));
        let payloads: Vec<_> = left.iter().map(|outgoing| &outgoing.message.payload[..]).collect();
        assert_eq!(payloads, [&b"a"[..], b"x", b"c", b"x"]);
        assert_eq!(backlog.len(), 0);
    }
}
