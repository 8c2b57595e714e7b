//! The sessions of a node that is gone go on at its successor (FT-20 to FT-24, MQ-11).
//!
//! 1. The successor owns them at once, so that a client that comes back anywhere finds them. Its shards begin to catch what matches.
//! 2. It advertises their interest; until that is known everywhere, the others keep what is for them.
//! 3. It asks all for what they have kept.
//! 4. When all have answered, the sessions begin with everything that was in the copies, that was kept, and that was caught, each
//!    publication once. When that is copied to the successor's own backups, the others need to keep nothing any longer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sedge_base::{ClientId, Deadlines, Duration, Incarnation, Instant, NodeId, ShardId};
use sedge_broker::{InboundState, InterestChange, InterestOp, RestoredSession, SessionState};
use sedge_mqtt::{Message, MessageId, ReasonCode, TopicFilter};

use crate::journal::Heritage;
use crate::link::ControlTopic;
use crate::mail::{Arriving, HadAhead, Heard, Inherit, Life, Location, SessionStep, ToShard};
use crate::node::Node;
use crate::node::delivery::copied::Source;
use crate::node::delivery::waiters::Waiter;
use crate::node::sessions::contents::messages_of;
use crate::node::sessions::epoch;
use crate::node::standby::copies_of_others::Replica;
use crate::reception::shard_of;
use crate::shard::Choice;
use crate::wire::{ReplicaMail, SafeAt, Stray};

/// How long the others may take to say what they have kept.
const PATIENCE: Duration = Duration::from_secs(3);

/// Sessions asked for before their node is known to be gone; the oldest question is dropped first, and its client waits for
/// [`crate::node::NodeConfig::claim_timeout`].
const MAX_EARLY: usize = 4096;

/// Nodes whose sessions went on elsewhere and that are remembered; the one with the lowest id is forgotten first, and may publish
/// wills again if it starts again.
const MAX_REMEMBERED: usize = 1024;

/// Sessions that this node takes over.
#[derive(Debug, Default)]
pub(in crate::node) struct Takeovers {
    lives: BTreeMap<Life, Takeover>,
    deadlines: Deadlines<Life>,
    /// Owned from now on, and not registered yet.
    fresh: Vec<(ClientId, u64)>,
    /// Sessions asked for before this node knew that their node is gone, and that it is the successor.
    early: Vec<(NodeId, Life, ClientId, u64)>,
    /// Lives of other nodes whose sessions went on here, the last one of each node.
    taken: BTreeMap<NodeId, Incarnation>,
    /// Those among them whose sessions are safe, and at which node.
    safe: BTreeMap<NodeId, (Incarnation, NodeId)>,
    count: u64,
    sessions: u64,
}

#[derive(Debug)]
struct Takeover {
    /// The interest of the sessions.
    changes: Vec<(ClientId, Vec<InterestChange>)>,
    /// The contents of sessions that were on their way here.
    moving: Vec<(ClientId, Vec<MessageId>)>,
    /// Clients that this node owns from now on.
    clients: Vec<ClientId>,
    heard: Arc<BTreeMap<ShardId, Heard>>,
    /// Publications that sessions had beyond `heard`, until their shards know them.
    ahead: BTreeMap<ClientId, HadAhead>,
    /// Publications for shared subscriptions that had come beyond `heard`.
    had_shares: BTreeSet<MessageId>,
    /// Copies of sessions that the node itself had taken over from this one, which goes on with its own.
    beside: Vec<SessionState>,
    /// QoS 2 publications of their clients that were on their way, and the places that shared subscriptions chose for them.
    transits: Vec<(Arc<Message>, Choice)>,
    /// Messages of shared subscriptions for sessions that have ended with their connections: other members get them.
    shares: Vec<(Arc<Message>, TopicFilter)>,
    /// Publications for whose shared subscriptions the node had chosen members at other nodes, which may have heard nothing of that.
    elsewhere: Vec<(NodeId, Stray)>,
    /// Nodes that have not said what they have kept; `None` before they are asked.
    waits_for: Option<BTreeSet<NodeId>>,
    strays: Vec<Stray>,
    stage: Stage,
    /// Whether the node is back, so that its sessions are only needed for the messages that came for them.
    lives: bool,
    /// Shards where the sessions have not arrived.
    shards: u16,
}

