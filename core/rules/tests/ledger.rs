//! A rule that is killed anywhere and goes on elsewhere counts every input once and puts every output out once (DP-02, DP-03).

#[expect(dead_code, reason = "the other tests use the rest")]
mod common;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use common::{Run, compile, table, text};
use proptest::prelude::*;
use sedge_base::Timestamp;
use sedge_mqtt::{PacketId, Publish, QoS, TopicName};
use sedge_rules::{Item, Ledger, Rule, Taken};

/// The broker's side: the session of the rule, and its log. It outlives whoever runs the rule.
#[derive(Default)]
struct Broker {
    waiting: VecDeque<Publish>,
    /// Sent and not acknowledged.
    inflight: VecDeque<Publish>,
    next_id: u16,
    /// Identifiers of QoS 2 outputs that were not released.
    unreleased: BTreeSet<PacketId>,
    published: Vec<String>,
    log: Vec<Vec<u8>>,
    /// How many of the inflight ones were sent on this connection.
    sent: usize,
}

impl Broker {
    fn send(&mut self) -> Option<Publish> {
        if let Some(again) = self.inflight.get(self.sent) {
            self.sent += 1;
            return Some(Publish { dup: true, ..again.clone() });
        }
        let mut publish = self.waiting.pop_front()?;
        self.next_id += 1;
        publish.packet_id = PacketId::new(self.next_id);
        self.inflight.push_back(publish.clone());
        self.sent += 1;
        Some(publish)
    }

    fn acknowledged(&mut self, id: PacketId) {
        if let Some(place) = self.inflight.iter().position(|publish| publish.packet_id == Some(id)) {
            self.inflight.remove(place);
            self.sent -= 1;
        }
    }

    fn receive(&mut self, publish: &Publish) {
        let id = publish.packet_id.expect("QoS 2");
        if self.unreleased.insert(id) {
            self.published.push(String::from_utf8_lossy(&publish.payload).into_owned());
        } else {
            assert!(publish.dup, "an identifier that is in use comes only again");
        }
    }
}

/// The process that runs the rule: packets that it has sent and the broker has not read yet are lost with it.
struct Runner {
    ledger: Ledger,
    /// Sent on the session's connection, in order.
    way: VecDeque<Sent>,
    /// Records, sent on another one.
    records: VecDeque<Vec<u8>>,
    /// Acknowledgements of the broker that have not been read.
    back: VecDeque<Back>,
}

enum Sent {
    Acknowledge(PacketId),
    Publish(Publish),
    Release(PacketId),
}

enum Back {
    Safe,
    Arrived(PacketId),
    Ended(PacketId),
}

impl Runner {
    fn begin(rule: &Arc<Rule>, broker: &mut Broker) -> Self {
        broker.sent = 0;
        let (ledger, changed) = Ledger::replay(rule, broker.log.iter().map(Vec::as_slice)).expect("its own log");
        assert!(!changed);
        let way = ledger.released_before().into_iter().map(Sent::Release).collect();
        Self { ledger, way, records: VecDeque::new(), back: VecDeque::new() }
    }

    fn step(&mut self, broker: &mut Broker, what: u8) {
        match what % 8 {
            0..=2 => self.input(broker),
            3 => self.records.extend(self.ledger.seal()),
            4 => self.broker_reads(broker),
            5 => self.log_reads(broker),
            6 => self.read(broker),
            _ => self.way.extend(self.ledger.poll_publish().map(Sent::Publish)),
        }
    }

    fn input(&mut self, broker: &mut Broker) {
        if !self.ledger.has_room() {
            return;
        }
        let Some(publish) = broker.send() else { return };
        if self.ledger.take(Timestamp::from_millis(1), &publish) == Taken::Again {
            self.way.extend(publish.packet_id.map(Sent::Acknowledge));
        }
    }

