//! Publishers that wait for a session of the process: a bridge whose other end has to have what they publish.

use sedge_base::{ClientId, ConnId, Duration};
use sedge_broker::{Awaits, BrokerConfig, Input, QueueLimits};
use sedge_mqtt::{Ack, MessageId, Packet, ReasonCode, TopicFilter};

use crate::harness::*;

const BRIDGE: &str = "$bridge/a";

fn awaits(session: &str, filter: &str) -> Awaits {
    Awaits { session: ClientId::new(session), filters: vec![TopicFilter::new(filter).unwrap()] }
}

fn session() -> ClientId {
    ClientId::new(BRIDGE)
}

/// A bridge that gets `up/#`, for which publishers wait.
fn bridged() -> (Bench, ConnId) {
    let mut bench = Bench::with(BrokerConfig { awaits: [awaits(BRIDGE, "up/#")].into(), ..BrokerConfig::default() });
    bench.inside = true;
    let bridge = bench.connect(persistent(V5, BRIDGE));
    bench.subscribe(bridge, "up/#", Q2);
    bench.inside = false;
    assert!(bench.broker.stands(&session()) && !bench.broker.knows_of(&session()));
    stands(&mut bench, BRIDGE);
    (bench, bridge)
}

/// Tells the broker that some node has the session.
fn stands(bench: &mut Bench, session: &str) {
    bench.input(Input::Arrived { session: ClientId::new(session), ids: Vec::new() });
}

/// Messages whose acknowledgement publishers await, and that are gone from the session.
fn gone(bench: &Bench) -> Vec<MessageId> {
    let awaited = bench.broker.awaited(&session(), 100);
    bench.broker.gone_from(&session(), &awaited).expect("the session is here")
}

/// Looks for messages that are gone, and has their publishers answered.
fn look(bench: &mut Bench) -> usize {
    let ids = gone(bench);
    let count = ids.len();
    bench.input(Input::Arrived { session: session(), ids });
    count
}

fn acks(bench: &mut Bench, conn: ConnId) -> Vec<(u16, ReasonCode)> {
    let ack = |packet| match packet {
        Packet::PubAck(ack) | Packet::PubRec(ack) => Some((ack.packet_id.get(), ack.reason)),
        _ => None,
    };
    bench.drain(conn).into_iter().filter_map(ack).collect()
}

/// DP-03: PUBACK and PUBREC come when the bridge has acknowledged the message itself, in order; other topics do not wait, but for their turn.
#[test]
fn a_publisher_is_acknowledged_when_the_session_has_got_rid_of_the_message() {
    let (mut bench, bridge) = bridged();
    let publisher = bench.client(V5, "p");
    for (number, topic, qos) in [(1, "up/a", Q1), (2, "up/b", Q2), (3, "down", Q1)] {
        bench.send(publisher, &publish(topic, "x", qos, number));
    }
    assert_eq!(acks(&mut bench, publisher), []);
    assert_eq!((bench.broker.counters().awaited, look(&mut bench)), (2, 0));
    assert_eq!(acks(&mut bench, publisher), []);
    let ids: Vec<_> = bench.publishes(bridge).iter().map(|publish| (publish.packet_id.unwrap(), publish.qos)).collect();
    bench.send(bridge, &Packet::PubAck(Ack::new(ids[0].0, ReasonCode::Success)));
    assert_eq!(look(&mut bench), 1);
    assert_eq!(acks(&mut bench, publisher), [(1, ReasonCode::Success)]);
    bench.send(bridge, &Packet::PubRec(Ack::new(ids[1].0, ReasonCode::Success)));
    assert_eq!(look(&mut bench), 1);
    assert_eq!(acks(&mut bench, publisher)[0], (2, ReasonCode::Success));
    assert_eq!((bench.broker.counters().awaited, look(&mut bench)), (0, 0));
}