/// How far a takeover is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Shards begin to catch.
    Catching,
    /// The interest is told.
    Telling,
    /// All are asked for what they have kept.
    Asking,
    /// The sessions are put together.
    Arriving,
}

impl Takeovers {
    /// Whether another node has asked for the session of this client before it is known who has it.
    pub(in crate::node) fn is_asked_early(&self, client: &ClientId) -> bool {
        self.early.iter().any(|(_, _, wanted, _)| wanted == client)
    }

    pub(in crate::node) fn timeout(&self) -> Option<Instant> {
        self.deadlines.next()
    }

    /// Questions that came before this node knew of the death.
    pub(in crate::node) fn asked_early(&self) -> usize {
        self.early.len()
    }

    /// Lives that the journal names.
    pub(in crate::node) fn remember(&mut self, lives: Vec<Life>, safe: Vec<SafeAt>) {
        for Life { node, incarnation } in lives {
            self.note_taken(node, incarnation);
        }
        for SafeAt { life, by } in safe {
            self.note_safe(life, by);
        }
    }

    /// The sessions of a life are safe at this node, which has taken them over.
    fn note_safe(&mut self, life: Life, by: NodeId) {
        let known = self.safe.entry(life.node).or_insert((life.incarnation, by));
        *known = (*known).max((life.incarnation, by));
        if self.safe.len() > MAX_REMEMBERED {
            self.safe.pop_first();
        }
    }

    /// A node that has taken over sessions of other nodes is gone, and its own are safe at its successor: so are those. Returns whose they were.
    fn are_safe_at(&mut self, node: NodeId, successor: NodeId) -> Vec<Life> {
        let theirs = self.safe.iter_mut().filter(|(_, (_, by))| *by == node);
        let moved = theirs.map(|(&node, (incarnation, by))| {
            *by = successor;
            Life { node, incarnation: *incarnation }
        });
        moved.collect()
    }

    /// The sessions of a life have gone on at another node than its own.
    fn note_taken(&mut self, node: NodeId, incarnation: Incarnation) {
        let known = self.taken.entry(node).or_insert(incarnation);
        *known = incarnation.max(*known);
        if self.taken.len() > MAX_REMEMBERED {
            self.taken.pop_first();
        }
    }

    /// Whether everything that was kept for this life has gone to the shards, which have yet to say that they have it.
    pub(in crate::node) fn is_arriving(&self, life: Life) -> bool {
        self.lives.get(&life).is_some_and(|takeover| takeover.stage == Stage::Arriving)
    }

    /// Lives of other nodes whose sessions went on elsewhere.
    pub(in crate::node) fn remembered(&self) -> Vec<Life> {
        self.taken.iter().map(|(&node, &incarnation)| Life { node, incarnation }).collect()
    }

    /// Those among them whose sessions are safe.
    pub(in crate::node) fn safe_elsewhere(&self) -> Vec<SafeAt> {
        let safe = self.safe.iter();
        safe.map(|(&node, &(incarnation, by))| SafeAt { life: Life { node, incarnation }, by }).collect()
    }

    /// Whether sessions of this node are being taken over.
    pub(in crate::node) fn takes_over_from(&self, node: NodeId) -> bool {
        self.lives.keys().any(|life| life.node == node)
    }

    /// Whether sessions are being taken over.
    pub(in crate::node) fn is_busy(&self) -> bool {
        !self.lives.is_empty()
    }

    /// Whether what the copy of a node's session has is yet to come to the one that goes on here.
    pub(in crate::node) fn is_beside(&self, client: &ClientId, node: NodeId) -> bool {
        let of_node = self.lives.iter().filter(|(life, _)| life.node == node);
        of_node.flat_map(|(_, takeover)| &takeover.beside).any(|session| session.client == *client)
    }

