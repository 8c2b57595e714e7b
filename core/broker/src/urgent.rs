//! Messages with a latency bound (FW-02): in a queue that is longer than what its client takes at once, the earliest deadline goes first.
//!
//! Order within a flow, the messages of one publisher to one topic, stays: when a message is urgent, those of its flow that wait before it go
//! first, in its place. A message whose deadline has passed is urgent no longer, so that it does not make others late, too.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use sedge_base::{StableHash, Timestamp};
use sedge_mqtt::{Message, PublishProperties};

use crate::outgoing::Outgoing;

/// Longest latency bound in milliseconds: a day.
const BOUND_MAX: u64 = 86_400_000;
/// So much of a payload is searched for the tag.
const TAG_WITHIN: usize = 1024;

/// How publishers say until when a message is of use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadlineNames {
    /// The user property with the milliseconds from the publication on.
    pub property: Option<Box<str>>,
    /// The member of a JSON payload with the same, for clients of MQTT 3.1.1.
    pub payload_tag: Option<Box<str>>,
}

impl DeadlineNames {
    /// The deadline of a message, in milliseconds of the time of the cluster.
    fn of(&self, message: &Message) -> Option<u64> {
        let property = message.properties.as_deref().and_then(|properties| self.in_property(properties));
        let bound = property.or_else(|| self.in_payload(&message.payload))?;
        (1..=BOUND_MAX).contains(&bound).then(|| message.stamp.millis.saturating_add(bound))
    }

    fn in_property(&self, properties: &PublishProperties) -> Option<u64> {
        let wanted = self.property.as_deref()?;
        let (_, value) = properties.user.iter().find(|(name, _)| name.as_str() == wanted)?;
        value.as_str().parse().ok()
    }

    /// The whole number behind `"TAG":`, at its first place near the payload's beginning.
    fn in_payload(&self, payload: &[u8]) -> Option<u64> {
        let tag = self.payload_tag.as_deref()?.as_bytes();
        let head = payload.get(..TAG_WITHIN).unwrap_or(payload);
        let is_tag = |window: &[u8]| window.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")) == Some(tag);
        let at = head.windows(tag.len() + 2).position(is_tag)?;
        let rest = head.get(at + tag.len() + 2..)?.trim_ascii_start().strip_prefix(b":")?.trim_ascii_start();
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        core::str::from_utf8(rest.get(..digits)?).ok()?.parse().ok()
    }
}

/// A slot of the queue, by a number that stays when those before it leave.
type Slot = u64;
type Flow = u64;

fn flow(message: &Message) -> Flow {
    let mut hash = StableHash::new();
    hash.add(message.topic.as_bytes());
    hash.add(&[0]);
    hash.add(message.publisher.as_ref().map_or(&[], |publisher| publisher.as_str().as_bytes()));
    hash.get()
}

/// The messages of one queue with deadlines, and the flows that their deadlines hurry.
#[derive(Debug)]
pub(crate) struct Urgent {
    deadlines: Arc<DeadlineNames>,
    /// Deadlines with the slots of their messages, whose flows they hurry.
    times: BTreeMap<(u64, Slot), Flow>,
    /// Slots of each flow in order; some of them may be empty.
    flows: BTreeMap<Flow, VecDeque<Slot>>,
    /// Number of the first slot.
    first: Slot,
    /// Deadlines before this have passed.
    now: u64,
    /// Messages that waited beyond their deadlines, since the owner asked.
    missed: u64,
}

impl Urgent {
    /// For a queue whose slots are `items`, if the message that is to come has a deadline.
    pub(crate) fn begin(
        deadlines: &Arc<DeadlineNames>,
        items: &VecDeque<Option<Outgoing>>,
        coming: &Message,
    ) -> Option<Box<Self>> {
        deadlines.of(coming)?;
        let (times, flows) = Default::default();
        let mut new = Self { deadlines: Arc::clone(deadlines), times, flows, first: 0, now: 0, missed: 0 };
        new.read(items);
        Some(Box::new(new))
    }

    /// The slots have moved: reads them anew.
    pub(crate) fn read(&mut self, items: &VecDeque<Option<Outgoing>>) {
        self.times.clear();
        self.flows.clear();
        for (index, item) in items.iter().enumerate() {
            if let Some(item) = item {
                self.add(index, &item.message);
            }
        }
    }

