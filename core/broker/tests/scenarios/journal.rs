//! The journal's records equal the broker's state, at every moment and after every restart.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;
use sedge_base::{ClientId, Incarnation, Rng};
use sedge_broker::{Broker, BrokerConfig, Image, Input, Place, QueueLimits, Record, RestoredSession};
use sedge_mqtt::{Packet, ReasonCode};

use crate::harness::*;
use crate::random::{Step, World, config, step};

/// A journal in memory: batches, and where the last checkpoint began.
#[derive(Default)]
struct Log {
    batches: Vec<Vec<Record>>,
    checkpoint: Option<usize>,
}

impl Log {
    fn image(&self) -> Image {
        let mut image = Image::default();
        self.batches.iter().flatten().for_each(|record| image.apply(record.clone()));
        image
    }

    fn sessions(&self, bench: &Bench) -> Vec<RestoredSession> {
        let image = self.image();
        assert_eq!(image.missing(), 0);
        image.finish(bench.now.wall)
    }

    /// Ends a turn.
    fn turn(&mut self, bench: &mut Bench) {
        if self.checkpoint.is_some() && bench.broker.checkpoint(200) {
            let begin = self.checkpoint.take().unwrap_or(0);
            self.batches.push(bench.broker.take_records().collect());
            self.batches.drain(..begin);
        } else {
            self.batches.push(bench.broker.take_records().collect());
        }
    }

    fn begin_checkpoint(&mut self, bench: &mut Bench) {
        if self.checkpoint.is_none() {
            bench.broker.begin_checkpoint();
            self.checkpoint = Some(self.batches.len());
        }
    }

    /// The process dies and starts again.
    fn restart(&mut self, bench: &mut Bench, life: u64) {
        self.restart_with(bench, life, config());
    }

    /// The same with another configuration.
    fn restart_with(&mut self, bench: &mut Bench, life: u64, config: BrokerConfig) {
        let image = self.image();
        let last = image.last_session();
        let place = Place { incarnation: Incarnation::new(1 + life), ..place() };
        let mut broker = Broker::new(config, place, Rng::new(life));
        broker.keep_journal();
        broker.restore(bench.now, image.finish(bench.now.wall), Some(last));
        self.checkpoint = None;
        bench.restart(broker);
        bench.run();
    }
}

fn check(log: &mut Log, world: &mut World) {
    // The new owner has said that it has them.
    for client in 0..5 {
        world.bench.broker.session_left(&ClientId::new(&format!("c{client}")), u64::MAX);
    }
    log.turn(&mut world.bench);
    let kept = world.bench.broker.kept_sessions(world.bench.now);
    assert_eq!(log.sessions(&world.bench), kept);
    world.check();
}

/// Lives of a broker, one after the other: the steps of each, and whether a checkpoint begins before a step.
fn live(lives: &[Vec<(Step, bool)>]) {
    let mut world = World { bench: Bench::with(config()), conns: [None; 5] };
    world.bench.broker.keep_journal();
    let mut log = Log::default();
    for (life, steps) in (1..).zip(lives) {
        for (step, checkpoint) in steps {
            if *checkpoint {
                log.begin_checkpoint(&mut world.bench);
            }
            world.step(step);
            check(&mut log, &mut world);
        }
        log.restart(&mut world.bench, life);
        world.conns = [None; 5];
        check(&mut log, &mut world);
    }
}

/// MQ-06, MQ-14: a QoS 2 publication is under way when its client's session, which would end with its connection, begins to be kept.
#[test]
fn what_is_under_way_when_a_session_begins_to_be_kept_is_answered_in_the_journal() {
    let connect = Step::Connect { client: 0, clean: true, v5: false, will: false, window: None };
    let publish = Step::Publish { who: 0, topic: 0, qos: 2, packet: 1, retain: false, expiry: false };
    let share = Step::Subscribe { who: 0, filter: 3, qos: 0 };
    let steps = [Step::Slow(true), connect, Step::Answer, publish, share, Step::Answer, Step::Answer];
    live(&[steps.into_iter().map(|step| (step, false)).collect()]);
}

/// FT-21, MQ-06: the same where nothing was kept before, as with the first copy at another node.
#[test]
fn what_is_under_way_when_a_broker_begins_to_keep_a_journal_is_answered_in_it() {
    let mut world = World { bench: Bench::with(config()), conns: [None; 5] };
    let connect = Step::Connect { client: 0, clean: false, v5: false, will: false, window: None };
    let publish = Step::Publish { who: 0, topic: 0, qos: 2, packet: 1, retain: false, expiry: false };
    for step in [Step::Slow(true), connect, Step::Answer, publish] {
        world.step(&step);
    }
    world.bench.broker.keep_journal();
    let mut log = Log::default();
    check(&mut log, &mut world);
    for _ in 0..2 {
        world.step(&Step::Answer);
        check(&mut log, &mut world);
    }
}

