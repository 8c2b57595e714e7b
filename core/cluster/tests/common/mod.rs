//! A cluster driven by hand: nodes and shards with mailboxes between them, links and datagrams as pipes, MQTT clients, all on a
//! virtual clock. Everything that travels is an event of one queue; events from one place to another keep their order.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod behind;
pub(crate) mod client;
mod network;

use core::net::SocketAddr;
use std::collections::{BTreeMap, BTreeSet};

use bytes::{Bytes, BytesMut};
use sedge_base::{ConnId, Duration, Incarnation, Instant, NodeId, Now, Rng, ShardId, Timestamp};
use sedge_broker::{Place, PublishRate, Report};
use sedge_cluster::link::LinkConfig;
use sedge_cluster::mail::{ToNode, ToShard};
use sedge_cluster::{
    LinkId, Node, NodeConfig, NodeInput, NodeOutput, Recovery, Shard, ShardConfig, ShardInput, ShardOutput,
    SkipGraphMethod,
};
use sedge_mqtt::{QoS, TopicName};
use sedge_sidecar::SidecarConfig;

use self::behind::{Behind, Happening};
pub(crate) use self::client::{Client, Options};

/// Time that wall clocks show at the start.
const EPOCH_MILLIS: u64 = 1_700_000_000_000;
/// More events than any scenario needs: something goes round and round.
const MAX_EVENTS: u64 = 20_000_000;

/// Index of a client connection.
pub(crate) type ClientIx = usize;

/// Two ends between which order is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Node(u64),
    Shard(u64, u16),
    Link(u64, LinkId),
    Client(ClientIx),
    /// A connection to the broker behind a node.
    Behind(u64, sedge_sidecar::LinkId),
}

#[derive(Debug)]
enum Event {
    ToNode {
        node: u64,
        from: ShardId,
        mail: ToNode,
    },
    ToShard {
        node: u64,
        shard: ShardId,
        mail: ToShard,
    },
    Datagram {
        node: u64,
        from: SocketAddr,
        bytes: Bytes,
    },
    Dial {
        node: u64,
        link: LinkId,
        to: u64,
    },
    LinkBytes {
        node: u64,
        link: LinkId,
        bytes: Bytes,
    },
    LinkClosed {
        node: u64,
        link: LinkId,
    },
    FromClient {
        client: ClientIx,
        bytes: Bytes,
    },
    ToClient {
        client: ClientIx,
        bytes: Bytes,
    },
    /// The client's socket is closed, by itself or by the broker.
    Gone {
        client: ClientIx,
    },
    Hangup {
        client: ClientIx,
    },
    Behind {
        node: u64,
        link: sedge_sidecar::LinkId,
        what: Happening,
    },
}

/// One process.
pub(crate) struct Host {
    pub(crate) node: Node,
    pub(crate) shards: Vec<Shard>,
    next_accepted: u64,
}

/// Longest delays, in microseconds; drawn evenly.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delays {
    pub(crate) mailbox: u64,
    pub(crate) network: u64,
    pub(crate) client: u64,
}

