//! The machine: its questions, answers and confirmations.

use core::net::SocketAddr;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use sedge_base::{Deadlines, Instant, NodeId, Now, Rng};
use sedge_mqtt::{TopicFilter, TopicName};

use super::TopicTreeConfig;
use super::elections::Elections;
use super::interest::{Counts, Interest, Role};
use super::local::{Local, Publishing, cut};
use super::organise::{Own, Stale};
use super::peer::{Peer, Peers, Session};
use super::signal::{Change, Signal, SignalError, interest_len};
use super::status::TopicTreeCounters;
use super::topics::{Topics, Turn};
use super::trees::Trees;
use crate::mesh::{Confirmation, Confirmations, Settle};
use crate::{Advert, Advertised, Barrier, Input, Neighbour, Output, Overlay, RouteEntry, Token, Topology};

/// One tree per set of interested nodes (overlay-trees section 8).
#[derive(Debug)]
pub struct TopicTree {
    pub(super) me: NodeId,
    pub(super) address: SocketAddr,
    pub(super) config: TopicTreeConfig,
    pub(super) local: Local,
    pub(super) peers: Peers,
    pub(super) topics: Topics,
    pub(super) trees: Trees,
    pub(super) elections: Elections,
    pub(super) own: Own,
    /// How many topics were known to be rooted at a node when it last said how many there are.
    pub(super) counted: BTreeMap<NodeId, u32>,
    pub(super) stale: Stale,
    pub(super) collect_at: Option<Instant>,
    settle: Settle,
    /// The lowest number that some other node has confirmed; none: it has to be looked for.
    all_acked: Option<u64>,
    confirmations: Confirmations,
    leases: Deadlines<NodeId>,
    next_refresh: Option<Instant>,
    digest_due: bool,
    links: u64,
    pub(super) counters: TopicTreeCounters,
    outputs: VecDeque<Output>,
    /// When the last event came: publications are dated by it.
    pub(super) now: Instant,
}

impl TopicTree {
    /// The topic trees as node `me`, which listens for links at `address`, sees them: nobody else yet. `rng` makes hash collisions
    /// unpredictable for clients.
    pub fn new(me: NodeId, address: SocketAddr, config: TopicTreeConfig, mut rng: Rng) -> Self {
        // Every publication has to be seen, for it may be the first of its topic.
        let all = TopicFilter::new("#").ok().map(|filter| Output::Table(Advertised::Remote { filter, wanted: true }));
        Self {
            me,
            address,
            config,
            local: Local::new(&mut rng),
            peers: BTreeMap::new(),
            topics: Topics::new(me, &mut rng),
            trees: Trees::default(),
            elections: Elections::default(),
            own: Own::new(),
            counted: BTreeMap::new(),
            stale: Stale::default(),
            collect_at: None,
            settle: Settle::default(),
            all_acked: None,
            confirmations: Confirmations::new(),
            leases: Deadlines::new(),
            next_refresh: None,
            digest_due: false,
            links: 0,
            counters: TopicTreeCounters::default(),
            outputs: all.into_iter().collect(),
            now: Instant::ZERO,
        }
    }

    /// The counters so far.
    pub fn counters(&self) -> TopicTreeCounters {
        TopicTreeCounters { late_settlements: self.settle.late(), ..self.counters }
    }

    fn on_neighbour_up(&mut self, neighbour: Neighbour) {
        let node = neighbour.node;
        if node == self.me {
            return;
        }
        // The other nodes get the content of the snapshot as news.
        self.send_news();
        self.drop_signals(node);
        self.elections.forget(node);
        self.links += 1;
        let link = self.links;
        self.peers.entry(node).or_insert_with(|| Peer::new(neighbour)).link_up(neighbour, link);
        self.all_acked = None;
        self.leases.set(node, self.now + self.config.lease);
        self.next_refresh.get_or_insert(self.now + self.config.refresh);
        self.own.has_spoken = true;
        let facts = Signal::Facts(self.own.told.clone());
        self.signal(node, &facts);
        self.send_snapshot(node);
        let elected: Vec<_> = self.elections.concerning(node).collect();
        self.send_roots(node, elected);
        self.own.is_due = true;
        self.stale.roots = true;
        self.gather();
    }

