//! The wires and the clock.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use sedge_base::{ClientId, Duration, Incarnation, Instant, NodeId, Rng, ShardId};
use sedge_mqtt::{Message, MessageId, QoS, ReadAt, Stamp, TopicName};
use smallvec::SmallVec;

use crate::LinkId;
use crate::link::{Binding, ControlTopic, Frame, Hello, LinkConfig, Links, Output, Publication};

/// A node and the outputs of its machine, transport aside.
pub(super) struct Node {
    pub(super) links: Links,
    pub(super) hello: Hello,
    pub(super) said: Vec<Output>,
    /// Bytes that were never told to be written are not looked at.
    is_alive: bool,
    is_encrypted: bool,
}

/// One direction of a wire.
#[derive(Default)]
struct Pipe {
    flying: VecDeque<(Instant, Bytes)>,
    /// Bytes that have entered.
    entered: usize,
    is_shut: bool,
}

impl Pipe {
    /// Bytes enter; at a pace of so many bytes in a millisecond they arrive one millisecond's worth after the other.
    fn enter(&mut self, now: Instant, arrival: Instant, mut bytes: Bytes, pace: Option<usize>) {
        let Some(pace) = pace else { return self.flying.push_back((arrival, bytes)) };
        while !bytes.is_empty() {
            let piece = bytes.split_to(bytes.len().min(pace));
            let last = self.flying.back().map_or(now, |(due, _)| *due);
            self.flying.push_back((arrival.max(last + Duration::from_millis(1)), piece));
        }
    }
}

/// A connection: ends 0 (dialler) and 1 (acceptor); pipe `i` leads away from end `i`.
struct Wire {
    ends: [(usize, LinkId); 2],
    is_closed: [bool; 2],
    pipes: [Pipe; 2],
}

/// Changes bytes on their way: pipe, position of the first byte, the bytes.
type Falsify = Box<dyn FnMut(usize, usize, &mut Vec<u8>)>;

pub(super) struct World {
    pub(super) now: Instant,
    pub(super) nodes: Vec<Node>,
    wires: BTreeMap<u64, Wire>,
    next_wire: u64,
    pub(super) rng: Rng,
    pub(super) latency: Duration,
    /// A node, and how many bytes in a millisecond each wire carries from it.
    pub(super) pace: Option<(usize, usize)>,
    /// No byte arrives any more, and nobody notices.
    pub(super) is_dark: bool,
    /// Pairs of nodes, the lower first, between which no byte arrives and no dial is answered.
    pub(super) broken: BTreeSet<(usize, usize)>,
    /// Pairs of nodes, the lower first, that do not take each other's certificates.
    pub(super) strangers: BTreeSet<(usize, usize)>,
    /// Dials that still succeed.
    pub(super) dials_left: u32,
    pub(super) falsify: Option<Falsify>,
    /// Somebody sits between the nodes: the two ends of an encrypted connection are not those of one.
    pub(super) is_tapped: bool,
    /// Pieces are cut at random.
    pub(super) splits: bool,
}

pub(super) fn config() -> LinkConfig {
    LinkConfig::new("test", Some(b"secret".to_vec()))
}

pub(super) fn hello(index: usize) -> Hello {
    Hello {
        node: NodeId::new(index as u64 + 1),
        incarnation: Incarnation::new(1),
        capacity: 7,
        link_addr: format!("127.0.0.{}:7883", index + 1).parse().unwrap(),
    }
}

impl World {
    /// Nodes 1, 2, ... with these settings.
    pub(super) fn new(seed: u64, configs: Vec<LinkConfig>) -> Self {
        let mut rng = Rng::new(seed);
        let nodes = configs.into_iter().enumerate().map(|(index, config)| {
            let hello = hello(index);
            let is_encrypted = config.encrypted;
            let links = Links::new(config, hello, rng.split(index as u64));
            Node { links, hello, said: Vec::new(), is_alive: true, is_encrypted }
        });
        let nodes = nodes.collect();
        Self {
            now: Instant::from_millis(1_000),
            nodes,
            wires: BTreeMap::new(),
            next_wire: 0,
            rng,
            latency: Duration::from_millis(1),
            pace: None,
            is_dark: false,
            broken: BTreeSet::new(),
            strangers: BTreeSet::new(),
            dials_left: u32::MAX,
            falsify: None,
            is_tapped: false,
            splits: true,
        }
    }