/// All of it.
pub(crate) struct World {
    pub(crate) now: Now,
    pub(crate) rng: Rng,
    pub(crate) delays: Delays,
    pub(crate) hosts: BTreeMap<u64, Host>,
    pub(crate) clients: Vec<Client>,
    events: BTreeMap<(Instant, u64), Event>,
    next_event: u64,
    last: BTreeMap<(End, End), Instant>,
    conns: BTreeMap<(u64, ConnId), ClientIx>,
    /// Both ends of every link.
    wires: BTreeMap<(u64, LinkId), (u64, LinkId)>,
    cut: BTreeSet<(u64, u64)>,
    /// The same, and datagrams pass.
    blocked: BTreeSet<(u64, u64)>,
    /// By how many milliseconds the time of a node is off, as its system says; and as it has been corrected since.
    pub(crate) clocks: BTreeMap<u64, i64>,
    /// Datagrams that are lost, of a hundred.
    pub(crate) loss: u64,
    corrections: BTreeMap<u64, i64>,
    shards: u16,
    /// Whether nodes that are started have brokers behind them.
    has_behind: bool,
    behind: BTreeMap<u64, Behind>,
    /// Cooperation algorithm of the nodes that are started.
    pub(crate) overlay: String,
    method: SkipGraphMethod,
    starts: u64,
    /// Nodes that stand still, and the events for them.
    frozen: BTreeMap<u64, Vec<Event>>,
    /// Nodes whose processes are gone: their hosts refuse connections.
    killed: BTreeSet<u64>,
    /// The journals of nodes that keep them, for each shard in batches; they survive their nodes.
    disks: BTreeMap<u64, Vec<Vec<Bytes>>>,
    /// Answers to operators.
    pub(crate) kicked: Vec<(u64, Option<NodeId>)>,
    /// Nodes that have said that they are empty.
    pub(crate) drained: Vec<u64>,
    pub(crate) log: Vec<String>,
}

/// The scenarios run over every cooperation algorithm: `SEDGE_TEST_OVERLAY` names it, or `skip-graph:mrf`.
#[expect(clippy::disallowed_methods, reason = "a test program has no other way to be told")]
fn overlay() -> (String, SkipGraphMethod) {
    let name = std::env::var("SEDGE_TEST_OVERLAY").unwrap_or_else(|_| "mesh".to_owned());
    match name.split_once(':') {
        None => (name, SkipGraphMethod::Sfb),
        Some(("skip-graph", "mrf")) => ("skip-graph".to_owned(), SkipGraphMethod::Mrf),
        Some(_) => panic!("there is no {name}"),
    }
}

pub(crate) fn address(node: u64) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, u8::try_from(node).unwrap()], 7883))
}

fn node_at(address: SocketAddr) -> u64 {
    match address {
        SocketAddr::V4(address) => u64::from(address.ip().octets()[3]),
        SocketAddr::V6(_) => panic!("no such address was given"),
    }
}

impl World {
    /// Nothing yet. Nodes will have `shards` shards.
    pub(crate) fn new(seed: u64, shards: u16) -> Self {
        let instant = Instant::from_millis(1_000);
        let (overlay, method) = overlay();
        Self {
            now: Now { instant, wall: Timestamp::from_millis(EPOCH_MILLIS) },
            rng: Rng::new(seed),
            delays: Delays { mailbox: 20, network: 200, client: 50 },
            hosts: BTreeMap::new(),
            clients: Vec::new(),
            events: BTreeMap::new(),
            next_event: 0,
            last: BTreeMap::new(),
            conns: BTreeMap::new(),
            wires: BTreeMap::new(),
            cut: BTreeSet::new(),
            blocked: BTreeSet::new(),
            clocks: BTreeMap::new(),
            loss: 0,
            corrections: BTreeMap::new(),
            shards,
            has_behind: false,
            behind: BTreeMap::new(),
            overlay,
            method,
            starts: 0,
            frozen: BTreeMap::new(),
            killed: BTreeSet::new(),
            disks: BTreeMap::new(),
            kicked: Vec::new(),
            drained: Vec::new(),
            log: Vec::new(),
        }
    }

    /// Whether every node knows what the clients of all others want; other algorithms tell only those who need it.
    pub(crate) fn has_tables_everywhere(&self) -> bool {
        ["mesh", "detour"].contains(&self.overlay.as_str())
    }

    /// A running cluster of nodes 1 to `nodes`.
    pub(crate) fn cluster(seed: u64, nodes: u64, shards: u16) -> Self {
        let mut world = Self::new(seed, shards);
        for node in 1..=nodes {
            world.start(node);
        }
        world.settle_members(nodes);
        world
    }

    pub(crate) fn settle_members(&mut self, nodes: u64) {
        let wanted = usize::try_from(nodes).unwrap();
        self.run_until("all nodes are ready", |world| {
            world.hosts.values().all(|host| {
                let status = host.node.status();
                host.node.is_ready()
                    && status.members.len() == wanted
                    && status.members.iter().filter(|member| member.link.as_ref().is_some_and(|l| l.synced)).count() + 1
                        == wanted
            })
        });
    }