    /// Sends the snapshot at once, not with the next poll: nobody answers a snapshot, so the neighbour's signals after it came up have to
    /// find here all that the snapshot tells.
    fn send_snapshot(&mut self, node: NodeId) {
        let signals: Vec<Signal> = self.local.snapshot(self.config.signal_limit()).collect();
        for signal in &signals {
            self.signal(node, signal);
        }
    }

    fn on_neighbour_down(&mut self, node: NodeId, gone: bool) {
        let Some(peer) = self.peers.get_mut(&node) else { return };
        let was_linked = peer.session.take().is_some();
        let gone = gone || peer.lost;
        self.drop_signals(node);
        if was_linked {
            self.own.is_due = true;
            self.gather();
        }
        if gone {
            self.forget(node);
        }
    }

    fn on_member_down(&mut self, node: NodeId) {
        self.outputs.push_back(Output::Link { node, wanted: false });
        match self.peers.get_mut(&node) {
            Some(peer) if peer.is_linked() => peer.lost = true,
            Some(_) => self.forget(node),
            None => {}
        }
    }

    /// A node is gone, with all that it wanted.
    fn forget(&mut self, node: NodeId) {
        self.forget_wants(node);
        self.peers.remove(&node);
        self.elections.forget(node);
        self.counted.remove(&node);
        self.leases.cancel(&node);
        self.stale.roots = true;
        self.stale.facts = true;
        self.gather();
        self.all_acked = None;
    }

    fn forget_wants(&mut self, node: NodeId) {
        let Some(peer) = self.peers.get_mut(&node) else { return };
        let (held, groups) = peer.forget();
        self.drop_held(node, &held);
        self.drop_groups(node, groups);
    }

    fn drop_held(&mut self, node: NodeId, held: &[Interest]) {
        for interest in held {
            self.turn(node, interest, Turn::Ends);
        }
    }

    fn drop_groups(&mut self, node: NodeId, groups: Vec<TopicFilter>) {
        for group in groups {
            self.outputs.push_back(Output::Table(Advertised::Group { node, group, online: 0, offline: 0 }));
        }
    }

    fn turn(&mut self, node: NodeId, interest: &Interest, turn: Turn) {
        if let Some(left) = self.topics.apply(node, interest, turn) {
            self.trees.leave(left);
            self.stale.rooted = true;
        }
    }

    /// Signals that no link has taken must not reach the next one.
    fn drop_signals(&mut self, node: NodeId) {
        self.outputs.retain(|output| !matches!(output, Output::Signal { to, .. } if *to == node));
    }

    fn on_local(&mut self, changes: Vec<Advert>, token: Option<Token>) {
        self.local.asks_all |= changes.is_empty() && token.is_some();
        for change in changes {
            self.local.apply(change);
        }
        if let Some(token) = token {
            self.local.tokens.push((token, self.now + self.config.settle_timeout));
        }
    }

    fn on_signal(&mut self, from: NodeId, bytes: &Bytes) {
        let Some(session) = self.peers.get_mut(&from).and_then(|peer| peer.session.as_mut()) else { return };
        let heard = session.heard;
        session.heard += 1;
        let result = Signal::decode(bytes).and_then(|signal| self.apply_signal(from, heard, signal));
        if let Err(error) = result {
            // Nothing more is said or heard on this link.
            self.on_neighbour_down(from, false);
            self.outputs.push_back(Output::Protocol { node: from, detail: error.to_string() });
        }
    }

