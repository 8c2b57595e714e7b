//! A node beside a broker: whether the node would have delivered the same as the broker.
//!
//! For each filter that is compared, one subscriber listens at the broker and one at the node. A delivery of one side waits for its like
//! from the other; a delivery that waits too long is a difference.

use std::collections::VecDeque;

use bytes::Bytes;
use sedge_base::{Duration, Instant};
use sedge_mqtt::{QoS, TopicName};

/// Limits and times of a [`Mirror`].
#[derive(Clone, Copy, Debug)]
pub struct MirrorConfig {
    /// Time for which a delivery waits for its like.
    pub patience: Duration,
    /// Time after a beginning in which deliveries without their like do not count: the two subscriptions did not begin at the same time.
    /// Retained messages count from the start.
    pub settling: Duration,
    /// Deliveries of each side that wait for each filter; the oldest is given up uncompared for one more.
    pub waiting: usize,
    /// Bytes of their payloads.
    pub waiting_bytes: usize,
}

impl Default for MirrorConfig {
    fn default() -> Self {
        Self {
            patience: Duration::from_secs(5),
            settling: Duration::from_secs(2),
            waiting: 10_000,
            waiting_bytes: 16 * 1024 * 1024,
        }
    }
}

/// Side that delivers: the broker or the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The broker.
    Broker,
    /// The node.
    Node,
}

/// A message as a subscriber gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// Topic of the message.
    pub topic: TopicName,
    /// Payload of the message.
    pub payload: Bytes,
    /// The QoS of the delivery.
    pub qos: QoS,
    /// Retain flag of the delivery.
    pub retain: bool,
}

/// An event for the machine.
#[derive(Clone, Debug)]
pub enum MirrorInput {
    /// All subscriptions begin, or begin anew.
    Begin,
    /// A delivery came.
    Delivered {
        /// The number of the filter.
        filter: usize,
        /// The side that delivered.
        side: Side,
        /// The delivered message.
        message: Delivered,
    },
}

/// Kind of a difference between the two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DifferenceKind {
    /// The broker has delivered a message that the node has not.
    Missing,
    /// The node has delivered a message that the broker has not.
    Extra,
    /// The two deliveries differ in their QoS.
    Qos,
    /// The two deliveries differ in their retain flag.
    Retain,
    /// One side has delivered a message after a later one of its topic.
    Order,
}

impl DifferenceKind {
    /// All kinds of differences.
    pub const ALL: [Self; 5] = [Self::Missing, Self::Extra, Self::Qos, Self::Retain, Self::Order];

    /// Name of the kind in listings and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Extra => "extra",
            Self::Qos => "qos",
            Self::Retain => "retain",
            Self::Order => "order",
        }
    }
}

/// A difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Kind of the difference.
    pub kind: DifferenceKind,
    /// The number of the filter.
    pub filter: usize,
    /// The broker's delivery, if there is one.
    pub broker: Option<Delivered>,
    /// The node's delivery, if there is one.
    pub node: Option<Delivered>,
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MirrorCounters {
    /// Deliveries of the broker that the node has made likewise.
    pub alike: u64,
    /// Differences, in the order of [`DifferenceKind::ALL`].
    pub differences: [u64; 5],
    /// Deliveries that were not compared: within the time of settling, from before a new beginning, or for want of room.
    pub uncompared: u64,
    /// Number of times that the subscriptions began.
    pub begun: u64,
}

#[derive(Debug)]
struct Waiting {
    message: Delivered,
    since: Instant,
    /// A later message of the same topic has found its like.
    is_overtaken: bool,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    bytes: usize,
}

impl Queue {
    fn push(&mut self, message: Delivered, since: Instant) {
        self.bytes += message.payload.len();
        self.waiting.push_back(Waiting { message, since, is_overtaken: false });
    }

    fn take(&mut self, at: usize) -> Option<Waiting> {
        let one = self.waiting.remove(at)?;
        self.bytes -= one.message.payload.len();
        Some(one)
    }

    /// Takes the like of a message; those of the same topic before it are overtaken.
    fn take_like(&mut self, message: &Delivered) -> Option<Waiting> {
        let at = self.waiting.iter().position(|one| one.message == *message)?;
        let before = self.waiting.iter_mut().take(at);
        before.filter(|one| one.message.topic == message.topic).for_each(|one| one.is_overtaken = true);
        self.take(at)
    }

    /// Takes the same message with another QoS or flag.
    fn take_similar(&mut self, message: &Delivered) -> Option<Waiting> {
        let is_same = |one: &Waiting| (&one.message.topic, &one.message.payload) == (&message.topic, &message.payload);
        let at = self.waiting.iter().position(is_same)?;
        self.take(at)
    }
}