    /// There is a message in this slot, behind all others.
    pub(crate) fn add(&mut self, index: usize, message: &Message) {
        let (slot, flow) = (self.first + index as u64, flow(message));
        self.flows.entry(flow).or_default().push_back(slot);
        if let Some(deadline) = self.deadlines.of(message).filter(|deadline| *deadline >= self.now) {
            self.times.insert((deadline, slot), flow);
        }
    }

    /// The first slot is gone.
    pub(crate) const fn slot_is_gone(&mut self) {
        self.first += 1;
    }

    /// This message has left its slot.
    pub(crate) fn forget(&mut self, index: usize, message: &Message) {
        let (slot, key) = (self.first + index as u64, flow(message));
        if let Some(slots) = self.flows.get_mut(&key) {
            while slots.front().is_some_and(|front| *front <= slot) {
                slots.pop_front();
            }
            if slots.is_empty() {
                self.flows.remove(&key);
            }
        }
        if let Some(deadline) = self.deadlines.of(message) {
            self.times.remove(&(deadline, slot));
        }
    }

    /// The slot whose message goes next because something of its flow is urgent.
    pub(crate) fn next(&mut self, now: Timestamp, items: &VecDeque<Option<Outgoing>>) -> Option<usize> {
        self.now = self.now.max(now.as_millis());
        let first = self.first;
        let index = |slot: Slot| usize::try_from(slot.checked_sub(first)?).ok();
        let is_there = |slot: Slot| index(slot).and_then(|index| items.get(index)).is_some_and(Option::is_some);
        while let Some((&(deadline, slot), flow)) = self.times.first_key_value() {
            if deadline < self.now || !is_there(slot) {
                self.missed += u64::from(is_there(slot));
                self.times.pop_first();
                continue;
            }
            let slots = self.flows.get_mut(flow)?;
            while slots.front().is_some_and(|slot| !is_there(*slot)) {
                slots.pop_front();
            }
            return index(*slots.front()?);
        }
        None
    }

    /// Messages that waited beyond their deadlines since the last call.
    pub(crate) fn take_missed(&mut self) -> u64 {
        core::mem::take(&mut self.missed)
    }
}

#[cfg(test)]
mod tests {
    use sedge_base::Rng;
    use sedge_mqtt::QoS;

    use super::*;
    use crate::outgoing::{Buffer, Ids};
    use crate::queue::Queue;
    use crate::room::Room;
    use crate::testing::message;
    use crate::{BrokerConfig, Counters};