    /// Two nodes that want each other.
    pub(super) fn pair(seed: u64) -> Self {
        let mut world = Self::new(seed, vec![config(), config()]);
        world.want(0, 1);
        world.want(1, 0);
        world
    }

    pub(super) fn want(&mut self, from: usize, to: usize) {
        let Hello { node, incarnation, link_addr, .. } = self.nodes[to].hello;
        self.nodes[from].links.want(self.now, node, incarnation, link_addr);
    }

    pub(super) fn send(&mut self, from: usize, to: usize, number: u64) -> u64 {
        let (frame, to) = (frame(number), self.nodes[to].hello.node);
        self.nodes[from].links.send(self.now, to, frame).unwrap().0
    }

    /// Both nodes send `count` frames from number 1,000 on: each gets all of the other's, in order, behind whatever came before.
    pub(super) fn exchanges(&mut self, count: u64) {
        let numbers: Vec<u64> = (1_000..1_000 + count).collect();
        for &number in &numbers {
            self.send(0, 1, number);
            self.send(1, 0, number);
        }
        self.run(1_000);
        for (at, from) in [(0, 1), (1, 0)] {
            let got = self.got(at, from);
            let (before, later) = got.split_at(got.len().saturating_sub(numbers.len()));
            assert!(before.iter().all(|number| *number < 1_000));
            assert_eq!(later, numbers);
            assert_eq!(self.nodes[at].links.unacknowledged(), 0);
        }
    }

    /// Numbers of the frames that came to `at` from `from`.
    pub(super) fn got(&self, at: usize, from: usize) -> Vec<u64> {
        let sender = self.nodes[from].hello.node;
        self.said(at, |output| {
            let Output::Frame { from, frame, .. } = output else { return None };
            (*from == sender).then(|| number_of(frame))
        })
    }

    /// Links that came up at a node: the neighbour, whether resumed, the lost frames.
    pub(super) fn ups(&self, at: usize) -> Vec<(u64, bool, u64)> {
        self.said(at, |output| {
            let Output::Up { peer, resumed, lost } = output else { return None };
            Some((peer.node.get(), *resumed, lost.up_to.0))
        })
    }

    /// Why links went down at a node.
    pub(super) fn downs(&self, at: usize) -> Vec<String> {
        self.said(at, |output| {
            let Output::Down { reason, .. } = output else { return None };
            Some(reason.clone())
        })
    }

    /// Messages of a node for its operator.
    pub(super) fn warnings(&self, at: usize) -> Vec<String> {
        self.said(at, |output| {
            let Output::Event(event) = output else { return None };
            Some(event.message.clone())
        })
    }

    /// Up to where a node was told that its frames have arrived.
    pub(super) fn acks(&self, at: usize) -> Vec<u64> {
        self.said(at, |output| {
            let Output::Acked { up_to, .. } = output else { return None };
            Some(up_to.0)
        })
    }

    fn said<T>(&self, at: usize, pick: impl Fn(&Output) -> Option<T>) -> Vec<T> {
        self.nodes[at].said.iter().filter_map(pick).collect()
    }

    pub(super) fn is_linked(&self, a: usize, b: usize) -> bool {
        let linked = |at: usize, to: usize| self.nodes[at].links.linked().any(|node| node == self.nodes[to].hello.node);
        linked(a, b) && linked(b, a)
    }

