//! The machine.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use sedge_base::{Deadlines, Duration, Instant, NodeId, Now, Rng};
use sedge_mqtt::TopicName;

use super::MeshConfig;
use super::confirm::{Confirmation, Confirmations};
use super::forward::Forward;
use super::local::Local;
use super::peer::{Peer, Session};
use super::settle::Settle;
use super::signal::{Signal, SignalError};
use crate::{Advert, Barrier, Input, Output, Overlay, RouteEntry, Token};

/// A node that is so late at the end of a lease stood still itself: refreshes may wait to be read.
const STANDSTILL: Duration = Duration::from_secs(1);

/// Counters of [`Mesh`], from its start on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MeshCounters {
    /// Changes that counted as settled only because [`MeshConfig::settle_timeout`] had passed.
    pub late_settlements: u64,
    /// Digests that differed, so that a table was fetched anew.
    pub repairs: u64,
    /// Tables forgotten because their node had sent no digest for [`MeshConfig::lease`].
    pub expired: u64,
}

impl MeshCounters {
    /// The counters with their names.
    pub(crate) fn named(self) -> [(&'static str, u64); 3] {
        [("late_settlements", self.late_settlements), ("repairs", self.repairs), ("expired", self.expired)]
    }
}

/// Subscription flooding on a full mesh (fault-tolerance sections 4 to 7 and 9).
#[derive(Debug)]
pub struct Mesh {
    me: NodeId,
    config: MeshConfig,
    local: Local,
    peers: BTreeMap<NodeId, Peer>,
    forward: Forward,
    settle: Settle,
    confirmations: Confirmations,
    leases: Deadlines<NodeId>,
    next_refresh: Option<Instant>,
    digest_due: bool,
    /// Some neighbour is to have a snapshot.
    snapshots_due: bool,
    links: u64,
    counters: MeshCounters,
    outputs: VecDeque<Output>,
    /// Tells only of filters that begin with `$`.
    reserved_only: bool,
}

impl Mesh {
    /// The mesh as node `me` sees it: nobody else yet. `rng` makes hash collisions unpredictable for clients.
    pub fn new(me: NodeId, config: MeshConfig, mut rng: Rng) -> Self {
        Self {
            me,
            config,
            local: Local::default(),
            peers: BTreeMap::new(),
            forward: Forward::new(&mut rng),
            settle: Settle::default(),
            confirmations: Confirmations::new(),
            leases: Deadlines::new(),
            next_refresh: None,
            digest_due: false,
            snapshots_due: false,
            links: 0,
            counters: MeshCounters::default(),
            outputs: VecDeque::new(),
            reserved_only: false,
        }
    }

    /// A mesh that tells only of filters that begin with `$`: shared subscriptions, which every node has to know of, and topics that no
    /// wildcard matches. For algorithms that find other subscribers in another way. A change of other filters settles with the changes
    /// before it.
    pub(crate) fn reserved_only(me: NodeId, config: MeshConfig, rng: Rng) -> Self {
        Self { reserved_only: true, ..Self::new(me, config, rng) }
    }

    /// Whether all neighbours have confirmed everything.
    pub(crate) fn is_confirmed(&self) -> bool {
        let number = self.local.number;
        let mut sessions = self.peers.values().filter_map(|peer| peer.session.as_ref());
        !self.local.has_news() && sessions.all(|session| session.acked >= number && session.sync_ok_received)
    }

    /// Visits the nodes that want a topic, some of them more than once.
    pub(crate) fn wanting(&self, topic: &TopicName, visit: impl FnMut(NodeId)) {
        self.forward.matches(topic, visit);
    }

    /// A token waits for the changes made so far, until `deadline` at most.
    pub(crate) fn wait(&mut self, token: Token, deadline: Instant) {
        self.local.tokens.push((token, deadline));
    }

    /// The subscription routing table, in order.
    pub(crate) fn route_lines(&self) -> impl Iterator<Item = RouteEntry> {
        let all = self.peers.iter().flat_map(|(node, peer)| peer.table.iter().map(|(key, _)| (*node, key)));
        all.map(|(node, (client, filter))| RouteEntry { node, client: Some(client.clone()), filter: filter.clone() })
    }

