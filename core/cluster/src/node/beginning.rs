//! A node that begins is a guest: it remembers its members, meets them, and learns what they took over before it lets clients in
//! (FT-26, FT-28).
//!
//! Members come from the journal. A member is met when its link stands and it has told all that a joining node needs. A member that already
//! lets clients in says whom it knows: the others ended before it did, so that nothing of theirs is unknown to it.

use core::net::SocketAddr;
use std::collections::{BTreeMap, BTreeSet};

use sedge_base::{Duration, Incarnation, Instant, NodeId, ShardId};

use crate::NodeState;
use crate::link::ControlTopic;
use crate::mail::{Publish, ToShard};
use crate::node::Node;
use crate::node::peers::Peer;
use crate::wire::{NodeMail, Remembered};

/// When a turn of its event loop comes so much later than the one before, a process stood still, and its node begins anew.
pub const STANDSTILL: Duration = Duration::from_secs(1);
/// After a standstill, members that do not answer are declared dead within this time if they are. An earlier declaration may be a mistake:
/// their answers were not read yet.
pub(in crate::node) const GRACE: Duration = Duration::from_secs(3);

/// The way of publications that the shards had handed to the node when the process stood still. The shards read nothing from clients meanwhile, so
/// that no more publications wait than fit into the node's mailbox.
#[derive(Debug, Default)]
enum Passage {
    /// The process did not stand still.
    #[default]
    PassedOn,
    /// The node does not know yet whether others took it for dead.
    Waiting(Vec<(ShardId, Publish)>),
    /// The successor passes on the publications that its copy has, and publishers send the others again.
    Dropped,
}

/// The members that the node waits for before it lets clients in.
#[derive(Debug, Default)]
pub(in crate::node) struct Beginning {
    /// Members of the node's former life that it has not met, and where they were.
    awaited: BTreeMap<NodeId, SocketAddr>,
    /// All members of the node's former life.
    former: BTreeSet<NodeId>,
    /// The life of this node whose sessions its journals held; none if they held those of none.
    pub(in crate::node) restored_life: Option<Incarnation>,
    /// Addresses to ask besides those of the awaited members.
    seeds: Vec<SocketAddr>,
    /// Whether the node has, or may have, sessions that others have taken over.
    has_past: bool,
    /// Whether clients are let in.
    is_open: bool,
    /// When the node began anew after a standstill.
    stood_still: Option<Instant>,
    /// Whether another node had a copy of all sessions when the node stood still.
    had_copies: bool,
    /// The way of publications that the shards had handed over by then.
    passage: Passage,
    /// Number of the last question to a neighbour.
    questions: u64,
    /// Neighbours that have asked, by which number, and when they are answered at the latest.
    askers: BTreeMap<NodeId, (u64, Instant)>,
}

impl Beginning {
    /// Nobody is remembered yet.
    pub(in crate::node) fn new(seeds: Vec<SocketAddr>) -> Self {
        Self { seeds, ..Self::default() }
    }

    /// Whether clients are to be let in that were not before.
    pub(in crate::node) const fn opens(&mut self) -> bool {
        !core::mem::replace(&mut self.is_open, true)
    }

    /// When a neighbour is to be answered.
    pub(in crate::node) fn timeout(&self) -> Option<Instant> {
        self.askers.values().map(|(_, until)| *until).min()
    }

    /// Whether the node has, or may have, sessions that others have taken over.
    pub(in crate::node) const fn has_past(&self) -> bool {
        self.has_past
    }

    /// Whether the node's former life ended before that of this member, as far as it knew: what it had acknowledged until then, the member's copy
    /// had, too. A node that had taken the member for dead may have acknowledged more.
    pub(in crate::node) fn was_outlived_by(&self, member: NodeId) -> bool {
        self.former.contains(&member)
    }

    /// Whether this is not the beginning of the process.
    pub(in crate::node) const fn has_begun_before(&self) -> bool {
        self.stood_still.is_some()
    }

