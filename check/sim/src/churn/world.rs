//! Clock, links and events.

use std::collections::BTreeMap;

use bytes::Bytes;
use sedge_base::{ClientId, Instant, Now, Rng, Timestamp};
use sedge_mqtt::{TopicFilter, TopicName};
use sedge_overlay::{Advert, AdvertOp, Barrier, Input, Output, Token};

use super::host::{Host, Wanted, id, index};
use super::map::Map;
use super::publication::{Copy, Publication};
use super::{Figures, Traffic};

/// Options of a run.
#[derive(Clone, Copy, Debug)]
pub struct ChurnOptions {
    /// Seed that everything is drawn from.
    pub seed: u64,
    /// Name of the algorithm.
    pub overlay: &'static str,
    /// Nodes.
    pub nodes: usize,
    /// Subscriptions of each node's clients.
    pub subscriptions: usize,
    /// Length of the churn, in seconds.
    pub seconds: u64,
    /// Nodes that die each second, of a thousand.
    pub deaths: u64,
}

/// Milliseconds that a second has.
const SECOND: u64 = 1_000;
/// All nodes start within this time.
const START: u64 = SECOND;
/// After so long without agreement there will be none.
const PATIENCE: u64 = 120 * SECOND;
/// Publications of each delivery test.
const TEST: usize = 200;
/// When a publication counts as lost.
const LOST: u64 = 2 * SECOND;

enum Event {
    Start(usize),
    /// Two nodes, each with its life, have found each other and are linked.
    Meet((usize, u64), (usize, u64)),
    Signal {
        from: usize,
        to: usize,
        bytes: Bytes,
    },
    Timer(usize),
    Barrier(usize, u64, Barrier),
    Measure(usize, u64),
    Subscribe(usize, u64),
    Die(usize),
    /// The link to a dead node breaks, or membership has found out that it is dead.
    Lost {
        at: usize,
        dead: usize,
        gone: bool,
    },
    Publish(usize, TopicName, usize),
    Arrive(usize, Copy),
    Count(usize),
}

/// The phases of publications, as they stand in the figures.
const FIRST: usize = 0;
const BEFORE: usize = 1;
const DURING: usize = 2;
const AFTER_FIRST: usize = 3;
const AFTER: usize = 4;

struct World {
    options: ChurnOptions,
    tick: u64,
    agenda: BTreeMap<u64, Vec<Event>>,
    hosts: Vec<Option<Host>>,
    map: Map,
    /// Whether a node has a link to another, and whether it is in step with it, by both indices.
    linked: Vec<bool>,
    synced: Vec<bool>,
    publications: Vec<Publication>,
    figures: Figures,
    traffic: Traffic,
    settled: (u64, u64, u64),
    lives: u64,
    last_start: u64,
    tokens: u64,
    rng: Rng,
}

/// Runs one algorithm. The same options give the same figures.
pub fn churn(options: ChurnOptions) -> Figures {
    let mut rng = Rng::new(options.seed);
    let map = Map::new(options.nodes, &mut rng);
    let mut world = World {
        options,
        tick: 0,
        agenda: BTreeMap::new(),
        hosts: (0..options.nodes).map(|_| None).collect(),
        map,
        linked: vec![false; options.nodes * options.nodes],
        synced: vec![false; options.nodes * options.nodes],
        publications: Vec::new(),
        figures: Figures { overlay: options.overlay, nodes: options.nodes, ..Figures::default() },
        traffic: Traffic::default(),
        settled: (0, 0, 0),
        lives: 0,
        last_start: 0,
        tokens: 0,
        rng,
    };
    world.run();
    world.figures
}

