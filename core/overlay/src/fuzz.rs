//! Body of the fuzz target: any signals of a neighbour. A stable test runs it, too, over the committed corpus and over mutations of it.

use core::net::{Ipv4Addr, SocketAddr};
use std::collections::BTreeSet;

use bytes::{Buf, Bytes};
use sedge_base::{ClientId, Duration, Incarnation, Instant, NodeId, Now, Rng, Timestamp};
use sedge_mqtt::{TopicFilter, TopicName};

use crate::{
    Advert, AdvertOp, Advertised, Barrier, Flood, Input, Mesh, MeshConfig, Neighbour, Output, Overlay, SkipGraphConfig,
    SkipGraphOverlay, Token, TopicTree, TopicTreeConfig, Tree, TreeConfig, Way,
};

/// The node that is tested. The others are 1, 3 and 4.
const ME: u64 = 2;
const OTHERS: [u64; 3] = [1, 3, 4];
/// Filters that clients of the node subscribe to, and topics that they publish to.
const FILTERS: [&str; 6] = ["a", "a/b", "a/+", "#", "$share/g/a", "$x/y"];
const TOPICS: [&str; 4] = ["a", "a/b", "c", "$x/y"];
/// Topics that are kept where their number is limited.
const TOPICS_MAX: usize = 4;
/// Lines of the routing table that come of neighbours, topics and filters, and not of the content of signals.
const OWN_LINES: usize = 64;
/// Most bytes that a node sends in one step, answers to the content of a signal aside: all its news to each neighbour.
const OWN_BYTES: usize = 8 * 1024;
/// Bytes of answers for each byte of a signal: claims and members are passed on to each neighbour, with the node that says so.
const ANSWER_FACTOR: usize = 32;
/// Most bytes of a signal ([`Output::Signal`]).
const SIGNAL_BYTES_MAX: usize = 1024 * 1024;

/// Feeds steps to one node, whose links to nodes 1 and 3 are up. The first byte says which overlay (modulo 5): 0 mesh, 1 flood, 2 tree,
/// 3 topic tree, 4 Skip Graph. All numbers are big-endian:
///
/// ```text
/// step   0 a signal comes             neighbour u8 | length u16 | signal
///        1 time passes                milliseconds u16
///        2 what is due next happens
///        3 a link comes up            node u8
///        4 a link breaks              node u8
///        5 a node is gone             node u8
///        6 a client publishes         topic u8
///        7 a client subscribes        filter u8
///        8 it no longer subscribes    filter u8
///        9 the shards have caught up
///       10 a round trip was measured  node u8 | milliseconds u16
/// ```
///
/// Holds: no panic; a signal that cannot be read ends in [`Output::Protocol`] for its sender, and nothing else does; no signal goes to a
/// node that is not linked; answers and tables are not much longer than the signals heard; limits are kept; publications go to nodes that
/// there are, over links that are up; nothing is due again at once.
pub fn signal(data: &[u8]) {
    let [kind, steps @ ..] = data else { return };
    let mut subject = Subject::new(*kind % 5);
    let mut input = steps;
    while subject.step(&mut input).is_some() {}
}

/// The machine and its owner's knowledge of it.
struct Subject {
    kind: u8,
    machine: Box<dyn Overlay>,
    now: Instant,
    linked: BTreeSet<NodeId>,
    barrier: Option<Barrier>,
    tokens: u64,
    /// Bytes of signals that have come.
    heard: usize,
    /// Since the last step.
    sent: Vec<(NodeId, Bytes)>,
    refused: Option<NodeId>,
}

fn machine(kind: u8, node: u64) -> Box<dyn Overlay> {
    let (me, address, rng) = (NodeId::new(node), neighbour(node).address, Rng::new(node));
    match kind {
        0 => Box::new(Mesh::new(me, MeshConfig::default(), rng)),
        1 => Box::new(Flood::new(me, address, MeshConfig::default(), rng)),
        2 => {
            let config = TreeConfig { topics: TOPICS_MAX, ..TreeConfig::default() };
            Box::new(Tree::new(me, address, config, rng))
        }
        3 => {
            let config = TopicTreeConfig {
                max_topics: TOPICS_MAX,
                max_heard_topics: TOPICS_MAX,
                max_trees: TOPICS_MAX,
                ..TopicTreeConfig::default()
            };
            Box::new(TopicTree::new(me, address, config, rng))
        }
        _ => {
            let config = SkipGraphConfig { max_topics: TOPICS_MAX, ..SkipGraphConfig::default() };
            Box::new(SkipGraphOverlay::new(me, Incarnation::new(5), config, rng))
        }
    }
}