    /// Nodes whose sessions were taken over, and how many sessions that were.
    pub(in crate::node) const fn counts(&self) -> (u64, u64) {
        (self.count, self.sessions)
    }
}

impl Node {
    /// This node is the successor of a node that is gone.
    pub(in crate::node) fn take_over(&mut self, node: NodeId) {
        let Some(incarnation) = self.orphaned_life(node) else { return };
        if self.knows_alive(Life { node, incarnation }) {
            // It has come back before anybody took its sessions over, and goes on with them itself.
            return;
        }
        let Some(replica) = self.replicas.take_whole(node) else { return };
        let life = Life { node, incarnation };
        let mut takeover = Takeover {
            changes: Vec::new(),
            moving: Vec::new(),
            clients: Vec::new(),
            heard: Arc::default(),
            ahead: BTreeMap::new(),
            had_shares: BTreeSet::new(),
            beside: Vec::new(),
            transits: Vec::new(),
            shares: Vec::new(),
            elsewhere: Vec::new(),
            waits_for: None,
            strays: Vec::new(),
            stage: Stage::Catching,
            lives: false,
            shards: self.config.shards,
        };
        let sessions = self.inherit(life, replica, &mut takeover);
        self.takeovers.count += 1;
        self.takeovers.sessions += sessions.iter().map(|shard| shard.len() as u64).sum::<u64>();
        let count: usize = sessions.iter().map(Vec::len).sum();
        self.event(true, format!("Takes over {count} sessions of node {node}"));
        for (shard, sessions) in sessions.into_iter().enumerate() {
            let shard = ShardId(u16::try_from(shard).unwrap_or(u16::MAX));
            let is_here = |client: &ClientId, _: &mut HadAhead| shard_of(client, self.config.shards) == shard;
            let ahead = takeover.ahead.extract_if(.., is_here).collect();
            let inherit = SessionStep::Inherit(Inherit { of: life, sessions, ahead });
            self.tell_shard(shard, ToShard::Session(Box::new(inherit)));
        }
        for (client, ids) in core::mem::take(&mut takeover.moving) {
            self.tell_had(&client, ids);
        }
        self.takeovers.lives.insert(life, takeover);
        // Every shard catches before anybody is told to send here.
        self.wait(Waiter::Inheritance(life), false);
    }

    /// The sessions of a life went on at another node than its own: their wills are published there.
    pub(in crate::node) fn note_taken(&mut self, life: Life) {
        self.takeovers.note_taken(life.node, life.incarnation);
        self.note_taken_changed();
    }

    /// Tells a node that its sessions went on elsewhere, or are about to, so that it publishes no will of them again.
    pub(in crate::node) fn tell_taken(&mut self, to: NodeId) {
        let begun = self.takeovers.lives.keys().filter(|life| life.node == to).map(|life| life.incarnation);
        let last = self.takeovers.taken.get(&to).copied().into_iter().chain(begun).max();
        if let Some(incarnation) = last {
            self.send_control(to, ControlTopic::Replica, ReplicaMail::Taken { of: to, incarnation }.encode());
        }
        // Only the node that has the sessions says so: it may be gone for good, with its journal.
        let safe = self.takeovers.safe.get(&to).filter(|(_, by)| *by == self.config.node);
        if let Some(&(incarnation, _)) = safe {
            self.send_safe_elsewhere(to, Life { node: to, incarnation });
        }
    }

    /// Tells a node that has started again that the sessions of this earlier life of it are safe here.
    fn send_safe_elsewhere(&mut self, to: NodeId, life: Life) {
        let has_begun_anew = self.life_of(to).incarnation > life.incarnation;
        if has_begun_anew && !self.links.is_older(to) {
            let Life { node: of, incarnation } = life;
            self.send_control(to, ControlTopic::Replica, ReplicaMail::Safe { of, incarnation }.encode());
        }
    }

