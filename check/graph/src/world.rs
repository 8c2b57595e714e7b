//! Very many nodes in one process, and the messages between them.

use std::collections::VecDeque;
use std::num::NonZeroU32;

use sedge_base::{Duration, Incarnation, Instant, NodeId, Rng};
use sedge_overlay::skip_graph::{
    Base, Config, Hop, Input, Message, Method, Node, Output, Publication, Range, Side, Vector,
};

use crate::stats::real;

/// Topics are numbers from 1 on: so a key takes 16 bytes.
pub(crate) type Topic = NonZeroU32;

/// A node's role in a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Publisher,
    Subscriber,
}

/// The topic with this number, counted from 0.
pub(crate) fn topic(number: usize) -> Topic {
    u32::try_from(number).ok().and_then(|number| NonZeroU32::MIN.checked_add(number)).unwrap_or(NonZeroU32::MAX)
}

/// One copy of a publication on its way.
pub(crate) struct Copy {
    pub(crate) from: usize,
    pub(crate) to: usize,
    /// Hops from the publisher.
    pub(crate) hops: u16,
    /// Whether the receiver subscribes.
    pub(crate) deliver: bool,
}

/// Nodes and the messages between them.
pub(crate) struct World {
    nodes: Vec<Node<Topic>>,
    alive: Vec<bool>,
    joined: Vec<usize>,
    queue: VecDeque<(usize, usize, Message<Topic>)>,
    copies: VecDeque<(usize, Hop<Topic>)>,
    now: Instant,
    pub(crate) rng: Rng,
    /// Messages that kept the graph in shape.
    pub(crate) signals: u64,
}

impl World {
    /// `count` nodes that have not joined; node number 0 has the smallest key, and so on. Vectors are random.
    pub(crate) fn new(count: usize, config: Config, seed: u64) -> Self {
        Self::with_vectors(count, config, seed, |_, rng| Vector::random(rng))
    }

