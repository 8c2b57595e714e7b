//! Mail between nodes for their operators: where clients can go, which connections are to end, and which nodes have no room.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use sedge_base::{ClientId, NodeId};
use sedge_mqtt::{ReasonCode, TopicFilter, Utf8};

use crate::link::ControlTopic;
use crate::mail::ToShard;
use crate::node::Node;
use crate::node::sessions::home::home_of;
use crate::reception::shard_of;
use crate::wire::{NodeMail, WireError};
use crate::{Kick, NodeOutput};

/// Requests to other nodes that may be open; the oldest is answered with no for one more.
const OPEN_KICKS_MAX: usize = 64;
/// Filters of closed topics that are taken of one node: more than all bridges of a configuration have.
const CLOSED_TOPICS_MAX: usize = 10_000;

/// Nodes whose names are known; those that are gone for good make room.
const NAMES_MAX: usize = 4_096;
/// Longest name that is kept.
const NAME_BYTES_MAX: usize = 256;

/// Requests to other nodes that are not answered, and by whom.
#[derive(Debug, Default)]
pub(in crate::node) struct Kicks {
    open: BTreeMap<u64, BTreeSet<NodeId>>,
}

impl Node {
    /// Where clients reach the other nodes to which links are up, as far as those say so.
    pub fn client_addresses(&self) -> Vec<Utf8> {
        self.peers
            .values()
            .filter(|peer| peer.is_up() && !peer.is_draining())
            .filter_map(|peer| peer.client_address.clone())
            .collect()
    }

    /// Which node runs what has this client id, a part of the process such as a bridge: the same at all nodes that see the same members,
    /// without one that is being emptied. `None`: nobody that this node knows of.
    pub fn runner_of(&self, client: &ClientId) -> Option<NodeId> {
        let me = self.config.node;
        let runs = |node: &NodeId| match self.peers.get(node) {
            _ if *node == me => !self.is_draining(),
            Some(peer) => peer.is_up() && !peer.is_draining(),
            None => false,
        };
        home_of(client, self.ring.iter().copied().filter(runs))
    }

    /// Tells a neighbour the time, where clients reach this node, and what it cannot do.
    pub(in crate::node) fn introduce(&mut self, to: NodeId) {
        self.tell_time(to);
        if let Some(name) = self.config.name.clone() {
            self.send_control(to, ControlTopic::Node, NodeMail::Name { name }.encode());
        }
        if let Some(address) = self.config.client_address.clone() {
            self.send_control(to, ControlTopic::Node, NodeMail::Clients { address }.encode());
        }
        if self.is_full {
            self.send_control(to, ControlTopic::Node, NodeMail::Full { full: true }.encode());
        }
        // It tells anew, too.
        if let Some(peer) = self.peers.get_mut(&to) {
            peer.closed_topics.clear();
        }
        if !self.closed_topics.is_empty() {
            let filters = self.closed_topics.clone();
            self.send_control(to, ControlTopic::Node, NodeMail::ClosedTopics { filters }.encode());
        }
        self.tell_closed_topics();
        if self.is_draining() {
            self.send_control(to, ControlTopic::Node, NodeMail::Draining { draining: true }.encode());
        }
    }

    /// Tells the neighbours, so that their clients' publications are refused before they come here: those that have come are taken, since
    /// others may have been told already that they are accepted.
    pub(in crate::node) fn set_full(&mut self, full: bool) {
        if self.is_full == full {
            return;
        }
        self.is_full = full;
        let linked: Vec<NodeId> =
            self.peers.iter().filter(|(_, peer)| peer.is_linked()).map(|(node, _)| *node).collect();
        for node in linked {
            self.send_control(node, ControlTopic::Node, NodeMail::Full { full }.encode());
        }
    }

    /// Tells the neighbours and the shards for which topics there is no room here.
    pub(in crate::node) fn set_closed_topics(&mut self, filters: Vec<TopicFilter>) {
        if self.closed_topics == filters {
            return;
        }
        let mail = NodeMail::ClosedTopics { filters: filters.clone() }.encode();
        self.closed_topics = filters;
        let linked: Vec<NodeId> =
            self.peers.iter().filter(|(_, peer)| peer.is_linked()).map(|(node, _)| *node).collect();
        for node in linked {
            self.send_control(node, ControlTopic::Node, mail.clone());
        }
        self.tell_closed_topics();
    }

    /// Tells the shards for which topics there is no room at some member, if that has changed.
    pub(in crate::node) fn tell_closed_topics(&mut self) {
        let peers = self.peers.values().flat_map(|peer| &peer.closed_topics);
        let all: BTreeSet<TopicFilter> = self.closed_topics.iter().chain(peers).cloned().collect();
        if self.told_closed_topics != all {
            self.told_closed_topics.clone_from(&all);
            let filters: Arc<[TopicFilter]> = all.into_iter().collect();
            self.tell_all_shards(|| ToShard::ClosedTopics(Arc::clone(&filters)));
        }
    }