    /// Other addresses than before are to be asked: returns them with those of the awaited members.
    pub(in crate::node) fn set_seeds(&mut self, seeds: Vec<SocketAddr>) -> Vec<SocketAddr> {
        self.seeds = seeds;
        self.seeds.iter().chain(self.awaited.values()).copied().collect()
    }

    /// Whether this address is only that of an awaited member.
    pub(in crate::node) fn is_only_remembered(&self, address: SocketAddr) -> bool {
        !self.seeds.contains(&address)
    }
}

impl Node {
    /// When the node has begun, or begun anew after a standstill.
    pub(in crate::node) fn began(&self) -> Option<Instant> {
        self.beginning.stood_still.or(self.started)
    }

    /// The process stood still for a while. Others may have taken the node for dead and its sessions over: nothing is read from clients until
    /// all have answered.
    pub(in crate::node) fn stood_still(&mut self) {
        let is_known = self.beginning.stood_still.is_some_and(|at| self.now.instant < at + STANDSTILL);
        if !is_known {
            self.tell_what_was_sent();
        }
        if is_known || self.state != NodeState::Normal || self.ring.len() <= 1 {
            // Another shard has said so, nobody could have done anything, or it is to be heard anyway.
            return self.tell_all_shards_again();
        }
        let members = self.membership.members();
        self.beginning.awaited = members.map(|member| (member.node, member.swim)).collect();
        let (peers, links) = (&self.peers, &self.links);
        // The node does not wait for members that were out of reach before.
        let is_in_reach = |node: &NodeId| peers.get(node).is_some_and(Peer::is_synced) && !links.is_older(*node);
        self.beginning.awaited.retain(|node, _| is_in_reach(node));
        // A claim that came while the node stood still must not take a session from the node that has it since.
        self.links.begin_anew(self.now.instant);
        if self.beginning.awaited.is_empty() {
            return self.tell_all_shards_again();
        }
        self.state = NodeState::Recovery;
        self.directory.wait_until(self.now.instant + self.config.register_timeout);
        self.directory.home.stood_still(self.config.node);
        self.counters.standstills += 1;
        (self.beginning.is_open, self.beginning.stood_still) = (false, Some(self.now.instant));
        self.beginning.has_past = true;
        self.beginning.had_copies = self.copies.whole().next().is_some();
        self.beginning.passage = Passage::Waiting(Vec::new());
        self.event(
            true,
            "Stood still for more than a second; asks the others what they did before it reads from clients".to_owned(),
        );
        self.tell_all_shards(|| ToShard::StandStill);
        for node in self.beginning.awaited.keys().copied().collect::<Vec<_>>() {
            if let Some(peer) = self.peers.get_mut(&node) {
                peer.serving = None;
            }
            self.ask_to_hear(node);
        }
    }

    /// The others took this node for dead while it stood still. Its clients missed what was published meanwhile, unless their sessions went on
    /// elsewhere: their connections end, so that they go on where their sessions are.
    pub(in crate::node) fn was_taken_for_dead(&mut self) {
        if self.is_beginning_anew() {
            let had_copies = self.beginning.had_copies;
            self.claims.are_of_a_former_life();
            if had_copies {
                self.beginning.passage = Passage::Dropped;
                self.links.passes_nothing_on(self.config.node);
            }
            self.tell_all_shards(|| ToShard::TakenForDead { had_copies });
        }
    }

    /// Keeps a publication of a shard back, or drops it, while it is not known whether others took this node for dead.
    pub(in crate::node) fn waits_to_be_passed_on(&mut self, shard: ShardId, publish: Publish) -> Option<Publish> {
        match &mut self.beginning.passage {
            Passage::PassedOn => return Some(publish),
            Passage::Waiting(waiting) => waiting.push((shard, publish)),
            Passage::Dropped => {}
        }
        None
    }

    /// The node knows what the others did: publications go their way again.
    pub(in crate::node) fn passes_on(&mut self) {
        if let Passage::Waiting(waiting) = core::mem::take(&mut self.beginning.passage) {
            for (shard, publish) in waiting {
                self.publish(shard, publish);
            }
        }
    }