impl World {
    fn run(&mut self) {
        for node in 0..self.options.nodes {
            let at = self.rng.below(START);
            self.at(at, Event::Start(node));
        }
        self.pass(START);
        self.figures.formed = self.agree();
        // Nobody publishes before it is ready.
        self.pass(2 * SECOND);
        self.figures.forming = self.take_traffic();
        let tests = self.tests();
        self.test(&tests, FIRST);
        self.test(&tests, BEFORE);
        self.figures.quiet = self.take_traffic();
        let lines: Vec<u64> = self.hosts.iter().flatten().map(|host| host.machine.route_count() as u64).collect();
        self.figures.table =
            (lines.iter().sum::<u64>() / lines.len().max(1) as u64, lines.iter().copied().max().unwrap_or(0));
        self.settled = (0, 0, 0);
        self.plan_churn();
        self.pass(self.options.seconds * SECOND);
        self.figures.churning = self.take_traffic();
        let (sum, count, longest) = self.settled;
        self.figures.settling = (sum / count.max(1), longest);
        self.figures.healed = self.agree();
        self.pass(2 * SECOND);
        let tests = self.tests();
        self.test(&tests, AFTER_FIRST);
        self.test(&tests, AFTER);
    }

    /// Everybody dies with the same chance at any time, and starts again a few seconds later without any memory.
    fn plan_churn(&mut self) {
        let nodes = self.options.nodes as u64;
        let deaths = (self.options.seconds * self.options.deaths * nodes).div_ceil(1_000);
        let mut order: Vec<usize> = (0..self.options.nodes).collect();
        self.rng.shuffle(&mut order);
        let span = self.options.seconds * SECOND;
        for (number, node) in (0..deaths).zip(order.into_iter().cycle()) {
            let at = self.tick + span * number / deaths + self.rng.below(span / deaths + 1);
            self.at(at, Event::Die(node));
        }
        for at in (0..span).step_by(20) {
            let (node, topic) = (self.rng.index(self.options.nodes), self.draw_topic());
            self.at(self.tick + at, Event::Publish(node, topic, DURING));
        }
    }

    fn draw_topic(&mut self) -> TopicName {
        let text = format!("site/{}/sensor/{}", self.rng.below(20), self.rng.below(20));
        TopicName::new(&text).unwrap_or_else(|_| unreachable!("a topic"))
    }

    fn draw_filter(&mut self) -> TopicFilter {
        let site = self.rng.below(20);
        let text = match self.rng.below(20) {
            0 => format!("site/{site}/#"),
            _ => format!("site/{site}/sensor/{}", self.rng.below(20)),
        };
        TopicFilter::new(&text).unwrap_or_else(|_| unreachable!("a filter"))
    }

    fn tests(&mut self) -> Vec<(usize, TopicName)> {
        (0..TEST).map(|_| (self.rng.index(self.options.nodes), self.draw_topic())).collect()
    }

    /// Makes these publications one after the other and waits until all that can arrive has arrived.
    fn test(&mut self, tests: &[(usize, TopicName)], phase: usize) {
        for (number, (node, topic)) in tests.iter().enumerate() {
            self.at(self.tick + 10 * number as u64, Event::Publish(*node, topic.clone(), phase));
        }
        self.pass(10 * tests.len() as u64 + LOST + 10);
    }

    /// Traffic since the last call.
    const fn take_traffic(&mut self) -> Traffic {
        let next = Traffic { millis: self.tick, signals: 0, bytes: 0 };
        let traffic = core::mem::replace(&mut self.traffic, next);
        Traffic { millis: self.tick - traffic.millis, ..traffic }
    }

    /// Passes time until all nodes are there and agree; says how long after the last start that was.
    fn agree(&mut self) -> Option<u64> {
        let end = self.tick + PATIENCE;
        while self.tick < end {
            if self.is_agreed() {
                return Some(self.tick - self.last_start);
            }
            self.pass(100);
        }
        None
    }

    fn is_agreed(&self) -> bool {
        let nodes = self.options.nodes;
        let settled = self.hosts.iter().all(|host| {
            host.as_ref().is_some_and(|host| host.waiting.is_empty() && host.wanted.len() == self.options.subscriptions)
        });
        let pairs = || (0..nodes).flat_map(|a| (0..nodes).filter(move |b| *b != a).map(move |b| a * nodes + b));
        settled
            && pairs().all(|pair| self.synced[pair])
            && self.hosts.iter().flatten().all(|host| host.machine.topology(0).trees.iter().all(|tree| tree.complete))
    }

    fn at(&mut self, tick: u64, event: Event) {
        self.agenda.entry(tick).or_default().push(event);
    }

