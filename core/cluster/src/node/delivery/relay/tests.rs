//! Streams over a network that drops, repeats and reorders.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use sedge_base::{ClientId, Incarnation, Instant, NodeId, Rng, ShardId};
use sedge_mqtt::{Message, MessageId, QoS, ReadAt, Stamp, TopicName};
use smallvec::SmallVec;

use super::incoming::Incoming;
use super::outgoing::{Open, Outgoing};
use crate::link::{End, Publication};

const SENDER: (NodeId, Incarnation) = (NodeId::new(1), Incarnation::new(7));
const DESTINATION: NodeId = NodeId::new(2);

fn message(seq: u64, qos: QoS) -> Arc<Message> {
    let (node, incarnation) = SENDER;
    Arc::new(Message {
        id: MessageId { node, incarnation, shard: ShardId(0), seq },
        topic: TopicName::new("t").unwrap(),
        payload: Bytes::new(),
        qos,
        retain: false,
        properties: None,
        stamp: Stamp { millis: 0, counter: 0, node, shard: ShardId(0) },
        expires_at: None,
        publisher: None,
        read_at: ReadAt::default(),
    })
}

fn open(message: &Arc<Message>) -> Open {
    Open {
        message: Arc::clone(message),
        plain: true,
        retained_copy: false,
        entry: Some(message.id.seq),
        since: Instant::from_millis(0),
        direct: false,
    }
}

fn publication(message: &Arc<Message>) -> Publication {
    let message = Arc::clone(message);
    Publication { message, plain: true, groups: SmallVec::new(), retained_copy: false, waybill: None }
}

#[derive(Default)]
struct Pair {
    outgoing: Outgoing,
    incoming: Incoming,
    got: Vec<u64>,
    acknowledged: BTreeSet<u64>,
}

impl Pair {
    fn place(&mut self, message: &Arc<Message>) -> Option<End> {
        self.outgoing.place(DESTINATION, open(message), message.qos > QoS::AtMostOnce)
    }

    fn arrives(&mut self, end: End, message: &Arc<Message>, straight: bool) -> Option<(u64, u64)> {
        let accepted = self.incoming.accept(SENDER, end, publication(message), straight);
        self.got.extend(accepted.ready.iter().map(|(_, publication)| publication.message.id.seq));
        accepted.gap
    }

    /// The missing publications come over the link, in order.
    fn repair(&mut self, (after, before): (u64, u64)) {
        let missing = self.outgoing.stream(DESTINATION).map(|stream| stream.indirect(after, before));
        for (number, open) in missing.into_iter().flatten() {
            let end = End { node: DESTINATION, number, behind: 0 };
            self.outgoing.note_direct(end);
            self.arrives(end, &open.message, true);
        }
    }

    fn acknowledge(&mut self) {
        while let Some((sender, incarnation, up_to)) = self.incoming.pop_due() {
            assert_eq!((sender, incarnation), SENDER);
            self.outgoing.arrived(DESTINATION, up_to, |entry| assert!(self.acknowledged.insert(entry)));
        }
    }
}

proptest! {
    /// MQ-13, FT-17, FT-18, FT-21
    #[test]
    fn everything_with_qos_1_and_2_arrives_once_and_each_qos_in_order(seed in any::<u64>(), drops in 0_u64..4) {
        let mut rng = Rng::new(seed);
        let mut pair = Pair::default();
        let mut under_way = Vec::new();
        let mut kept = Vec::new();
        for seq in 1..=60 {
            let qos = if rng.chance(1, 3) { QoS::AtMostOnce } else { QoS::AtLeastOnce };
            let message = message(seq, qos);
            let end = pair.place(&message).unwrap();
            if qos > QoS::AtMostOnce {
                kept.push(seq);
            }
            if !rng.chance(drops, 10) {
                under_way.push((end, Arc::clone(&message)));
            }
            if rng.chance(1, 10) {
                under_way.push((end, message));
            }
            while under_way.len() > 5 {
                let at = rng.index(under_way.len());
                let (end, message) = under_way.swap_remove(at);
                if let Some(gap) = pair.arrives(end, &message, false) && rng.chance(2, 3) {
                    pair.repair(gap);
                }
            }
            if rng.chance(1, 4) {
                pair.acknowledge();
            }
        }
        for (end, message) in under_way {
            pair.arrives(end, &message, false);
        }
        pair.repair((0, u64::MAX));
        pair.acknowledge();
        let (got, others): (Vec<u64>, Vec<u64>) = pair.got.iter().copied().partition(|seq| kept.contains(seq));
        prop_assert!(others.is_sorted_by(|a, b| a < b), "{others:?}");
        prop_assert_eq!(&got, &kept);
        prop_assert_eq!(pair.acknowledged, kept.into_iter().collect());
        prop_assert_eq!((pair.outgoing.len(), pair.incoming.held()), (0, 0));
    }
}

