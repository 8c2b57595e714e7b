//! The machine.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use sedge_base::{Incarnation, Instant, NodeId, Now, Rng};
use sedge_mqtt::{TopicFilter, TopicName};

use super::SkipGraphConfig;
use super::audience::Audiences;
use super::interest::{Interest, Turn, is_graph_topic, topic_of};
use super::peer::Peer;
use super::signal::{Signal, SignalError, cut, message_len, topic_len};
use crate::skip_graph::{self, Message, Method, Node, Vector};
use crate::{Advert, Advertised, Input, Mesh, Neighbour, Output, Overlay, RouteEntry, Token, Topology, Way};

/// Filter that matches every topic except names that start with `$`.
const EVERYTHING: &str = "#";

/// How often virtual nodes may join in one incarnation. Incarnations of 44 bits fit: milliseconds for five hundred years.
const LIVES: u64 = 1 << 20;

/// Counters of [`SkipGraphOverlay`], from its start on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SkipGraphCounters {
    /// Changes that counted as settled only because [`crate::MeshConfig::settle_timeout`] had passed.
    pub late_settlements: u64,
    /// Tables of wildcards and shared subscriptions that had to be fetched anew.
    pub repairs: u64,
    /// Such tables forgotten because their node had sent no digest for [`crate::MeshConfig::lease`].
    pub expired: u64,
    /// Publications that went to everyone because [`SkipGraphConfig::max_topics`] topics were known.
    pub untracked: u64,
    /// Publications that no other node wanted (SG-10).
    pub withheld: u64,
    /// Topics that all others were asked about.
    pub asked: u64,
    /// Topics that were suspended (SG-10).
    pub suspended: u64,
    /// Topics that were found active, or resumed (SG-11).
    pub resumed: u64,
    /// Topics whose status in the graph was wrong for a while and was looked at once more (SG-15).
    pub reported: u64,
    /// Messages of the graph to nodes without a link; the graph says again those that matter.
    pub undelivered: u64,
    /// Messages of the graph that were given up because they were passed on too often, or because this node was in no list.
    pub lost: u64,
    /// Neighbours in the graph that were left out because they were silent.
    pub silent: u64,
}

impl SkipGraphCounters {
    /// Each with its name.
    pub(super) fn named(self) -> Vec<(&'static str, u64)> {
        vec![
            ("late_settlements", self.late_settlements),
            ("repairs", self.repairs),
            ("expired", self.expired),
            ("untracked", self.untracked),
            ("withheld", self.withheld),
            ("asked", self.asked),
            ("suspended", self.suspended),
            ("resumed", self.resumed),
            ("reported", self.reported),
            ("undelivered", self.undelivered),
            ("lost", self.lost),
            ("silent", self.silent),
        ]
    }
}

/// The Skip Graph among brokers (SG-34): [`crate::skip_graph`] leads the ways, the subscribers of a topic are asked and tell over the
/// direct links, and a mesh carries interest that every node has to know (`docs/adr/0011-skip-graph-overlay.md`).
#[derive(Debug)]
pub struct SkipGraphOverlay {
    pub(super) me: NodeId,
    pub(super) config: SkipGraphConfig,
    /// The mesh for interest that every node has to know, and for changes that wait to be settled.
    mesh: Mesh,
    pub(super) graph: Node<TopicName>,
    started: bool,
    interest: Interest,
    pub(super) audiences: Audiences,
    peers: BTreeMap<NodeId, Peer>,
    /// Topics that the others have not been asked about yet.
    new_topics: Vec<TopicName>,
    /// A link has come up since the last questions: that node has to be asked about all topics.
    has_new_peer: bool,
    /// Number of the last question.
    questions: u64,
    /// The time of the last event; publications come without one.
    now: Instant,
    /// When the graph is started although there is no neighbour to join.
    start_at: Option<Instant>,
    /// When this node begins the list of the graph, if nobody has let it join until then.
    begin_at: Option<Instant>,
    next_sweep: Option<Instant>,
    counters: SkipGraphCounters,
    outputs: VecDeque<Output>,
}