/// Deliveries for one filter that wait for their like from the other side.
#[derive(Debug, Default)]
struct Lane {
    broker: Queue,
    node: Queue,
}

/// Compares a broker with a node.
#[derive(Debug)]
pub struct Mirror {
    config: MirrorConfig,
    lanes: Vec<Lane>,
    settled: Instant,
    counters: MirrorCounters,
    outputs: VecDeque<Difference>,
}

impl Mirror {
    /// Nothing has come yet for any of so many filters.
    pub fn new(config: MirrorConfig, filters: usize) -> Self {
        Self {
            config,
            lanes: (0..filters).map(|_| Lane::default()).collect(),
            settled: Instant::ZERO,
            counters: MirrorCounters::default(),
            outputs: VecDeque::new(),
        }
    }

    /// Takes an event in.
    pub fn handle(&mut self, now: Instant, input: MirrorInput) {
        match input {
            MirrorInput::Begin => {
                for lane in &mut self.lanes {
                    let left = lane.broker.waiting.len() + lane.node.waiting.len();
                    self.counters.uncompared += left as u64;
                    *lane = Lane::default();
                }
                self.counters.begun += 1;
                self.settled = now + self.config.settling;
            }
            MirrorInput::Delivered { filter, side, message } => self.delivered(now, filter, side, message),
        }
    }

    fn delivered(&mut self, now: Instant, filter: usize, side: Side, message: Delivered) {
        let Some(lane) = self.lanes.get_mut(filter) else { return };
        let (own, other) = match side {
            Side::Broker => (&mut lane.broker, &mut lane.node),
            Side::Node => (&mut lane.node, &mut lane.broker),
        };
        if let Some(like) = other.take_like(&message) {
            self.counters.alike += 1;
            if like.is_overtaken && like.since >= self.settled {
                let (broker, node) =
                    if side == Side::Broker { (message, like.message) } else { (like.message, message) };
                self.differs(DifferenceKind::Order, filter, (Some(broker), Some(node)));
            }
            return;
        }
        own.push(message, now);
        if own.waiting.len() > self.config.waiting || own.bytes > self.config.waiting_bytes {
            own.take(0);
            self.counters.uncompared += 1;
        }
    }

    fn differs(&mut self, kind: DifferenceKind, filter: usize, (broker, node): (Option<Delivered>, Option<Delivered>)) {
        let all = DifferenceKind::ALL.iter().zip(&mut self.counters.differences);
        all.filter(|(one, _)| **one == kind).for_each(|(_, count)| *count += 1);
        self.outputs.push_back(Difference { kind, filter, broker, node });
    }

    /// Gives up deliveries that have waited long enough; early or repeated calls do nothing.
    pub fn handle_timeout(&mut self, now: Instant) {
        for filter in 0..self.lanes.len() {
            while self.give_up_one(now, filter) {}
        }
    }

    fn give_up_one(&mut self, now: Instant, filter: usize) -> bool {
        let Some(lane) = self.lanes.get_mut(filter) else { return false };
        let patience = self.config.patience;
        let is_due = |queue: &Queue| queue.waiting.front().is_some_and(|one| one.since + patience <= now);
        let (late, other, side) = if is_due(&lane.broker) {
            (lane.broker.take(0), &mut lane.node, Side::Broker)
        } else if is_due(&lane.node) {
            (lane.node.take(0), &mut lane.broker, Side::Node)
        } else {
            return false;
        };
        let Some(late) = late else { return false };
        let similar = other.take_similar(&late.message);
        if late.since < self.settled && !late.message.retain {
            self.counters.uncompared += 1 + u64::from(similar.is_some());
            return true;
        }
        let (late, similar) = (late.message, similar.map(|similar| similar.message));
        let kind = match (&similar, side) {
            (Some(similar), _) if similar.qos != late.qos => DifferenceKind::Qos,
            (Some(_), _) => DifferenceKind::Retain,
            (None, Side::Broker) => DifferenceKind::Missing,
            (None, Side::Node) => DifferenceKind::Extra,
        };
        let both = if side == Side::Broker { (Some(late), similar) } else { (similar, Some(late)) };
        self.differs(kind, filter, both);
        true
    }