/// MQ-06: a shared subscription gives its message to a session behind a later one, and the session is put in order at the restart.
#[test]
fn what_a_restart_puts_in_order_is_in_order_in_the_journal() {
    let connect = |client, will| Step::Connect { client, clean: false, v5: false, will, window: None };
    let first = [
        connect(3, false),
        connect(1, true),
        Step::Slow(true),
        Step::Subscribe { who: 3, filter: 4, qos: 1 },
        Step::Publish { who: 1, topic: 0, qos: 2, packet: 1, retain: false, expiry: false },
        Step::Answer,
        Step::Subscribe { who: 3, filter: 0, qos: 1 },
        Step::Cut(3),
        Step::Kick(1),
    ];
    let lives = [Vec::from(first), vec![Step::Slow(false)]];
    live(&lives.map(|steps| steps.into_iter().map(|step| (step, false)).collect()));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// MQ-05, MQ-06, MQ-09: sessions, subscriptions, queues, flows in both directions and wills, also from journals that a
    /// checkpoint has shortened, and through several lives.
    #[test]
    fn the_journal_says_what_the_broker_holds(
        lives in prop::collection::vec(prop::collection::vec((step(), prop::bool::weighted(0.1)), 1..60), 1..4)
    ) {
        live(&lives);
    }
}

fn kept_bench() -> (Bench, Log) {
    let mut bench = Bench::new();
    bench.broker.keep_journal();
    (bench, Log::default())
}

/// MQ-06: the publication was on its way when the process died: the client's repetition is not routed once more, the publication
/// itself is, under its old name, so that a receiver that has it can tell.
#[test]
fn a_publication_on_its_way_goes_on_after_a_restart() {
    let (mut bench, mut log) = kept_bench();
    let conn = bench.connect(persistent(V5, "p"));
    bench.slow = true;
    bench.send(conn, &publish("t", "x", Q2, 5));
    let id = bench.routed[0].0.id;
    log.turn(&mut bench);
    log.restart(&mut bench, 1);
    assert_eq!(bench.routed.len(), 2);
    assert_eq!(bench.routed[1].0.id, id);
    bench.answer_all();
    let conn = bench.connect(persistent(V5, "p"));
    bench.send(conn, &publish("t", "x", Q2, 5));
    assert_eq!(bench.drain(conn), [Packet::PubRec(ack(5))]);
    assert_eq!(bench.routed.len(), 2);
    bench.send(conn, &Packet::PubRel(ack(5)));
    assert_eq!(bench.drain(conn), [Packet::PubComp(ack(5))]);
    log.turn(&mut bench);
    log.restart(&mut bench, 2);
    assert_eq!(bench.routed.len(), 2);
}

/// FT-22: a client may use any free packet identifier; its publications go on in the order in which it made them (MQTT 5.0 section 4.6).
#[test]
fn publications_on_their_way_go_on_in_their_order_after_a_restart() {
    let (mut bench, mut log) = kept_bench();
    let conn = bench.connect(persistent(V5, "p"));
    bench.slow = true;
    for packet_id in [2, 1, 3] {
        bench.send(conn, &publish("t", "x", Q2, packet_id));
    }
    let ids: Vec<_> = bench.routed.iter().map(|(message, ..)| message.id).collect();
    log.turn(&mut bench);
    log.restart(&mut bench, 1);
    let again: Vec<_> = bench.routed[3..].iter().map(|(message, ..)| message.id).collect();
    assert_eq!(again, ids);
}

/// MQ-13: a merge is written behind what had come before, though it was published earlier.
#[test]
fn what_was_merged_is_in_its_place_after_a_restart() {
    let (mut bench, mut log) = kept_bench();
    let publisher = bench.client(V5, "p");
    bench.publish(publisher, "t", "1", Q1);
    let earlier = Arc::clone(&bench.routed[0].0);
    let conn = bench.connect(persistent(V5, "s"));
    bench.subscribe(conn, "t", Q1);
    bench.cut(conn);
    bench.publish(publisher, "t", "2", Q1);
    bench.broker.merge(bench.now, &ClientId::new("s"), &[earlier], &BTreeSet::new());
    log.turn(&mut bench);
    log.restart(&mut bench, 1);
    let conn = bench.connect(persistent(V5, "s"));
    assert_eq!(bench.payloads(conn), ["1", "2"]);
}