    /// Starts a node; all have node 1 as their seed.
    pub(crate) fn start(&mut self, node: u64) {
        self.start_with(node, |_| {});
    }

    pub(crate) fn start_with(&mut self, node: u64, change: impl FnOnce(&mut NodeConfig)) {
        self.starts += 1;
        self.killed.remove(&node);
        let incarnation = Incarnation::new(self.now.wall.as_millis() + self.starts);
        let mut config = NodeConfig {
            node: NodeId::new(node),
            incarnation,
            shards: self.shards,
            swim_addr: address(node),
            link_addr: address(node),
            seeds: vec![address(1), address(2)],
            overlay: self.overlay.clone(),
            skip_graph_method: self.method,
            links: LinkConfig::new("test", Some(b"a secret that all nodes share".to_vec())),
            ..NodeConfig::default()
        };
        change(&mut config);
        let place = |shard| Place { node: NodeId::new(node), incarnation, shard: ShardId(shard), shards: self.shards };
        let (rng, upstream) = (&mut self.rng, self.has_behind.then(SidecarConfig::default));
        let settings = ShardConfig { upstream, ..ShardConfig::default() };
        let shards = (0..self.shards).map(|at| Shard::new(settings.clone(), place(at), rng.split(7))).collect();
        let node_machine = Node::new(config, rng.split(8)).unwrap();
        let next_accepted = LinkId::ACCEPTED + (self.starts << 16);
        self.hosts.insert(node, Host { node: node_machine, shards, next_accepted });
        self.read_journal(node);
        self.with_node(node, Node::handle_timeout);
    }

    /// Nodes 1 to `nodes` write journals from their next start on.
    pub(crate) fn keep_journals(&mut self, nodes: u64) {
        self.disks = (1..=nodes).map(|node| (node, vec![Vec::new(); usize::from(self.shards)])).collect();
    }

    /// Whether these bytes are in a journal of the node.
    pub(crate) fn has_written(&self, node: u64, bytes: &[u8]) -> bool {
        let batches = self.disks.get(&node).into_iter().flatten().flatten();
        batches.into_iter().any(|batch| batch.windows(bytes.len()).any(|window| window == bytes))
    }

    fn read_journal(&mut self, node: u64) {
        let Some(disk) = self.disks.get(&node) else { return };
        let mut recoveries = Vec::new();
        for log in disk {
            let mut recovery = Recovery::default();
            for batch in log {
                recovery.apply(batch.clone()).unwrap();
            }
            recoveries.push(recovery);
        }
        let (restored, restored_node) = Recovery::deal(recoveries, self.now_at(node).wall, self.shards);
        let host = self.hosts.get_mut(&node).unwrap();
        host.node.keep_journal();
        host.node.restore(restored_node, true);
        for (shard, restored) in (0..self.shards).zip(restored) {
            self.with_shard(node, ShardId(shard), |machine, now| {
                machine.keep_journal();
                machine.restore(now, restored);
            });
        }
    }

    fn write_journal(&mut self, node: u64) {
        let (Some(disk), Some(host)) = (self.disks.get_mut(&node), self.hosts.get_mut(&node)) else { return };
        for (at, (shard, log)) in host.shards.iter_mut().zip(disk).enumerate() {
            let mut batch = BytesMut::new();
            shard.write_records(&mut batch);
            if at == 0 {
                host.node.write_records(&mut batch);
            }
            if !batch.is_empty() {
                log.push(batch.freeze());
            }
        }
    }

    /// The process is gone from one moment to the next.
    pub(crate) fn kill(&mut self, node: u64) {
        self.silence(node);
        self.killed.insert(node);
        let links: Vec<_> = self.wires.keys().filter(|(at, _)| *at == node).copied().collect();
        for end in links {
            self.break_wire(end, self.delays.network);
        }
    }