/// DP-03: while the bridge is away its publishers wait, their pings are answered, and a client that has as many open publications as it may
/// have goes on when there is an answer.
#[test]
fn publishers_wait_out_an_outage_and_are_slowed_by_the_receive_maximum() {
    let awaits = [awaits(BRIDGE, "up/#")].into();
    let mut bench = Bench::with(BrokerConfig { awaits, receive_maximum: 4, ..BrokerConfig::default() });
    bench.part_that_left(BRIDGE, "up/#");
    stands(&mut bench, BRIDGE);
    let publisher = bench.client(V5, "p");
    for number in 1..=4 {
        bench.send(publisher, &publish("up/a", &number.to_string(), Q1, number));
    }
    bench.send(publisher, &Packet::PingReq);
    bench.pass(Duration::from_mins(1));
    assert_eq!(look(&mut bench), 0);
    assert!(matches!(bench.drain(publisher)[..], [Packet::PingResp]), "it is served, and not acknowledged");
    bench.inside = true;
    let bridge = bench.connect(persistent(V5, BRIDGE));
    for publish in bench.publishes(bridge) {
        bench.send(bridge, &Packet::PubAck(Ack::new(publish.packet_id.unwrap(), ReasonCode::Success)));
    }
    assert_eq!(look(&mut bench), 4);
    let numbers: Vec<_> = acks(&mut bench, publisher).into_iter().map(|(id, _)| id).collect();
    assert_eq!(numbers, [1, 2, 3, 4]);
}

/// DP-03: the bridge's own publications do not wait for themselves, and a message that no session has got is refused: it would be lost.
#[test]
fn what_the_session_cannot_have_is_not_waited_for() {
    let mut bench = Bench::with(BrokerConfig { awaits: [awaits(BRIDGE, "up/#")].into(), ..BrokerConfig::default() });
    let publisher = bench.client(V5, "p");
    stands(&mut bench, BRIDGE);
    bench.accept_with = ReasonCode::NoMatchingSubscribers;
    bench.send(publisher, &publish("up/a", "nobody", Q1, 1));
    assert_eq!(acks(&mut bench, publisher), [(1, ReasonCode::QuotaExceeded)]);
    assert_eq!(bench.broker.gone_from(&session(), &[]), None, "there is no session to ask");
    bench.accept_with = ReasonCode::Success;
    bench.inside = true;
    let bridge = bench.connect(persistent(V5, BRIDGE));
    bench.send(bridge, &publish("up/a", "its own", Q1, 1));
    assert_eq!(acks(&mut bench, bridge), [(1, ReasonCode::Success)]);
    assert_eq!(bench.broker.counters().awaited, 0);
}

/// DP-03: a message for two bridges is acknowledged when both have got rid of it.
#[test]
fn every_session_that_has_it_is_waited_for() {
    let other = ClientId::new("$bridge/b");
    let both = [awaits(BRIDGE, "up/#"), awaits("$bridge/b", "+/a")];
    let mut bench = Bench::with(BrokerConfig { awaits: both.into(), ..BrokerConfig::default() });
    stands(&mut bench, BRIDGE);
    stands(&mut bench, "$bridge/b");
    let publisher = bench.client(V5, "p");
    bench.send(publisher, &publish("up/a", "x", Q1, 1));
    let ids = bench.broker.awaited(&session(), 10);
    assert_eq!((ids.len(), bench.broker.awaited(&other, 10)), (1, ids.clone()));
    bench.input(Input::Arrived { session: session(), ids: ids.clone() });
    assert_eq!((acks(&mut bench, publisher), bench.broker.awaited(&session(), 10)), (vec![], vec![]));
    bench.input(Input::Arrived { session: other, ids });
    assert_eq!(acks(&mut bench, publisher), [(1, ReasonCode::Success)]);
}

