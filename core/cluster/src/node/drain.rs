//! Emptying a node before it stops: its clients are sent elsewhere, its sessions move to the nodes that rendezvous hashing names, and
//! the nodes that have copies here get others to keep them (DESIGN section 2, `drain`).
//!
//! A session moves as when its client connects to another node (`claims.rs`, `handed.rs`), only that its owner asks the home to have it
//! moved. A client that comes to another node first takes its session there. Sessions of clients that are away move first, many at a
//! time: nobody waits for them. Connected clients follow, few at a time, so that each is without service for a short time only.

use std::collections::BTreeMap;
use std::sync::Arc;

use sedge_base::{ClientId, Duration, Instant, NodeId};

use crate::link::ControlTopic;
use crate::mail::{Leave, ToShard};
use crate::node::Node;
use crate::node::peers::Intent;
use crate::node::sessions::home::home_of;
use crate::reception::shard_of;
use crate::wire::{DirectoryMail, NodeMail};
use crate::{DrainEnd, DrainState, DrainStatus, NodeOutput};

/// Sessions that are on their way at the same time, while those of clients that are away move.
const WINDOW: usize = 256;
/// As [`WINDOW`], for clients that are connected.
const CONNECTED_WINDOW: usize = 32;
/// After which time a session that has not left is asked to once more, and the node looks again whether all have left.
const RETRY: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug, Default)]
pub(in crate::node) struct Drain {
    active: Option<Active>,
    gave_up: Option<DrainEnd>,
}

/// The node tells the sessions of a kind of client to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pass {
    /// Only clients that are away lose nothing while their sessions move: these go first.
    Away,
    /// Connected clients follow, with all sessions that are still here.
    Everyone,
}