    /// Kills a node so that nobody is told, as when its host loses power.
    pub(crate) fn silence(&mut self, node: u64) {
        self.hosts.remove(&node);
        for client in 0..self.clients.len() {
            if self.clients[client].node == node && self.clients[client].open {
                self.clients[client].open = false;
            }
        }
        self.events.retain(|_, event| {
            !matches!(event, Event::ToNode { node: at, .. } | Event::ToShard { node: at, .. } if *at == node)
        });
        self.conns.retain(|(at, _), _| *at != node);
        self.behind.remove(&node);
    }

    fn send(&mut self, from: End, to: End, longest: u64, event: Event) {
        let delay = Duration::from_micros(1 + self.rng.below(longest));
        let last = self.last.entry((from, to)).or_default();
        let at = (self.now.instant + delay).max(*last);
        *last = at;
        self.next_event += 1;
        self.events.insert((at, self.next_event), event);
    }

    /// Runs for some virtual milliseconds.
    pub(crate) fn run(&mut self, millis: u64) {
        let end = self.now.instant + Duration::from_millis(millis);
        while self.step(end) {}
    }

    /// Runs until something is true; panics if it is not within 30 virtual seconds.
    pub(crate) fn run_until(&mut self, what: &str, mut done: impl FnMut(&Self) -> bool) {
        let end = self.now.instant + Duration::from_secs(30);
        while !done(self) {
            assert!(self.step(end), "not in time: {what}\n{}", self.log.join("\n"));
        }
    }

    fn step(&mut self, end: Instant) -> bool {
        let awake = self.hosts.iter().filter(|(node, _)| !self.frozen.contains_key(node));
        let timers = awake.flat_map(|(_, host)| {
            host.shards.iter().map(Shard::poll_timeout).chain([host.node.poll_timeout()]).flatten()
        });
        let timer = timers.min();
        let event = self.events.first_key_value().map(|((at, _), _)| *at);
        let next = timer.into_iter().chain(event).min().unwrap_or(end).max(self.now.instant);
        if next > end {
            self.advance(end);
            return false;
        }
        self.advance(next);
        assert!(self.next_event < MAX_EVENTS, "no end of events");
        if event.is_some_and(|at| at <= next)
            && let Some((_, event)) = self.events.pop_first()
        {
            self.perform(event);
        } else {
            self.run_timers();
        }
        next < end || event.is_some()
    }

    fn advance(&mut self, to: Instant) {
        let passed = to.since(Instant::from_millis(1_000));
        self.now.instant = to;
        self.now.wall = Timestamp::from_millis(EPOCH_MILLIS) + passed;
    }

    fn run_timers(&mut self) {
        let nodes: Vec<u64> = self.hosts.keys().copied().filter(|node| !self.frozen.contains_key(node)).collect();
        let now = self.now.instant;
        for node in nodes {
            for shard in 0..self.shards {
                let due = self.hosts[&node].shards[usize::from(shard)].poll_timeout().is_some_and(|at| at <= now);
                if due {
                    self.with_shard(node, ShardId(shard), Shard::handle_timeout);
                }
            }
            if self.hosts[&node].node.poll_timeout().is_some_and(|at| at <= now) {
                self.with_node(node, Node::handle_timeout);
                let again = self.hosts[&node].node.poll_timeout();
                assert!(again.is_none_or(|at| at > now), "a timer of node {node} stays due");
            }
        }
    }

    pub(crate) fn node_input(&mut self, node: u64, input: NodeInput) {
        self.with_node(node, |machine, now| machine.handle(now, input));
    }

    /// A node tells something about itself.
    pub(crate) fn report(&mut self, node: u64, topic: &str, payload: &str, expiry: Option<Duration>) {
        let (topic, payload) = (TopicName::new(topic).unwrap(), Bytes::copy_from_slice(payload.as_bytes()));
        self.shard_input(node, ShardId(0), ShardInput::Report(vec![Report { topic, payload, expiry }]));
    }

