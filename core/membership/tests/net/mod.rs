//! A network of memberships under virtual time: datagrams moved by hand.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use bytes::Bytes;
use sedge_base::{Duration, Incarnation, Instant, NodeId, Now, Rng, Timestamp};
use sedge_membership::{Config, DownCause, Input, Member, Membership, Output};

/// One way of a datagram.
const LATENCY: Duration = Duration::from_micros(500);

/// An output of one node that its owner has to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    SameId(SocketAddr),
    Up(u64, u64),
    Down(u64, DownCause),
    Moved(u64),
    Rejoined(u32),
    Outranked,
}

pub(crate) struct Net {
    pub(crate) now: Instant,
    pub(crate) nodes: BTreeMap<u64, Membership>,
    /// Those outputs of each node, with the time.
    pub(crate) told: Vec<(Instant, u64, Told)>,
    /// Ordered pairs of nodes whose datagrams are lost.
    pub(crate) blocked: BTreeSet<(u64, u64)>,
    /// Lost datagrams in a thousand.
    pub(crate) loss: u64,
    /// Nodes do something only so often, this many milliseconds at most in between.
    pub(crate) starved: u64,
    pub(crate) sent: u64,
    /// Addresses that datagrams were sent to since the test last cleared the set.
    pub(crate) sent_to: BTreeSet<SocketAddr>,
    at: BTreeMap<SocketAddr, u64>,
    flying: BTreeMap<(Instant, u64), (u64, SocketAddr, Bytes)>,
    /// When starved nodes do something again.
    turns: BTreeMap<u64, Instant>,
    /// Datagrams that wait for a starved node's next turn.
    inboxes: BTreeMap<u64, Vec<(SocketAddr, Bytes)>>,
    rng: Rng,
}

pub(crate) fn addr(host: u64) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, u8::try_from(host).expect("hosts are few")], 7883))
}

pub(crate) fn config(seeds: &[u64]) -> Config {
    Config { seeds: seeds.iter().map(|host| addr(*host)).collect(), ..Config::default() }
}