/// MQ-13
#[test]
fn what_was_overtaken_by_another_topic_or_publisher_is_delivered() {
    let mut pair = Pair::default();
    let of = |seq: u64, topic: &str, publisher: &str| {
        let plain = (*message(seq, QoS::AtMostOnce)).clone();
        let (topic, publisher) = (TopicName::new(topic).unwrap(), Some(ClientId::new(publisher)));
        Arc::new(Message { topic, publisher, ..plain })
    };
    let messages = [of(1, "a", "x"), of(2, "b", "x"), of(3, "a", "y"), of(4, "a", "x")];
    let ends = messages.each_ref().map(|message| pair.place(message).unwrap());
    for at in [2, 0, 0, 3, 1] {
        pair.arrives(ends[at], &messages[at], false);
    }
    assert_eq!(pair.got, [3, 1, 4, 2]);
    assert_eq!((pair.incoming.overtaken(), pair.incoming.late()), (2, 1));
    let messages = [of(5, "a", "x"), of(6, "b", "x"), of(7, "c", "x")];
    let ends = messages.each_ref().map(|message| pair.place(message).unwrap());
    pair.arrives(ends[2], &messages[2], false);
    pair.incoming.seal(SENDER, (0, 5));
    pair.arrives(ends[0], &messages[0], false);
    pair.arrives(ends[1], &messages[1], false);
    assert_eq!(pair.got, [3, 1, 4, 2, 7, 6], "mail had to stay behind the first of them");
}

#[test]
fn a_destination_that_begins_anew_gets_what_the_former_life_did_not_acknowledge() {
    let mut pair = Pair::default();
    let messages: Vec<_> = (1..=4).map(|seq| message(seq, QoS::AtLeastOnce)).collect();
    for message in &messages {
        let end = pair.place(message).unwrap();
        pair.arrives(end, message, false);
        if end.number == 2 {
            pair.acknowledge();
        }
    }
    pair.incoming = Incoming::default();
    pair.got.clear();
    assert_eq!(pair.outgoing.restart(DESTINATION), Some(2));
    // A late copy from before says nothing about where the stream goes on.
    assert_eq!(pair.arrives(End { node: DESTINATION, number: 4, behind: 0 }, &messages[3], false), Some((0, 4)));
    let ready = pair.incoming.begin(SENDER.0, SENDER.1, 2);
    assert!(ready.is_empty());
    pair.repair((0, u64::MAX));
    pair.acknowledge();
    assert_eq!((pair.got, pair.outgoing.len()), (vec![3, 4], 0));
}

#[test]
fn an_older_life_of_the_sender_is_not_heard() {
    let mut incoming = Incoming::default();
    let end = End { node: DESTINATION, number: 1, behind: 0 };
    let message = message(1, QoS::AtLeastOnce);
    let younger = (SENDER.0, Incarnation::new(8));
    assert_eq!(incoming.accept(younger, end, publication(&message), false).ready.len(), 1);
    assert!(incoming.accept(SENDER, end, publication(&message), false).ready.is_empty());
    assert_eq!(incoming.pop_due(), Some((younger.0, younger.1, 1)));
    assert_eq!(incoming.pop_due(), None);
}

#[test]
fn acknowledgements_wait_for_their_limit() {
    let mut pair = Pair::default();
    let first = message(1, QoS::ExactlyOnce);
    let end = pair.place(&first).unwrap();
    pair.arrives(end, &first, false);
    pair.incoming.limit_acks(SENDER.0, 0);
    pair.acknowledge();
    assert_eq!(pair.outgoing.len(), 1);
    pair.incoming.limit_acks(SENDER.0, u64::MAX);
    pair.acknowledge();
    assert_eq!(pair.outgoing.len(), 0);
}

#[test]
fn a_fence_is_told_once_for_a_place_and_passed_when_all_before_it_has_come() {
    let mut pair = Pair::default();
    assert_eq!(pair.outgoing.fence(DESTINATION), None);
    let (first, second) = (message(1, QoS::AtLeastOnce), message(2, QoS::AtMostOnce));
    let ends = [&first, &second].map(|message| pair.place(message).unwrap());
    assert_eq!(pair.outgoing.fence(DESTINATION), Some((1, 1)));
    assert_eq!(pair.outgoing.fence(DESTINATION), None);
    assert!(!pair.incoming.has(SENDER, (1, 1)));
    assert_eq!(pair.incoming.give_up(SENDER, (1, 1)).unwrap_err(), 0);
    pair.arrives(ends[0], &first, false);
    assert!(pair.incoming.has(SENDER, (1, 0)) && !pair.incoming.has(SENDER, (1, 1)));
    assert!(pair.incoming.give_up(SENDER, (1, 1)).unwrap().is_empty());
    assert!(pair.incoming.has(SENDER, (1, 1)));
    pair.arrives(ends[1], &second, false);
    assert_eq!(pair.got, [1], "what was given up does not come any more");
}