    /// The same with other vectors.
    pub(crate) fn with_vectors(
        count: usize,
        config: Config,
        seed: u64,
        mut vector: impl FnMut(u64, &mut Rng) -> Vector,
    ) -> Self {
        let mut rng = Rng::new(seed);
        let nodes = (0..count as u64)
            .map(|node| Node::new(NodeId::new(node), Incarnation::new(0), vector(node, &mut rng), config))
            .collect();
        Self {
            nodes,
            alive: vec![true; count],
            joined: Vec::with_capacity(count),
            queue: VecDeque::new(),
            copies: VecDeque::new(),
            now: Instant::ZERO,
            rng,
            signals: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Node numbers in random order.
    pub(crate) fn shuffled(&mut self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.nodes.len()).collect();
        self.rng.shuffle(&mut order);
        order
    }

    /// Gives a node a part in a topic; takes effect when it joins, or at once if it has.
    pub(crate) fn take_part(&mut self, node: usize, topic: Topic, part: Part) {
        self.feed(
            node,
            match part {
                Part::Publisher => Input::Advertise(topic),
                Part::Subscriber => Input::Subscribe(topic),
            },
        );
        self.settle();
    }

    pub(crate) fn unsubscribe(&mut self, node: usize, topic: Topic) {
        self.feed(node, Input::Unsubscribe(topic));
        self.settle();
    }

    /// Lets a node join, introduced by any one that has.
    pub(crate) fn join(&mut self, node: usize) {
        if let Some(introducer) = self.rng.pick(&self.joined).copied() {
            self.feed(node, Input::Introducer(id(introducer)));
        }
        self.feed(node, Input::Start);
        self.settle();
        self.joined.push(node);
    }

    /// Lets all nodes join, one after the other, in random order.
    pub(crate) fn join_all(&mut self) {
        for node in self.shuffled() {
            self.join(node);
        }
    }

    pub(crate) fn kill(&mut self, node: usize) {
        if let Some(alive) = self.alive.get_mut(node) {
            *alive = false;
        }
    }

    pub(crate) fn is_alive(&self, node: usize) -> bool {
        self.alive.get(node).copied().unwrap_or(false)
    }

    /// A second passes.
    pub(crate) fn second(&mut self) {
        self.now = self.now + Duration::from_secs(1);
        for node in 0..self.nodes.len() {
            if self.is_alive(node)
                && let Some(machine) = self.nodes.get_mut(node)
            {
                machine.handle_timeout(self.now);
                self.collect(node);
            }
        }
        self.settle();
    }

    fn feed(&mut self, node: usize, input: Input<Topic>) {
        if let Some(machine) = self.nodes.get_mut(node) {
            machine.handle(self.now, input);
            self.collect(node);
        }
    }

    fn collect(&mut self, node: usize) {
        let Some(machine) = self.nodes.get_mut(node) else { return };
        while let Some(output) = machine.poll_output() {
            if let Output::Send { to, message } = output {
                self.queue.push_back((node, number(to), message));
            }
        }
    }

    /// Moves messages until there are none. One queue keeps the order between each two nodes.
    pub(crate) fn settle(&mut self) {
        while let Some((from, to, message)) = self.queue.pop_front() {
            self.signals += 1;
            if self.is_alive(to) {
                self.feed(to, Input::Message { from: id(from), message });
            }
        }
    }

    pub(crate) fn set_method(&mut self, method: Method) {
        for node in &mut self.nodes {
            node.set_method(method);
        }
    }

    /// A client of `node` publishes; `see` is shown every copy that is sent. Signals that this causes are moved as well.
    pub(crate) fn publish(&mut self, node: usize, topic: Topic, see: impl FnMut(Copy)) {
        let now = self.now;
        let Some(machine) = self.nodes.get_mut(node) else { return };
        let publication = machine.publish(now, &topic);
        self.collect(node);
        if let Publication::Cast(hops) = publication {
            self.carry(node, hops, see);
        }
        self.settle();
    }

    /// A range query.
    pub(crate) fn query(&mut self, node: usize, range: Range<Topic>, see: impl FnMut(Copy)) {
        if let Some(machine) = self.nodes.get_mut(node) {
            let hops = machine.query(range);
            self.carry(node, hops, see);
        }
    }

    fn carry(&mut self, node: usize, hops: Vec<Hop<Topic>>, mut see: impl FnMut(Copy)) {
        self.copies.extend(hops.into_iter().map(|hop| (node, hop)));
        while let Some((from, hop)) = self.copies.pop_front() {
            let to = number(hop.node);
            let alive = self.is_alive(to);
            let Some(machine) = self.nodes.get_mut(to) else { continue };
            if !alive {
                see(Copy { from, to, hops: hop.note.hops, deliver: false });
                continue;
            }
            let forward = machine.forward(&hop.note);
            see(Copy { from, to, hops: hop.note.hops, deliver: forward.deliver });
            self.copies.extend(forward.hops.into_iter().map(|hop| (to, hop)));
            self.collect(to);
        }
    }

    /// The right neighbour on level 0 of a node with one virtual node.
    pub(crate) fn right_neighbour(&self, node: usize) -> Option<usize> {
        let machine = self.nodes.get(node)?;
        let key = machine.keys().next()?;
        machine.neighbours(key, Side::Right).first().map(|peer| number(peer.key.node))
    }

    /// All nodes in the tables of a node, each once.
    pub(crate) fn neighbours(&self, node: usize) -> Vec<usize> {
        let Some(machine) = self.nodes.get(node) else { return Vec::new() };
        let sides = [Side::Left, Side::Right].into_iter();
        let rows = machine.keys().flat_map(|key| sides.clone().map(|side| machine.neighbours(key, side)));
        let mut nodes: Vec<usize> = rows.flatten().map(|peer| number(peer.key.node)).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    /// Entries in the tables of a node: all levels counted, and each other node once.
    pub(crate) fn table_sizes(&self, node: usize, base: Base) -> (usize, usize) {
        let Some(machine) = self.nodes.get(node) else { return (0, 0) };
        let (mut entries, mut others) = (0, Vec::new());
        for key in machine.keys() {
            for side in [Side::Left, Side::Right] {
                let row = machine.neighbours(key, side);
                // The last one is the neighbour on all levels that are left.
                entries += row.last().map_or(0, |last| base.common(machine.vector(), last.vector) as usize + 1);
                others.extend(row.iter().map(|peer| peer.key.node));
            }
        }
        others.sort_unstable();
        others.dedup();
        (entries, others.len())
    }

    /// The mean of [`World::table_sizes`] over all nodes.
    pub(crate) fn mean_table_sizes(&self, base: Base) -> (f64, f64) {
        let sizes = (0..self.len()).map(|node| self.table_sizes(node, base));
        let (all, once) = sizes.fold((0, 0), |sum, size| (sum.0 + size.0, sum.1 + size.1));
        (real(all) / real(self.len()), real(once) / real(self.len()))
    }

    /// How many of the links of level 0 between living nodes are as they should be, and how many there should be.
    pub(crate) fn right_links(&self) -> (usize, usize) {
        let living = self.nodes.iter().enumerate().filter(|(node, _)| self.is_alive(*node));
        let mut keys: Vec<_> = living.flat_map(|(node, machine)| machine.keys().map(move |key| (*key, node))).collect();
        keys.sort_unstable_by_key(|(key, _)| *key);
        let links = keys.windows(2).filter_map(|two| if let [one, other] = two { Some((one, other)) } else { None });
        let (mut right, mut all) = (0, 0);
        for ((one, left), (other, at)) in links.filter(|((_, left), (_, at))| left != at) {
            let nearest = |node: usize, key, side| {
                self.nodes.get(node).and_then(|machine| machine.neighbours(key, side).first()).map(|peer| peer.key)
            };
            all += 2;
            right += usize::from(nearest(*left, one, Side::Right) == Some(*other));
            right += usize::from(nearest(*at, other, Side::Left) == Some(*one));
        }
        (right, all)
    }
}

/// Settings for experiments without failures: no timers.
pub(crate) fn resting() -> Config {
    Config { tick: None, ..Config::default() }
}

const fn id(node: usize) -> NodeId {
    NodeId::new(node as u64)
}

fn number(node: NodeId) -> usize {
    usize::try_from(node.get()).unwrap_or(usize::MAX)
}