    /// Another node has taken over the sessions of a former life of this node.
    pub(in crate::node) fn was_taken_over(&mut self, incarnation: Incarnation) {
        if incarnation < self.config.incarnation {
            self.tell_all_shards(|| ToShard::TakenOver(incarnation));
        }
    }

    /// The sessions of a life are safe at the node that says so.
    pub(in crate::node) fn are_safe_elsewhere(&mut self, by: NodeId, life: Life) {
        if life.node != self.config.node {
            self.takeovers.note_safe(life, by);
            self.note_taken_changed();
        } else if self.is_guest() && life.incarnation < self.config.incarnation && self.beginning.was_outlived_by(by) {
            // Sessions among them that this node had taken over itself are safe there, too.
            self.takeovers.are_safe_at(life.node, by);
            self.note_taken_changed();
            self.discard_restored(life.incarnation);
        }
    }

    /// Takes the sessions out of a copy: by shard of this node, each with the shard it was at.
    fn inherit(
        &mut self,
        life: Life,
        replica: Replica,
        takeover: &mut Takeover,
    ) -> Vec<Vec<(ShardId, RestoredSession)>> {
        let of = life.node;
        let mut dealt: Vec<Vec<_>> = (0..self.config.shards).map(|_| Vec::new()).collect();
        let mut heard = BTreeMap::new();
        for (number, copy) in replica.shards.into_iter().enumerate() {
            let from = ShardId(u16::try_from(number).unwrap_or(u16::MAX));
            let Heritage { sessions, heard: of_shard, ahead, mut choices } = copy.recovery.into_heritage(self.now.wall);
            let had = of_shard.clone();
            let (mut ahead, mut shares) = ahead.by_client();
            takeover.had_shares.append(&mut shares);
            heard.insert(from, of_shard);
            let known = takeover.clients.len();
            let mut brought = Vec::new();
            for mut session in sessions {
                takeover.shares.extend(session.end());
                let client = session.state.client.clone();
                for (packet_id, message) in session.transits.drain(..) {
                    session.state.inbound.push(InboundState { packet_id, answer: Some(ReasonCode::Success) });
                    let choice = choices.remove(&message.id).unwrap_or_default();
                    takeover.transits.push((message, choice));
                }
                let under = session.state.epoch;
                let has_come = self.claims.has_rest(&client) || self.claims.came_from(&client, of, under);
                if has_come || self.forwards.came_from(&client, of, under) {
                    // It has come here already, with all that had come for it there.
                    continue;
                }
                if self.handed.is_given_since(&client, of, under) {
                    // It has been elsewhere since, and this node keeps what it gave back to that node.
                    continue;
                }
                if session.state.expiry_secs > 0 && self.goes_on_beside(&client, session.state.epoch, life) {
                    takeover.beside.push(session.state);
                    continue;
                }
                session.state.epoch = epoch::inherited(session.state.epoch);
                if session.state.expiry_secs > 0 && self.claims.is_outdated(&client, session.state.epoch) {
                    self.claims.restore(client.clone(), session.state.epoch, Some(of));
                    self.takeovers.fresh.push((client.clone(), session.state.epoch));
                    takeover.clients.push(client.clone());
                    let ids = messages_of(&session.state).map(|queued| queued.message.id);
                    let ahead = ahead.get(&client).into_iter().flat_map(|ahead| ahead.ids.iter().copied());
                    brought.push((client.clone(), ids.chain(ahead).collect::<Vec<_>>()));
                }
                let op = InterestOp::Add { retained: false, online: false };
                let plain = session.state.subscriptions.iter().map(|subscription| &subscription.filter);
                let changes = plain.map(|filter| InterestChange { filter: filter.clone(), op }).collect();
                takeover.changes.push((client.clone(), changes));
                let shard = shard_of(&client, self.config.shards);
                if let Some(dealt) = dealt.get_mut(usize::from(shard.0)) {
                    dealt.push((from, session));
                }
            }
            self.inherit_had(takeover.clients.iter().skip(known), had, &ahead);
            // Sessions on their way here: messages sent to both nodes come, too.
            brought.retain(|(client, _)| self.claims.wants(client));
            for (client, ids) in &brought {
                self.had.gets_caught(client, ids.iter().copied());
            }
            takeover.moving.append(&mut brought);
            takeover.ahead.append(&mut ahead);
        }
        takeover.heard = Arc::new(heard);
        dealt
    }