/// MQ-08: the client lost its connection with the process, so its will is due, even if nothing else of its session is kept.
#[test]
fn wills_of_all_clients_are_published_after_a_restart() {
    let (mut bench, mut log) = kept_bench();
    let delayed = {
        let mut will = will("w/delayed", "gone", Q1);
        will.properties.delay = Some(30);
        will
    };
    bench.connect(sedge_mqtt::Connect { will: Some(delayed), ..persistent(V5, "a") });
    bench.connect(sedge_mqtt::Connect { will: Some(will("w/clean", "gone", Q1)), ..connect(V4, "b") });
    let polite = bench.connect(sedge_mqtt::Connect { will: Some(will("w/polite", "gone", Q1)), ..persistent(V4, "c") });
    bench.leave(polite, ReasonCode::Success);
    log.turn(&mut bench);
    log.restart(&mut bench, 1);
    bench.pass(secs(1));
    let topics = |bench: &Bench| -> Vec<String> {
        bench.routed.iter().map(|(message, _)| message.topic.as_str().to_owned()).collect()
    };
    assert_eq!(topics(&bench), ["w/clean"]);
    // Once more, before the delay is over.
    log.turn(&mut bench);
    log.restart(&mut bench, 2);
    bench.pass(secs(30));
    assert_eq!(topics(&bench), ["w/clean", "w/delayed"]);
}

/// MQ-11: until the new owner has the session for good, a restart finds it, with all that has come for it since; afterwards nothing of it
/// comes back.
#[test]
fn a_session_that_moves_is_kept_until_it_is_safe_elsewhere() {
    let (mut bench, mut log) = kept_bench();
    let conn = bench.connect(persistent(V4, "m"));
    bench.subscribe(conn, "t/#", Q1);
    let (publisher, client) = (bench.client(V4, "p"), ClientId::new("m"));
    bench.publish(publisher, "t/1", "under way", Q1);
    bench.input(Input::Relinquish { client: client.clone(), epoch: 99, clean_start: false });
    for (topic, qos) in [("t/2", Q2), ("other", Q1), ("t/3", Q0)] {
        bench.publish(publisher, topic, topic, qos);
        let (message, _) = bench.routed.last().unwrap().clone();
        bench.broker.keep_for(&client, &message);
    }
    log.turn(&mut bench);
    let check = |log: &Log, bench: &Bench| {
        let found = log.sessions(bench);
        let [RestoredSession { state, .. }] = found.as_slice() else { panic!("{found:?}") };
        let queue: Vec<_> = state.queue.iter().map(|queued| (queued.message.topic.as_str(), queued.qos)).collect();
        assert_eq!((state.inflight.len(), queue.as_slice()), (1, [("t/2", Q1)].as_slice()));
    };
    check(&log, &bench);
    log.begin_checkpoint(&mut bench);
    while log.checkpoint.is_some() {
        log.turn(&mut bench);
    }
    check(&log, &bench);
    bench.broker.session_left(&client, 98);
    log.turn(&mut bench);
    check(&log, &bench);
    let mut elsewhere = log;
    bench.broker.session_left(&client, 99);
    elsewhere.turn(&mut bench);
    assert_eq!((elsewhere.sessions(&bench).len(), bench.broker.live_bytes() < 1_000), (0, true));
}

/// MQ-11: a new owner that dies before it has the session for good was as good as none.
#[test]
fn a_session_that_was_given_away_can_be_taken_back() {
    let (mut bench, mut log) = kept_bench();
    let conn = bench.connect(persistent(V5, "m"));
    bench.subscribe(conn, "t", Q2);
    let (publisher, client) = (bench.client(V4, "p"), ClientId::new("m"));
    bench.input(Input::Relinquish { client: client.clone(), epoch: 99, clean_start: false });
    bench.publish(publisher, "t", "meanwhile", Q2);
    let (message, _) = bench.routed.last().unwrap().clone();
    bench.broker.keep_for(&client, &message);
    assert_eq!(bench.broker.take_back(&client, 98), None);
    let state = bench.broker.take_back(&client, 99).map(Box::new);
    assert_eq!(bench.broker.take_back(&client, 99), None);
    bench.input(Input::Claimed { client, conn: None, epoch: 101, session: state });
    log.turn(&mut bench);
    assert_eq!(log.sessions(&bench), bench.broker.kept_sessions(bench.now));
    let again = bench.connect(persistent(V5, "m"));
    assert_eq!(bench.payloads(again), ["meanwhile"]);
}

/// The content of a message is written once, however many sessions it waits for, and again only by a checkpoint.
#[test]
fn a_message_is_written_once_for_all_sessions() {
    let (mut bench, mut log) = kept_bench();
    for client in ["a", "b", "c"] {
        let conn = bench.connect(persistent(V4, client));
        bench.subscribe(conn, "t", Q1);
        bench.cut(conn);
    }
    let publisher = bench.client(V4, "p");
    log.turn(&mut bench);
    bench.publish(publisher, "t", "x", Q1);
    log.turn(&mut bench);
    let contents = |records: &[Record]| records.iter().filter(|record| matches!(record, Record::Message(_))).count();
    let last = &log.batches[1];
    assert_eq!((contents(last), last.len()), (1, 4));
    log.begin_checkpoint(&mut bench);
    while log.checkpoint.is_some() {
        log.turn(&mut bench);
    }
    let rewritten: usize = log.batches.iter().map(|batch| contents(batch)).sum();
    assert_eq!((rewritten, log.sessions(&bench).len()), (1, 3));
}