    /// A shard may have stopped to read by itself.
    fn tell_all_shards_again(&mut self) {
        if self.beginning.is_open {
            self.tell_all_shards(|| ToShard::Open);
        }
    }

    /// Whether the node stood still and does not know yet what the others did meanwhile.
    pub(in crate::node) fn is_beginning_anew(&self) -> bool {
        self.state == NodeState::Recovery && self.beginning.has_begun_before()
    }

    /// Whether the node has just started, and lets no client in: all its sessions are those of its journals.
    pub(in crate::node) fn is_guest(&self) -> bool {
        self.state == NodeState::Recovery && !self.beginning.has_begun_before()
    }

    /// While the node begins, a neighbour is to answer behind everything that it has to say to what this node has told it: to whom sessions
    /// belong, above all.
    pub(in crate::node) fn ask_to_hear(&mut self, node: NodeId) {
        if self.state != NodeState::Recovery || !self.beginning.has_past || self.links.is_older(node) {
            return;
        }
        self.beginning.questions += 1;
        let number = self.beginning.questions;
        if let Some(peer) = self.peers.get_mut(&node) {
            peer.asked = Some(number);
        }
        self.send_control(node, ControlTopic::Node, NodeMail::Hear { number }.encode());
    }

    /// A neighbour begins. It is answered when every owner has registered its clients here, so that it knows by then which of its sessions
    /// belong to others.
    pub(in crate::node) fn hears(&mut self, from: NodeId, number: u64) {
        self.beginning.askers.insert(from, (number, self.now.instant + self.config.register_timeout));
    }

    /// Answers neighbours that begin, once the shards have said what their journals held: a neighbour that knew less would publish past their
    /// sessions.
    pub(in crate::node) fn answer_askers(&mut self) {
        if self.beginning.askers.is_empty() || !self.is_restored() {
            return;
        }
        let (now, has_all) = (self.now.instant, self.has_all_registrations());
        let (ring, takeovers) = (&self.ring, &self.takeovers);
        // A neighbour whose sessions are being taken over is to know when they are safe: then it drops those of its journal.
        let is_known = |node: &NodeId| ring.binary_search(node).is_ok() && !takeovers.takes_over_from(*node);
        let due = |node: &NodeId, until: Instant| now >= until || (has_all && is_known(node));
        let due = self.beginning.askers.extract_if(.., |node, (_, until)| due(node, *until));
        for (node, (number, _)) in due.collect::<Vec<_>>() {
            self.tell_serving(node);
            self.send_control(node, ControlTopic::Node, NodeMail::Heard { number }.encode());
        }
    }

    /// Members of the node's former life, as its journal says.
    pub(in crate::node) fn remember(&mut self, members: Vec<Remembered>) {
        let others = members.into_iter().filter(|member| member.node != self.config.node);
        self.beginning.awaited = others.map(|member| (member.node, member.address)).collect();
        self.beginning.former = self.beginning.awaited.keys().copied().collect();
        if !self.beginning.awaited.is_empty() {
            self.beginning.has_past = true;
            self.ask_seeds_and_remembered();
        }
    }

    fn ask_seeds_and_remembered(&mut self) {
        let seeds = core::mem::take(&mut self.beginning.seeds);
        let addresses = self.beginning.set_seeds(seeds);
        self.membership.handle(self.now, sedge_membership::Input::Seeds(addresses));
    }

    /// Nodes that the next life of the node is to meet before it lets clients in: members, those that this life still waits for, and those that died
    /// and whose sessions nobody has taken over yet.
    pub(in crate::node) fn remembered(&self) -> Vec<Remembered> {
        let mut known = self.beginning.awaited.clone();
        let dead = self.membership.dead().map(|(member, _)| member).filter(|member| self.orphans.has(member.node));
        for member in self.membership.members().chain(dead) {
            known.insert(member.node, member.swim);
        }
        known.into_iter().map(|(node, address)| Remembered { node, address }).collect()
    }

