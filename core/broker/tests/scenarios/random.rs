//! Random sequences of everything: nothing panics, limits hold, and the same seed gives the same outputs.

use proptest::prelude::*;
use sedge_base::{ClientId, ConnId};
use sedge_broker::{BrokerConfig, Input};
use sedge_mqtt::{Ack, Connect, Disconnect, Packet, PublishProperties, ReasonCode, SubscriptionOptions, Unsubscribe};

use crate::harness::*;

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Connect { client: u8, clean: bool, v5: bool, will: bool, window: Option<u16> },
    Cut(u8),
    Leave(u8),
    Subscribe { who: u8, filter: u8, qos: u8 },
    Unsubscribe { who: u8, filter: u8 },
    Publish { who: u8, topic: u8, qos: u8, packet: u16, retain: bool, expiry: bool },
    Acknowledge { who: u8 },
    Release { who: u8, packet: u16 },
    Stick { who: u8, stuck: bool },
    Pass(u16),
    Slow(bool),
    Answer,
    Relinquish { client: u8, later: bool, clean: bool },
    Kick(u8),
    Restore,
}

const FILTERS: [&str; 6] = ["#", "a/+", "a/b", "$share/g/a/+", "$share/h/#", "b"];
const TOPICS: [&str; 4] = ["a/b", "a/c", "b", "$SYS/x"];

pub(crate) fn step() -> impl Strategy<Value = Step> {
    let who = 0_u8..5;
    prop_oneof![
        3 => (who.clone(), any::<bool>(), any::<bool>(), any::<bool>(), prop::option::of(1_u16..4))
            .prop_map(|(client, clean, v5, will, window)| Step::Connect { client, clean, v5, will, window }),
        1 => who.clone().prop_map(Step::Cut),
        1 => who.clone().prop_map(Step::Leave),
        3 => (who.clone(), 0_u8..6, 0_u8..3).prop_map(|(who, filter, qos)| Step::Subscribe { who, filter, qos }),
        1 => (who.clone(), 0_u8..6).prop_map(|(who, filter)| Step::Unsubscribe { who, filter }),
        8 => (who.clone(), 0_u8..4, 0_u8..3, 1_u16..5, any::<bool>(), any::<bool>()).prop_map(
            |(who, topic, qos, packet, retain, expiry)| Step::Publish { who, topic, qos, packet, retain, expiry }
        ),
        4 => who.clone().prop_map(|who| Step::Acknowledge { who }),
        2 => (who.clone(), 1_u16..5).prop_map(|(who, packet)| Step::Release { who, packet }),
        1 => (who.clone(), any::<bool>()).prop_map(|(who, stuck)| Step::Stick { who, stuck }),
        1 => (0_u16..2_000).prop_map(Step::Pass),
        1 => any::<bool>().prop_map(Step::Slow),
        3 => Just(Step::Answer),
        1 => (who.clone(), any::<bool>(), any::<bool>())
            .prop_map(|(client, later, clean)| Step::Relinquish { client, later, clean }),
        1 => who.prop_map(Step::Kick),
        1 => Just(Step::Restore),
    ]
}

pub(crate) fn config() -> BrokerConfig {
    BrokerConfig {
        queue_limit_messages: 6,
        queue_limit_bytes: 800,
        max_inflight: 3,
        receive_maximum: 3,
        max_subscriptions: 4,
        outbox_high_water: 60,
        max_session_expiry: 1_000,
        ..BrokerConfig::default()
    }
}

pub(crate) struct World {
    pub(crate) bench: Bench,
    pub(crate) conns: [Option<ConnId>; 5],
}

impl World {
    fn live(&mut self, who: u8) -> Option<ConnId> {
        self.conns[usize::from(who)].filter(|&conn| !self.bench.is_closed(conn))
    }

    fn connect(&mut self, client: u8, clean: bool, v5: bool, has_will: bool, window: Option<u16>) {
        let version = if v5 { V5 } else { V4 };
        let mut asked = Connect { keep_alive: 600, ..persistent(version, &format!("c{client}")) };
        asked.clean_start = clean;
        asked.will = has_will.then(|| will("a/b", "will", Q1));
        if v5 {
            asked.properties.receive_maximum = window;
            asked.properties.topic_alias_maximum = window;
        }
        let conn = self.bench.dial(asked);
        self.conns[usize::from(client)] = Some(conn);
    }

    fn publish(&mut self, conn: ConnId, (topic, qos, packet): (u8, u8, u16), retain: bool, expiry: bool) {
        let qos = [Q0, Q1, Q2][usize::from(qos)];
        let Packet::Publish(mut sent) = publish(TOPICS[usize::from(topic)], "payload", qos, packet) else { return };
        sent.retain = retain;
        if expiry {
            sent.properties = Some(Box::new(PublishProperties { message_expiry: Some(100), ..Default::default() }));
        }
        self.bench.send(conn, &Packet::Publish(sent));
    }