    fn broker_reads(&mut self, broker: &mut Broker) {
        match self.way.pop_front() {
            None => {}
            Some(Sent::Acknowledge(id)) => broker.acknowledged(id),
            Some(Sent::Publish(publish)) => {
                broker.receive(&publish);
                self.back.extend(publish.packet_id.map(Back::Arrived));
            }
            Some(Sent::Release(id)) => {
                broker.unreleased.remove(&id);
                self.back.push_back(Back::Ended(id));
            }
        }
    }

    fn log_reads(&mut self, broker: &mut Broker) {
        if let Some(record) = self.records.pop_front() {
            broker.log.push(record);
            self.back.push_back(Back::Safe);
        }
    }

    fn read(&mut self, broker: &mut Broker) {
        match self.back.pop_front() {
            None => {}
            Some(Back::Safe) => {
                let safe = self.ledger.sealed();
                self.way.extend(safe.inputs.into_iter().map(|(id, _)| Sent::Acknowledge(id)));
                self.way.extend(safe.release.into_iter().map(Sent::Release));
                if safe.keep_from.is_some() {
                    let last = broker.log.pop().expect("the whole record");
                    broker.log = vec![last];
                }
            }
            Some(Back::Arrived(id)) => self.ledger.arrived(id),
            Some(Back::Ended(id)) => self.ledger.ended(id),
        }
    }
}

fn rules() -> Vec<Arc<Rule>> {
    let sum = [("window", table(&[("count", Item::Number(3.0))])), ("select", text("sum(payload)"))];
    let each = [("where", text("payload % 2 == 0")), ("select", text("payload * 10"))];
    let common = [("from", text("in")), ("to", text("out")), ("qos", Item::Number(2.0))];
    [&sum[..], &each[..]]
        .map(|entries| Arc::new(compile("r", &[entries, &common[..]].concat()).expect("a valid rule")))
        .into()
}

fn input(number: usize) -> Publish {
    Publish {
        dup: false,
        qos: QoS::ExactlyOnce,
        retain: false,
        topic: Some(TopicName::new("in").expect("a topic")),
        packet_id: None,
        payload: Bytes::from(number.to_string()),
        properties: None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// DP-02, DP-03
    #[test]
    fn every_output_comes_once_however_often_the_rule_is_killed(
        steps in prop::collection::vec(prop_oneof![40 => 0_u8..8, 1 => Just(255_u8)], 0..1_500), inputs in 1_usize..60,
    ) {
        for rule in rules() {
            let mut broker = Broker { waiting: (0..inputs).map(input).collect(), ..Broker::default() };
            let mut runner = Runner::begin(&rule, &mut broker);
            for &step in &steps {
                if step == 255 {
                    runner = Runner::begin(&rule, &mut broker);
                } else {
                    runner.step(&mut broker, step);
                }
            }
            for _ in 0..2_000 {
                (0..8).for_each(|step| runner.step(&mut broker, step));
            }
            let mut plain = Run { machine: sedge_rules::Machine::new(Arc::clone(&rule)) };
            (0..inputs).for_each(|number| plain.send(1, "in", &number.to_string()));
            let wanted: Vec<String> = plain.taken().iter().map(|line| line.replace("out ", "")).collect();
            prop_assert_eq!(&broker.published, &wanted);
            prop_assert!(broker.inflight.is_empty() && broker.unreleased.is_empty() && broker.log.len() < 300);
        }
    }

    #[test]
    fn no_bytes_break_a_ledger(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        let _ = Ledger::replay(&rules()[0], [&bytes[..]].into_iter());
    }
}

#[test]
fn a_rule_that_was_changed_begins_anew_and_says_so() {
    let rules = rules();
    let mut broker = Broker { waiting: (0..2).map(input).collect(), ..Broker::default() };
    let mut runner = Runner::begin(&rules[0], &mut broker);
    (0..2).for_each(|_| runner.input(&mut broker));
    let record = runner.ledger.seal().expect("two inputs");
    let (ledger, changed) = Ledger::replay(&rules[1], [&record[..]].into_iter()).expect("a record");
    assert!(changed && ledger.machine().group_count() == 0);
}