    fn shard_input(&mut self, node: u64, shard: ShardId, input: ShardInput) {
        self.with_shard(node, shard, |machine, now| machine.handle(now, input));
    }

    /// The time that the clocks of a node show.
    pub(crate) fn now_at(&self, node: u64) -> Now {
        let ahead = |of: &BTreeMap<u64, i64>| of.get(&node).copied().unwrap_or(0);
        let wall = self.now.wall.as_millis().saturating_add_signed(ahead(&self.clocks) + ahead(&self.corrections));
        Now { wall: Timestamp::from_millis(wall), ..self.now }
    }

    pub(crate) fn with_node(&mut self, node: u64, act: impl FnOnce(&mut Node, Now)) {
        let now = self.now_at(node);
        let Some(host) = self.hosts.get_mut(&node) else { return };
        act(&mut host.node, now);
        let mut outputs = Vec::new();
        while let Some(output) = host.node.poll_output() {
            outputs.push(output);
        }
        self.write_journal(node);
        for output in outputs {
            self.node_output(node, output);
        }
    }

    fn with_shard(&mut self, node: u64, shard: ShardId, act: impl FnOnce(&mut Shard, Now)) {
        let now = self.now_at(node);
        let Some(machine) = self.hosts.get_mut(&node).and_then(|host| host.shards.get_mut(usize::from(shard.0))) else {
            return;
        };
        act(machine, now);
        let mut outputs = Vec::new();
        loop {
            machine.end_turn(now);
            while let Some(output) = machine.poll_output() {
                outputs.push(output);
            }
            if !machine.is_turn_open() {
                break;
            }
        }
        self.write_journal(node);
        for output in outputs {
            self.shard_output(node, shard, output);
        }
    }

    fn node_output(&mut self, node: u64, output: NodeOutput) {
        match output {
            NodeOutput::ToShard(shard, mail) => {
                let (from, to) = (End::Node(node), End::Shard(node, shard.0));
                self.send(from, to, self.delays.mailbox, Event::ToShard { node, shard, mail });
            }
            NodeOutput::Datagram { to, bytes } => {
                let to = node_at(to);
                let is_lost = self.loss > 0 && self.rng.below(100) < self.loss;
                if !is_lost && !self.cut.contains(&(node, to)) {
                    let event = Event::Datagram { node: to, from: address(node), bytes };
                    self.send(End::Node(node), End::Node(to), self.delays.network, event);
                }
            }
            NodeOutput::Refuse { .. } | NodeOutput::Asked { .. } | NodeOutput::Answered { .. } => {}
            NodeOutput::Dial { link, to } => {
                let event = Event::Dial { node, link, to: node_at(to) };
                self.send(End::Link(node, link), End::Link(node, link), self.delays.network, event);
            }
            NodeOutput::LinkTransmit(link) => self.transmit(node, link),
            NodeOutput::LinkClose(link) => {
                self.transmit(node, link);
                if let Some((other, other_link)) = self.wires.remove(&(node, link)) {
                    self.wires.remove(&(other, other_link));
                    let (from, to) = (End::Link(node, link), End::Link(other, other_link));
                    let event = Event::LinkClosed { node: other, link: other_link };
                    self.send(from, to, self.delays.network, event);
                }
            }
            NodeOutput::Kicked { request, by } => self.kicked.push((request, by)),
            NodeOutput::Drained => self.drained.push(node),
            NodeOutput::SetTime { ahead } => *self.corrections.entry(node).or_default() += ahead,
            NodeOutput::Event(event) => self.log.push(format!("{} node {node}: {}", self.now.instant, event.message)),
        }
    }