    /// Time at which [`Mirror::handle_timeout`] is next wanted.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let oldest = |queue: &Queue| queue.waiting.front().map(|one| one.since + self.config.patience);
        self.lanes.iter().flat_map(|lane| [oldest(&lane.broker), oldest(&lane.node)]).flatten().min()
    }

    /// The next difference.
    pub fn poll_output(&mut self) -> Option<Difference> {
        self.outputs.pop_front()
    }

    /// Counts since the start.
    pub const fn counters(&self) -> MirrorCounters {
        self.counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(topic: &str, payload: &'static str) -> Delivered {
        let topic = TopicName::new(topic).unwrap();
        Delivered { topic, payload: Bytes::from_static(payload.as_bytes()), qos: QoS::AtLeastOnce, retain: false }
    }

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    fn begun() -> Mirror {
        let mut mirror = Mirror::new(MirrorConfig { waiting: 3, ..MirrorConfig::default() }, 2);
        mirror.handle(at(0), MirrorInput::Begin);
        mirror
    }

    fn deliver(mirror: &mut Mirror, millis: u64, side: Side, message: Delivered) {
        mirror.handle(at(millis), MirrorInput::Delivered { filter: 1, side, message });
    }

    fn kinds(mirror: &mut Mirror) -> Vec<DifferenceKind> {
        core::iter::from_fn(|| mirror.poll_output()).map(|difference| difference.kind).collect()
    }

    #[test]
    fn what_both_deliver_is_no_difference_whoever_is_first() {
        let mut mirror = begun();
        for (first, second) in [(Side::Broker, Side::Node), (Side::Node, Side::Broker)] {
            for side in [first, second] {
                for payload in ["1", "2", "2"] {
                    deliver(&mut mirror, 3_000, side, message("t", payload));
                }
            }
        }
        mirror.handle_timeout(at(60_000));
        assert_eq!((kinds(&mut mirror), mirror.counters().alike), (vec![], 6));
        assert_eq!(mirror.poll_timeout(), None);
    }

    #[test]
    fn differences_are_told_after_a_while() {
        let mut mirror = begun();
        deliver(&mut mirror, 3_000, Side::Broker, message("a", "lost"));
        deliver(&mut mirror, 3_001, Side::Node, message("b", "too much"));
        assert_eq!(mirror.poll_timeout(), Some(at(8_000)));
        mirror.handle_timeout(at(7_999));
        assert_eq!(kinds(&mut mirror), []);
        mirror.handle_timeout(at(8_001));
        assert_eq!(kinds(&mut mirror), [DifferenceKind::Missing, DifferenceKind::Extra]);
        deliver(&mut mirror, 9_000, Side::Broker, Delivered { qos: QoS::ExactlyOnce, ..message("a", "1") });
        deliver(&mut mirror, 9_000, Side::Node, message("a", "1"));
        deliver(&mut mirror, 9_000, Side::Node, Delivered { retain: true, ..message("a", "2") });
        deliver(&mut mirror, 9_000, Side::Broker, message("a", "2"));
        mirror.handle_timeout(at(20_000));
        assert_eq!(kinds(&mut mirror), [DifferenceKind::Qos, DifferenceKind::Retain]);
        assert_eq!(mirror.counters().differences, [1, 1, 1, 1, 0]);
    }

    #[test]
    fn the_order_counts_within_a_topic() {
        let mut mirror = begun();
        for (topic, payload) in [("a", "1"), ("b", "x"), ("a", "2")] {
            deliver(&mut mirror, 3_000, Side::Broker, message(topic, payload));
        }
        deliver(&mut mirror, 3_000, Side::Node, message("b", "x"));
        assert_eq!(kinds(&mut mirror), []);
        deliver(&mut mirror, 3_000, Side::Node, message("a", "2"));
        deliver(&mut mirror, 3_000, Side::Node, message("a", "1"));
        assert_eq!(kinds(&mut mirror), [DifferenceKind::Order]);
    }

    #[test]
    fn a_beginning_and_want_of_room_are_no_differences() {
        let mut mirror = begun();
        deliver(&mut mirror, 1_999, Side::Broker, message("a", "before the node's subscription"));
        for _ in 0..5 {
            deliver(&mut mirror, 3_000, Side::Node, message("a", "many"));
        }
        mirror.handle_timeout(at(7_999));
        assert_eq!((kinds(&mut mirror), mirror.counters().uncompared), (vec![], 3));
        let mut kept = begun();
        deliver(&mut kept, 1, Side::Broker, Delivered { retain: true, ..message("a", "kept") });
        kept.handle_timeout(at(7_999));
        assert_eq!(kinds(&mut kept), [DifferenceKind::Missing]);
        mirror.handle(at(8_000), MirrorInput::Begin);
        mirror.handle_timeout(at(60_000));
        assert_eq!((kinds(&mut mirror), mirror.counters().uncompared, mirror.counters().begun), (vec![], 6, 2));
    }
}
