//! Exchange of topics and filters with the other nodes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use sedge_base::{Deadlines, Instant, NodeId, Rng, Seed};
use sedge_mqtt::{SubscriptionTrie, TopicFilter, TopicName, TopicTree};

use super::TreeConfig;
use super::digest::Digest;
use super::interest::{Change, Interest};
use super::peer::{Effects, Peer, Session};
use super::publishes::Publishes;
use super::signal::{Entry, Signal, SignalError, cut};
use crate::mesh::{Confirmation, Confirmations, Settle};
use crate::trunk::Trunk;
use crate::{Advert, Barrier, Output, Token};

/// Counters of [`Exchange`].
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) repairs: u64,
    pub(super) expired: u64,
}

/// Work to be looked for before anything is sent.
#[derive(Clone, Copy, Debug, Default)]
struct Due {
    /// Some neighbour may have to be told of filters.
    news: bool,
    /// Some neighbour is to have a snapshot.
    snapshots: bool,
    digests: bool,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Exchange {
    config: TreeConfig,
    pub(super) publishes: Publishes,
    pub(super) interest: Interest,
    /// SRT: nodes that publish to a topic.
    pub(super) origins: TopicTree<BTreeSet<NodeId>>,
    /// PRT: nodes that want a filter.
    wants: SubscriptionTrie<NodeId, ()>,
    pub(super) peers: BTreeMap<NodeId, Peer>,
    /// For each relay on the way of this node to others: the nodes behind it.
    behind: BTreeMap<NodeId, BTreeSet<NodeId>>,
    /// The tree for which that holds.
    tree_version: u64,
    /// Grows whenever publications may have to go elsewhere.
    generation: u64,
    /// Number of the last signal that carried changes or ended a snapshot.
    number: u64,
    asks_all: bool,
    tokens: Vec<(Token, Instant)>,
    settle: Settle,
    confirmations: Confirmations,
    leases: Deadlines<NodeId>,
    next_refresh: Option<Instant>,
    due: Due,
    links: u64,
    pub(super) counts: Counts,
    outputs: VecDeque<Output>,
}

impl Exchange {
    pub(super) fn new(config: TreeConfig, rng: &mut Rng) -> Self {
        Self {
            config,
            publishes: Publishes::new(&config, rng),
            interest: Interest::new(rng),
            origins: TopicTree::new(),
            wants: SubscriptionTrie::with_seed(Seed::from_rng(rng)),
            peers: BTreeMap::new(),
            behind: BTreeMap::new(),
            tree_version: 0,
            generation: 0,
            number: 0,
            asks_all: false,
            tokens: Vec::new(),
            settle: Settle::default(),
            confirmations: Confirmations::new(),
            leases: Deadlines::new(),
            next_refresh: None,
            due: Due::default(),
            links: 0,
            counts: Counts::default(),
            outputs: VecDeque::new(),
        }
    }

    pub(super) const fn late_settlements(&self) -> u64 {
        self.settle.late()
    }

    /// Members or links have changed.
    pub(super) const fn touch(&mut self) {
        self.generation += 1;
    }

    pub(super) fn on_neighbour_up(&mut self, now: Instant, node: NodeId) {
        self.drop_signals(node);
        self.links += 1;
        let is_new = !self.peers.contains_key(&node);
        let peer = self.peers.entry(node).or_default();
        peer.lost = false;
        peer.link_up(self.links);
        self.due.snapshots = true;
        self.leases.set(node, now + self.config.exchange.lease);
        self.next_refresh.get_or_insert(now + self.config.exchange.refresh);
        if is_new {
            self.tell_what_is_due(node);
        }
    }

    pub(super) fn on_neighbour_down(&mut self, node: NodeId, gone: bool) {
        let Some(peer) = self.peers.get_mut(&node) else { return };
        peer.link_down(self.number);
        let gone = gone || peer.lost;
        self.drop_signals(node);
        if gone {
            self.forget(node);
        }
    }