impl SkipGraphOverlay {
    /// The graph as node `me` sees it: nobody else yet. The incarnation has to grow with each start of the node. `rng` draws the
    /// membership vector.
    pub fn new(me: NodeId, incarnation: Incarnation, config: SkipGraphConfig, mut rng: Rng) -> Self {
        let graph_config = skip_graph::Config {
            base: config.base,
            method: config.method,
            tick: Some(config.tick),
            silent_ticks: config.silent_ticks,
            // Topics are withdrawn from here.
            publisher_idle: sedge_base::Duration::MAX,
            ..skip_graph::Config::default()
        };
        let vector = Vector::random(&mut rng);
        // The machine counts the lives of its keys on from there: they have to stay below those of the next incarnation.
        let lives = Incarnation::new(incarnation.get().saturating_mul(LIVES));
        let everything = TopicFilter::new(EVERYTHING).ok();
        let see_all = everything.map(|filter| Output::Table(Advertised::Remote { filter, wanted: true }));
        Self {
            me,
            config,
            mesh: Mesh::new(me, config.mesh, rng),
            graph: Node::new(me, lives, vector, graph_config),
            started: false,
            interest: Interest::default(),
            audiences: Audiences::default(),
            peers: BTreeMap::new(),
            new_topics: Vec::new(),
            has_new_peer: false,
            questions: 0,
            now: Instant::ZERO,
            start_at: None,
            begin_at: None,
            next_sweep: None,
            counters: SkipGraphCounters::default(),
            outputs: see_all.into_iter().collect(),
        }
    }

    /// The counters so far.
    pub fn counters(&self) -> SkipGraphCounters {
        let (mesh, graph) = (self.mesh.counters(), self.graph.counters());
        SkipGraphCounters {
            late_settlements: mesh.late_settlements,
            repairs: mesh.repairs,
            expired: mesh.expired,
            lost: graph.lost,
            silent: graph.dead,
            ..self.counters
        }
    }

    fn start(&mut self) {
        if !core::mem::replace(&mut self.started, true) {
            self.graph.handle(self.now, skip_graph::Input::Start);
            self.begin_at = Some(self.now + self.config.tick);
        }
    }

    /// Nodes that start together wait for each other: the one with the smallest id begins a list, unless it is in one by then, and
    /// the others join by it.
    fn begin(&mut self) {
        if self.begin_at.is_none_or(|at| at > self.now) {
            return;
        }
        self.begin_at = None;
        if self.graph.keys().next().is_some() {
            return;
        }
        let smallest = self.peers.iter().find(|(_, peer)| peer.is_linked()).map(|(node, _)| *node);
        if let Some(smallest) = smallest.filter(|smallest| *smallest < self.me) {
            self.graph.handle(self.now, skip_graph::Input::JoinBy(smallest));
            self.begin_at = Some(self.now + self.config.tick);
        } else {
            self.graph.handle(self.now, skip_graph::Input::Begin);
        }
    }

    fn on_neighbour_up(&mut self, neighbour: Neighbour) {
        let Neighbour { node, incarnation, .. } = neighbour;
        if node == self.me {
            return;
        }
        self.drop_signals(node);
        let peer = self.peers.entry(node).or_default();
        let is_reborn = peer.incarnation != Incarnation::default() && peer.incarnation != incarnation;
        peer.link_up(incarnation);
        self.has_new_peer = true;
        self.audiences.doubt(node);
        if is_reborn {
            self.graph.handle(self.now, skip_graph::Input::NodeDown(node));
        }
        self.graph.handle(self.now, skip_graph::Input::Reached(node));
        self.start();
    }

    fn on_neighbour_down(&mut self, node: NodeId, gone: bool) {
        let Some(peer) = self.peers.get_mut(&node) else { return };
        peer.link_down();
        let gone = gone || peer.lost;
        self.drop_signals(node);
        if gone {
            self.forget(node);
        }
    }