fn neighbour(node: u64) -> Neighbour {
    let [.., last] = node.to_be_bytes();
    let address = SocketAddr::from((Ipv4Addr::new(10, 0, 0, last), 7883));
    Neighbour { node: NodeId::new(node), incarnation: Incarnation::new(5), capacity: 1 + u32::from(last / 4), address }
}

/// Whether an overlay can read a signal as such, whatever the overlay makes of the signal.
fn is_signal(kind: u8, bytes: &[u8]) -> bool {
    match (kind, bytes.split_first()) {
        (0, _) | (1 | 2, Some((0, _))) => {
            let mesh = if kind == 0 { bytes } else { bytes.get(1..).unwrap_or_default() };
            crate::mesh::fuzz_decode(mesh)
        }
        (1 | 2, Some((1, rest))) => crate::trunk::fuzz_decode(rest),
        (2, Some((2, rest))) => crate::tree::fuzz_decode(rest),
        (3, _) => crate::topic_tree::fuzz_decode(bytes),
        (4, _) => crate::skip_graph_overlay::fuzz_decode(bytes),
        _ => false,
    }
}

fn one_of(input: &mut &[u8], nodes: &[u64]) -> Option<u64> {
    let number = usize::from(input.try_get_u8().ok()?);
    nodes.get(number % nodes.len()).copied()
}

fn text_of<'a>(input: &mut &[u8], texts: &[&'a str]) -> Option<&'a str> {
    let number = usize::from(input.try_get_u8().ok()?);
    texts.get(number % texts.len()).copied()
}

impl Subject {
    fn new(kind: u8) -> Self {
        let mut subject = Self {
            kind,
            machine: machine(kind, ME),
            now: Instant::from_millis(1_000),
            linked: BTreeSet::new(),
            barrier: None,
            tokens: 0,
            heard: 0,
            sent: Vec::new(),
            refused: None,
        };
        subject.feed(Input::Load { capacity: 1, clients: 1 });
        subject.link_up(1);
        subject.link_up(3);
        subject
    }

    /// Takes one step; none if there is no more.
    fn step(&mut self, input: &mut &[u8]) -> Option<()> {
        self.sent.clear();
        self.refused = None;
        match input.try_get_u8().ok()? {
            0 => {
                let from = one_of(input, &OTHERS)?;
                let len = usize::from(input.try_get_u16().ok()?).min(input.len());
                let (bytes, rest) = input.split_at_checked(len)?;
                *input = rest;
                self.hear(NodeId::new(from), bytes);
            }
            1 => self.pass(u64::from(input.try_get_u16().ok()?)),
            2 => {
                let due = self.machine.poll_timeout().unwrap_or(self.now);
                self.pass(due.since(self.now).as_nanos().div_ceil(1_000_000).try_into().ok()?);
            }
            3 => self.link_up(one_of(input, &OTHERS)?),
            step @ (4 | 5) => {
                let node = NodeId::new(one_of(input, &OTHERS)?);
                self.linked.remove(&node);
                self.feed(Input::NeighbourDown { node, gone: step == 5 });
                if step == 5 {
                    self.feed(Input::MemberDown { node });
                }
            }
            6 => self.publish(&TopicName::new(text_of(input, &TOPICS)?).ok()?),
            7 => self.change(text_of(input, &FILTERS)?, AdvertOp::Add { online: true })?,
            8 => self.change(text_of(input, &FILTERS)?, AdvertOp::Remove)?,
            9 => {
                if let Some(barrier) = self.barrier.take() {
                    self.feed(Input::BarrierReached(barrier));
                }
            }
            10 => {
                let node = NodeId::new(one_of(input, &OTHERS)?);
                let micros = u32::from(input.try_get_u16().ok()?) * 1_000;
                self.feed(Input::RoundTrip { node, micros });
            }
            _ => return None,
        }
        self.check();
        Some(())
    }

    fn clock(&self) -> Now {
        Now { instant: self.now, wall: Timestamp::from_millis(0) }
    }

    fn link_up(&mut self, node: u64) {
        self.linked.insert(NodeId::new(node));
        self.feed(Input::MemberUp(neighbour(node)));
        self.feed(Input::NeighbourUp(neighbour(node)));
    }

    fn change(&mut self, filter: &str, op: AdvertOp) -> Option<()> {
        let change = Advert { client: ClientId::new("c"), filter: TopicFilter::new(filter).ok()?, op };
        self.tokens += 1;
        self.feed(Input::Local { changes: vec![change], token: Some(Token(self.tokens)) });
        Some(())
    }