    pub(super) fn on_member_up(&mut self, node: NodeId) {
        if let Some(peer) = self.peers.get_mut(&node) {
            peer.lost = false;
        }
    }

    pub(super) fn on_member_down(&mut self, node: NodeId) {
        match self.peers.get_mut(&node) {
            Some(peer) if peer.session.is_some() => peer.lost = true,
            Some(_) => self.forget(node),
            None => {}
        }
    }

    fn forget(&mut self, node: NodeId) {
        if let Some(mut peer) = self.peers.remove(&node) {
            let effects = peer.forget();
            self.install(node, effects);
            self.interest.forget_origin(node);
        }
        self.leases.cancel(&node);
    }

    /// Signals that no link has taken must not reach the next one.
    fn drop_signals(&mut self, node: NodeId) {
        self.outputs.retain(|output| !matches!(output, Output::Signal { to, .. } if *to == node));
    }

    pub(super) fn on_local(&mut self, now: Instant, changes: &[Advert], token: Option<Token>) {
        self.asks_all |= changes.is_empty() && token.is_some();
        for change in changes.iter().filter(|change| !change.filter.as_str().starts_with('$')) {
            match self.interest.apply(change) {
                Change::Nothing => {}
                Change::First => self.want(&change.filter),
                Change::Last(uncovered) => {
                    self.due.news = true;
                    // Added before the other is withdrawn, in the same signal.
                    for filter in &uncovered {
                        self.want(filter);
                    }
                    self.peers.values_mut().for_each(|peer| peer.tell(&change.filter, false));
                }
            }
        }
        if let Some(token) = token {
            self.tokens.push((token, now + self.config.exchange.settle_timeout));
        }
    }

    /// Clients want this filter: tells it to the nodes that publish matching topics, and to the relays between.
    fn want(&mut self, filter: &TopicFilter) {
        let mut origins = BTreeSet::new();
        self.origins.matching(filter, |_, nodes| origins.extend(nodes));
        self.interest.add_origins(filter, origins.iter().copied());
        let relays = self.behind.iter().filter(|(_, behind)| !behind.is_disjoint(&origins)).map(|(relay, _)| *relay);
        self.due.news = true;
        for node in relays.chain(origins.iter().copied()) {
            if let Some(peer) = self.peers.get_mut(&node) {
                peer.tell(filter, true);
            }
        }
    }

    /// Takes over the topics and filters that a peer has told.
    fn install(&mut self, from: NodeId, effects: Effects) {
        for (topic, there) in effects.topics {
            if there {
                self.add_origin(&topic, from);
            } else if let Some(origins) = self.origins.get_mut(&topic) {
                origins.remove(&from);
                if origins.is_empty() {
                    self.origins.remove(&topic);
                }
            }
        }
        for (filter, there) in effects.filters {
            self.generation += 1;
            if there {
                self.wants.insert(&filter, from, ());
            } else {
                self.wants.remove(&filter, &from);
            }
        }
    }

    fn add_origin(&mut self, topic: &TopicName, origin: NodeId) {
        match self.origins.get_mut(topic) {
            Some(origins) => _ = origins.insert(origin),
            None => _ = self.origins.insert(topic, BTreeSet::from([origin])),
        }
        let relays = self.behind.iter().filter(|(_, behind)| behind.contains(&origin)).map(|(relay, _)| *relay);
        let concerned: Vec<NodeId> = relays.chain([origin]).collect();
        self.due.news = true;
        for filter in self.interest.add_origin(topic, origin) {
            for node in &concerned {
                if let Some(peer) = self.peers.get_mut(node) {
                    peer.tell(&filter, true);
                }
            }
        }
    }