    fn on_member_down(&mut self, node: NodeId) {
        match self.peers.get_mut(&node) {
            Some(peer) if peer.is_linked() => peer.lost = true,
            Some(_) => self.forget(node),
            None => {}
        }
    }

    fn forget(&mut self, node: NodeId) {
        self.peers.remove(&node);
        self.audiences.forget(node);
        self.graph.handle(self.now, skip_graph::Input::NodeDown(node));
        self.name_introducers();
    }

    /// The graph remembers a few of many nodes: others take the place of those that are gone, or a node that is alone in a list could
    /// not find the others once the few are gone.
    fn name_introducers(&mut self) {
        for (node, _) in self.peers.iter().filter(|(_, peer)| peer.is_linked()) {
            if !self.graph.needs_introducers() {
                return;
            }
            self.graph.handle(self.now, skip_graph::Input::Introducer(*node));
        }
    }

    /// Signals that no link has taken must not reach the next one.
    fn drop_signals(&mut self, node: NodeId) {
        self.outputs.retain(|output| !matches!(output, Output::Signal { to, .. } if *to == node));
    }

    /// Changes of filters that the graph is not for go to the mesh, and so does every token: signals about the graph's topics are ahead of
    /// the mesh's question on every link, so a node that answers the question knows them.
    fn on_local(&mut self, now: Now, changes: Vec<Advert>, token: Option<Token>) {
        let mut others = Vec::new();
        for change in changes {
            let Some(topic) = topic_of(&change.filter) else {
                others.push(change);
                continue;
            };
            match self.interest.apply(&topic, &change) {
                Some(Turn::First) => self.graph.handle(self.now, skip_graph::Input::Subscribe(topic)),
                Some(Turn::Last) => self.graph.handle(self.now, skip_graph::Input::Unsubscribe(topic)),
                None => {}
            }
        }
        if !others.is_empty() || token.is_some() {
            self.mesh.handle(now, Input::Local { changes: others, token });
        }
    }

    fn on_signal(&mut self, now: Now, from: NodeId, bytes: &Bytes) {
        if !self.is_linked(from) {
            return;
        }
        let result = Signal::decode(bytes).and_then(|signal| self.apply_signal(now, from, signal));
        if let Err(error) = result {
            // Nothing more is said or heard on this link.
            self.on_neighbour_down(from, false);
            self.mesh.handle(now, Input::NeighbourDown { node: from, gone: false });
            self.outputs.push_back(Output::Protocol { node: from, detail: error.to_string() });
        }
    }

    fn apply_signal(&mut self, now: Now, from: NodeId, signal: Signal) -> Result<(), SignalError> {
        match signal {
            Signal::Mesh(bytes) => self.mesh.handle(now, Input::Signal { from, bytes }),
            Signal::Graph { base, .. } if base != self.config.base => return Err(SignalError::Base),
            Signal::Graph { messages, .. } => {
                for message in messages {
                    self.graph.handle(self.now, skip_graph::Input::Message { from, message });
                }
            }
            Signal::News(news) => {
                for (topic, subscribed) in news {
                    self.audiences.tell(from, &topic, subscribed);
                }
            }
            Signal::Ask { number, topics } => {
                let answers = topics.iter().map(|topic| self.interest.is_subscribed(topic)).collect();
                self.signal(from, &Signal::Answer { number, answers });
            }
            Signal::Answer { number, answers } => {
                let Some(peer) = self.peers.get_mut(&from) else { return Ok(()) };
                let Some(topics) = peer.take_question(number, self.questions, &answers)? else { return Ok(()) };
                for (topic, subscribed) in topics.iter().zip(answers) {
                    self.audiences.answer(from, topic, subscribed);
                }
            }
        }
        Ok(())
    }

    fn signal(&mut self, to: NodeId, signal: &Signal) {
        self.outputs.push_back(Output::Signal { to, bytes: signal.encode() });
    }