/// FT-34: without room nothing with QoS 1 or 2 is taken that would have to be kept; the reason is told where it can be.
#[test]
fn a_full_journal_refuses_publications_until_there_is_room() {
    let (mut bench, _) = kept_bench();
    let v5 = bench.client(V5, "v5");
    let v4 = bench.client(V4, "v4");
    bench.broker.set_full(true);
    bench.send(v5, &publish("t", "x", Q1, 1));
    bench.send(v5, &publish("t", "x", Q2, 2));
    bench.send(v5, &publish("t", "x", Q0, 0));
    let answers = bench.drain(v5);
    let quota = |id: u16| sedge_mqtt::Ack::new(crate::harness::id(id), ReasonCode::QuotaExceeded);
    assert_eq!(answers, [Packet::PubAck(quota(1)), Packet::PubRec(quota(2))]);
    assert_eq!((bench.routed.len(), bench.broker.counters().refused_full), (1, 2));
    bench.send(v4, &publish("t", "x", Q1, 1));
    assert!(bench.is_closed(v4));
    bench.broker.set_full(false);
    bench.publish(v5, "t", "x", Q2);
}

/// Without a journal there is nothing to take.
#[test]
fn without_a_journal_nothing_is_written() {
    let mut bench = Bench::new();
    let conn = bench.connect(persistent(V4, "a"));
    bench.subscribe(conn, "t", Q2);
    let publisher = bench.client(V4, "p");
    bench.publish(publisher, "t", "x", Q2);
    assert_eq!(bench.payloads(conn), ["x"]);
    assert_eq!((bench.broker.take_records().count(), bench.broker.live_bytes()), (0, 0));
}

/// MQ-05: bytes for a client wait for the journal if they rest on it; publications with QoS 0 do not, nor do pings.
#[test]
fn only_what_rests_on_the_journal_waits_for_it() {
    let (mut bench, _) = kept_bench();
    let publisher = bench.client(V5, "p");
    let conn = bench.connect(persistent(V5, "s"));
    bench.subscribe(conn, "t", Q1);
    let depends = |bench: &mut Bench, conn| bench.broker.take_dependence(conn);
    assert!(depends(&mut bench, conn), "CONNACK, SUBACK");
    bench.publish(publisher, "t", "a", Q0);
    bench.send(conn, &Packet::PingReq);
    assert!(!depends(&mut bench, conn));
    bench.publish(publisher, "t", "b", Q1);
    assert!(depends(&mut bench, conn) && depends(&mut bench, publisher));
    let careless = bench.client(V5, "q");
    bench.subscribe(careless, "t", Q0);
    assert!(depends(&mut bench, careless));
    bench.publish(publisher, "t", "c", Q0);
    assert!(!depends(&mut bench, careless));
    bench.publish(publisher, "t", "d", Q2);
    assert!(depends(&mut bench, careless), "a repetition after a crash would be a second delivery");
    depends(&mut bench, publisher);
    bench.broker.set_full(true);
    bench.send(publisher, &publish("t", "e", Q1, 9));
    assert!(!depends(&mut bench, publisher), "a refusal");
}

/// DP-03: a bridge that was taken out of the configuration while the process was down gets nothing new, and the messages that wait for it stay.
#[test]
fn a_part_of_the_process_without_a_section_gets_nothing_new_after_a_restart() {
    const BRIDGE: &str = "$bridge/a";
    let limits = QueueLimits { messages: 10, bytes: 1_000, drops_oldest: false, refuses: false };
    for is_there in [true, false] {
        let (mut bench, mut log) = kept_bench();
        bench.part_that_left(BRIDGE, "up/#");
        let publisher = bench.client(V5, "p");
        bench.publish(publisher, "up/a", "before", Q1);
        log.turn(&mut bench);
        for life in 1..3 {
            let inside_queues = if is_there { [(BRIDGE.into(), limits)].into() } else { BTreeMap::new() };
            log.restart_with(&mut bench, life, BrokerConfig { inside_queues, ..config() });
            log.turn(&mut bench);
            let publisher = bench.client(V5, "p");
            bench.publish(publisher, "up/a", "after", Q1);
            log.turn(&mut bench);
        }
        let left = bench.broker.session(&ClientId::new(BRIDGE)).expect("the session stays");
        assert_eq!((left.subscriptions.len(), left.queued), if is_there { (1, 3) } else { (0, 1) });
    }
}