    /// The process ends and starts again as another life; nobody is told.
    pub(super) fn restart(&mut self, at: usize, config: LinkConfig) {
        for id in self.wires.keys().copied().collect::<Vec<_>>() {
            self.cut(id, Some(at));
        }
        let node = &mut self.nodes[at];
        node.hello.incarnation = Incarnation::new(node.hello.incarnation.get() + 1);
        node.links = Links::new(config, node.hello, self.rng.split(9));
    }

    pub(super) fn kill(&mut self, at: usize) {
        self.nodes[at].is_alive = false;
        for id in self.wires.keys().copied().collect::<Vec<_>>() {
            self.cut(id, Some(at));
        }
    }

    /// Breaks all wires; a random part of what flies still arrives.
    pub(super) fn cut_all(&mut self) {
        for id in self.wires.keys().copied().collect::<Vec<_>>() {
            self.cut(id, None);
        }
    }

    pub(super) fn open_wires(&self) -> usize {
        self.wires.values().filter(|wire| wire.is_closed == [false, false]).count()
    }

    /// Breaks one wire, as [`World::cut_all`] does all.
    pub(super) fn cut_one(&mut self) {
        let ids: Vec<u64> = self.wires.keys().copied().collect();
        if let Some(id) = ids.get(self.rng.index(ids.len().max(1))) {
            self.cut(*id, None);
        }
    }

    /// Breaks the wire that was made last: not the link.
    pub(super) fn cut_lane(&mut self) {
        if let Some(id) = self.wires.keys().next_back().copied() {
            self.cut(id, None);
        }
    }

    /// Bytes that a node has put into each wire, in the order in which the wires were made.
    pub(super) fn bytes_by_wire(&self, at: usize) -> Vec<usize> {
        let entered =
            |wire: &Wire| wire.ends.iter().position(|(node, _)| *node == at).map(|end| wire.pipes[end].entered);
        self.wires.values().filter_map(entered).collect()
    }

    fn cut(&mut self, id: u64, silent: Option<usize>) {
        let Some(wire) = self.wires.get_mut(&id) else { return };
        if silent.is_some_and(|at| wire.ends.iter().all(|(node, _)| *node != at)) {
            return;
        }
        for end in 0..2 {
            let flying: Vec<u8> = wire.pipes[end].flying.drain(..).flat_map(|(_, bytes)| bytes).collect();
            let keep = self.rng.index(flying.len() + 1);
            let (node, link) = wire.ends[1 - end];
            if keep > 0 && !wire.is_closed[1 - end] && Some(node) != silent {
                self.nodes[node].links.received(self.now, link, flying[..keep].to_vec().into());
            }
        }
        let wire = self.wires.remove(&id).unwrap();
        for (end, (node, link)) in wire.ends.into_iter().enumerate() {
            if !wire.is_closed[end] && Some(node) != silent {
                self.nodes[node].links.closed(self.now, link);
            }
        }
    }

    /// Lets time pass.
    pub(super) fn run(&mut self, millis: u64) {
        let end = self.now + Duration::from_millis(millis);
        loop {
            self.settle();
            let timeouts = self.nodes.iter().filter(|node| node.is_alive).filter_map(|node| node.links.poll_timeout());
            let is_whole = |wire: &&Wire| !self.is_broken(wire.ends[0].0, wire.ends[1].0);
            let pipes = self.wires.values().filter(is_whole).flat_map(|wire| &wire.pipes);
            let flights = pipes.filter_map(|pipe| Some(pipe.flying.front()?.0));
            let flights = flights.filter(|_| !self.is_dark);
            let Some(next) = timeouts.chain(flights).min().filter(|next| *next <= end) else { break };
            self.now = self.now.max(next);
            for node in self.nodes.iter_mut().filter(|node| node.is_alive) {
                node.links.handle_timeout(self.now);
            }
        }
        self.now = end;
    }

    /// Everything on its way arrives and is read, timers run, and no owner takes any output.
    pub(super) fn only_read(&mut self) {
        for index in 0..self.nodes.len() {
            self.drain(index);
        }
        self.now = self.now + Duration::from_secs(1);
        while self.deliver() {}
        for node in &mut self.nodes {
            node.links.handle_timeout(self.now);
        }
    }