    /// Takes in a signal before which `heard` others came.
    fn apply_signal(&mut self, from: NodeId, heard: u64, signal: Signal) -> Result<(), SignalError> {
        let Some(peer) = self.peers.get_mut(&from) else { return Ok(()) };
        match signal {
            Signal::SnapshotBegin => peer.begin_snapshot(),
            Signal::SnapshotChunk(changes) => {
                peer.check_chunk()?;
                for change in changes {
                    self.apply_change(from, change, true);
                }
            }
            Signal::SnapshotEnd(number) => {
                let (held, groups) = peer.end_snapshot(number)?;
                self.drop_held(from, &held);
                self.drop_groups(from, groups);
                self.leases.set(from, self.now + self.config.lease);
                self.want_confirmation(from, number, true);
            }
            Signal::Ask { number, changes } => {
                let is_topic = |change: &Change| match change {
                    Change::Begins(interest) | Change::Ends(interest) => interest.role == Role::Publisher,
                    Change::Group(..) => false,
                };
                peer.take_number(number, !changes.is_empty() && changes.iter().all(is_topic))?;
                self.on_ask(from, changes);
                self.want_confirmation(from, number, false);
            }
            Signal::Answer(interests) => {
                for interest in interests {
                    self.hold(from, &interest);
                }
            }
            Signal::Confirm { number, whole } => return self.on_confirm(from, number, whole),
            Signal::Digest { signals, entries, hash } => {
                let agrees = signals == heard && (entries, hash) == (peer.sum.entries, peer.sum.hash);
                self.on_digest(from, signals, agrees);
            }
            Signal::Pull => self.send_snapshot_of_now(from),
            Signal::Facts(facts) => self.on_facts(from, facts),
            Signal::Roots(roots) => self.on_roots(from, roots),
        }
        Ok(())
    }

    /// Another node tells its part in topics from now on: if this node takes part in the same, it says so (TR-17).
    fn on_ask(&mut self, from: NodeId, changes: Vec<Change>) {
        let mut common = BTreeSet::new();
        for change in changes {
            if let Change::Begins(interest) = &change {
                common.extend(self.local.announced(&interest.filter));
            }
            self.apply_change(from, change, false);
        }
        let limit = self.config.signal_limit();
        let len = |interest: &Interest| interest_len(interest).unwrap_or_default();
        let answers: Vec<Signal> = cut(common.into_iter(), limit, len).map(Signal::Answer).collect();
        for answer in &answers {
            self.signal(from, answer);
        }
    }

    fn apply_change(&mut self, from: NodeId, change: Change, in_snapshot: bool) {
        let Some(peer) = self.peers.get_mut(&from) else { return };
        match change {
            Change::Begins(interest) => {
                peer.sum.add(&interest);
                self.hold(from, &interest);
            }
            Change::Ends(interest) => {
                peer.sum.remove(&interest);
                if peer.release(&interest) {
                    self.turn(from, &interest, Turn::Ends);
                }
            }
            Change::Group(group, counts) => {
                let before = peer.set_group(&group, counts);
                peer.sum.turn(&group, if in_snapshot { Counts::NONE } else { before }, counts);
                if before != counts {
                    let Counts { online, offline } = counts;
                    self.outputs.push_back(Output::Table(Advertised::Group { node: from, group, online, offline }));
                }
            }
        }
    }

    /// Keeps another node's interest in topics, if this node takes part in them, too.
    fn hold(&mut self, from: NodeId, interest: &Interest) {
        if !interest.is_reserved() && !self.local.concerns(&interest.filter) {
            return;
        }
        if let Some(topic) = interest.topic() {
            let is_full = self.topics.len() >= self.config.max_heard_topics + self.config.max_topics;
            if is_full && self.topics.get(&topic).is_none() {
                self.counters.ignored += 1;
                return;
            }
        }
        let is_new = self.peers.get_mut(&from).is_some_and(|peer| peer.hold(interest.clone()));
        if is_new {
            self.turn(from, interest, Turn::Begins);
        }
    }

    fn on_confirm(&mut self, from: NodeId, number: u64, whole: bool) -> Result<(), SignalError> {
        if number > self.local.number {
            return Err(SignalError::Value("number"));
        }
        if let Some(peer) = self.peers.get_mut(&from) {
            peer.acked = peer.acked.max(number);
        }
        self.all_acked = None;
        if whole {
            self.note_whole(from, |session| &mut session.whole_heard);
        }
        Ok(())
    }