    /// The counters so far.
    pub fn counters(&self) -> MeshCounters {
        MeshCounters { late_settlements: self.settle.late(), ..self.counters }
    }

    fn on_neighbour_up(&mut self, now: Instant, node: NodeId) {
        if node == self.me {
            return;
        }
        self.drop_signals(node);
        self.links += 1;
        let peer = self.peers.entry(node).or_default();
        peer.lost = false;
        peer.link_up(self.links);
        self.snapshots_due = true;
        self.leases.set(node, now + self.config.lease);
        self.next_refresh.get_or_insert(now + self.config.refresh);
    }

    fn on_neighbour_down(&mut self, node: NodeId, gone: bool) {
        let Some(peer) = self.peers.get_mut(&node) else { return };
        peer.session = None;
        let gone = gone || peer.lost;
        self.drop_signals(node);
        if gone {
            self.forget(node);
        }
    }

    fn on_member_down(&mut self, node: NodeId) {
        self.outputs.push_back(Output::Link { node, wanted: false });
        match self.peers.get_mut(&node) {
            Some(peer) if peer.session.is_some() => peer.lost = true,
            Some(_) => self.forget(node),
            None => {}
        }
    }

    fn forget(&mut self, node: NodeId) {
        if let Some(mut peer) = self.peers.remove(&node) {
            peer.forget(node, &mut self.forward);
        }
        self.leases.cancel(&node);
    }

    /// Signals that no link has taken must not reach the next one.
    fn drop_signals(&mut self, node: NodeId) {
        self.outputs.retain(|output| !matches!(output, Output::Signal { to, .. } if *to == node));
    }

    fn on_local(&mut self, now: Instant, changes: Vec<Advert>, token: Option<Token>) {
        self.local.asks_all |= changes.is_empty() && token.is_some();
        for change in
            changes.into_iter().filter(|change| !self.reserved_only || change.filter.as_str().starts_with('$'))
        {
            self.local.apply(change);
        }
        if let Some(token) = token {
            self.local.tokens.push((token, now + self.config.settle_timeout));
        }
    }

    fn on_signal(&mut self, now: Instant, from: NodeId, bytes: &Bytes) {
        if self.peers.get(&from).is_none_or(|peer| peer.session.is_none()) {
            return;
        }
        let result = Signal::decode(bytes).and_then(|signal| self.apply_signal(now, from, signal));
        if let Err(error) = result {
            // Nothing more is said or heard on this link.
            self.on_neighbour_down(from, false);
            self.outputs.push_back(Output::Protocol { node: from, detail: error.to_string() });
        }
    }

    fn apply_signal(&mut self, now: Instant, from: NodeId, signal: Signal) -> Result<(), SignalError> {
        let Some(peer) = self.peers.get_mut(&from) else { return Ok(()) };
        match signal {
            Signal::SnapshotBegin => peer.begin_snapshot(),
            Signal::SnapshotChunk(changes) => peer.chunk(from, &changes, &mut self.forward)?,
            Signal::SnapshotEnd(number) => {
                peer.end_snapshot(from, number, &mut self.forward)?;
                self.leases.set(from, now + self.config.lease);
                self.want_confirmation(from, number, true);
            }
            Signal::Adv { number, changes } => {
                peer.adv(from, number, &changes, &mut self.forward)?;
                // The neighbour asks for an answer behind everything that the shards have sent so far.
                if changes.is_empty() {
                    self.confirmations.touch();
                }
                self.want_confirmation(from, number, false);
            }
            Signal::Ack(number) => {
                if number > self.local.number {
                    return Err(SignalError::Value("number"));
                }
                if let Some(session) = &mut peer.session {
                    session.acked = session.acked.max(number);
                }
            }
            Signal::SyncOk => self.note_sync_ok(from, |session| &mut session.sync_ok_received),
            Signal::Digest { entries, hash } => self.on_digest(now, from, (entries, hash)),
            Signal::Pull => {
                if let Some(session) = &mut peer.session {
                    session.snapshot_due = true;
                    self.snapshots_due = true;
                }
            }
        }
        Ok(())
    }