    fn now(&self) -> Now {
        Now { instant: Instant::from_millis(self.tick), wall: Timestamp::from_millis(self.tick) }
    }

    fn pass(&mut self, span: u64) {
        let end = self.tick + span;
        while let Some(entry) = self.agenda.first_entry().filter(|entry| *entry.key() < end) {
            self.tick = self.tick.max(*entry.key());
            let mut touched = Vec::new();
            for event in entry.remove() {
                self.happen(event, &mut touched);
            }
            for node in touched {
                self.poll(node);
            }
        }
        self.tick = end;
    }

    fn feed(&mut self, node: usize, touched: &mut Vec<usize>, input: Input) {
        let now = self.now();
        if let Some(host) = &mut self.hosts[node] {
            if !core::mem::replace(&mut host.dirty, true) {
                touched.push(node);
            }
            host.machine.handle(now, input);
        }
    }

    /// The host in this life of it.
    fn living(&self, node: usize, life: u64) -> Option<&Host> {
        self.hosts[node].as_ref().filter(|host| host.life == life)
    }

    fn happen(&mut self, event: Event, touched: &mut Vec<usize>) {
        match event {
            Event::Start(node) => self.start(node, touched),
            Event::Meet(one, other) => self.meet(one, other, touched),
            Event::Signal { from, to, bytes } => {
                if self.linked[to * self.options.nodes + from] {
                    self.feed(to, touched, Input::Signal { from: id(from), bytes });
                }
            }
            Event::Timer(node) => {
                let (now, tick) = (self.now(), self.tick);
                if let Some(host) = self.hosts[node].as_mut().filter(|host| host.timer == tick) {
                    host.timer = u64::MAX;
                    host.machine.handle_timeout(now);
                    if !core::mem::replace(&mut host.dirty, true) {
                        touched.push(node);
                    }
                }
            }
            Event::Barrier(node, life, barrier) => {
                if self.living(node, life).is_some() {
                    self.feed(node, touched, Input::BarrierReached(barrier));
                }
            }
            Event::Measure(node, life) => self.measure(node, life, touched),
            Event::Subscribe(node, life) => self.subscribe(node, life, touched),
            Event::Die(node) => self.die(node),
            Event::Lost { at, dead, gone } => {
                self.linked[at * self.options.nodes + dead] = false;
                self.synced[at * self.options.nodes + dead] = false;
                self.feed(at, touched, Input::NeighbourDown { node: id(dead), gone });
                if gone {
                    self.feed(at, touched, Input::MemberDown { node: id(dead) });
                }
            }
            Event::Publish(node, topic, phase) => self.publish(node, topic, phase, touched),
            Event::Arrive(node, copy) => self.arrive(node, copy),
            Event::Count(publication) => self.count(publication),
        }
    }

    fn start(&mut self, node: usize, touched: &mut Vec<usize>) {
        self.lives += 1;
        self.last_start = self.tick;
        let life = self.lives;
        let mut host = Host::new(self.options.overlay, node, life, &mut self.rng);
        host.dirty = false;
        host.ready = self.tick + 2 * SECOND;
        let load = Input::Load { capacity: host.capacity, clients: 3 };
        self.hosts[node] = Some(host);
        self.feed(node, touched, load);
        for other in 0..self.options.nodes {
            let Some(host) = self.hosts[other].as_ref().filter(|_| other != node) else { continue };
            let meeting = Event::Meet((node, life), (other, host.life));
            // Gossip, and a handshake of three ways.
            let at = self.tick + 1 + self.rng.below(200) + self.map.delay(node, other) * 3 / 1_000;
            self.at(at, meeting);
        }
        let (subscribes, measures) = (self.tick + 500 + self.rng.below(500), self.tick + self.rng.below(SECOND));
        for number in 0..self.options.subscriptions {
            self.at(subscribes + 100 * number as u64, Event::Subscribe(node, life));
        }
        self.at(measures, Event::Measure(node, life));
    }