    fn want_confirmation(&mut self, node: NodeId, number: u64, whole: bool) {
        let Some(session) = self.peers.get(&node).and_then(|peer| peer.session.as_ref()) else { return };
        self.confirmations.want(Confirmation { node, link: session.link, number, sync_ok: whole });
        // All publications that the shards have handed over before go ahead of it.
        self.confirmations.touch();
    }

    /// A neighbour tells the digest of the signals that should have been heard from it: the digest refreshes its lease. If something is
    /// missing, either side says everything again, for the answers to it are in doubt as well.
    fn on_digest(&mut self, from: NodeId, signals: u64, agrees: bool) {
        let Some(peer) = self.peers.get_mut(&from).filter(|peer| peer.is_complete()) else { return };
        self.leases.set(from, self.now + self.config.lease);
        if agrees {
            return;
        }
        if let Some(session) = &mut peer.session {
            session.heard = signals + 1;
        }
        self.counters.repairs += 1;
        self.signal(from, &Signal::Pull);
        self.send_snapshot_of_now(from);
    }

    /// Says everything again.
    fn send_snapshot_of_now(&mut self, to: NodeId) {
        self.send_news();
        let facts = Signal::Facts(self.own.told.clone());
        self.signal(to, &facts);
        self.send_snapshot(to);
        let elected: Vec<_> = self.elections.concerning(to).collect();
        self.send_roots(to, elected);
    }

    /// Sets one half of being in step; tells the owner when both halves are there for the first time.
    fn note_whole(&mut self, node: NodeId, half: impl Fn(&mut Session) -> &mut bool) {
        let Some(session) = self.peers.get_mut(&node).and_then(|peer| peer.session.as_mut()) else { return };
        let was_there = core::mem::replace(half(session), true);
        if !was_there && session.whole_sent && session.whole_heard {
            self.outputs.push_back(Output::Synced { node });
        }
    }

    fn on_barrier_reached(&mut self, barrier: Barrier) {
        self.confirmations.reach(barrier);
        while let Some(confirmation) = self.confirmations.pop() {
            self.confirm(confirmation);
        }
    }

    fn confirm(&mut self, confirmation: Confirmation) {
        let Confirmation { node, link, number, sync_ok: whole } = confirmation;
        let session = self.peers.get_mut(&node).and_then(|peer| peer.session.as_mut());
        let Some(session) = session.filter(|session| session.link == link) else { return };
        session.answers.confirm(number);
        self.signal(node, &Signal::Confirm { number, whole });
        if whole {
            self.note_whole(node, |session| &mut session.whole_sent);
        }
    }

    fn signal(&mut self, to: NodeId, signal: &Signal) {
        self.signal_bytes(to, signal.encode());
    }

    pub(super) fn signal_all(&mut self, bytes: &Bytes) {
        let all: Vec<NodeId> = self.peers.iter().filter(|(_, peer)| peer.is_linked()).map(|(node, _)| *node).collect();
        for to in all {
            self.signal_bytes(to, bytes.clone());
        }
    }

    pub(super) fn signal_bytes(&mut self, to: NodeId, bytes: Bytes) {
        if let Some(session) = self.peers.get_mut(&to).and_then(|peer| peer.session.as_mut()) {
            session.sent += 1;
            self.outputs.push_back(Output::Signal { to, bytes });
        }
    }

    /// Turns everything that has gathered since the last poll into outputs: changes between two polls travel together.
    fn flush(&mut self) {
        for change in self.topics.take_changes() {
            self.outputs.push_back(Output::Table(change));
        }
        self.send_news();
        self.reorganise();
        if core::mem::take(&mut self.digest_due) {
            self.send_digests();
        }
        self.raise_barrier();
        let (peers, reached) = (&self.peers, self.confirmations.reached());
        let confirmed = |node: NodeId| peers.get(&node).filter(|peer| peer.is_linked()).map(|peer| peer.acked);
        while let Some(token) = self.settle.pop_settled(reached, peers.keys().copied(), confirmed) {
            self.outputs.push_back(Output::Settled(token));
        }
    }

    fn send_news(&mut self) {
        let news = self.local.take_news(self.config.signal_limit());
        for signal in &news.signals {
            self.signal_all(&signal.encode());
        }
        for filter in &news.ended {
            self.release(filter);
        }
    }

