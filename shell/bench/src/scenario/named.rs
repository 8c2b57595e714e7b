//! Scenarios that are there by name.

use super::experiments::NODES;
use super::{
    IdleGroup, Interworking, Payload, Placement, PublisherGroup, Scenario, SubscriberGroup, Until, interworking,
};

/// Names of the ready-made scenarios, with what each is for.
pub(crate) const NAMES: &[(&str, &str)] = &[
    ("pairs", "publishers and subscribers in pairs, one topic per pair"),
    ("fan-in", "many publishers, few subscribers that get everything"),
    ("fan-out", "few publishers, many subscribers that get everything"),
    ("shared", "subscribers that share the messages of all publishers"),
    ("smart-plugs-publish", "plugs of smart houses publish, one subscriber per house (QoS 2)"),
    ("smart-plugs-subscribe", "one publisher per house commands its plugs (QoS 2)"),
    ("locality", "publishers and subscribers on one, any or different brokers, random topics"),
    ("limit", "topics with as many publishers as subscribers each, and a probe for the latency"),
    ("pattern-a", "5 topics with 10 publishers and 10 subscribers each, all on one broker, and probes: for the limit"),
    ("pattern-b", "the same over five brokers without locality: 2 + 2 of each topic on each"),
    ("pattern-c", "the same with low locality: 8 + 8 of one topic, 1 + 1 of two others on each"),
    ("pattern-d", "the same with high locality: 10 + 10 of one topic on each"),
    ("idle", "connections without traffic: what they cost"),
    ("failover", "fast pings, sessions that outlive connections, messages at QoS 1: for killing brokers"),
];

/// How big a ready-made scenario is to be. What is not given is the scenario's own size.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Size {
    pub(crate) publishers: Option<u32>,
    pub(crate) subscribers: Option<u32>,
    pub(crate) topics: Option<u32>,
    /// Percent of local interest in `locality`: 100, 50 or 0.
    pub(crate) locality: Option<u8>,
}

/// The ready-made scenario `name` at its own size.
pub(crate) fn named(name: &str) -> Option<Scenario> {
    sized(name, Size::default())
}

/// The ready-made scenario `name` at `size`.
pub(crate) fn sized(name: &str, size: Size) -> Option<Scenario> {
    let mut scenario = match name {
        "pairs" => pairs(size),
        "fan-in" => fan_in(size),
        "fan-out" => fan_out(size),
        "shared" => shared(size),
        "smart-plugs-publish" => smart_plugs_publish(size),
        "smart-plugs-subscribe" => smart_plugs_subscribe(size),
        "locality" => locality(size),
        "limit" => limit(size),
        "pattern-a" => interworking(Interworking::A, 1),
        "pattern-b" => interworking(Interworking::B, NODES),
        "pattern-c" => interworking(Interworking::C, NODES),
        "pattern-d" => interworking(Interworking::D, NODES),
        "idle" => idle(size),
        "failover" => failover(size),
        _ => return None,
    };
    name.clone_into(&mut scenario.name);
    Some(scenario)
}

pub(super) fn publisher(count: u32, topic: impl Into<String>) -> PublisherGroup {
    let (topics, brokers) = (1, Placement::Spread);
    PublisherGroup { count, topic: topic.into(), topics, interval_ms: None, brokers, probe: false }
}

pub(super) fn subscriber(count: u32, filter: impl Into<String>) -> SubscriberGroup {
    SubscriberGroup { count, filter: filter.into(), brokers: Placement::Spread }
}

fn of(publishers: PublisherGroup, subscribers: SubscriberGroup) -> Scenario {
    Scenario { publishers: vec![publishers], subscribers: vec![subscribers], ..Scenario::default() }
}

fn pairs(size: Size) -> Scenario {
    let publishers = size.publishers.unwrap_or(100);
    let topics = size.topics.unwrap_or(publishers).max(1);
    let subscribers = size.subscribers.unwrap_or(publishers);
    of(
        publisher(publishers, format!("bench/pairs/{{i%{topics}}}")),
        subscriber(subscribers, format!("bench/pairs/{{i%{topics}}}")),
    )
}

fn fan_in(size: Size) -> Scenario {
    let publishers = size.publishers.unwrap_or(1_000);
    let topics = size.topics.unwrap_or(publishers).max(1);
    let scenario = of(
        publisher(publishers, format!("bench/in/{{i%{topics}}}")),
        subscriber(size.subscribers.unwrap_or(1), "bench/in/#"),
    );
    // With less at once the load generator would pay for more writes than the broker for messages.
    Scenario { window: 20, burst: Some(10), ..scenario }
}

fn fan_out(size: Size) -> Scenario {
    let topics = size.topics.unwrap_or(1).max(1);
    let mut publishers = publisher(size.publishers.unwrap_or(1), "bench/out/{t}");
    publishers.topics = topics;
    of(publishers, subscriber(size.subscribers.unwrap_or(1_000), "bench/out/#"))
}