/// MQ-18: bridges come and go while the broker runs: nobody waits for one that is gone, its session gets nothing new and keeps what waits, and
/// the places of the others do not matter.
#[test]
fn other_parts_of_the_process_may_come_and_go() {
    let both = [awaits("$bridge/z", "up/+"), awaits(BRIDGE, "up/a")];
    let mut bench = Bench::with(BrokerConfig { awaits: both.into(), ..BrokerConfig::default() });
    bench.part_that_left(BRIDGE, "up/#");
    stands(&mut bench, BRIDGE);
    stands(&mut bench, "$bridge/z");
    let publisher = bench.client(V5, "p");
    for (number, topic) in [(1, "up/a"), (2, "up/b")] {
        bench.send(publisher, &publish(topic, "x", Q1, number));
    }
    let limits = QueueLimits { messages: 10, bytes: 1_000, drops_oldest: false, refuses: true };
    let queues = || [(BRIDGE.into(), limits)].into();
    bench.input(Input::Inside { queues: queues(), awaits: [awaits(BRIDGE, "up/a")].into() });
    assert_eq!(
        (acks(&mut bench, publisher), look(&mut bench)),
        (vec![], 0),
        "the first one waits for the other bridge"
    );
    let ids = bench.broker.awaited(&session(), 10);
    assert_eq!(ids.len(), 1);
    bench.input(Input::Arrived { session: session(), ids });
    let success = |number| (number, ReasonCode::Success);
    assert_eq!(acks(&mut bench, publisher), [success(1), success(2)]);
    bench.send(publisher, &publish("up/a", "y", Q1, 3));
    bench.input(Input::Inside { queues: [].into(), awaits: [].into() });
    assert_eq!(acks(&mut bench, publisher), [success(3)]);
    bench.publish(publisher, "up/a", "not for a bridge that is gone", Q1);
    let left = bench.broker.session(&session()).unwrap();
    assert_eq!((left.subscriptions.len(), left.queued), (0, 3));
}

/// DP-03: before anybody has the session, or while it does not get all that its publishers wait for, a publication goes nowhere and is not
/// acknowledged, although somebody else wants it, too; it goes its way as soon as the session stands.
#[test]
fn nobody_is_acknowledged_before_the_session_stands() {
    for version in [V4, V5] {
        let mut bench =
            Bench::with(BrokerConfig { awaits: [awaits(BRIDGE, "up/#")].into(), ..BrokerConfig::default() });
        let (publisher, other) = (bench.client(version, "p"), bench.client(V5, "s"));
        bench.subscribe(other, "#", Q1);
        for (number, topic, qos) in [(1, "up/a", Q1), (2, "up/b", Q2)] {
            bench.send(publisher, &publish(topic, "x", qos, number));
        }
        assert_eq!((acks(&mut bench, publisher), bench.publishes(other).len()), (vec![], 0));
        assert!(!bench.broker.stands(&session()));
        bench.inside = true;
        let bridge = bench.connect(persistent(V5, BRIDGE));
        assert!(!bench.broker.stands(&session()), "it has no subscription yet");
        bench.subscribe(bridge, "up/#", Q2);
        assert!(bench.broker.stands(&session()));
        stands(&mut bench, BRIDGE);
        assert!(bench.broker.knows_of(&session()));
        assert_eq!((acks(&mut bench, publisher), bench.publishes(other).len(), look(&mut bench)), (vec![], 2, 0));
        let sent = bench.publishes(bridge);
        assert_eq!(sent.len(), 2);
        for publish in sent {
            let ack = Ack::new(publish.packet_id.unwrap(), ReasonCode::Success);
            bench.send(bridge, &if publish.qos == Q1 { Packet::PubAck(ack) } else { Packet::PubRec(ack) });
        }
        assert_eq!(look(&mut bench), 2);
        assert_eq!(acks(&mut bench, publisher), [(1, ReasonCode::Success), (2, ReasonCode::Success)]);
        let other_filters = [awaits(BRIDGE, "+/a")];
        let limits = QueueLimits { messages: 10, bytes: 1_000, drops_oldest: false, refuses: true };
        bench.input(Input::Inside { queues: [(BRIDGE.into(), limits)].into(), awaits: other_filters.into() });
        assert!(!bench.broker.knows_of(&session()), "it has to stand with these filters");
        bench.send(publisher, &publish("x/a", "x", Q1, 3));
        assert_eq!((acks(&mut bench, publisher), bench.publishes(other).len()), (vec![], 0));
    }
}