    fn want_confirmation(&mut self, node: NodeId, number: u64, sync_ok: bool) {
        let Some(session) = self.peers.get(&node).and_then(|peer| peer.session.as_ref()) else { return };
        let link = session.link;
        self.confirmations.want(Confirmation { node, link, number, sync_ok });
    }

    /// A neighbour tells the digest of its whole table: that is the refresh of its lease.
    fn on_digest(&mut self, now: Instant, from: NodeId, digest: (u64, u64)) {
        let Some(peer) = self.peers.get(&from).filter(|peer| peer.is_complete()) else { return };
        self.leases.set(from, now + self.config.lease);
        if peer.table.digest() != digest {
            self.counters.repairs += 1;
            self.signal(from, &Signal::Pull);
        }
    }

    /// Sets one half of sync-ok; tells the owner when both halves are there for the first time.
    fn note_sync_ok(&mut self, node: NodeId, half: impl Fn(&mut Session) -> &mut bool) {
        let Some(session) = self.peers.get_mut(&node).and_then(|peer| peer.session.as_mut()) else { return };
        let was_there = core::mem::replace(half(session), true);
        if !was_there && session.sync_ok_sent && session.sync_ok_received {
            self.outputs.push_back(Output::Synced { node });
        }
    }

    fn on_barrier_reached(&mut self, barrier: Barrier) {
        self.confirmations.reach(barrier);
        self.confirm_reached();
    }

    fn confirm_reached(&mut self) {
        while let Some(confirmation) = self.confirmations.pop() {
            self.confirm(confirmation);
        }
    }

    fn confirm(&mut self, confirmation: Confirmation) {
        let Confirmation { node, link, number, sync_ok } = confirmation;
        let session = self.peers.get(&node).and_then(|peer| peer.session.as_ref());
        if session.is_none_or(|session| session.link != link) {
            return;
        }
        self.signal(node, &Signal::Ack(number));
        if sync_ok {
            self.signal(node, &Signal::SyncOk);
            self.note_sync_ok(node, |session| &mut session.sync_ok_sent);
        }
    }

    fn signal(&mut self, to: NodeId, signal: &Signal) {
        self.outputs.push_back(Output::Signal { to, bytes: signal.encode() });
    }

    /// Turns everything that has gathered since the last poll into outputs: changes between two polls travel together.
    fn flush(&mut self) {
        for change in self.forward.take_changes() {
            self.confirmations.touch();
            self.outputs.push_back(Output::Table(change));
        }
        if self.local.has_news() {
            self.send_news();
        }
        if core::mem::take(&mut self.snapshots_due) {
            self.send_snapshots();
        }
        if core::mem::take(&mut self.digest_due) {
            self.send_digests();
        }
        self.raise_barrier();
        let (peers, reached) = (&self.peers, self.confirmations.reached());
        let confirmed = |node: NodeId| Some(peers.get(&node)?.session.as_ref()?.acked);
        while let Some(token) = self.settle.pop_settled(reached, peers.keys().copied(), confirmed) {
            self.outputs.push_back(Output::Settled(token));
        }
    }

    fn send_news(&mut self) {
        let news: Vec<Bytes> = self.local.take_news(self.config.signal_limit()).iter().map(Signal::encode).collect();
        for (to, peer) in &self.peers {
            // A snapshot holds the news.
            if peer.session.as_ref().is_some_and(|session| !session.snapshot_due) {
                let signals = news.iter().map(|bytes| Output::Signal { to: *to, bytes: bytes.clone() });
                self.outputs.extend(signals);
            }
        }
    }

    fn send_snapshots(&mut self) {
        let mut due = Vec::new();
        for (node, peer) in &mut self.peers {
            if let Some(session) = peer.session.as_mut().filter(|session| session.snapshot_due) {
                session.snapshot_due = false;
                due.push(*node);
            }
        }
        if due.is_empty() {
            return;
        }
        for signal in self.local.snapshot(self.config.signal_limit()) {
            let bytes = signal.encode();
            self.outputs.extend(due.iter().map(|to| Output::Signal { to: *to, bytes: bytes.clone() }));
        }
    }