    /// The tree may have changed: other nodes are relays now.
    pub(super) fn follow(&mut self, trunk: &Trunk) {
        if self.tree_version == trunk.version() {
            return;
        }
        self.tree_version = trunk.version();
        let mut behind: BTreeMap<NodeId, BTreeSet<NodeId>> = BTreeMap::new();
        for node in trunk.members() {
            for relay in trunk.between(node) {
                behind.entry(relay).or_default().insert(node);
            }
        }
        let before = core::mem::replace(&mut self.behind, behind);
        let relays: BTreeSet<NodeId> = before.keys().chain(self.behind.keys()).copied().collect();
        for relay in relays {
            if before.get(&relay) != self.behind.get(&relay) {
                self.tell_what_is_due(relay);
            }
        }
    }

    /// Works out anew which filters a node has to know.
    fn tell_what_is_due(&mut self, node: NodeId) {
        let Some(peer) = self.peers.get_mut(&node) else { return };
        self.due.news = true;
        let mut origins = self.behind.get(&node).cloned().unwrap_or_default();
        origins.insert(node);
        peer.tell_exactly(&self.interest.concerning(&origins));
    }

    pub(super) fn on_signal(&mut self, now: Instant, from: NodeId, bytes: &Bytes) -> Result<(), SignalError> {
        let Some(peer) = self.peers.get_mut(&from).filter(|peer| peer.session.is_some()) else { return Ok(()) };
        match Signal::decode(bytes)? {
            Signal::SnapshotBegin => peer.begin_snapshot(),
            Signal::SnapshotChunk(entries) => {
                let effects = peer.chunk(entries)?;
                self.install(from, effects);
            }
            Signal::SnapshotEnd(number) => {
                let effects = peer.end_snapshot(number)?;
                self.install(from, effects);
                self.touch();
                self.leases.set(from, now + self.config.exchange.lease);
                self.want_confirmation(from, number, true);
            }
            Signal::Changes { number, entries } => {
                let effects = peer.changes(number, entries)?;
                self.install(from, effects);
                self.want_confirmation(from, number, false);
            }
            Signal::Ack(number) => {
                if number > self.number {
                    return Err(SignalError::Value("number"));
                }
                peer.acked(number);
                self.touch();
            }
            Signal::SyncOk => self.note_sync_ok(from, |session| &mut session.sync_ok_received),
            Signal::Digest { entries, sum } => self.on_digest(now, from, Digest { entries, sum }),
            Signal::Pull => {
                if let Some(session) = &mut peer.session {
                    session.snapshot_due = true;
                    self.due.snapshots = true;
                }
                self.touch();
            }
        }
        Ok(())
    }

    /// The signal with this number has to be confirmed when all that was sent from here before has arrived.
    fn want_confirmation(&mut self, node: NodeId, number: u64, sync_ok: bool) {
        let Some(session) = self.peers.get(&node).and_then(|peer| peer.session.as_ref()) else { return };
        self.confirmations.touch();
        self.confirmations.want(Confirmation { node, link: session.link, number, sync_ok });
    }

    /// A neighbour tells the digest of all that it has told: the digest refreshes its lease.
    fn on_digest(&mut self, now: Instant, from: NodeId, digest: Digest) {
        let Some(peer) = self.peers.get(&from).filter(|peer| peer.is_complete()) else { return };
        self.leases.set(from, now + self.config.exchange.lease);
        if peer.digest() != digest {
            self.counts.repairs += 1;
            self.signal(from, &Signal::Pull);
        }
    }

    /// Sets one half of sync-ok; tells when both halves are there for the first time.
    fn note_sync_ok(&mut self, node: NodeId, half: impl Fn(&mut Session) -> &mut bool) {
        let Some(session) = self.peers.get_mut(&node).and_then(|peer| peer.session.as_mut()) else { return };
        let was_there = core::mem::replace(half(session), true);
        if !was_there && session.sync_ok_sent && session.sync_ok_received {
            self.outputs.push_back(Output::Synced { node });
        }
    }

    pub(super) fn on_barrier_reached(&mut self, barrier: Barrier) {
        self.confirmations.reach(barrier);
        self.confirm_reached();
    }