    /// Whether members of the node's former life are waited for.
    pub(in crate::node) fn awaits_members(&self) -> bool {
        self.state == NodeState::Recovery && !self.beginning.awaited.is_empty()
    }

    /// The members that the node waits for before it lets clients in, and their last addresses.
    pub(in crate::node) fn awaited_members(&self) -> Vec<(NodeId, SocketAddr)> {
        if self.state != NodeState::Recovery {
            return Vec::new();
        }
        let mut awaited = self.beginning.awaited.clone();
        for node in self.unsynced_members() {
            let member = self.membership.member(node);
            awaited.extend(member.map(|member| (node, member.swim)));
        }
        awaited.into_iter().collect()
    }

    /// The node does not wait for members that have told all, nor for those that members which let clients in do not know.
    pub(in crate::node) fn note_met(&mut self) {
        if self.beginning.awaited.is_empty() {
            return;
        }
        let (ring, peers) = (&self.ring, &self.peers);
        let is_met = |node: &NodeId| ring.binary_search(node).is_ok() && peers.get(node).is_some_and(Peer::is_synced);
        self.beginning.awaited.retain(|node, _| !is_met(node));
        let serving = peers.values().filter(|peer| peer.is_synced()).filter_map(|peer| peer.serving.as_ref());
        for members in serving {
            self.beginning.awaited.retain(|node, _| members.contains(node));
        }
        if self.beginning.stood_still.is_some_and(|at| self.now.instant >= at + GRACE) {
            let membership = &self.membership;
            self.beginning.awaited.retain(|node, _| membership.member(*node).is_some());
        }
    }

    /// The node lets clients in: it does without those that it has not met, and says so to the others.
    pub(in crate::node) fn gives_up_remembered(&mut self) {
        let absent = core::mem::take(&mut self.beginning.awaited);
        if !absent.is_empty() {
            let names: Vec<String> = absent.keys().map(NodeId::to_string).collect();
            let names = names.join(", ");
            self.event(
                true,
                format!(
                    "Lets clients in without nodes {names}, which were members and have not come back in time; their sessions are missing until they do"
                ),
            );
            self.counters.members_given_up += absent.len() as u64;
            self.note_members_changed();
            self.ask_seeds_and_remembered();
        }
        let linked: Vec<NodeId> =
            self.peers.iter().filter(|(_, peer)| peer.is_linked()).map(|(node, _)| *node).collect();
        for node in linked {
            self.tell_serving(node);
        }
    }

    /// Tells a neighbour whom this node knows, if it lets clients in: members, and nodes that are gone and whose sessions nobody has yet. Sessions of
    /// the neighbour's own journal may be among those.
    pub(in crate::node) fn tell_serving(&mut self, to: NodeId) {
        if self.state != NodeState::Recovery && !self.links.is_older(to) {
            let members = self.ring.iter().copied().chain(self.orphans.awaited()).collect();
            let mail = NodeMail::Serving { members };
            self.send_control(to, ControlTopic::Node, mail.encode());
        }
    }

    /// The members have changed, or the sessions of one that is gone are safe: guests are told.
    pub(in crate::node) fn tell_serving_to_guests(&mut self) {
        let guests = self.peers.iter().filter(|(_, peer)| peer.is_linked() && peer.serving.is_none());
        for node in guests.map(|(node, _)| *node).collect::<Vec<_>>() {
            self.tell_serving(node);
        }
    }

    /// Says at the start whom the node waits for.
    pub(in crate::node) fn announce_wait(&mut self) {
        if self.beginning.awaited.is_empty() {
            return;
        }
        let names: Vec<String> =
            self.beginning.awaited.iter().map(|(node, address)| format!("{node} at {address}")).collect();
        let (names, limit) = (names.join(", "), self.config.recovery_timeout.as_millis());
        self.event(
            false,
            format!(
                "Waits for the members it had before it lets clients in: {names}; cluster.recovery_timeout gives each {limit} ms"
            ),
        );
    }
}
