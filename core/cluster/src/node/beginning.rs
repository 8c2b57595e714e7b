//! A node that begins is a guest: it remembers its members, meets them, and learns what they took over before it lets clients in
//! (FT-26, FT-28).
//!
//! Members come from the journal. A member is met when its link stands and it has told all that a joining node needs. A member that already
//! lets clients in says whom it knows: the others ended before it did, so that nothing of theirs is unknown to it.

use core::net::SocketAddr;
use std::collections::BTreeMap;

use sedge_base::NodeId;

use crate::NodeState;
use crate::link::ControlTopic;
use crate::node::Node;
use crate::node::peers::Peer;
use crate::wire::{NodeMail, Remembered};

/// Whom the node waits for before it lets clients in.
#[derive(Debug, Default)]
pub(in crate::node) struct Beginning {
    /// Members of the node's former life that it has not met, and where they were.
    awaited: BTreeMap<NodeId, SocketAddr>,
    /// Addresses to ask besides those of the awaited members.
    seeds: Vec<SocketAddr>,
    /// Whether clients are let in.
    is_open: bool,
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
    /// Members of the node's former life, as its journal says.
    pub(in crate::node) fn remember(&mut self, members: Vec<Remembered>) {
        let others = members.into_iter().filter(|member| member.node != self.config.node);
        self.beginning.awaited = others.map(|member| (member.node, member.address)).collect();
        if !self.beginning.awaited.is_empty() {
            self.ask_seeds_and_remembered();
        }
    }

    fn ask_seeds_and_remembered(&mut self) {
        let seeds = core::mem::take(&mut self.beginning.seeds);
        let addresses = self.beginning.set_seeds(seeds);
        self.membership.handle(self.now, sedge_membership::Input::Seeds(addresses));
    }

    /// Whom the next life of the node is to meet before it lets clients in: members, those that this life still waits for, and those that died
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

    /// Whom the node waits for before it lets clients in, and where they are or were.
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

    /// Who has told all, and whoever is unknown to those that let clients in, is not waited for.
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

    /// Tells a neighbour whom this node knows, if it lets clients in.
    pub(in crate::node) fn tell_serving(&mut self, to: NodeId) {
        if self.state != NodeState::Recovery && !self.links.is_older(to) {
            let mail = NodeMail::Serving { members: self.ring.clone() };
            self.send_control(to, ControlTopic::Node, mail.encode());
        }
    }

    /// The members have changed: guests are told.
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