    /// A publication to a topic of the graph: adds the nodes that may want it.
    fn publish(&mut self, topic: &TopicName, nodes: &mut Vec<NodeId>) {
        if self.audiences.publish(self.now, topic, nodes) {
            self.compare_status(topic);
            return;
        }
        nodes.extend(self.peers.keys());
        if self.audiences.len() >= self.config.max_topics {
            self.counters.untracked += 1;
            return;
        }
        let topic = topic.detached();
        self.audiences.begin(self.now, topic.clone(), self.peers.keys().copied().collect());
        self.new_topics.push(topic.clone());
        self.counters.asked += 1;
        self.graph.handle(self.now, skip_graph::Input::Advertise(topic));
        self.next_sweep.get_or_insert(self.now + self.config.publisher_idle / SWEEPS);
    }

    /// SG-15: in the source, a publication that finds nobody makes the rendezvous point look again. Here it is not even sent, since the
    /// subscribers are known; the status is compared with the known subscribers instead.
    fn compare_status(&mut self, topic: &TopicName) {
        let Some(status) = self.graph.status(topic).filter(|_| !self.interest.is_subscribed(topic)) else { return };
        let patience = self.config.tick * DOUBTFUL_TICKS;
        if self.audiences.contradicts(self.now, topic, status.active, patience) {
            self.counters.reported += 1;
            self.graph.handle(self.now, skip_graph::Input::Report(topic.detached()));
        }
    }

    /// Divides destinations between two neighbours at most; none if this node does not subscribe to the topic. The destinations given to a
    /// neighbour are the range that its copy is for: the names in the copy's waybill.
    fn divide(&self, topic: &TopicName, ways: &mut [Way]) -> Option<()> {
        let listed = self.audiences.subscribers(topic);
        let is_listed = |node: NodeId| listed.is_none_or(|nodes| nodes.contains(&node));
        let in_range = ways.iter().map(|way| way.destination).filter(|node| is_listed(*node));
        let (first, last) = in_range.fold((self.me, self.me), |(first, last), node| (first.min(node), last.max(node)));
        let halves = self.graph.halves(topic, (first, last), |node| self.is_linked(node))?;
        for way in ways {
            let half = if way.destination < self.me { halves.left } else { halves.right };
            way.next = half.filter(|_| is_listed(way.destination)).unwrap_or(way.destination);
        }
        Some(())
    }

    fn sweep(&mut self) {
        for topic in self.audiences.take_idle(self.now, self.config.publisher_idle) {
            self.graph.handle(self.now, skip_graph::Input::Withdraw(topic));
        }
        self.next_sweep = (self.audiences.len() > 0).then(|| self.now + self.config.publisher_idle / SWEEPS);
    }

    /// Turns everything that has gathered since the last poll into signals: all items for one node travel together.
    fn flush(&mut self) {
        self.send_news();
        self.send_questions();
        self.send_messages();
    }

    fn send_news(&mut self) {
        let news = self.interest.take_news();
        for piece in cut(news, self.config.signal_limit(), |(topic, _)| 1 + topic_len(topic)) {
            let bytes = Signal::News(piece).encode();
            let linked = self.peers.iter().filter(|(_, peer)| peer.is_linked());
            self.outputs.extend(linked.map(|(to, _)| Output::Signal { to: *to, bytes: bytes.clone() }));
        }
    }

    fn send_questions(&mut self) {
        // Polled for after every event: with many nodes it matters that nothing is looked through in vain.
        if !core::mem::take(&mut self.has_new_peer) && self.new_topics.is_empty() {
            return;
        }
        let new = core::mem::take(&mut self.new_topics);
        let (anew, known): (Vec<_>, Vec<_>) =
            self.peers.iter_mut().filter(|(_, peer)| peer.is_linked()).partition(|(_, peer)| peer.is_new());
        let limit = self.config.signal_limit();
        if !anew.is_empty() {
            ask(anew, cut(self.audiences.topics().cloned(), limit, topic_len), &mut self.questions, &mut self.outputs);
        }
        ask(known, cut(new, limit, topic_len), &mut self.questions, &mut self.outputs);
    }