    fn acknowledge(&mut self, conn: ConnId) {
        for packet in self.bench.drain(conn) {
            let answer = match packet {
                Packet::Publish(publish) => match (publish.packet_id, publish.qos) {
                    (Some(id), Q1) => Packet::PubAck(Ack::new(id, ReasonCode::Success)),
                    (Some(id), _) => Packet::PubRec(Ack::new(id, ReasonCode::Success)),
                    (None, _) => continue,
                },
                Packet::PubRel(release) => Packet::PubComp(Ack::new(release.packet_id, ReasonCode::Success)),
                _ => continue,
            };
            if !self.bench.is_closed(conn) {
                self.bench.send(conn, &answer);
            }
        }
    }

    pub(crate) fn step(&mut self, step: &Step) {
        match *step {
            Step::Connect { client, clean, v5, will, window } => self.connect(client, clean, v5, will, window),
            Step::Pass(time) => self.bench.pass(secs(u64::from(time))),
            Step::Slow(slow) => {
                self.bench.slow = slow;
                self.bench.run();
            }
            Step::Answer => {
                self.bench.answer();
            }
            Step::Relinquish { client, later, clean } => {
                let client = ClientId::new(&format!("c{client}"));
                self.bench.epoch += u64::from(later);
                let epoch = self.bench.epoch;
                self.bench.input(Input::Relinquish { client, epoch, clean_start: clean });
            }
            Step::Restore => {
                if let Some(Some(state)) = self.bench.relinquished.pop() {
                    self.bench.elsewhere.insert(state.client.clone(), state);
                }
            }
            Step::Kick(client) => {
                let client = ClientId::new(&format!("c{client}"));
                self.bench.input(Input::Kick { client, reason: ReasonCode::AdministrativeAction, end_session: false });
            }
            Step::Cut(who)
            | Step::Leave(who)
            | Step::Subscribe { who, .. }
            | Step::Unsubscribe { who, .. }
            | Step::Publish { who, .. }
            | Step::Acknowledge { who }
            | Step::Release { who, .. }
            | Step::Stick { who, .. } => {
                if let Some(conn) = self.live(who) {
                    self.client_step(conn, step);
                }
            }
        }
    }

    fn client_step(&mut self, conn: ConnId, step: &Step) {
        match *step {
            Step::Cut(_) => self.bench.cut(conn),
            Step::Leave(_) => self.bench.send(conn, &Packet::Disconnect(Disconnect::new(ReasonCode::Success))),
            Step::Subscribe { filter, qos, .. } => {
                let options = SubscriptionOptions { qos: [Q0, Q1, Q2][usize::from(qos)], ..Default::default() };
                self.bench.send(conn, &subscribe(9, &[(FILTERS[usize::from(filter)], options)], None));
            }
            Step::Unsubscribe { filter, .. } => {
                let filters = vec![FILTERS[usize::from(filter)].try_into().unwrap()];
                self.bench
                    .send(conn, &Packet::Unsubscribe(Unsubscribe { packet_id: id(8), filters, user: Vec::new() }));
            }
            Step::Publish { topic, qos, packet, retain, expiry, .. } => {
                self.publish(conn, (topic, qos, packet), retain, expiry);
            }
            Step::Acknowledge { .. } => self.acknowledge(conn),
            Step::Release { packet, .. } => self.bench.send(conn, &Packet::PubRel(ack(packet))),
            Step::Stick { stuck, .. } => self.bench.stick(conn, stuck),
            _ => {}
        }
    }

    pub(crate) fn check(&self) {
        let (mut queued, mut bytes, mut subscriptions, mut sessions) = (0, 0, 0, 0);
        for session in self.bench.broker.sessions() {
            assert!(session.queued <= 6 && session.queued_bytes <= 800, "{session:?}");
            assert!(session.subscriptions.len() <= 4);
            assert!(session.inflight <= 3 || session.connection.is_none(), "{session:?}");
            queued += session.queued as u64;
            bytes += session.queued_bytes as u64;
            subscriptions += session.subscriptions.len() as u64;
            sessions += 1;
        }
        let counters = self.bench.broker.counters();
        assert_eq!((counters.queued_messages, counters.queued_bytes), (queued, bytes));
        assert_eq!((counters.subscriptions, counters.sessions), (subscriptions, sessions));
        let open = counters.connections_opened - counters.connections_closed;
        assert_eq!(self.bench.broker.connections() as u64, open);
    }
}

fn play(steps: &[Step]) -> Vec<String> {
    let mut world = World { bench: Bench::with(config()), conns: [None; 5] };
    for step in steps {
        world.step(step);
        world.check();
    }
    world.bench.answer_all();
    world.bench.pass(secs(10_000));
    world.check();
    world.bench.log
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// MQ-12
    #[test]
    fn anything_may_happen(steps in prop::collection::vec(step(), 1..120)) {
        prop_assert_eq!(play(&steps), play(&steps));
    }
}
