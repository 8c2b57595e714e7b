//! The machine.

use core::fmt;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use sedge_base::{Instant, NodeId, Now};
use sedge_mqtt::{TopicFilter, TopicName};

use super::graph::{Graph, first_steps};
use super::signal::{INNER, Signal};
use crate::status::{Topology, TreeNode, TreeView};
use crate::{Advertised, Input, Output, Overlay, RouteEntry, Way};

/// A link that was chosen by hand, as one of its ends sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// The other end.
    pub node: NodeId,
    /// Whether this node's operator has chosen the link.
    pub here: bool,
    /// Whether the operator of the other end has chosen the link.
    pub there: bool,
}

/// Another algorithm, whose publications go over chosen links only.
pub struct ByHand {
    me: NodeId,
    inner: Box<dyn Overlay + Send>,
    graph: Graph,
    /// Links that are up, chosen or not: words go over all of them.
    linked: BTreeMap<NodeId, u64>,
    /// Number of this node's word, and whether all have to be told.
    number: u64,
    untold: bool,
    /// The next node on the way to each one that chosen links lead to.
    steps: BTreeMap<NodeId, NodeId>,
    /// The node before each on those ways.
    before: BTreeMap<NodeId, NodeId>,
    /// Members of shared subscriptions elsewhere, as the algorithm inside tells them.
    groups: BTreeMap<(NodeId, TopicFilter), (u32, u32)>,
    outputs: VecDeque<Output>,
    version: u64,
}

impl fmt::Debug for ByHand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByHand").field("me", &self.me).field("graph", &self.graph).finish_non_exhaustive()
    }
}

impl ByHand {
    /// The algorithm as node `me` sees it: no link is chosen yet. `inner` knows which nodes want which topics.
    pub fn new(me: NodeId, inner: Box<dyn Overlay + Send>) -> Self {
        Self {
            me,
            inner,
            graph: Graph::default(),
            linked: BTreeMap::new(),
            number: 1,
            untold: false,
            steps: BTreeMap::new(),
            before: BTreeMap::new(),
            groups: BTreeMap::new(),
            outputs: VecDeque::new(),
            version: 0,
        }
    }

    fn is_reachable(&self, node: NodeId) -> bool {
        self.steps.contains_key(&node)
    }

    /// Whether chosen links lead to every node that there is a link to: then nothing has to be left out of listings.
    fn is_whole(&self) -> bool {
        self.linked.keys().all(|node| self.is_reachable(*node))
    }

    /// Links have been chosen or ended, or have come up or gone down: ways over links of this node that are down come last.
    fn find_ways(&mut self) {
        let linked = &self.linked;
        let all = self.graph.ways(self.me, |_| false);
        let mut steps = first_steps(self.me, &all);
        let up = self.graph.ways(self.me, |node| !linked.contains_key(&node));
        steps.extend(first_steps(self.me, &up));
        let (former, before) = (core::mem::replace(&mut self.steps, steps), all);
        self.before = before;
        self.version += u64::from(self.steps != former);
        for ((node, group), (online, offline)) in &self.groups {
            let (was, is) = (former.contains_key(node), self.steps.contains_key(node));
            let (online, offline) = if is { (*online, *offline) } else { (0, 0) };
            if was != is {
                let group = group.clone();
                self.outputs.push_back(Output::Table(Advertised::Group { node: *node, group, online, offline }));
            }
        }
    }

    fn says_anew(&mut self) {
        self.number += 1;
        self.untold = true;
        self.find_ways();
    }

    /// Takes in another node's word about its links. A link that the sender has chosen or ended since its last word replaces the opposite
    /// choice made here. An end said again does so, too, if the sender knows the choice made here: links break, and words between two other
    /// nodes may not have come.
    fn hear(&mut self, from: NodeId, number: u64, word: super::graph::Word) {
        let me = self.me;
        let (links, cuts) = (word.links.contains(&me), word.cuts.contains(&me));
        let knows_mine = self.linked.get(&from) == Some(&self.number);
        let Some(before) = self.graph.hear(from, word) else { return };
        if links && !before.links.contains(&me) && self.graph.set(me, from, self.graph.chose(me, from), false) {
            self.says_anew();
        }
        let was_chosen = self.graph.chose(me, from);
        if cuts && (!before.cuts.contains(&me) || (was_chosen && knows_mine)) {
            if was_chosen && self.graph.set(me, from, false, false) {
                self.says_anew();
            }
            self.outputs.push_back(Output::Cut { node: from });
        }
        self.find_ways();
        self.signal(from, &Signal::Heard(number));
        if self.graph.chose(from, me) && self.graph.has_cut(me, from) {
            self.tell(Some(from));
        }
    }