    fn transmit(&mut self, node: u64, link: LinkId) {
        loop {
            let Some(outbox) = self.hosts.get_mut(&node).and_then(|host| host.node.link_outbox(link)) else { return };
            let mut slices = [std::io::IoSlice::new(&[]); 16];
            let filled = outbox.io_slices(&mut slices);
            let bytes: Vec<u8> = slices[..filled].iter().flat_map(|slice| slice.iter().copied()).collect();
            if bytes.is_empty() {
                return;
            }
            if let Some((other, other_link)) = self.wires.get(&(node, link)).copied() {
                let event = Event::LinkBytes { node: other, link: other_link, bytes: Bytes::copy_from_slice(&bytes) };
                let (from, to) = (End::Link(node, link), End::Link(other, other_link));
                self.send(from, to, self.delays.network, event);
            }
            self.node_input(node, NodeInput::LinkWritten { link, bytes: bytes.len() });
        }
    }

    fn shard_output(&mut self, node: u64, shard: ShardId, output: ShardOutput) {
        let me = End::Shard(node, shard.0);
        match output {
            ShardOutput::Transmit(conn) => self.transmit_client(node, shard, conn),
            ShardOutput::Close(conn) => {
                self.transmit_client(node, shard, conn);
                if let Some(client) = self.conns.remove(&(node, conn)) {
                    self.send(me, End::Client(client), self.delays.client, Event::Gone { client });
                }
            }
            ShardOutput::Authenticate(_)
            | ShardOutput::Proceed { .. }
            | ShardOutput::Hold(_)
            | ShardOutput::Release(_) => {}
            ShardOutput::Upstream(output) => self.upstream_output(node, &output),
            ShardOutput::ToNode(mail) => {
                self.send(me, End::Node(node), self.delays.mailbox, Event::ToNode { node, from: shard, mail });
            }
            ShardOutput::ToShard(to, mail) => {
                let event = Event::ToShard { node, shard: to, mail };
                self.send(me, End::Shard(node, to.0), self.delays.mailbox, event);
            }
            ShardOutput::Event(event) => {
                self.log.push(format!("{} node {node} shard {}: {event:?}", self.now.instant, shard.0));
            }
        }
    }

    fn transmit_client(&mut self, node: u64, shard: ShardId, conn: ConnId) {
        loop {
            let host = self.hosts.get_mut(&node).and_then(|host| host.shards.get_mut(usize::from(shard.0)));
            let Some(outbox) = host.and_then(|machine| machine.outbox(conn)) else { return };
            let mut slices = [std::io::IoSlice::new(&[]); 16];
            let filled = outbox.io_slices(&mut slices);
            let bytes: Vec<u8> = slices[..filled].iter().flat_map(|slice| slice.iter().copied()).collect();
            if bytes.is_empty() {
                return;
            }
            let length = bytes.len();
            if let Some(client) = self.conns.get(&(node, conn)).copied() {
                let event = Event::ToClient { client, bytes: Bytes::from(bytes) };
                self.send(End::Shard(node, shard.0), End::Client(client), self.delays.client, event);
            }
            self.shard_input(node, shard, ShardInput::Written { conn, bytes: length });
        }
    }

    /// A process does nothing until it is thawed.
    pub(crate) fn freeze(&mut self, node: u64) {
        self.frozen.insert(node, Vec::new());
    }

    /// A process goes on. Bytes that its clients have sent meanwhile are there to be read before any of the other nodes.
    pub(crate) fn thaw(&mut self, node: u64) {
        let Some(mut waiting) = self.frozen.remove(&node) else { return };
        for shard in (0..self.shards).map(ShardId) {
            self.shard_input(node, shard, ShardInput::StoodStill);
        }
        self.node_input(node, NodeInput::StoodStill);
        waiting.sort_by_key(|event| !matches!(event, Event::FromClient { .. } | Event::Hangup { .. }));
        for event in waiting {
            self.perform(event);
        }
    }

    /// Which node an event is for.
    fn node_of(&self, event: &Event) -> Option<u64> {
        match event {
            Event::ToNode { node, .. }
            | Event::ToShard { node, .. }
            | Event::Datagram { node, .. }
            | Event::LinkBytes { node, .. }
            | Event::LinkClosed { node, .. } => Some(*node),
            Event::FromClient { client, .. } | Event::Hangup { client } => Some(self.clients[*client].node),
            // Connections are accepted by the system.
            Event::Dial { .. } | Event::ToClient { .. } | Event::Gone { .. } | Event::Behind { .. } => None,
        }
    }