    /// FW-02
    #[test]
    fn a_payload_says_its_bound_in_a_member() {
        let deadlines = DeadlineNames { property: None, payload_tag: Some("deadline_ms".into()) };
        let bound = |payload: &str| deadlines.in_payload(payload.as_bytes());
        assert_eq!(bound(r#"{"v":1,"deadline_ms":250}"#), Some(250));
        assert_eq!(bound(r#"{ "deadline_ms" : 7 , "v":1}"#), Some(7));
        for other in [r#"{"deadline":250}"#, r#"{"deadline_ms":"250"}"#, r#"{"deadline_ms":-1}"#, "deadline_ms: 5", ""]
        {
            assert_eq!(bound(other), None, "{other}");
        }
        assert_eq!(bound(&format!("{}\"deadline_ms\":5", " ".repeat(TAG_WITHIN))), None, "too far behind");
        let huge = message("t", r#"{"deadline_ms":99999999999}"#);
        assert_eq!(deadlines.of(&huge), None, "longer than a day");
    }

    const DEADLINES: DeadlineNames = DeadlineNames { property: None, payload_tag: None };

    fn config() -> BrokerConfig {
        let deadlines = DeadlineNames { payload_tag: Some("ms".into()), ..DEADLINES };
        BrokerConfig { deadlines: Some(Arc::new(deadlines)), queue_limit_messages: 60, ..BrokerConfig::default() }
    }

    fn outgoing(topic: &str, payload: &str, published: u64, qos: QoS) -> Outgoing {
        let mut message = message(topic, payload);
        message.stamp.millis = published;
        let message = Arc::new(message);
        Outgoing { message, ids: Ids::NONE, group: 0, qos, retain: false, buffer: Buffer::Read }
    }

    /// A model of the queue without tables: it looks at every message and names the place of the one that leaves next.
    fn expected(waiting: &[(String, String, Option<u64>)], now: u64) -> usize {
        let urgent =
            waiting.iter().enumerate().filter_map(|(at, (.., deadline))| Some((deadline.filter(|d| *d >= now)?, at)));
        let Some((_, at)) = urgent.min() else { return 0 };
        waiting.iter().position(|(topic, ..)| *topic == waiting[at].0).unwrap_or(0)
    }

    /// FW-02: like the model, whatever comes, goes and is dropped; and of one flow everything in its order.
    #[test]
    fn the_flow_with_the_earliest_deadline_goes_first() {
        let config = config();
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let (mut queue, mut counters) = (Queue::default(), Counters::default());
            let (mut model, mut now) = (Vec::<(String, String, Option<u64>)>::new(), 0);
            for number in 0..400 {
                now += rng.index(3) as u64;
                if rng.index(5) < 3 {
                    let topic = format!("t{}", rng.index(6));
                    let bound = (rng.index(2) == 0).then(|| rng.index(60) as u64 + 1);
                    let tag = bound.map(|bound| format!("{{\"ms\":{bound}}}")).unwrap_or_default();
                    let payload = format!("{number} {tag}");
                    let item = outgoing(&topic, &payload, now, QoS::AtLeastOnce);
                    let room = Room::whole(&config, None);
                    if queue.push(item, Timestamp::from_millis(now), room, &mut counters, |_| {}) {
                        model.push((topic, payload, bound.map(|bound| now + bound)));
                    }
                } else if rng.index(40) == 0 {
                    let gone = format!("t{}", rng.index(6));
                    queue.retain(&mut counters, |item| item.message.topic.as_str() != gone);
                    model.retain(|(topic, ..)| *topic != gone);
                } else {
                    let wanted = (!model.is_empty()).then(|| model.remove(expected(&model, now)).1);
                    let popped = queue.pop_next(Timestamp::from_millis(now), &mut counters);
                    let popped = popped.map(|item| String::from_utf8_lossy(&item.message.payload).into_owned());
                    assert_eq!(popped, wanted, "seed {seed}, step {number}");
                }
                assert_eq!(queue.len(), model.len());
            }
            let rest: Vec<_> = queue.take(&mut counters);
            assert_eq!((rest.len(), counters.queued_messages, counters.queued_bytes), (model.len(), 0, 0));
        }
    }

    /// FW-02: a client takes a message each 10 ms, twice as many come; one of four is urgent.
    #[test]
    fn under_overload_urgent_messages_miss_fewer_deadlines_than_in_their_order() {
        let missed = |config: &BrokerConfig| {
            let (mut queue, mut counters) = (Queue::default(), Counters::default());
            let mut missed = 0;
            for step in 0..400_u64 {
                let now = Timestamp::from_millis(step * 5);
                let (topic, payload) = if step % 4 == 0 { ("urgent", "{\"ms\":100}") } else { ("bulk", "") };
                let item = outgoing(topic, payload, step * 5, QoS::AtLeastOnce);
                queue.push(item, now, Room::whole(config, None), &mut counters, |_| {});
                if step % 2 == 0
                    && let Some(item) = queue.pop_next(now, &mut counters)
                {
                    let is_late = now.as_millis() > item.message.stamp.millis + 100;
                    missed += u64::from(is_late && item.message.topic.as_str() == "urgent");
                }
            }
            (missed, counters.deadlines_first > 0)
        };
        let large = |deadlines| BrokerConfig { deadlines, queue_limit_messages: 1_000, ..config() };
        let (in_order, _) = missed(&large(None));
        let (by_deadline, is_used) = missed(&large(config().deadlines));
        assert!(in_order > 30 && by_deadline == 0 && is_used, "{in_order} in order, {by_deadline} by deadline");
    }

    /// FW-02: a message that waited beyond its deadline is counted, and waits in its order again.
    #[test]
    fn a_deadline_that_has_passed_hurries_nobody() {
        let (config, mut queue, mut counters) = (config(), Queue::default(), Counters::default());
        for (topic, payload) in [("a", "first"), ("b", "{\"ms\":10}"), ("c", "{\"ms\":50}")] {
            let item = outgoing(topic, payload, 1_000, QoS::AtMostOnce);
            queue.push(item, Timestamp::from_millis(1_000), Room::whole(&config, None), &mut counters, |_| {});
        }
        let topics: Vec<_> = core::iter::from_fn(|| queue.pop_next(Timestamp::from_millis(1_020), &mut counters))
            .map(|item| item.message.topic.as_str().to_owned())
            .collect();
        assert_eq!(topics, ["c", "a", "b"]);
        assert_eq!((counters.deadlines_missed, counters.deadlines_first), (1, 1));
    }
}