    fn meet(&mut self, one: (usize, u64), other: (usize, u64), touched: &mut Vec<usize>) {
        let neighbours = [one, other].map(|(node, life)| self.living(node, life).map(|host| host.neighbour(node)));
        let [Some(first), Some(second)] = neighbours else { return };
        let rtt = self.map.delay(one.0, other.0) * 2;
        for (at, neighbour) in [(one.0, second), (other.0, first)] {
            self.linked[at * self.options.nodes + index(neighbour.node)] = true;
            self.feed(at, touched, Input::MemberUp(neighbour));
            self.feed(at, touched, Input::NeighbourUp(neighbour));
            let micros = self.noise(rtt);
            self.feed(at, touched, Input::RoundTrip { node: neighbour.node, micros });
        }
    }

    fn noise(&mut self, micros: u64) -> u32 {
        u32::try_from(micros + self.rng.below(micros / 10 + 100)).unwrap_or(u32::MAX)
    }

    /// A round trip over each link, each second.
    fn measure(&mut self, node: usize, life: u64, touched: &mut Vec<usize>) {
        if self.living(node, life).is_none() {
            return;
        }
        for other in 0..self.options.nodes {
            if self.linked[node * self.options.nodes + other] {
                let micros = self.noise(self.map.delay(node, other) * 2);
                self.feed(node, touched, Input::RoundTrip { node: id(other), micros });
            }
        }
        self.at(self.tick + SECOND, Event::Measure(node, life));
    }

    fn subscribe(&mut self, node: usize, life: u64, touched: &mut Vec<usize>) {
        let filter = self.draw_filter();
        self.tokens += 1;
        let (token, tick) = (Token(self.tokens), self.tick);
        let Some(host) = self.hosts[node].as_mut().filter(|host| host.life == life) else { return };
        let client = ClientId::new(&format!("c{}", host.wanted.len()));
        host.waiting.insert(token, (host.wanted.len(), tick));
        host.wanted.push(Wanted { filter: filter.clone(), settled: None });
        let changes = vec![Advert { client, filter, op: AdvertOp::Add { online: true } }];
        self.feed(node, touched, Input::Local { changes, token: Some(token) });
    }

    fn die(&mut self, node: usize) {
        if self.hosts[node].take().is_none() {
            return;
        }
        self.figures.deaths += 1;
        let nodes = self.options.nodes;
        for other in (0..nodes).filter(|other| *other != node) {
            self.linked[node * nodes + other] = false;
            self.synced[node * nodes + other] = false;
            if self.linked[other * nodes + node] {
                let broken = self.tick + 1 + self.map.delay(node, other) / 1_000;
                // A closed link is looked into at once; rumours are slower.
                let gone = broken + 50 + self.rng.below(450);
                self.at(broken, Event::Lost { at: other, dead: node, gone: false });
                self.at(gone, Event::Lost { at: other, dead: node, gone: true });
            }
        }
        let again = self.tick + 2 * SECOND + self.rng.below(3 * SECOND);
        self.at(again, Event::Start(node));
    }

    fn poll(&mut self, node: usize) {
        let nodes = self.options.nodes;
        let Some(mut host) = self.hosts[node].take() else { return };
        host.dirty = false;
        while let Some(output) = host.machine.poll_output() {
            match output {
                Output::Signal { to, bytes } => {
                    let to = index(to);
                    self.figures.errors += u64::from(!self.linked[node * nodes + to]);
                    self.traffic.signals += 1;
                    self.traffic.bytes += bytes.len() as u64;
                    let at = self.tick + 1 + self.map.delay(node, to) / 1_000;
                    self.at(at, Event::Signal { from: node, to, bytes });
                }
                Output::Barrier(barrier) => self.at(self.tick + 1, Event::Barrier(node, host.life, barrier)),
                Output::Settled(token) => {
                    if let Some((which, since)) = host.waiting.remove(&token) {
                        host.wanted[which].settled = Some(self.tick);
                        let took = self.tick - since;
                        let (sum, count, longest) = self.settled;
                        self.settled = (sum + took, count + 1, longest.max(took));
                    }
                }
                Output::Synced { node: other } => self.synced[node * nodes + index(other)] = true,
                Output::Protocol { .. } => self.figures.errors += 1,
                Output::Link { .. } | Output::Table(_) | Output::Cut { .. } => {}
            }
        }
        if let Some(at) = host.machine.poll_timeout() {
            let at = at.as_nanos().div_ceil(1_000_000).max(self.tick + 1);
            if at < host.timer {
                host.timer = at;
                self.at(at, Event::Timer(node));
            }
        }
        self.hosts[node] = Some(host);
    }