    fn perform(&mut self, event: Event) {
        let node = self.node_of(&event);
        if let Some(waiting) = node.and_then(|node| self.frozen.get_mut(&node)) {
            return waiting.push(event);
        }
        let is_of_client = matches!(event, Event::FromClient { .. } | Event::Hangup { .. });
        let stands_still =
            |node: &u64| self.hosts.get(node).is_some_and(|host| host.shards.iter().any(Shard::stands_still));
        if is_of_client && node.as_ref().is_some_and(stands_still) {
            // It stays in the client's socket.
            self.next_event += 1;
            self.events.insert((self.now.instant + Duration::from_micros(50), self.next_event), event);
            return;
        }
        match event {
            Event::ToNode { node, from, mail } => self.node_input(node, NodeInput::Mail { from, mail }),
            Event::ToShard { node, shard, mail } => self.shard_input(node, shard, ShardInput::Mail(mail)),
            Event::Datagram { node, from, bytes } => self.node_input(node, NodeInput::Datagram { from, bytes }),
            Event::Dial { node, link, to } => self.dial(node, link, to),
            Event::LinkBytes { node, link, bytes } => self.node_input(node, NodeInput::LinkReceived { link, bytes }),
            Event::LinkClosed { node, link } => self.node_input(node, NodeInput::LinkClosed { link }),
            Event::FromClient { client, bytes } => self.client_said(client, bytes),
            Event::ToClient { client, .. } if !self.clients[client].open => {}
            Event::ToClient { client, bytes } => {
                for answer in self.clients[client].receive(bytes) {
                    self.client_sends(client, answer);
                }
            }
            Event::Gone { client } => self.clients[client].open = false,
            Event::Behind { node, link, what } => self.behind_happens(node, link, what),
            Event::Hangup { client } => {
                let (node, conn) = (self.clients[client].node, self.clients[client].conn);
                if self.conns.remove(&(node, conn)).is_some()
                    && let Some(shard) = self.clients[client].shard
                {
                    self.shard_input(node, shard, ShardInput::Closed { conn });
                }
            }
        }
    }

    fn dial(&mut self, node: u64, link: LinkId, to: u64) {
        let peer = address(node);
        let pair = (node, to);
        let is_cut = self.cut.contains(&pair) || self.blocked.contains(&pair) || !self.hosts.contains_key(&node);
        let Some(host) = self.hosts.get_mut(&to).filter(|_| !is_cut) else {
            let refuses = !is_cut && self.killed.contains(&to);
            let input = if refuses { NodeInput::LinkRefused { link } } else { NodeInput::LinkClosed { link } };
            return self.node_input(node, input);
        };
        host.next_accepted += 1;
        let accepted = LinkId(host.next_accepted);
        self.wires.insert((node, link), (to, accepted));
        self.wires.insert((to, accepted), (node, link));
        self.node_input(to, NodeInput::LinkAccepted { link: accepted, peer });
        self.node_input(node, NodeInput::LinkDialled { link });
    }

    fn client_said(&mut self, client: ClientIx, bytes: Bytes) {
        let Client { node, conn, shard, .. } = self.clients[client];
        if !self.conns.contains_key(&(node, conn)) {
            return;
        }
        if let Some(shard) = shard {
            return self.shard_input(node, shard, ShardInput::Received { conn, bytes });
        }
        if let Some(shard) = self.clients[client].receive_at_node(bytes) {
            self.shard_input(
                node,
                shard,
                ShardInput::Opened {
                    conn,
                    peer: "test".to_owned(),
                    user: None,
                    rate: PublishRate::default(),
                    inside: false,
                },
            );
            for bytes in core::mem::take(&mut self.clients[client].held) {
                self.shard_input(node, shard, ShardInput::Received { conn, bytes });
            }
        }
    }