    /// This node has nothing more to do with `filter`: forgets the interest of others in it, unless it matters for something else.
    fn release(&mut self, filter: &TopicFilter) {
        let mut released = Vec::new();
        for (node, peer) in &self.peers {
            let near = peer.held_near(filter);
            let alone = near.filter(|held| !held.is_reserved() && !self.local.concerns(&held.filter));
            released.extend(alone.map(|held| (*node, held.clone())));
        }
        for (node, held) in released {
            if self.peers.get_mut(&node).is_some_and(|peer| peer.release(&held)) {
                self.turn(node, &held, Turn::Ends);
            }
        }
    }

    fn send_digests(&mut self) {
        let sum = self.local.sum();
        let mut digests = Vec::new();
        for (node, peer) in &self.peers {
            let Some(session) = &peer.session else { continue };
            let digest = Signal::Digest { signals: session.sent, entries: sum.entries, hash: sum.hash };
            digests.push((*node, digest));
        }
        for (node, digest) in digests {
            self.signal(node, &digest);
        }
    }

    /// All tokens and confirmations that wait for the shards wait for one barrier together.
    fn raise_barrier(&mut self) {
        let tokens = core::mem::take(&mut self.local.tokens);
        let Some(barrier) = self.confirmations.raise(!tokens.is_empty()) else { return };
        self.outputs.push_back(Output::Barrier(barrier));
        for (token, deadline) in tokens {
            self.settle.wait(token, self.local.number, barrier, deadline);
        }
    }

    fn stop_publishing(&mut self, topic: &TopicName) {
        if let Some(left) = self.topics.turn_publisher(self.me, topic, Turn::Ends) {
            self.trees.leave(left);
            self.stale.rooted = true;
        }
    }
}