    fn send_messages(&mut self) {
        let mut messages: BTreeMap<NodeId, Vec<Message<TopicName>>> = BTreeMap::new();
        while let Some(output) = self.graph.poll_output() {
            match output {
                skip_graph::Output::Send { to, message } => messages.entry(to).or_default().push(message),
                skip_graph::Output::Status { active: true, .. } => self.counters.resumed += 1,
                skip_graph::Output::Status { active: false, .. } => self.counters.suspended += 1,
                skip_graph::Output::Inserted(_) | skip_graph::Output::Removed(_) => {}
            }
        }
        for (to, messages) in messages {
            if !self.is_linked(to) {
                self.counters.undelivered += messages.len() as u64;
                continue;
            }
            for messages in cut(messages, self.config.signal_limit(), message_len) {
                self.signal(to, &Signal::Graph { base: self.config.base, messages });
            }
        }
    }

    /// The owner's part of an output of the mesh; none if the output is not for the owner.
    fn pass_on(&mut self, output: Output) -> Option<Output> {
        match output {
            Output::Signal { to, bytes } => Some(Output::Signal { to, bytes: Signal::Mesh(bytes).encode() }),
            // Publications to all other topics are handed over anyway.
            Output::Table(Advertised::Remote { filter, .. }) if !filter.as_str().starts_with('$') => None,
            Output::Protocol { node, detail } => {
                self.on_neighbour_down(node, false);
                Some(Output::Protocol { node, detail })
            }
            Output::Synced { node } => {
                if let Some(peer) = self.peers.get_mut(&node) {
                    peer.note_synced();
                }
                Some(Output::Synced { node })
            }
            output @ (Output::Link { .. }
            | Output::Table(_)
            | Output::Barrier(_)
            | Output::Cut { .. }
            | Output::Settled(_)) => Some(output),
        }
    }

    fn lines(&self) -> Vec<RouteEntry> {
        let everything = TopicFilter::new(EVERYTHING).ok();
        // A publication to a new topic goes to everyone.
        let all = everything.into_iter().flat_map(|filter| {
            self.peers.keys().map(move |node| RouteEntry { node: *node, client: None, filter: filter.clone() })
        });
        let known = self.audiences.iter().flat_map(|(topic, nodes)| {
            let filter = TopicFilter::new(topic.as_str()).ok();
            let line = |filter: &TopicFilter, node| RouteEntry { node, client: None, filter: filter.clone() };
            nodes.iter().filter_map(move |node| filter.as_ref().map(|filter| line(filter, *node)))
        });
        let mut lines = self.mesh.routes(0, usize::MAX);
        lines.extend(all.chain(known));
        lines.sort_unstable();
        lines
    }
}

/// Ticks for which the status of a topic may differ from the known subscribers: the status takes its time to travel, more after a death.
const DOUBTFUL_TICKS: u32 = 10;

/// How often topics are looked through for those to which nobody publishes any more, in the time after which they are forgotten.
const SWEEPS: u32 = 10;

fn ask(
    peers: Vec<(&NodeId, &mut Peer)>,
    questions: Vec<Vec<TopicName>>,
    last: &mut u64,
    outputs: &mut VecDeque<Output>,
) {
    let number = |topics: Vec<TopicName>| -> (u64, Arc<[TopicName]>, Bytes) {
        *last += 1;
        (*last, topics.as_slice().into(), Signal::Ask { number: *last, topics }.encode())
    };
    let questions: Vec<_> = questions.into_iter().map(number).collect();
    for (to, peer) in peers {
        peer.note_all_asked();
        for (number, topics, bytes) in &questions {
            peer.ask(*number, topics.clone());
            outputs.push_back(Output::Signal { to: *to, bytes: bytes.clone() });
        }
    }
}