impl Pass {
    const fn window(self) -> usize {
        match self {
            Self::Away => WINDOW,
            Self::Everyone => CONNECTED_WINDOW,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Told {
    at: Instant,
    /// Whether the shard has said that the session can be moved.
    leaves: bool,
}

#[derive(Debug)]
struct Active {
    until: Instant,
    sessions: usize,
    pass: Pass,
    /// Clients whose shards were told to let them leave.
    moving: BTreeMap<ClientId, Told>,
    /// How far the clients of this node were told.
    told_up_to: Option<ClientId>,
    /// When those that are still here are told once more.
    next_round: Instant,
    /// Where clients were told to go.
    elsewhere: Arc<[sedge_mqtt::Utf8]>,
    is_done: bool,
}

impl Drain {
    pub(in crate::node) fn timeout(&self) -> Option<Instant> {
        let active = self.active.as_ref().filter(|active| !active.is_done)?;
        Some(active.next_round.min(active.until))
    }
}

impl Node {
    /// Whether the node is being emptied, or is empty for that reason.
    pub(in crate::node) const fn is_draining(&self) -> bool {
        self.drain.active.is_some()
    }

    /// Whether the node was emptied.
    pub(in crate::node) fn is_drained(&self) -> bool {
        self.drain.active.as_ref().is_some_and(|active| active.is_done)
    }

    pub(in crate::node) fn drain_status(&self) -> DrainStatus {
        let gave_up = self.drain.gave_up;
        let Some(active) = &self.drain.active else { return DrainStatus { gave_up, ..DrainStatus::default() } };
        let state = if active.is_done { DrainState::Drained } else { DrainState::Draining };
        let (sessions_left, replicas_left) = (self.sessions_here(), self.replicas.len());
        DrainStatus { state, sessions: active.sessions, sessions_left, replicas_left, gave_up: None }
    }

    /// Sessions that are here, or not completely elsewhere.
    fn sessions_here(&self) -> usize {
        let on_their_way = self.claims.wanted() + self.claims.leaving() + self.handed.len() + self.reclaims.len();
        self.claims.len() + on_their_way
    }

    pub(in crate::node) fn start_drain(&mut self, limit: Duration) {
        let until = self.now.instant + limit;
        if let Some(active) = &mut self.drain.active {
            active.until = until;
            if active.is_done {
                self.outputs.push_back(NodeOutput::Drained);
            }
            return;
        }
        let hindrance = if self.takers().is_empty() { Some(DrainEnd::NobodyElse) } else { self.older_neighbour() };
        if hindrance.is_some() {
            self.drain.gave_up = hindrance;
            return;
        }
        self.drain.gave_up = None;
        let sessions = self.claims.len();
        self.event(false, format!("The node is being emptied: {sessions} sessions move to other nodes"));
        let elsewhere: Arc<[_]> = self.client_addresses().into();
        self.drain.active = Some(Active {
            until,
            sessions,
            pass: Pass::Away,
            moving: BTreeMap::new(),
            told_up_to: None,
            next_round: self.now.instant + RETRY,
            elsewhere: Arc::clone(&elsewhere),
            is_done: false,
        });
        self.tell_all_shards(|| ToShard::Drain(Some(Arc::clone(&elsewhere))));
        self.tell_draining(true);
    }

    /// The node serves on.
    pub(in crate::node) fn end_drain(&mut self, why: DrainEnd) {
        if self.drain.active.take().is_none() {
            return;
        }
        self.drain.gave_up = Some(why);
        let (warning, why) = match why {
            DrainEnd::Cancelled => (false, "as an operator wants"),
            DrainEnd::NobodyElse => (true, "there is no other node to take its sessions"),
            DrainEnd::OlderNode => (true, "a neighbour is of an older version that cannot take sessions"),
            DrainEnd::TimeLimit => (true, "emptying it took longer than it may"),
        };
        self.event(warning, format!("The node serves on: {why}"));
        self.tell_all_shards(|| ToShard::Drain(None));
        self.tell_draining(false);
        self.choose_backups();
    }

    fn tell_draining(&mut self, draining: bool) {
        let linked: Vec<NodeId> =
            self.peers.iter().filter(|(_, peer)| peer.is_linked()).map(|(node, _)| *node).collect();
        for node in linked {
            self.send_control(node, ControlTopic::Node, NodeMail::Draining { draining }.encode());
        }
    }

    /// A neighbour is being emptied, or no longer.
    pub(in crate::node) fn neighbour_drains(&mut self, node: NodeId, draining: bool) {
        let Some(peer) = self.peers.get_mut(&node) else { return };
        peer.intent = if draining { Intent::Leave } else { Intent::Serve };
        self.choose_backups();
        if draining {
            self.end_stale_backup(node);
        }
    }

    /// Nodes that can take sessions.
    fn takers(&self) -> Vec<NodeId> {
        let takes = |node: &NodeId| self.peers.get(node).is_some_and(|peer| peer.is_up() && !peer.is_draining());
        self.ring.iter().copied().filter(takes).collect()
    }

    /// Sessions are moved with the help of their homes, which may be any member.
    fn older_neighbour(&self) -> Option<DrainEnd> {
        self.ring.iter().any(|node| self.links.is_older(*node)).then_some(DrainEnd::OlderNode)
    }

    /// Tells more clients to leave, as far as sessions may be on their way, and looks whether all have left.
    pub(in crate::node) fn drain_on(&mut self) {
        if self.drain.active.is_none() {
            return;
        }
        if let Some(hindrance) = self.older_neighbour() {
            return self.end_drain(hindrance);
        }
        if self.is_drained() {
            return;
        }
        let takers = self.takers();
        if takers.is_empty() {
            let alone = self.ring.len() == 1 || self.ring.iter().all(|node| self.is_no_taker(*node));
            if alone {
                self.end_drain(DrainEnd::NobodyElse);
            }
            return;
        }
        self.refresh_elsewhere();
        let on_their_way = self.claims.leaving() + self.handed.len();
        let mut leave = Vec::new();
        let Some(active) = &mut self.drain.active else { return };
        let claims = &self.claims;
        active.moving.retain(|client, _| claims.owns(client));
        if active.pass == Pass::Away
            && claims.owned_after(active.told_up_to.as_ref()).is_none()
            && active.moving.values().all(|told| told.leaves)
        {
            active.pass = Pass::Everyone;
            active.told_up_to = None;
        }
        let if_away = active.pass == Pass::Away;
        while active.moving.len() + on_their_way < active.pass.window()
            && let Some((client, _)) = claims.owned_after(active.told_up_to.as_ref())
        {
            active.told_up_to = Some(client.clone());
            let told = Told { at: self.now.instant, leaves: false };
            if active.moving.insert(client.clone(), told).is_none() {
                leave.push(client.clone());
            }
        }
        for client in leave {
            let taker = home_of(&client, takers.iter().copied());
            let to = taker.and_then(|taker| self.peers.get(&taker)?.client_address.clone());
            let shard = shard_of(&client, self.config.shards);
            self.tell_shard(shard, ToShard::Leave(Box::new(Leave { client, if_away, to })));
        }
        self.check_drained();
    }

    /// Whether there is no hope that a member takes sessions soon.
    fn is_no_taker(&self, node: NodeId) -> bool {
        node == self.config.node || self.peers.get(&node).is_some_and(crate::node::peers::Peer::is_draining)
    }

    /// Tells the shards where clients can go, if that has changed.
    fn refresh_elsewhere(&mut self) {
        let addresses = self.client_addresses();
        let Some(active) = self.drain.active.as_mut().filter(|active| *active.elsewhere != *addresses) else { return };
        let elsewhere: Arc<[_]> = addresses.into();
        active.elsewhere = Arc::clone(&elsewhere);
        self.tell_all_shards(|| ToShard::Drain(Some(Arc::clone(&elsewhere))));
    }

    /// The session of a client is without connection: the home moves it.
    pub(in crate::node) fn leaves(&mut self, client: ClientId) {
        let Some(active) = &mut self.drain.active else { return };
        if let Some(told) = active.moving.get_mut(&client) {
            told.leaves = true;
        }
        let Some(epoch) = self.claims.epoch_of(&client) else { return };
        let Some(to) = home_of(&client, self.takers().into_iter()) else { return };
        self.send_directory(self.home_of(&client), DirectoryMail::Give { client, epoch, to });
    }

    /// The client is connected: its turn comes once the sessions of clients that are away have been told to leave.
    pub(in crate::node) fn stays(&mut self, client: &ClientId) {
        if let Some(active) = &mut self.drain.active {
            active.moving.remove(client);
        }
    }

    pub(in crate::node) fn drain_due(&mut self) {
        let now = self.now.instant;
        let Some(active) = self.drain.active.as_mut().filter(|active| !active.is_done) else { return };
        if now >= active.until {
            return self.end_drain(DrainEnd::TimeLimit);
        }
        if now >= active.next_round {
            active.next_round = now + RETRY;
            if active.pass == Pass::Everyone {
                active.told_up_to = None;
            }
            active.moving.retain(|_, told| now.since(told.at) < RETRY);
        }
    }

    fn check_drained(&mut self) {
        let is_empty = self.sessions_here() == 0
            && self.replicas.len() == 0
            && self.acks.len() == 0
            && self.relay.outgoing.len() == 0
            && self.relay.asking.len() == 0
            && !self.takeovers.is_busy()
            && !self.settles.has_departures()
            && self.peers.iter().all(|(node, peer)| peer.has_taken_all() || !self.ring.contains(node));
        let Some(active) = self.drain.active.as_mut().filter(|_| is_empty) else { return };
        active.is_done = true;
        let sessions = active.sessions;
        self.event(false, format!("The node is empty: {sessions} sessions have moved or ended"));
        self.choose_backups();
        self.outputs.push_back(NodeOutput::Drained);
    }
}