    /// Does all that can be done now.
    fn settle(&mut self) {
        for turn in 0.. {
            assert!(turn < 100_000, "the machines never come to rest");
            let mut has_moved = false;
            for index in 0..self.nodes.len() {
                has_moved |= self.drain(index);
            }
            has_moved |= self.deliver();
            if !has_moved {
                break;
            }
        }
    }

    fn drain(&mut self, index: usize) -> bool {
        let mut has_moved = false;
        loop {
            let node = &mut self.nodes[index];
            if !node.is_alive {
                return has_moved;
            }
            let Some(output) = node.links.poll_output() else {
                node.links.flush(self.now);
                let Some(output) = node.links.poll_output() else { return has_moved };
                self.act(index, output);
                continue;
            };
            has_moved = true;
            self.act(index, output);
        }
    }

    fn act(&mut self, index: usize, output: Output) {
        match output {
            Output::Dial { link, to } => self.connect(index, link, to),
            Output::Transmit { link } => self.write(index, link),
            Output::Close { link } => {
                self.write(index, link);
                let Some((wire, end)) = self.end(index, link) else { return };
                wire.is_closed[end] = true;
                wire.pipes[end].is_shut = true;
            }
            other @ (Output::Up { .. }
            | Output::Down { .. }
            | Output::Frame { .. }
            | Output::Acked { .. }
            | Output::RoundTrip { .. }
            | Output::Refused { .. }
            | Output::Event(_)) => self.nodes[index].said.push(other),
        }
    }

    fn connect(&mut self, index: usize, link: LinkId, to: core::net::SocketAddr) {
        let target = self.nodes.iter().position(|node| node.hello.link_addr == to && node.is_alive);
        let Some(target) = target.filter(|_| self.dials_left > 0) else {
            return self.nodes[index].links.refused(self.now, link);
        };
        if self.is_broken(index, target) {
            return;
        }
        self.dials_left -= 1;
        self.next_wire += 1;
        let other = LinkId(LinkId::ACCEPTED + self.next_wire);
        let ends = [(index, link), (target, other)];
        self.wires.insert(self.next_wire, Wire { ends, is_closed: [false; 2], pipes: <[Pipe; 2]>::default() });
        let from = self.nodes[index].hello.link_addr;
        self.nodes[target].links.opened(self.now, other, from);
        self.encrypt((index, link), (target, other));
        self.nodes[index].links.dialled(self.now, link);
    }

    /// Tells both ends, as their drivers would, of a connection that one or both of them encrypt.
    fn encrypt(&mut self, dialler: (usize, LinkId), acceptor: (usize, LinkId)) {
        if !self.nodes[dialler.0].is_encrypted {
            return;
        }
        if !self.nodes[acceptor.0].is_encrypted {
            self.nodes[acceptor.0].links.received(self.now, acceptor.1, Bytes::from_static(&[22, 3, 1, 2, 0, 1]));
            return self.nodes[dialler.0].links.insecure(self.now, dialler.1, "the other side has hung up");
        }
        if self.strangers.contains(&(dialler.0.min(acceptor.0), dialler.0.max(acceptor.0))) {
            for (node, link) in [dialler, acceptor] {
                self.nodes[node].links.insecure(self.now, link, "its certificate is not trusted");
            }
            return;
        }
        for (end, (node, link)) in [dialler, acceptor].into_iter().enumerate() {
            let mut binding = [0; 32];
            binding[0] = u8::try_from(self.next_wire).unwrap();
            binding[1] = u8::from(self.is_tapped && end == 1);
            self.nodes[node].links.secured(link, Binding(binding));
        }
    }

    fn is_broken(&self, a: usize, b: usize) -> bool {
        self.broken.contains(&(a.min(b), a.max(b)))
    }