impl Overlay for SkipGraphOverlay {
    fn name(&self) -> &'static str {
        "skip-graph"
    }

    fn relays(&self) -> bool {
        true
    }

    fn handle(&mut self, now: Now, input: Input) {
        self.now = now.instant;
        if !self.started {
            self.start_at.get_or_insert(now.instant + self.config.tick);
        }
        match input {
            Input::Local { changes, token } => return self.on_local(now, changes, token),
            Input::Signal { from, bytes } => return self.on_signal(now, from, &bytes),
            Input::NeighbourUp(neighbour) => self.on_neighbour_up(neighbour),
            Input::NeighbourDown { node, gone } => self.on_neighbour_down(node, gone),
            Input::MemberUp(member) => {
                if let Some(peer) = self.peers.get_mut(&member.node) {
                    peer.lost = false;
                }
            }
            Input::MemberDown { node } => self.on_member_down(node),
            Input::RoundTrip { .. } | Input::Load { .. } | Input::BarrierReached(_) => {}
        }
        self.mesh.handle(now, input);
    }

    fn handle_timeout(&mut self, now: Now) {
        self.now = now.instant;
        if !self.started && self.start_at.is_some_and(|at| at <= now.instant) {
            self.start();
        }
        self.begin();
        self.graph.handle_timeout(now.instant);
        if self.next_sweep.is_some_and(|at| at <= now.instant) {
            self.sweep();
        }
        self.mesh.handle_timeout(now);
    }

    fn poll_output(&mut self) -> Option<Output> {
        loop {
            // Signals of the mesh go behind the signals of this layer.
            if self.outputs.is_empty() {
                self.flush();
            }
            if let Some(output) = self.outputs.pop_front() {
                return Some(output);
            }
            let output = self.mesh.poll_output()?;
            if let Some(output) = self.pass_on(output) {
                return Some(output);
            }
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let start = self.start_at.filter(|_| !self.started);
        let next = [start, self.begin_at, self.next_sweep, self.graph.poll_timeout(), self.mesh.poll_timeout()];
        next.into_iter().flatten().min()
    }

    fn destinations(&mut self, topic: &TopicName, nodes: &mut Vec<NodeId>) {
        self.mesh.destinations(topic, nodes);
        if is_graph_topic(topic) {
            self.publish(topic, nodes);
        }
        nodes.extend(self.peers.iter().filter(|(_, peer)| peer.is_syncing()).map(|(node, _)| *node));
        nodes.sort_unstable();
        nodes.dedup();
        self.counters.withheld += u64::from(nodes.is_empty());
    }

    fn unanswered(&self, topic: &TopicName, nodes: &mut Vec<NodeId>) {
        let mut open: Vec<NodeId> = self.audiences.unanswered(topic).collect();
        if open.is_empty() {
            return;
        }
        open.retain(|node| self.peers.get(node).is_some_and(Peer::is_synced));
        // Wildcards.
        self.mesh.wanting(topic, |node| open.retain(|open| *open != node));
        nodes.append(&mut open);
    }

    fn promises(&self, _: NodeId, signal: &[u8]) -> bool {
        Signal::mesh_part(signal).is_some_and(crate::mesh::promises)
    }

    fn everyone(&self, nodes: &mut Vec<NodeId>) {
        self.mesh.everyone(nodes);
    }

    fn way(&self, topic: &TopicName, destination: NodeId) -> NodeId {
        // A node in no list of the topic is reached by no way in it: wildcards, and nodes that have not answered yet.
        if self.audiences.subscribes(topic, destination) == Some(false) {
            return destination;
        }
        self.graph.way(topic, destination).filter(|next| self.is_linked(*next)).unwrap_or(destination)
    }

    fn ways(&self, topic: &TopicName, ways: &mut [Way]) {
        if self.config.method == Method::Mrf && self.divide(topic, ways).is_some() {
            return;
        }
        for way in ways {
            way.next = self.way(topic, way.destination);
        }
    }

    fn is_linked(&self, node: NodeId) -> bool {
        self.peers.get(&node).is_some_and(Peer::is_linked)
    }

    fn routes(&self, offset: usize, limit: usize) -> Vec<RouteEntry> {
        self.lines().into_iter().skip(offset).take(limit).collect()
    }

    fn route_count(&self) -> usize {
        self.mesh.route_count() + self.peers.len() + self.audiences.subscriptions()
    }

    fn topology(&self, limit: usize) -> Topology {
        self.show(limit)
    }
}