    fn signal(&mut self, to: NodeId, signal: &Signal) {
        self.outputs.push_back(Output::Signal { to, bytes: signal.encode() });
    }

    /// Tells everybody, or one neighbour whose link has just come up.
    fn tell(&mut self, to: Option<NodeId>) {
        let word = self.graph.word(self.me).cloned().unwrap_or_default();
        let signal = Signal::Word(self.number, word);
        let all: Vec<NodeId> = to.map_or_else(|| self.linked.keys().copied().collect(), |node| vec![node]);
        for node in all {
            self.signal(node, &signal);
        }
    }

    /// Signals that no link has taken must not reach the next one.
    fn drop_signals(&mut self, node: NodeId) {
        self.outputs.retain(|output| !matches!(output, Output::Signal { to, .. } if *to == node));
    }

    fn on_signal(&mut self, now: Now, from: NodeId, bytes: &Bytes) {
        if !self.linked.contains_key(&from) {
            return;
        }
        match Signal::decode(bytes) {
            Ok(Signal::Inner(bytes)) => self.inner.handle(now, Input::Signal { from, bytes }),
            Ok(Signal::Word(number, word)) => self.hear(from, number, word),
            Ok(Signal::Heard(number)) if number <= self.number => {
                self.linked.entry(from).and_modify(|heard| *heard = number.max(*heard));
            }
            Ok(Signal::Heard(_)) => self.refuse(now, from, "it has heard what was never said".to_owned()),
            Err(error) => self.refuse(now, from, error.to_string()),
        }
    }

    /// The neighbour has said something that cannot be: nothing more is said or heard on this link.
    fn refuse(&mut self, now: Now, node: NodeId, detail: String) {
        self.unlink(node);
        self.inner.handle(now, Input::NeighbourDown { node, gone: false });
        self.outputs.push_back(Output::Protocol { node, detail });
    }

    fn unlink(&mut self, node: NodeId) {
        self.drop_signals(node);
        if self.linked.remove(&node).is_some() {
            self.find_ways();
        }
    }

    /// An output of the algorithm inside as the owner gets it; `None` if it is not for the owner. Members of shared subscriptions at nodes to
    /// which no chosen links lead are told when some do.
    fn pass_out(&mut self, output: Output) -> Option<Output> {
        match output {
            Output::Signal { to, bytes } => Some(Output::Signal { to, bytes: Signal::Inner(bytes).encode() }),
            Output::Table(Advertised::Group { node, group, online, offline }) => {
                if (online, offline) == (0, 0) {
                    self.groups.remove(&(node, group.clone()));
                } else {
                    self.groups.insert((node, group.clone()), (online, offline));
                }
                let is_seen = self.is_reachable(node);
                is_seen.then_some(Output::Table(Advertised::Group { node, group, online, offline }))
            }
            Output::Protocol { node, .. } => {
                self.unlink(node);
                Some(output)
            }
            Output::Link { .. }
            | Output::Table(_)
            | Output::Barrier(_)
            | Output::Settled(_)
            | Output::Cut { .. }
            | Output::Synced { .. } => Some(output),
        }
    }
}

impl Overlay for ByHand {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn relays(&self) -> bool {
        true
    }

    fn handle(&mut self, now: Now, input: Input) {
        match &input {
            Input::Signal { from, bytes } => return self.on_signal(now, *from, bytes),
            Input::NeighbourUp(neighbour) if neighbour.node != self.me => {
                self.drop_signals(neighbour.node);
                self.linked.insert(neighbour.node, 0);
                self.find_ways();
                self.tell(Some(neighbour.node));
            }
            Input::NeighbourDown { node, .. } => self.unlink(*node),
            Input::NeighbourUp(_)
            | Input::MemberUp(_)
            | Input::MemberDown { .. }
            | Input::RoundTrip { .. }
            | Input::Load { .. }
            | Input::Local { .. }
            | Input::BarrierReached(_) => {}
        }
        self.inner.handle(now, input);
    }

