//! Random clients, random delays, links that break: the invariants hold, whatever the seed.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::{BTreeMap, BTreeSet};

use sedge_base::Rng;
use sedge_cluster::RouteStatus;
use sedge_mqtt::QoS;

use crate::common::{ClientIx, Options, World};

const TOPICS: [&str; 3] = ["t/0", "t/1", "u/0"];
const FILTERS: [&str; 5] = ["t/0", "t/1", "t/+", "#", "u/#"];

/// A client and the messages that it is owed.
#[derive(Default)]
struct Subscriber {
    connections: Vec<ClientIx>,
    filters: BTreeSet<&'static str>,
    /// Publications sent while a matching subscription stood.
    owed: BTreeSet<String>,
}

struct Run {
    world: World,
    rng: Rng,
    subscribers: Vec<Subscriber>,
    publishers: Vec<ClientIx>,
    sent: usize,
}

fn matches(filter: &str, topic: &str) -> bool {
    match filter {
        "#" => true,
        "t/+" => topic.starts_with("t/"),
        "u/#" => topic.starts_with("u/"),
        other => other == topic,
    }
}

fn kept() -> Options {
    Options { expiry: 1_000, ..Options::default() }
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mut world = World::cluster(seed, 3, 2);
        world.delays.mailbox = *rng.pick(&[10, 500, 5_000]).unwrap();
        world.delays.network = *rng.pick(&[100, 1_000, 10_000]).unwrap();
        let publishers = (1..=3).map(|node| world.connect(node, &format!("pub{node}"))).collect();
        let subscribers = (0..6)
            .map(|i| Subscriber {
                connections: vec![world.connect_with(1 + i % 3, &format!("sub{i}"), kept())],
                ..Subscriber::default()
            })
            .collect();
        Self { world, rng, subscribers, publishers, sent: 0 }
    }

    fn step(&mut self) {
        let who = self.rng.index(self.subscribers.len());
        let connection = *self.subscribers[who].connections.last().unwrap();
        match self.rng.below(40) {
            0..=1 => {
                let filter = *self.rng.pick(&FILTERS).unwrap();
                self.world.subscribe(connection, filter, QoS::ExactlyOnce);
                self.subscribers[who].filters.insert(filter);
            }
            2 => {
                if let Some(filter) = self.subscribers[who].filters.pop_first() {
                    // Messages on their way may find the subscription gone.
                    self.quiesce();
                    self.world.unsubscribe(connection, filter);
                }
            }
            3 => {
                let node = 1 + self.rng.below(3);
                let again = self.world.connect_with(node, &format!("sub{who}"), kept());
                self.subscribers[who].connections.push(again);
            }
            4 => self.world.break_links(1 + self.rng.below(3), 1 + self.rng.below(3)),
            5..=9 => {
                let wait = self.rng.below(5);
                self.world.run(wait);
            }
            _ => self.publish(),
        }
    }

    /// Waits until all that was sent is where it has to be.
    fn quiesce(&mut self) {
        let (publishers, sent) = (&self.publishers, self.sent);
        self.world.run_until("acknowledgements", |world| {
            publishers.iter().map(|publisher| world.clients[*publisher].acked.len()).sum::<usize>() == sent
        });
        self.world.run(50);
    }

    fn publish(&mut self) {
        let topic = *self.rng.pick(&TOPICS).unwrap();
        let at = self.rng.index(self.publishers.len());
        let qos = if self.rng.chance(1, 2) { QoS::AtLeastOnce } else { QoS::ExactlyOnce };
        let payload = format!("{at} {topic} {qos:?} {:06}", self.sent);
        self.sent += 1;
        self.world.send_publish(self.publishers[at], topic, &payload, qos, false);
        for subscriber in &mut self.subscribers {
            if subscriber.filters.iter().any(|filter| matches(filter, topic)) {
                subscriber.owed.insert(payload.clone());
            }
        }
    }

    fn check(&self, seed: u64) {
        for publisher in &self.publishers {
            assert!(self.world.clients[*publisher].open, "seed {seed}");
        }
        let acked: usize = self.publishers.iter().map(|publisher| self.world.clients[*publisher].acked.len()).sum();
        assert_eq!(acked, self.sent, "seed {seed}");
        for (at, subscriber) in self.subscribers.iter().enumerate() {
            let all = || subscriber.connections.iter().flat_map(|client| &self.world.clients[*client].got);
            let got: BTreeSet<&str> = all().map(|got| got.payload.as_str()).collect();
            // Messages that were on their way when a connection ended come again with DUP.
            let first: Vec<&str> = all().filter(|got| !got.dup).map(|got| got.payload.as_str()).collect();
            let once: BTreeSet<&str> = first.iter().copied().collect();
            assert_eq!(once.len(), first.len(), "seed {seed}: sub{at} has got something twice");
            let lost: Vec<_> = subscriber.owed.iter().filter(|owed| !got.contains(owed.as_str())).collect();
            assert!(lost.is_empty(), "seed {seed}: sub{at} misses {lost:?}\n{}", self.world.log.join("\n"));
            let mut last = BTreeMap::new();
            for payload in first {
                let (flow, number) = payload.rsplit_once(' ').unwrap();
                let before = last.insert(flow, number);
                assert!(before.is_none_or(|before| before < number), "seed {seed}: sub{at} got {payload} late");
            }
        }
        self.check_tables(seed);
    }

    fn check_tables(&self, seed: u64) {
        let lines = |routes: Vec<RouteStatus>| -> BTreeSet<String> {
            routes.into_iter().map(|route| format!("{route:?}")).collect()
        };
        let nodes = &self.world.hosts;
        let sessions: usize = nodes.values().map(|host| host.node.status().sessions).sum();
        assert_eq!(sessions, self.subscribers.len() + self.publishers.len(), "seed {seed}");
        assert!(nodes.values().all(|host| host.node.status().unacknowledged == 0), "seed {seed}");
        if !self.world.has_tables_everywhere() {
            return;
        }
        let all: BTreeSet<String> = nodes.values().flat_map(|host| lines(host.node.local_routes(0, 1_000))).collect();
        for host in nodes.values() {
            let mut known = lines(host.node.routes(0, 1_000));
            known.extend(lines(host.node.local_routes(0, 1_000)));
            assert_eq!(known, all, "seed {seed}");
        }
    }
}

/// FT-01, FT-13, FT-18, FT-21, MQ-09, MQ-11, MQ-13
#[test]
fn three_nodes_are_one_broker_whatever_the_delays() {
    for seed in 0..12 {
        let mut run = Run::new(1_000 + seed);
        for _ in 0..800 {
            run.step();
        }
        run.world.run(5_000);
        run.check(seed);
    }
}