    fn send_digests(&mut self) {
        let bytes = self.local.digest().encode();
        let linked = self.peers.iter().filter(|(_, peer)| peer.session.is_some());
        self.outputs.extend(linked.map(|(to, _)| Output::Signal { to: *to, bytes: bytes.clone() }));
    }

    /// All tokens and confirmations that wait for the shards wait for one barrier together.
    fn raise_barrier(&mut self) {
        // Local changes are in the shards' tables before they come here, but only a barrier tells that all shards have them.
        let tokens = core::mem::take(&mut self.local.tokens);
        if let Some(barrier) = self.confirmations.raise(!tokens.is_empty()) {
            self.outputs.push_back(Output::Barrier(barrier));
        }
        for (token, deadline) in tokens {
            self.settle.wait(token, self.local.number, self.confirmations.last(), deadline);
        }
        // Without a new barrier the last one may have been reached before.
        self.confirm_reached();
    }
}

impl Overlay for Mesh {
    fn name(&self) -> &'static str {
        "mesh"
    }

    fn handle(&mut self, now: Now, input: Input) {
        let now = now.instant;
        match input {
            Input::NeighbourUp(neighbour) => self.on_neighbour_up(now, neighbour.node),
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
            Input::RoundTrip { .. } | Input::Load { .. } => {}
            Input::Local { changes, token } => self.on_local(now, changes, token),
            Input::Signal { from, bytes } => self.on_signal(now, from, &bytes),
            Input::BarrierReached(barrier) => self.on_barrier_reached(barrier),
        }
    }

    fn handle_timeout(&mut self, now: Now) {
        let now = now.instant;
        while let Some(token) = self.settle.pop_late(now) {
            self.outputs.push_back(Output::Settled(token));
        }
        while let Some((due, node)) = self.leases.next().and_then(|due| Some((due, self.leases.pop_due(now)?))) {
            if now.since(due) > STANDSTILL {
                self.leases.set(node, now + self.config.refresh);
                continue;
            }
            self.counters.expired += 1;
            match self.peers.get_mut(&node) {
                Some(peer) if peer.session.is_some() => peer.forget(node, &mut self.forward),
                _ => self.forget(node),
            }
        }
        if self.next_refresh.is_some_and(|at| at <= now) {
            let linked = self.peers.values().any(|peer| peer.session.is_some());
            self.digest_due = linked;
            self.next_refresh = linked.then_some(now + self.config.refresh);
        }
    }

    fn poll_output(&mut self) -> Option<Output> {
        if self.outputs.is_empty() {
            self.flush();
        }
        self.outputs.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        [self.settle.next(), self.leases.next(), self.next_refresh].into_iter().flatten().min()
    }

    fn destinations(&mut self, topic: &TopicName, nodes: &mut Vec<NodeId>) {
        self.forward.matches(topic, |node| nodes.push(node));
        nodes.sort_unstable();
        nodes.dedup();
    }

    fn everyone(&self, nodes: &mut Vec<NodeId>) {
        nodes.extend(self.peers.iter().filter(|(_, peer)| peer.session.is_some()).map(|(node, _)| *node));
    }

    fn is_linked(&self, node: NodeId) -> bool {
        self.peers.get(&node).is_some_and(|peer| peer.session.is_some())
    }

    fn routes(&self, offset: usize, limit: usize) -> Vec<RouteEntry> {
        self.route_lines().skip(offset).take(limit).collect()
    }

    fn routes_of(&self, node: NodeId, limit: usize) -> Vec<RouteEntry> {
        let keys = self.peers.get(&node).into_iter().flat_map(|peer| peer.table.iter().map(|(key, _)| key));
        let lines =
            keys.map(|(client, filter)| RouteEntry { node, client: Some(client.clone()), filter: filter.clone() });
        lines.take(limit).collect()
    }

    fn route_count(&self) -> usize {
        self.peers.values().map(|peer| peer.table.len()).sum()
    }
}