    /// Sessions have had what all sessions of their shard had, and some of them more.
    fn inherit_had<'a>(
        &mut self,
        clients: impl Iterator<Item = &'a ClientId>,
        of_shard: Heard,
        ahead: &BTreeMap<ClientId, HadAhead>,
    ) {
        let marks_of =
            |client: &ClientId| ahead.get(client).map(|ahead| &ahead.marks).filter(|marks| !marks.is_empty());
        let (further, others): (Vec<_>, Vec<_>) = clients.partition(|client| marks_of(client).is_some());
        for client in further {
            let mut marks = of_shard.clone();
            for (key, seq) in marks_of(client).into_iter().flatten() {
                let last = marks.entry(*key).or_default();
                *last = (*last).max(*seq);
            }
            self.had.inherits(self.now.instant, core::iter::once(client), marks);
        }
        self.had.inherits(self.now.instant, others.into_iter(), of_shard);
    }

    /// Clients that this node owns since it has taken over their sessions, once each.
    pub(in crate::node) fn take_fresh(&mut self) -> Vec<(ClientId, u64)> {
        core::mem::take(&mut self.takeovers.fresh)
    }

    /// All shards catch: everybody is told to send here.
    pub(in crate::node) fn inheritance_is_caught(&mut self, life: Life) {
        let Some(takeover) = self.takeovers.lives.get_mut(&life) else { return };
        takeover.stage = Stage::Telling;
        let lives = takeover.lives;
        let changes = core::mem::take(&mut takeover.changes);
        let mut adverts = Vec::new();
        for (client, changes) in changes {
            let shard = shard_of(&client, self.config.shards);
            let effect = self.interest.apply(shard, &client, &changes);
            self.table.extend(effect.table);
            adverts.extend(effect.adverts);
        }
        let token = self.wait(Waiter::Takeover(life), !adverts.is_empty());
        self.advertise(adverts, token);
        if lives {
            self.conclude_takeover(life);
        }
    }

    /// The node whose sessions this one takes over is back, and goes on with them. It is to have the messages that came for them here ahead of
    /// anything published from now on, so nobody is waited for. Other nodes give it the messages that they have kept: see [`Self::give_kept`].
    pub(in crate::node) fn takeover_lives(&mut self, life: Life) {
        let Some(takeover) = self.takeovers.lives.get_mut(&life) else { return };
        takeover.lives = true;
        // The node's own session has them still.
        takeover.transits.clear();
        takeover.shares.clear();
        takeover.elsewhere.clear();
        match takeover.stage {
            Stage::Telling | Stage::Asking => self.conclude_takeover(life),
            Stage::Catching | Stage::Arriving => {}
        }
    }

    fn conclude_takeover(&mut self, life: Life) {
        if let Some(takeover) = self.takeovers.lives.get_mut(&life) {
            takeover.waits_for = Some(BTreeSet::new());
        }
        self.check_takeover(life);
    }

    /// Everybody sends here: asks for what was kept before.
    pub(in crate::node) fn takeover_is_known(&mut self, life: Life) {
        let takeover = self.takeovers.lives.get_mut(&life).filter(|takeover| takeover.stage == Stage::Telling);
        let Some(takeover) = takeover else { return };
        takeover.stage = Stage::Asking;
        let transits = core::mem::take(&mut takeover.transits);
        for (message, choice) in transits {
            self.share_transit(life, &message, choice);
            self.publish_transit(life, message);
        }
        let linked: BTreeSet<NodeId> =
            self.peers.iter().filter(|(_, peer)| peer.is_linked()).map(|(node, _)| *node).collect();
        let Life { node: of, incarnation } = life;
        for node in &linked {
            self.send_control(*node, ControlTopic::Replica, ReplicaMail::Want { of, incarnation }.encode());
        }
        if let Some(takeover) = self.takeovers.lives.get_mut(&life) {
            takeover.waits_for = Some(linked);
        }
        self.takeovers.deadlines.set(life, self.now.instant + PATIENCE);
        self.check_takeover(life);
    }

    /// A QoS 2 publication that its node had taken, and for which it had chosen members of shared subscriptions: others get it where it is
    /// known that they have not. Where another node was chosen only that one knows: it is told when it has seen to the end of this life.
    fn share_transit(&mut self, life: Life, message: &Arc<Message>, choice: Choice) {
        let Some(heard) = self.takeovers.lives.get(&life).map(|takeover| Arc::clone(&takeover.heard)) else { return };
        for (group, location) in choice {
            match location {
                // It is in the copy of that shard.
                Location::Shard(shard) if shard == message.id.shard => {}
                Location::Shard(_) => self.choose_stray(life, &heard, message, group),
                Location::Node(node) if node == self.config.node => {
                    if !self.shares.has(&message.id) {
                        self.choose_stray(life, &BTreeMap::new(), message, group);
                    }
                }
                Location::Node(node) => {
                    let stray = Stray { message: Arc::clone(message), plain: false, groups: vec![group] };
                    if let Some(takeover) = self.takeovers.lives.get_mut(&life) {
                        takeover.elsewhere.push((node, stray));
                    }
                }
            }
        }
    }

    /// A successor names publications for whose shared subscriptions a member here was chosen by the node that is gone. Where that node did not come
    /// to say so, others are chosen.
    fn choose_unsaid(&mut self, of: Life, strays: Vec<Stray>) {
        for Stray { message, groups, .. } in strays {
            let id = message.id;
            if (id.node, id.incarnation) != (of.node, of.incarnation) || self.shares.has(&id) {
                continue;
            }
            for group in groups {
                self.again(ShardId::default(), &message, group, of.node);
            }
        }
    }

    /// A QoS 2 publication that its node had taken and may not have given to all. Its id tells who has had it.
    fn publish_transit(&mut self, life: Life, message: Arc<Message>) {
        let publication = crate::link::Publication {
            message: Arc::clone(&message),
            plain: true,
            groups: smallvec::SmallVec::new(),
            retained_copy: message.retain,
            waybill: None,
        };
        self.publication(Source::Link(self.config.node), 0, publication);
        self.publish_for(&message);
        if let Some(takeover) = self.takeovers.lives.get_mut(&life) {
            takeover.strays.push(Stray { message, plain: true, groups: Vec::new() });
        }
    }

    /// Somebody says what it has kept.
    pub(in crate::node) fn strays_arrived(
        &mut self,
        from: NodeId,
        of: NodeId,
        incarnation: Incarnation,
        last: bool,
        strays: Vec<Stray>,
    ) {
        let life = Life { node: of, incarnation };
        let Some(takeover) = self.takeovers.lives.get_mut(&life) else { return self.choose_unsaid(life, strays) };
        let Some(waits_for) = takeover.waits_for.as_mut().filter(|waits_for| waits_for.contains(&from)) else { return };
        takeover.strays.extend(strays);
        if last {
            waits_for.remove(&from);
            let unsaid: Vec<_> = takeover.elsewhere.extract_if(.., |(node, _)| *node == from).collect();
            for (to, stray) in unsaid {
                let mail = ReplicaMail::Strays { of, incarnation, last: true, strays: vec![stray] };
                self.send_control(to, ControlTopic::Replica, mail.encode());
            }
            self.check_takeover(life);
        }
    }

    /// A node is gone: nobody waits for what it has kept.
    pub(in crate::node) fn takeovers_without(&mut self, node: NodeId) {
        for life in self.takeovers.lives.keys().copied().collect::<Vec<_>>() {
            let waits_for = self.takeovers.lives.get_mut(&life).and_then(|takeover| takeover.waits_for.as_mut());
            if waits_for.is_some_and(|waits_for| waits_for.remove(&node)) {
                self.check_takeover(life);
            }
        }
    }

    pub(in crate::node) fn takeovers_due(&mut self) {
        while let Some(life) = self.takeovers.deadlines.pop_due(self.now.instant) {
            self.event(true, format!("Not all have said what they had for node {}", life.node));
            self.conclude_takeover(life);
        }
    }

    fn check_takeover(&mut self, life: Life) {
        let Some(takeover) = self.takeovers.lives.get_mut(&life) else { return };
        if takeover.waits_for.as_ref().is_none_or(|waits_for| !waits_for.is_empty()) {
            return;
        }
        takeover.waits_for = None;
        takeover.stage = Stage::Arriving;
        if !takeover.lives {
            self.note_taken(life);
        }
        let Some(takeover) = self.takeovers.lives.get_mut(&life) else { return };
        self.takeovers.deadlines.cancel(&life);
        let mut strays = core::mem::take(&mut takeover.strays);
        let heard = Arc::clone(&takeover.heard);
        let lives = takeover.lives;
        let clients = core::mem::take(&mut takeover.clients);
        let beside = core::mem::take(&mut takeover.beside);
        for (message, group) in core::mem::take(&mut takeover.shares) {
            self.again(ShardId::default(), &message, group, life.node);
        }
        strays.extend(self.strays_of(life.node));
        let mut plain = Vec::new();
        let mut known = BTreeSet::new();
        for Stray { message, plain: is_plain, groups } in strays {
            for group in groups.into_iter().filter(|_| !lives) {
                self.choose_stray(life, &heard, &message, group);
            }
            if is_plain && known.insert(message.id) {
                plain.push(message);
            }
        }
        self.answer_early();
        self.nothing_is_kept();
        self.had.get_strays(clients.iter(), known);
        let strays: Arc<[_]> = plain.into();
        for session in beside {
            self.copy_gives_back(life, &session, &strays);
        }
        for shard in (0..self.config.shards).map(ShardId) {
            let (strays, heard) = (Arc::clone(&strays), Arc::clone(&heard));
            let arriving = SessionStep::Arriving(Arriving { of: life, strays, heard });
            self.tell_shard(shard, ToShard::Session(Box::new(arriving)));
        }
        for to in (0..self.config.shards).map(ShardId) {
            for shard in (0..self.config.shards).map(ShardId) {
                let arrive = ToShard::Session(Box::new(SessionStep::Arrive(life)));
                let mail = if shard == to { arrive } else { ToShard::PassOn(to, Box::new(arrive)) };
                self.tell_shard(shard, mail);
            }
        }
    }

    /// A publication for a shared subscription whose member was at the node that is gone: another one gets it, unless that node has
    /// had it.
    fn choose_stray(
        &mut self,
        life: Life,
        heard: &BTreeMap<ShardId, Heard>,
        message: &Arc<Message>,
        group: TopicFilter,
    ) {
        let id = message.id;
        let key = (id.node, id.incarnation, id.shard);
        // The shard that made it has it without having been chosen.
        let is_maker = |shard: ShardId| (life.node, life.incarnation, shard) == key;
        let had = |(shard, heard): (&ShardId, &Heard)| {
            !is_maker(*shard) && heard.get(&key).is_some_and(|last| id.seq <= *last)
        };
        let takeover = self.takeovers.lives.get(&life);
        let had_share = id.node != life.node && takeover.is_some_and(|takeover| takeover.had_shares.contains(&id));
        if had_share || heard.iter().any(had) {
            return;
        }
        self.again(ShardId::default(), message, group, life.node);
    }

    /// The sessions are with one of the shards, and copied.
    pub(in crate::node) fn inherited(&mut self, life: Life) {
        let Some(takeover) = self.takeovers.lives.get_mut(&life) else { return };
        takeover.shards = takeover.shards.saturating_sub(1);
        if takeover.shards > 0 {
            return;
        }
        if self.takeovers.lives.remove(&life).is_some_and(|takeover| takeover.lives) {
            // Others give what they have kept to the node itself when they find it again. It may yet die.
            if self.orphaned_life(life.node) == Some(life.incarnation) {
                self.end_orphan(life.node);
            }
            return;
        }
        let Life { node: of, incarnation } = life;
        let linked: Vec<NodeId> =
            self.peers.iter().filter(|(_, peer)| peer.is_linked()).map(|(node, _)| *node).collect();
        let me = self.config.node;
        let safe = self.takeovers.are_safe_at(of, me);
        self.are_safe_elsewhere(me, life);
        for node in linked {
            for life in safe.iter().chain([&life]).filter(|life| life.node == node) {
                self.send_safe_elsewhere(node, *life);
            }
            self.send_control(node, ControlTopic::Replica, ReplicaMail::Taken { of, incarnation }.encode());
        }
        self.taken_over(of, incarnation);
    }

    /// The new owner of a client asks for the session that its former owner cannot send any more.
    pub(in crate::node) fn asked_for(&mut self, by: NodeId, of: Life, client: ClientId, epoch: u64) {
        // It does not come over that node.
        self.answer_unclear(&client, false);
        if self.is_too_early(of, &client) {
            if self.takeovers.early.len() >= MAX_EARLY {
                self.takeovers.early.remove(0);
            }
            self.takeovers.early.push((by, of, client, epoch));
            return;
        }
        self.give_up_or_refer(client, epoch, by);
    }

    /// Gives a session to a node that has asked for it, or refers it to the one that keeps it.
    fn give_up_or_refer(&mut self, client: ClientId, epoch: u64, to: NodeId) {
        let keeper = self.reclaims.keeper_of(self.now.instant, &client);
        match keeper.filter(|keeper| !self.claims.owns(&client) && *keeper != to && self.ring.contains(keeper)) {
            Some(keeper) => self.send_relinquish(keeper, &client, epoch, to),
            None => self.relinquish(client, epoch, false, to),
        }
    }

    /// Whether it is not known yet who has the session of a client whose node is gone, or that it is gone at all.
    fn is_too_early(&self, of: Life, client: &ClientId) -> bool {
        self.knows_alive(of) || self.sees_other_successor(of.node) || self.may_be_kept(of.node, client)
    }

    /// Whether another node may keep a session that was given to one that is gone, which this node takes over from, and may not have had it
    /// for good.
    pub(in crate::node) fn may_be_kept(&self, of: NodeId, client: &ClientId) -> bool {
        let is_asking = |(life, takeover): (&Life, &Takeover)| life.node == of && takeover.stage != Stage::Arriving;
        self.takeovers.lives.iter().any(is_asking) && !self.claims.owns(client)
    }

    /// The node that has asked for the session of a client, and the epoch of its claim.
    pub(in crate::node) fn take_early(&mut self, client: &ClientId) -> Vec<(NodeId, u64)> {
        let of_client = self.takeovers.early.extract_if(.., |(_, _, wanted, _)| wanted == client);
        of_client.map(|(by, _, _, epoch)| (by, epoch)).collect()
    }

    /// Whether another node is to take over the sessions of one that is gone, as this node sees it.
    fn sees_other_successor(&self, node: NodeId) -> bool {
        self.successor_of(node).is_some_and(|successor| successor != self.config.node)
    }

    /// A node is gone: answers who has asked before for sessions that this node has for it.
    pub(in crate::node) fn answer_early(&mut self) {
        let early = core::mem::take(&mut self.takeovers.early);
        let (early, due): (Vec<_>, Vec<_>) =
            early.into_iter().partition(|(_, of, client, _)| self.is_too_early(*of, client));
        self.takeovers.early = early;
        for (by, _, client, epoch) in due {
            self.give_up_or_refer(client, epoch, by);
        }
    }
}