    fn confirm_reached(&mut self) {
        while let Some(Confirmation { node, link, number, sync_ok }) = self.confirmations.pop() {
            let session = self.peers.get(&node).and_then(|peer| peer.session.as_ref());
            if session.is_none_or(|session| session.link != link) {
                continue;
            }
            if let Some(session) = self.peers.get_mut(&node).and_then(|peer| peer.session.as_mut()) {
                session.answers.confirm(number);
            }
            self.signal(node, &Signal::Ack(number));
            if sync_ok {
                self.signal(node, &Signal::SyncOk);
                self.note_sync_ok(node, |session| &mut session.sync_ok_sent);
            }
        }
    }

    fn signal(&mut self, to: NodeId, signal: &Signal) {
        self.outputs.push_back(Output::Signal { to, bytes: signal.encode() });
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        while let Some(token) = self.settle.pop_late(now) {
            self.outputs.push_back(Output::Settled(token));
        }
        while let Some(node) = self.leases.pop_due(now) {
            self.counts.expired += 1;
            // The topics that the node publishes are kept: it is better told too much than too little of the filters wanted here.
            if let Some(peer) = self.peers.get_mut(&node) {
                peer.expired = true;
                let effects = peer.forget_filters();
                self.install(node, effects);
                self.touch();
            }
        }
        if self.next_refresh.is_some_and(|at| at <= now) {
            let linked = self.peers.values().any(|peer| peer.session.is_some());
            self.due.digests = linked;
            self.publishes.age(now, &self.config);
            let goes_on = linked || self.publishes.len() > 0;
            self.next_refresh = goes_on.then_some(now + self.config.exchange.refresh);
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        [self.settle.next(), self.leases.next(), self.next_refresh].into_iter().flatten().min()
    }

    pub(super) fn poll_output(&mut self) -> Option<Output> {
        if self.outputs.is_empty() {
            self.flush();
        }
        self.outputs.pop_front()
    }

    /// Turns everything that has gathered since the last poll into outputs: changes between two polls travel together.
    fn flush(&mut self) {
        let filters = core::mem::take(&mut self.due.news) && self.peers.values().any(Peer::has_news);
        if self.asks_all || self.publishes.has_news() || filters {
            self.send_news();
        }
        if core::mem::take(&mut self.due.snapshots) {
            self.send_snapshots();
        }
        if core::mem::take(&mut self.due.digests) {
            self.send_digests();
        }
        let tokens = core::mem::take(&mut self.tokens);
        if let Some(barrier) = self.confirmations.raise(!tokens.is_empty()) {
            self.outputs.push_back(Output::Barrier(barrier));
        }
        for (token, deadline) in tokens {
            self.settle.wait(token, self.number, self.confirmations.last(), deadline);
        }
        self.confirm_reached();
        let (peers, reached, number) = (&self.peers, self.confirmations.reached(), self.number);
        let linked = |node: NodeId| peers.get(&node).filter(|peer| peer.session.is_some());
        let confirmed = |node: NodeId| Some(linked(node)?.confirmed(number));
        while let Some(token) = self.settle.pop_settled(reached, peers.keys().copied(), confirmed) {
            self.outputs.push_back(Output::Settled(token));
        }
    }

    /// Tells topics to every neighbour and filters to the neighbours that they concern. Each neighbour gets its own sequence of numbers.
    fn send_news(&mut self) {
        let limit = self.config.exchange.signal_limit();
        let asks = core::mem::take(&mut self.asks_all);
        let topics = self.publishes.take_news();
        let mut last = self.number + 1;
        for (to, peer) in &mut self.peers {
            // A snapshot holds the news.
            if peer.session.as_ref().is_none_or(|session| session.snapshot_due) {
                continue;
            }
            let news = topics.iter().cloned().chain(peer.take_news());
            let mut pieces: Vec<Vec<Entry>> = cut(news, limit).collect();
            if pieces.is_empty() && asks {
                pieces.push(Vec::new());
            }
            for (number, entries) in (self.number + 1..).zip(pieces) {
                last = last.max(number);
                peer.sent(number, false);
                let bytes = Signal::Changes { number, entries }.encode();
                self.outputs.push_back(Output::Signal { to: *to, bytes });
            }
        }
        self.number = last;
        self.publishes.told(&topics, last);
        self.generation += 1;
    }

    fn send_snapshots(&mut self) {
        let limit = self.config.exchange.signal_limit();
        let mut number = self.number;
        for (to, peer) in &mut self.peers {
            let Some(session) = peer.session.as_mut().filter(|session| session.snapshot_due) else { continue };
            session.snapshot_due = false;
            number = self.number + 1;
            peer.take_news().for_each(drop);
            peer.sent(number, true);
            let entries = self.publishes.entries().chain(peer.told_entries());
            let chunks = cut(entries, limit).map(Signal::SnapshotChunk);
            for signal in core::iter::once(Signal::SnapshotBegin).chain(chunks).chain([Signal::SnapshotEnd(number)]) {
                self.outputs.push_back(Output::Signal { to: *to, bytes: signal.encode() });
            }
        }
        self.number = number;
    }

    fn send_digests(&mut self) {
        let topics = self.publishes.digest();
        for (to, peer) in self.peers.iter().filter(|(_, peer)| peer.session.is_some()) {
            let Digest { entries, sum } = topics.with(peer.told_digest());
            self.outputs.push_back(Output::Signal { to: *to, bytes: Signal::Digest { entries, sum }.encode() });
        }
    }

    /// Adds the members to which a publication of a client to `topic` has to go: all that want it, and all that have not answered yet
    /// whether they do.
    pub(super) fn destinations(
        &mut self,
        now: Instant,
        topic: &TopicName,
        members: impl Iterator<Item = NodeId>,
        nodes: &mut Vec<NodeId>,
    ) {
        self.next_refresh.get_or_insert(now + self.config.exchange.refresh);
        let Some(advert) = self.publishes.publish(now, topic, &self.config) else {
            return nodes.extend(members);
        };
        if let Some((_, known)) = advert.known.as_ref().filter(|(generation, _)| *generation == self.generation) {
            return nodes.extend(known);
        }
        let mut wanting = BTreeSet::new();
        self.wants.matches(topic, |node, ()| _ = wanting.insert(*node));
        let is_due = |node: &NodeId| {
            let answered = |peer: &Peer| !peer.expired && peer.confirmed(self.number) >= advert.number;
            wanting.contains(node) || !self.peers.get(node).is_some_and(answered)
        };
        let known: Vec<NodeId> = members.filter(is_due).collect();
        nodes.extend(&known);
        advert.is_open = known.iter().any(|node| !wanting.contains(node));
        advert.known = Some((self.generation, known));
    }

    /// Adds the nodes that were asked about a topic, over links that are in step, and have neither answered nor said that they want it.
    pub(super) fn unanswered(&self, topic: &TopicName, nodes: &mut Vec<NodeId>) {
        let Some(advert) = self.publishes.get(topic) else { return };
        if !advert.is_open && advert.known.as_ref().is_some_and(|(generation, _)| *generation == self.generation) {
            return;
        }
        let mut wanting = BTreeSet::new();
        self.wants.matches(topic, |node, ()| _ = wanting.insert(*node));
        let is_open =
            |(node, peer): &(&NodeId, &Peer)| peer.is_asked(self.number, advert.number) && !wanting.contains(*node);
        nodes.extend(self.peers.iter().filter(is_open).map(|(node, _)| *node));
    }

    /// Whether a signal says that something was done, behind the publications before it.
    pub(super) fn promises(&self, to: NodeId, signal: &[u8]) -> bool {
        match Signal::decode(signal) {
            Ok(Signal::Ack(number)) => {
                let session = self.peers.get(&to).and_then(|peer| peer.session.as_ref());
                session.is_none_or(|session| !session.answers.has(number))
            }
            Ok(Signal::SyncOk) | Err(_) => true,
            Ok(_) => false,
        }
    }
}