    fn end(&mut self, index: usize, link: LinkId) -> Option<(&mut Wire, usize)> {
        self.wires.values_mut().find_map(|wire| {
            let end = wire.ends.iter().position(|end| *end == (index, link))?;
            Some((wire, end))
        })
    }

    fn write(&mut self, index: usize, link: LinkId) {
        while let Some(outbox) = self.nodes[index].links.outbox(link) {
            let bytes = outbox.take().concat();
            if bytes.is_empty() {
                return;
            }
            self.nodes[index].links.written(self.now, link, bytes.len());
            let (now, arrival) = (self.now, self.now + self.latency);
            let pace = self.pace.filter(|(slow, _)| *slow == index).map(|(_, bytes)| bytes);
            let mut falsify = self.falsify.take();
            if let Some((wire, end)) = self.end(index, link) {
                let mut bytes = bytes;
                if let Some(falsify) = &mut falsify {
                    falsify(end, wire.pipes[end].entered, &mut bytes);
                }
                wire.pipes[end].entered += bytes.len();
                wire.pipes[end].enter(now, arrival, bytes.into(), pace);
            }
            self.falsify = falsify;
        }
    }

    fn deliver(&mut self) -> bool {
        let mut has_moved = false;
        for id in self.wires.keys().copied().collect::<Vec<_>>() {
            for end in 0..2 {
                has_moved |= self.deliver_one(id, end);
            }
            let Some(wire) = self.wires.get(&id) else { continue };
            if wire.is_closed == [true, true] {
                self.wires.remove(&id);
            }
        }
        has_moved
    }

    fn deliver_one(&mut self, id: u64, end: usize) -> bool {
        let Some(wire) = self.wires.get(&id) else { return false };
        if self.is_broken(wire.ends[0].0, wire.ends[1].0) {
            return false;
        }
        let Some(wire) = self.wires.get_mut(&id) else { return false };
        let (node, link) = wire.ends[1 - end];
        let is_closed = wire.is_closed[1 - end];
        let pipe = &mut wire.pipes[end];
        let Some((due, piece)) = pipe.flying.front_mut() else {
            if pipe.is_shut && !is_closed && !self.is_dark {
                wire.is_closed[1 - end] = true;
                self.nodes[node].links.closed(self.now, link);
                return true;
            }
            return false;
        };
        if *due > self.now || self.is_dark {
            return false;
        }
        let size = if self.splits { 1 + self.rng.index(piece.len()) } else { piece.len() };
        let bytes = piece.split_to(size);
        if piece.is_empty() {
            pipe.flying.pop_front();
        }
        if !is_closed {
            self.nodes[node].links.received(self.now, link, bytes);
        }
        true
    }
}

/// A frame that can be told from others: every third is a control frame.
pub(super) fn frame(number: u64) -> Frame {
    let payload = Bytes::from(number.to_be_bytes().repeat(if number % 50 == 7 { 700 } else { 1 }));
    if number.is_multiple_of(3) {
        return Frame::Control { topic: ControlTopic::Overlay, payload };
    }
    let (node, shard) = (NodeId::new(1), ShardId(0));
    let message = Message {
        id: MessageId { node, incarnation: Incarnation::new(1), shard, seq: number },
        topic: TopicName::new("a/b").unwrap(),
        payload,
        qos: QoS::AtLeastOnce,
        retain: false,
        properties: None,
        stamp: Stamp { millis: number, counter: 0, node, shard },
        expires_at: None,
        publisher: (!number.is_multiple_of(23)).then(|| ClientId::new(&format!("publisher {}", number % 23))),
        read_at: ReadAt::default(),
    };
    let message = Arc::new(message);
    Frame::Publication(Publication {
        message,
        plain: true,
        groups: SmallVec::new(),
        retained_copy: false,
        waybill: None,
    })
}

fn number_of(frame: &Frame) -> u64 {
    let payload = match frame {
        Frame::Control { payload, .. } => payload,
        Frame::Publication(publication) => &publication.message.payload,
    };
    u64::from_be_bytes(payload[..8].try_into().unwrap())
}