    /// Ends the connection of a client that this node does not own, at whichever node does.
    pub(in crate::node) fn kick_elsewhere(&mut self, kick: Kick) {
        let Kick { request, client, reason, end_session } = kick;
        let mail = NodeMail::Kick { request, client, reason, end_session }.encode();
        let others: Vec<NodeId> = self.ring.iter().copied().filter(|node| *node != self.config.node).collect();
        let mut asked = BTreeSet::new();
        for node in others {
            if self.send_control(node, ControlTopic::Node, mail.clone()).is_some() {
                asked.insert(node);
            }
        }
        if asked.is_empty() {
            return self.kicked(request, None);
        }
        self.kicks.open.insert(request, asked);
        if self.kicks.open.len() > OPEN_KICKS_MAX
            && let Some((oldest, _)) = self.kicks.open.pop_first()
        {
            self.kicked(oldest, None);
        }
    }

    fn kicked(&mut self, request: u64, by: Option<NodeId>) {
        self.outputs.push_back(NodeOutput::Kicked { request, by });
    }

    pub(in crate::node) fn node_mail(&mut self, from: NodeId, payload: Bytes) -> Result<(), WireError> {
        let mail = NodeMail::decode(payload)?;
        self.check_known(mail.since())?;
        match mail {
            NodeMail::Clients { address } => {
                if let Some(peer) = self.peers.get_mut(&from) {
                    peer.client_address = Some(address);
                }
            }
            NodeMail::Full { full } => {
                if let Some(peer) = self.peers.get_mut(&from) {
                    peer.is_full = full;
                }
            }
            NodeMail::ClosedTopics { mut filters } => {
                filters.truncate(CLOSED_TOPICS_MAX);
                if let Some(peer) = self.peers.get_mut(&from) {
                    peer.closed_topics = filters;
                }
                self.tell_closed_topics();
            }
            NodeMail::Draining { draining } => self.neighbour_drains(from, draining),
            NodeMail::Hear { number } => self.hears(from, number),
            NodeMail::Heard { number } => {
                if let Some(peer) = self.peers.get_mut(&from).filter(|peer| peer.asked == Some(number)) {
                    peer.asked = None;
                }
            }
            NodeMail::Serving { members } => {
                if let Some(peer) = self.peers.get_mut(&from) {
                    peer.serving = Some(members);
                }
            }
            NodeMail::Time { cluster, system_ahead, serving } => self.hears_time(from, cluster, system_ahead, serving),
            NodeMail::Name { name } => self.is_called(from, name),
            NodeMail::Ask { request, question } => self.is_asked(from, request, question),
            NodeMail::Answer { request, answer } => self.is_answered(from, request, answer),
            NodeMail::Kick { request, client, reason, end_session } => {
                let owned = self.kick_here(client, reason, end_session);
                self.send_control(from, ControlTopic::Node, NodeMail::Kicked { request, owned }.encode());
            }
            NodeMail::Kicked { request, owned: true } => {
                if self.kicks.open.remove(&request).is_some() {
                    self.kicked(request, Some(from));
                }
            }
            NodeMail::Kicked { request, owned: false } => self.does_not_own(request, from),
        }
        Ok(())
    }

    /// A neighbour says its name, which is kept as long as somebody may ask for it.
    fn is_called(&mut self, node: NodeId, name: Utf8) {
        if name.as_str().len() > NAME_BYTES_MAX {
            return;
        }
        if self.operators.names.len() >= NAMES_MAX {
            let known: BTreeSet<NodeId> = self.membership.dead().map(|(member, _)| member.node).collect();
            let ring = &self.ring;
            self.operators.names.retain(|node, _| ring.contains(node) || known.contains(node));
        }
        if self.operators.names.len() < NAMES_MAX || self.operators.names.contains_key(&node) {
            self.operators.names.insert(node, name);
        }
    }

    /// The name of a node, this one included, if it has said so.
    pub fn name_of(&self, node: NodeId) -> Option<&Utf8> {
        if node == self.config.node { self.config.name.as_ref() } else { self.operators.names.get(&node) }
    }

    fn kick_here(&mut self, client: ClientId, reason: ReasonCode, end_session: bool) -> bool {
        let owned = self.claims.owns(&client);
        if owned {
            let shard = shard_of(&client, self.config.shards);
            self.tell_shard(shard, ToShard::Kick { client, reason, end_session });
        }
        owned
    }

    fn does_not_own(&mut self, request: u64, node: NodeId) {
        let Some(asked) = self.kicks.open.get_mut(&request) else { return };
        asked.remove(&node);
        if asked.is_empty() {
            self.kicks.open.remove(&request);
            self.kicked(request, None);
        }
    }

    /// Nobody waits for the answers of a node that is gone.
    pub(in crate::node) fn kicks_without(&mut self, node: NodeId) {
        for request in self.kicks.open.keys().copied().collect::<Vec<_>>() {
            self.does_not_own(request, node);
        }
    }
}