fn shared(size: Size) -> Scenario {
    let publishers = size.publishers.unwrap_or(100);
    let topics = size.topics.unwrap_or(publishers).max(1);
    of(
        publisher(publishers, format!("bench/shared/{{i%{topics}}}")),
        subscriber(size.subscribers.unwrap_or(10), "$share/bench/bench/shared/#"),
    )
}

/// Plugs per house of the elasticity experiments: 3 households of 30.
const PLUGS: u32 = 90;
/// Houses of the small form, which runs anywhere; the full one has 40.
const HOUSES: u32 = 4;

fn plugs() -> Scenario {
    Scenario {
        qos: 2,
        persistent: true,
        interval_ms: Some(1_000.0),
        measure_s: 20.0,
        warmup_s: 2.0,
        drain_s: 20.0,
        ..Scenario::default()
    }
}

fn smart_plugs_publish(size: Size) -> Scenario {
    let houses = size.subscribers.unwrap_or(HOUSES);
    let mut publishers = publisher(
        size.publishers.unwrap_or(houses * PLUGS),
        "SmartHouse{i/90}/Household{i/30%3}/SmartPlug{i%30}/Parameter{t}",
    );
    publishers.topics = size.topics.unwrap_or(10);
    Scenario { publishers: vec![publishers], subscribers: vec![subscriber(houses, "SmartHouse{i}/#")], ..plugs() }
}

fn smart_plugs_subscribe(size: Size) -> Scenario {
    let houses = size.publishers.unwrap_or(HOUSES);
    let mut publishers = publisher(houses, "SmartHouse{i}/Household{t/30%3}/SmartPlug{t%30}/Command");
    publishers.topics = PLUGS;
    // One message per second and plug.
    publishers.interval_ms = Some(1_000.0 / f64::from(PLUGS));
    let filter = "SmartHouse{i/90}/Household{i/30%3}/SmartPlug{i%30}/Command";
    let subscribers = subscriber(size.subscribers.unwrap_or(houses * PLUGS), filter);
    Scenario { publishers: vec![publishers], subscribers: vec![subscribers], ..plugs() }
}

fn locality(size: Size) -> Scenario {
    let topics = size.topics.unwrap_or(30).max(1);
    let mut publishers = publisher(size.publishers.unwrap_or(20), format!("topic-tree/{{r%{topics}}}"));
    let mut subscribers = subscriber(size.subscribers.unwrap_or(5), format!("topic-tree/{{r%{topics}}}"));
    (publishers.brokers, subscribers.brokers) = match size.locality.unwrap_or(50) {
        100 => (Placement::Only(vec![0]), Placement::Only(vec![0])),
        0 => (Placement::Only(vec![0]), Placement::Only(vec![1])),
        _ => (Placement::Random, Placement::Random),
    };
    Scenario {
        payload: Payload::Fixed(1_000),
        interval_ms: Some(1_000.0),
        measure_s: 30.0,
        ..of(publishers, subscribers)
    }
}

/// The load of the limit search: t-clients on `topics` topics, and one pair of l-clients for the latency.
fn limit(size: Size) -> Scenario {
    let topics = size.topics.unwrap_or(5).max(1);
    let pattern = format!("bench/limit/{{i%{topics}}}");
    let mut scenario = of(
        publisher(size.publishers.unwrap_or(50), pattern.clone()),
        subscriber(size.subscribers.unwrap_or(50), pattern),
    );
    let mut probe = publisher(1, "bench/probe");
    probe.probe = true;
    probe.interval_ms = Some(1_000.0);
    scenario.publishers.push(probe);
    scenario.subscribers.push(subscriber(1, "bench/probe"));
    Scenario { interval_ms: Some(100.0), warmup_s: 10.0, measure_s: 60.0, drain_s: 10.0, ..scenario }
}

fn idle(size: Size) -> Scenario {
    let clients = size.publishers.or(size.subscribers).unwrap_or(1_000);
    let idle = vec![IdleGroup { count: clients, brokers: Placement::Spread }];
    Scenario { idle, warmup_s: 0.0, measure_s: 5.0, drain_s: 0.0, ..Scenario::default() }
}

fn failover(size: Size) -> Scenario {
    let publishers = size.publishers.unwrap_or(8);
    let topics = size.topics.unwrap_or(publishers).max(1);
    let scenario = of(
        publisher(publishers, format!("bench/failover/{{i%{topics}}}")),
        subscriber(size.subscribers.unwrap_or(publishers), format!("bench/failover/{{i%{topics}}}")),
    );
    Scenario {
        qos: 1,
        interval_ms: Some(10.0),
        until: Until::Ack,
        window: 20,
        persistent: true,
        reconnect: true,
        ping_ms: Some(200),
        keep_alive_s: 5,
        measure_s: 60.0,
        drain_s: 60.0,
        ..scenario
    }
}