    fn hear(&mut self, from: NodeId, bytes: &[u8]) {
        let was_linked = self.linked.contains(&from);
        let is_signal = is_signal(self.kind, bytes);
        self.heard += bytes.len();
        self.feed(Input::Signal { from, bytes: Bytes::copy_from_slice(bytes) });
        assert!(self.refused.is_none_or(|refused| refused == from && was_linked), "another is refused");
        assert!(is_signal || !was_linked || self.refused == Some(from), "not refused: {bytes:02x?}");
        let answer: usize = self.sent.iter().map(|(_, bytes)| bytes.len()).sum();
        let heard: usize = OWN_BYTES + self.heard.min(ANSWER_FACTOR * bytes.len().max(64));
        assert!(answer <= heard.max(OWN_BYTES + ANSWER_FACTOR * bytes.len()), "{answer} bytes to {}", bytes.len());
    }

    fn feed(&mut self, input: Input) {
        self.machine.handle(self.clock(), input);
        self.poll();
    }

    fn pass(&mut self, millis: u64) {
        self.now = self.now + Duration::from_millis(millis);
        self.machine.handle_timeout(self.clock());
        self.poll();
        assert!(self.refused.is_none());
        assert!(self.machine.poll_timeout().is_none_or(|due| due > self.now), "due again at once");
    }

    fn publish(&mut self, topic: &TopicName) {
        let mut nodes = Vec::new();
        self.machine.destinations(topic, &mut nodes);
        self.poll();
        assert!(nodes.is_sorted_by(|one, other| one < other), "{nodes:?}");
        let mut ways: Vec<Way> = nodes.into_iter().map(Way::straight).collect();
        self.machine.ways(topic, &mut ways);
        for Way { destination: node, next } in ways {
            assert!(OTHERS.contains(&node.get()), "a publication goes to {node:?}");
            for way in [next, self.machine.way(topic, node)] {
                assert!(way == node || self.linked.contains(&way), "over {way:?} to {node:?}");
            }
        }
    }

    fn poll(&mut self) {
        while let Some(output) = self.machine.poll_output() {
            match output {
                Output::Signal { to, bytes } => {
                    assert!(self.linked.contains(&to), "a signal to {to:?}, who is not linked");
                    assert!(bytes.len() <= SIGNAL_BYTES_MAX);
                    assert!(is_signal(self.kind, &bytes), "{bytes:02x?}");
                    self.sent.push((to, bytes));
                }
                Output::Protocol { node, .. } => {
                    assert!(self.linked.remove(&node) && self.refused.replace(node).is_none(), "refused twice");
                }
                Output::Table(Advertised::Group { node, .. }) | Output::Link { node, .. } => {
                    assert!(OTHERS.contains(&node.get()));
                }
                Output::Barrier(barrier) => assert!(self.barrier.replace(barrier) < Some(barrier)),
                Output::Settled(token) => assert!(token.0 <= self.tokens),
                Output::Cut { node } | Output::Synced { node } => assert!(self.linked.contains(&node)),
                Output::Table(Advertised::Remote { .. }) => {}
            }
        }
    }

    fn check(&self) {
        for node in OTHERS.map(NodeId::new) {
            assert_eq!(self.machine.is_linked(node), self.linked.contains(&node), "{node:?}");
        }
        let lines = self.machine.route_count();
        assert!(lines <= OWN_LINES + self.heard, "{lines} lines of {} bytes", self.heard);
        assert_eq!(self.machine.routes(0, usize::MAX).len(), lines);
        let shown = self.machine.topology(2);
        assert!(shown.advertised.total <= TOPICS_MAX && shown.advertised.lines.len() <= 2);
        assert!(shown.trees.iter().all(|tree| tree.nodes.len() <= 1 + OTHERS.len()));
        assert!(
            shown.trees.len() <= 1 + TOPICS_MAX && shown.adverts.lines.len() <= 2 && shown.interest.lines.len() <= 2
        );
        assert!(shown.graph.is_none_or(|graph| graph.virtual_nodes.len() <= 2));
    }
}

#[cfg(test)]
mod tests {
    use super::replay::replay;

    #[test]
    fn the_signal_corpus_and_mutations_of_it_pass() {
        replay(env!("CARGO_MANIFEST_DIR"), "signal", 5_000, super::signal);
    }
}

#[cfg(test)]
#[path = "../../../check/replay/mod.rs"]
mod replay;