    fn publish(&mut self, node: usize, topic: TopicName, phase: usize, touched: &mut Vec<usize>) {
        let (nodes, tick) = (self.options.nodes, self.tick);
        let Some(host) = self.hosts[node].as_mut().filter(|host| host.ready <= tick) else { return };
        if !core::mem::replace(&mut host.dirty, true) {
            touched.push(node);
        }
        let mut destinations = Vec::new();
        host.machine.destinations(&topic, &mut destinations);
        let ends: Vec<usize> = destinations.into_iter().map(index).collect();
        let others = || self.hosts.iter().enumerate().filter_map(|(other, host)| Some((other, host.as_ref()?)));
        let wanting = |end: &usize| self.hosts[*end].as_ref().is_some_and(|host| host.wants(&topic));
        let needless = ends.iter().filter(|end| !wanting(end)).count() as u64;
        let expected: Vec<(usize, u64)> = others()
            .filter(|(other, host)| {
                *other != node && self.synced[node * nodes + other] && host.has_settled(&topic, tick)
            })
            .map(|(other, host)| (other, host.life))
            .collect();
        let missing = expected.iter().filter(|(other, _)| !ends.contains(other)).count() as u64;
        let delivery = self.delivery(phase);
        delivery.publications += 1;
        delivery.needless += needless;
        delivery.missing += missing;
        let publication = self.publications.len();
        let (sent, reached) = (tick, BTreeMap::new());
        self.publications.push(Publication { topic, phase, sent, expected, reached });
        self.at(tick + LOST, Event::Count(publication));
        self.divide(node, Copy { publication, from: node, ends, hops: 0 });
    }

    const fn delivery(&mut self, phase: usize) -> &mut super::Delivery {
        match phase {
            FIRST => &mut self.figures.first,
            BEFORE => &mut self.figures.before,
            DURING => &mut self.figures.during,
            AFTER_FIRST => &mut self.figures.after_first,
            _ => &mut self.figures.after,
        }
    }

    /// Sends copies to the next nodes on the ways, never back.
    fn divide(&mut self, node: usize, copy: Copy) {
        let Some(host) = &self.hosts[node] else { return };
        let Publication { topic, phase, .. } = &self.publications[copy.publication];
        let phase = *phase;
        let mut legs: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for end in copy.ends {
            let way = index(host.machine.way(topic, id(end)));
            let back = way == copy.from && copy.hops > 0;
            legs.entry(if back || way == node || copy.hops >= 16 { end } else { way }).or_default().push(end);
        }
        self.delivery(phase).copies += legs.len() as u64;
        for (next, ends) in legs {
            if self.linked[node * self.options.nodes + next] {
                let at = self.tick + 1 + self.map.delay(node, next) / 1_000;
                let copy = Copy { ends, hops: copy.hops + 1, from: node, ..copy };
                self.at(at, Event::Arrive(next, copy));
            }
        }
    }

    fn arrive(&mut self, node: usize, mut copy: Copy) {
        if self.hosts[node].is_none() {
            return;
        }
        let publication = &mut self.publications[copy.publication];
        let phase = publication.phase;
        if copy.ends.contains(&node) {
            copy.ends.retain(|end| *end != node);
            if publication.reached.insert(node, (copy.hops, self.tick)).is_some() {
                self.delivery(phase).twice += 1;
            }
        }
        if !copy.ends.is_empty() {
            self.divide(node, copy);
        }
    }

    fn count(&mut self, number: usize) {
        let publication = &self.publications[number];
        let phase = publication.phase;
        let mut delivery = core::mem::take(self.delivery(phase));
        let publication = &mut self.publications[number];
        let lives = |node: usize, life: u64| self.hosts[node].as_ref().is_some_and(|host| host.life == life);
        publication.count(&mut delivery, lives);
        publication.expected = Vec::new();
        publication.reached = BTreeMap::new();
        *self.delivery(phase) = delivery;
    }
}