impl Overlay for TopicTree {
    fn name(&self) -> &'static str {
        "topic-tree"
    }

    fn relays(&self) -> bool {
        true
    }

    fn handle(&mut self, now: Now, input: Input) {
        self.now = self.now.max(now.instant);
        match input {
            Input::NeighbourUp(neighbour) => self.on_neighbour_up(neighbour),
            Input::NeighbourDown { node, gone } => self.on_neighbour_down(node, gone),
            Input::MemberUp(member) => {
                if let Some(peer) = self.peers.get_mut(&member.node) {
                    peer.lost = false;
                }
                if member.node != self.me {
                    self.outputs.push_back(Output::Link { node: member.node, wanted: true });
                }
            }
            Input::MemberDown { node } => self.on_member_down(node),
            Input::RoundTrip { node, micros } => {
                let peer = self.peers.get_mut(&node).filter(|peer| peer.is_linked());
                if peer.is_some_and(|peer| peer.edge.measure(micros)) {
                    self.own.is_due = true;
                    self.gather();
                }
            }
            Input::Load { capacity, clients } => {
                if self.own.load(capacity, clients) {
                    self.gather();
                }
            }
            Input::Local { changes, token } => self.on_local(changes, token),
            Input::Signal { from, bytes } => self.on_signal(from, &bytes),
            Input::BarrierReached(barrier) => self.on_barrier_reached(barrier),
        }
    }

    fn handle_timeout(&mut self, now: Now) {
        let now = now.instant;
        self.now = self.now.max(now);
        while let Some(token) = self.settle.pop_late(now) {
            self.outputs.push_back(Output::Settled(token));
        }
        while let Some(node) = self.leases.pop_due(now) {
            self.counters.expired += 1;
            match self.peers.get_mut(&node) {
                Some(peer) if peer.is_linked() => self.forget_wants(node),
                _ => self.forget(node),
            }
        }
        while let Some(topic) = self.local.pop_idle(now, &self.config) {
            self.stop_publishing(&topic);
        }
        if [self.collect_at, self.own.speak_at].into_iter().flatten().any(|at| at <= now) {
            self.on_collected();
        }
        if self.next_refresh.is_some_and(|at| at <= now) {
            let linked = self.peers.values().any(Peer::is_linked);
            self.digest_due = linked;
            self.next_refresh = linked.then_some(now + self.config.refresh);
            self.refresh_trees();
        }
    }

    fn poll_output(&mut self) -> Option<Output> {
        if self.outputs.is_empty() {
            self.flush();
        }
        let output = self.outputs.pop_front();
        if let Some(Output::Signal { bytes, .. }) = &output {
            self.counters.signals += 1;
            self.counters.signal_bytes += bytes.len() as u64;
        }
        output
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let collect = [self.collect_at, self.own.speak_at];
        let timers = [self.settle.next(), self.leases.next(), self.next_refresh, self.local.next_idle()];
        timers.into_iter().chain(collect).flatten().min()
    }

    fn destinations(&mut self, topic: &TopicName, nodes: &mut Vec<NodeId>) {
        let number = match self.local.publish(topic, self.now, &self.config) {
            Publishing::Asked(number) => number,
            Publishing::Begins => {
                self.topics.turn_publisher(self.me, topic, Turn::Begins);
                None
            }
            Publishing::Refused => {
                self.counters.over_limit += 1;
                nodes.extend(self.peers.keys());
                return;
            }
        };
        self.topics.subscribers(topic, |node| nodes.push(node));
        // Nodes that have not said yet whether they want it may want it.
        let lowest = || self.peers.values().map(|peer| peer.acked).min().unwrap_or(u64::MAX);
        let all_acked = *self.all_acked.get_or_insert_with(lowest);
        if number.is_none_or(|number| all_acked < number) {
            self.counters.unconfirmed += u64::from(!self.peers.is_empty());
            let unsure = self.peers.iter().filter(|(_, peer)| number.is_none_or(|number| peer.acked < number));
            nodes.extend(unsure.map(|(node, _)| *node));
        }
        nodes.sort_unstable();
        nodes.dedup();
    }

    fn unanswered(&self, topic: &TopicName, nodes: &mut Vec<NodeId>) {
        let Some(number) = self.local.asked(topic) else { return };
        if self.all_acked.is_some_and(|all| all >= number) {
            return;
        }
        let mut wanting = BTreeSet::new();
        self.topics.subscribers(topic, |node| _ = wanting.insert(node));
        let is_open =
            |(node, peer): &(&NodeId, &Peer)| peer.is_in_step() && peer.acked < number && !wanting.contains(*node);
        nodes.extend(self.peers.iter().filter(is_open).map(|(node, _)| *node));
    }

    fn promises(&self, to: NodeId, signal: &[u8]) -> bool {
        match Signal::decode(signal) {
            Ok(Signal::Confirm { number, whole: false }) => {
                let session = self.peers.get(&to).and_then(|peer| peer.session.as_ref());
                session.is_none_or(|session| !session.answers.has(number))
            }
            Ok(Signal::Confirm { .. }) | Err(_) => true,
            Ok(_) => false,
        }
    }

    fn everyone(&self, nodes: &mut Vec<NodeId>) {
        nodes.extend(self.peers.iter().filter(|(_, peer)| peer.is_linked()).map(|(node, _)| *node));
    }

    fn way(&self, topic: &TopicName, destination: NodeId) -> NodeId {
        let tree = self.topics.get(topic).and_then(|topic| self.trees.get(topic.tree?));
        let hop = tree.and_then(|tree| tree.hop_towards(destination));
        hop.filter(|hop| self.is_linked(*hop)).unwrap_or(destination)
    }

    fn is_linked(&self, node: NodeId) -> bool {
        self.peers.get(&node).is_some_and(Peer::is_linked)
    }

    fn routes(&self, offset: usize, limit: usize) -> Vec<RouteEntry> {
        let all = self.peers.iter().flat_map(|(node, peer)| peer.routes().map(|filter| (*node, filter)));
        all.skip(offset).take(limit).map(|(node, filter)| RouteEntry { node, client: None, filter }).collect()
    }

    fn route_count(&self) -> usize {
        self.peers.values().map(|peer| peer.routes().count()).sum()
    }

    fn topology(&self, limit: usize) -> Topology {
        self.show(limit)
    }
}