    fn handle_timeout(&mut self, now: Now) {
        self.inner.handle_timeout(now);
    }

    fn poll_output(&mut self) -> Option<Output> {
        if core::mem::take(&mut self.untold) {
            self.tell(None);
        }
        loop {
            if let Some(output) = self.outputs.pop_front() {
                return Some(output);
            }
            let output = self.inner.poll_output()?;
            if let Some(output) = self.pass_out(output) {
                return Some(output);
            }
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.inner.poll_timeout()
    }

    fn destinations(&mut self, topic: &TopicName, nodes: &mut Vec<NodeId>) {
        self.inner.destinations(topic, nodes);
        nodes.retain(|node| self.steps.contains_key(node));
    }

    fn unanswered(&self, topic: &TopicName, nodes: &mut Vec<NodeId>) {
        self.inner.unanswered(topic, nodes);
        nodes.retain(|node| self.is_reachable(*node));
    }

    fn promises(&self, to: NodeId, signal: &[u8]) -> bool {
        match signal.split_first() {
            Some((&INNER, rest)) => self.inner.promises(to, rest),
            Some(_) => false,
            None => true,
        }
    }

    fn everyone(&self, nodes: &mut Vec<NodeId>) {
        let mut all = Vec::new();
        self.inner.everyone(&mut all);
        nodes.extend(all.into_iter().filter(|node| self.is_reachable(*node)));
    }

    fn way(&self, _: &TopicName, destination: NodeId) -> NodeId {
        self.steps.get(&destination).copied().filter(|step| self.linked.contains_key(step)).unwrap_or(destination)
    }

    fn ways(&self, topic: &TopicName, ways: &mut [Way]) {
        for way in ways {
            way.next = self.way(topic, way.destination);
        }
    }

    fn is_linked(&self, node: NodeId) -> bool {
        self.is_reachable(node) && self.inner.is_linked(node)
    }

    fn routes(&self, offset: usize, limit: usize) -> Vec<RouteEntry> {
        if self.is_whole() {
            return self.inner.routes(offset, limit);
        }
        let all = self.inner.routes(0, usize::MAX).into_iter();
        all.filter(|line| self.is_reachable(line.node)).skip(offset).take(limit).collect()
    }

    fn route_count(&self) -> usize {
        if self.is_whole() {
            return self.inner.route_count();
        }
        self.inner.routes(0, usize::MAX).iter().filter(|line| self.is_reachable(line.node)).count()
    }

    fn topology(&self, limit: usize) -> Topology {
        let mut topology = self.inner.topology(limit);
        let node = |(node, parent): (&NodeId, Option<&NodeId>)| TreeNode {
            node: *node,
            parent: parent.copied(),
            cost: None,
            capability: 0,
        };
        let mut nodes: Vec<TreeNode> = self.before.iter().map(|(to, before)| node((to, Some(before)))).collect();
        nodes.push(node((&self.me, None)));
        nodes.sort_by_key(|node| node.node);
        topology.trees = vec![TreeView { topic: None, epoch: self.version, complete: true, root: self.me, nodes }];
        topology
    }

    fn choose(&mut self, node: NodeId, chosen: bool) {
        if node != self.me && self.graph.set(self.me, node, chosen, !chosen) {
            self.says_anew();
        }
    }

    fn chosen(&self) -> Vec<Chosen> {
        let line = |node: NodeId| Chosen {
            node,
            here: self.graph.chose(self.me, node),
            there: self.graph.chose(node, self.me),
        };
        let mut nodes: BTreeSet<NodeId> = self.graph.neighbours(self.me);
        nodes.extend(self.graph.word(self.me).into_iter().flat_map(|word| word.links.iter()));
        nodes.into_iter().map(line).collect()
    }

    fn is_agreed(&self) -> bool {
        self.linked.values().all(|heard| *heard == self.number)
    }
}