    pub(crate) fn client_sends(&mut self, client: ClientIx, bytes: Bytes) {
        if !self.clients[client].open {
            return;
        }
        let node = self.clients[client].node;
        let event = Event::FromClient { client, bytes };
        self.send(End::Client(client), End::Node(node), self.delays.client, event);
    }

    // Steps for tests.

    /// Opens a connection and sends CONNECT.
    pub(crate) fn dial_client(&mut self, node: u64, id: &str, options: Options) -> ClientIx {
        let ix = self.clients.len();
        let conn = ConnId(u64::try_from(ix).unwrap() + 1);
        let mut client = Client::new(id, node, conn, self.shards);
        let connect = client.connect(options);
        self.clients.push(client);
        self.conns.insert((node, conn), ix);
        self.client_sends(ix, connect);
        ix
    }

    /// Connects, and waits for CONNACK.
    pub(crate) fn connect_with(&mut self, node: u64, id: &str, options: Options) -> ClientIx {
        let ix = self.dial_client(node, id, options);
        self.run_until("CONNACK", |world| world.clients[ix].connack.is_some());
        ix
    }

    /// Connects with a session that ends with the connection.
    pub(crate) fn connect(&mut self, node: u64, id: &str) -> ClientIx {
        self.connect_with(node, id, Options { clean: true, ..Options::default() })
    }

    pub(crate) fn send_subscribe(&mut self, client: ClientIx, filter: &str, qos: QoS) {
        let bytes = self.clients[client].subscribe(filter, qos);
        self.client_sends(client, bytes);
    }

    /// Subscribes, and waits for SUBACK.
    pub(crate) fn subscribe(&mut self, client: ClientIx, filter: &str, qos: QoS) {
        let before = self.clients[client].subacks.len();
        self.send_subscribe(client, filter, qos);
        self.run_until("SUBACK", |world| world.clients[client].subacks.len() > before);
    }

    pub(crate) fn unsubscribe(&mut self, client: ClientIx, filter: &str) {
        let before = self.clients[client].unsubacks;
        let bytes = self.clients[client].unsubscribe(filter);
        self.client_sends(client, bytes);
        self.run_until("UNSUBACK", |world| world.clients[client].unsubacks > before);
    }

    pub(crate) fn send_publish(&mut self, client: ClientIx, topic: &str, payload: &str, qos: QoS, retain: bool) {
        let bytes = self.clients[client].publish(topic, payload, qos, retain);
        self.client_sends(client, bytes);
    }

    /// Publishes what lives for so many seconds, and waits for the acknowledgement.
    pub(crate) fn publish_for(&mut self, seconds: u32, client: ClientIx, topic: &str, payload: &str, retain: bool) {
        let before = self.clients[client].acked.len();
        let bytes = self.clients[client].publish_for(seconds, topic, payload, retain);
        self.client_sends(client, bytes);
        self.run_until("acknowledgement", |world| world.clients[client].acked.len() > before);
    }

    /// Publishes, and waits for the acknowledgement if there is one.
    pub(crate) fn publish(&mut self, client: ClientIx, topic: &str, payload: &str, qos: QoS) {
        let before = self.clients[client].acked.len();
        self.send_publish(client, topic, payload, qos, false);
        if qos > QoS::AtMostOnce {
            self.run_until("acknowledgement", |world| world.clients[client].acked.len() > before);
        }
    }

    /// Closes the client's socket without a word.
    pub(crate) fn hang_up(&mut self, client: ClientIx) {
        self.clients[client].open = false;
        let node = self.clients[client].node;
        self.send(End::Client(client), End::Node(node), self.delays.client, Event::Hangup { client });
    }

    pub(crate) fn got(&self, client: ClientIx) -> Vec<&str> {
        self.clients[client].payloads()
    }

    pub(crate) fn counter(&self, node: u64, name: &str) -> u64 {
        let counters = self.hosts[&node].node.status().counters;
        counters.iter().find(|(known, _)| *known == name).map_or(0, |(_, count)| *count)
    }
}