impl Net {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            now: Instant::from_millis(1_000),
            nodes: BTreeMap::new(),
            told: Vec::new(),
            blocked: BTreeSet::new(),
            loss: 0,
            starved: 0,
            turns: BTreeMap::new(),
            inboxes: BTreeMap::new(),
            sent: 0,
            sent_to: BTreeSet::new(),
            at: BTreeMap::new(),
            flying: BTreeMap::new(),
            rng: Rng::new(seed),
        }
    }

    /// Nodes 1 to `count`, all with node 1 as their seed, after they have found each other.
    pub(crate) fn cluster(seed: u64, count: u64) -> Self {
        let mut net = Self::new(seed);
        for node in 1..=count {
            net.start(node, node, 1, &config(&[1]));
        }
        net.run(Duration::from_secs(5));
        assert!(net.complete(), "{:?}", net.views());
        net.told.clear();
        net
    }

    pub(crate) fn start(&mut self, node: u64, host: u64, incarnation: u64, config: &Config) {
        let me = Member::new(NodeId::new(node), Incarnation::new(incarnation), addr(host), addr(host));
        let machine = Membership::new(config, me, self.rng.split(node)).expect("a config that works");
        self.at.retain(|_, at| *at != node);
        self.at.insert(addr(host), node);
        self.nodes.insert(node, machine);
    }

    pub(crate) fn kill(&mut self, node: u64) {
        self.nodes.remove(&node);
        self.turns.remove(&node);
    }

    pub(crate) fn input(&mut self, node: u64, input: Input) {
        let now = self.wall();
        self.nodes.get_mut(&node).expect("a node that runs").handle(now, input);
        self.collect(node);
    }

    /// Something has come over the link from another node.
    pub(crate) fn heard(&mut self, node: u64, other: u64) {
        let now = self.now;
        self.nodes.get_mut(&node).expect("a node that runs").heard(NodeId::new(other), now);
    }

    pub(crate) fn split(&mut self, left: &[u64], right: &[u64]) {
        for l in left {
            for r in right {
                self.blocked.extend([(*l, *r), (*r, *l)]);
            }
        }
    }

    /// Runs for `span`, or until `done`.
    pub(crate) fn run_until(&mut self, span: Duration, mut done: impl FnMut(&Self) -> bool) -> Duration {
        let (start, end) = (self.now, self.now + span);
        while !done(self) {
            let timer = if self.starved > 0 {
                self.turns.values().min().copied().or(Some(self.now))
            } else {
                self.nodes.values().filter_map(Membership::poll_timeout).min()
            };
            let flight = self.flying.first_key_value().map(|((at, _), _)| *at);
            let Some(next) = [timer, flight].into_iter().flatten().min().filter(|next| *next <= end) else {
                self.now = end;
                break;
            };
            self.now = self.now.max(next);
            self.step();
        }
        self.now.since(start)
    }

    pub(crate) fn run(&mut self, span: Duration) {
        self.run_until(span, |_| false);
    }

    /// Whether every node lists every node that runs, in its present life, and no other.
    pub(crate) fn complete(&self) -> bool {
        let running: Vec<(u64, u64)> = self.nodes.iter().map(|(n, m)| (*n, m.me().incarnation.get())).collect();
        self.views().iter().all(|(_, view)| *view == running)
    }

    /// Per node what it lists, itself included: node and incarnation.
    pub(crate) fn views(&self) -> Vec<(u64, Vec<(u64, u64)>)> {
        let view = |machine: &Membership| {
            let mut all: Vec<_> = machine.members().chain([machine.me()]).collect();
            all.sort_by_key(|member| member.node);
            all.iter().map(|member| (member.node.get(), member.incarnation.get())).collect()
        };
        self.nodes.iter().map(|(node, machine)| (*node, view(machine))).collect()
    }

    /// All that was told of this kind, as (who told, milliseconds since `since`).
    pub(crate) fn when(&self, since: Instant, wanted: &Told) -> Vec<(u64, u128)> {
        let told = self.told.iter().filter(|(at, _, told)| told == wanted && *at >= since);
        told.map(|(at, node, _)| (*node, at.since(since).as_millis())).collect()
    }

    fn wall(&self) -> Now {
        Now { instant: self.now, wall: Timestamp::from_millis(self.now.as_nanos() / 1_000_000) }
    }

    fn step(&mut self) {
        while let Some(entry) = self.flying.first_entry().filter(|entry| entry.key().0 <= self.now) {
            let (from, to, bytes) = entry.remove();
            let Some(node) = self.at.get(&to).copied() else { continue };
            let lost = self.blocked.contains(&(from, node)) || self.rng.chance(self.loss, 1000);
            if !lost && self.nodes.contains_key(&node) {
                let from = self.addr_of(from);
                if self.starved > 0 {
                    self.inboxes.entry(node).or_default().push((from, bytes));
                } else {
                    self.input(node, Input::Datagram { from, bytes });
                }
            }
        }
        let now = self.wall();
        for node in self.nodes.keys().copied().collect::<Vec<_>>() {
            if self.starved > 0 && !self.takes_turn(node) {
                continue;
            }
            if let Some(machine) = self.nodes.get_mut(&node) {
                machine.handle_timeout(now);
            }
            self.collect(node);
        }
    }

    /// Whether a starved node does something now; then it takes what has come first.
    fn takes_turn(&mut self, node: u64) -> bool {
        if self.turns.get(&node).is_some_and(|turn| *turn > self.now) {
            return false;
        }
        let pause = Duration::from_millis(1 + self.rng.below(self.starved));
        self.turns.insert(node, self.now + pause);
        for (from, bytes) in self.inboxes.remove(&node).unwrap_or_default() {
            self.input(node, Input::Datagram { from, bytes });
        }
        true
    }

    fn addr_of(&self, node: u64) -> SocketAddr {
        self.at.iter().find(|(_, at)| **at == node).map_or_else(|| addr(250), |(addr, _)| *addr)
    }

    fn collect(&mut self, node: u64) {
        let Some(machine) = self.nodes.get_mut(&node) else { return };
        while let Some(output) = machine.poll_output() {
            let told = match output {
                Output::Datagram { to, bytes } => {
                    self.sent += 1;
                    self.sent_to.insert(to);
                    self.flying.insert((self.now + LATENCY, self.sent), (node, to, bytes));
                    continue;
                }
                Output::Up(member) => Told::Up(member.node.get(), member.incarnation.get()),
                Output::Down { member, cause } => Told::Down(member.node.get(), cause),
                Output::Moved(member) => Told::Moved(member.node.get()),
                Output::Rejoined(me) => Told::Rejoined(me.generation),
                Output::Outranked => Told::Outranked,
                Output::SameId { at } => Told::SameId(at),
            };
            self.told.push((self.now, node, told));
        }
    }
}
