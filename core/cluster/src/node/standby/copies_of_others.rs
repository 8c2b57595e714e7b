//! Copies of other nodes' sessions that this node has: a journal of each of their shards, kept in memory.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{Bytes, BytesMut};
use sedge_base::{NodeId, ShardId};

use crate::Recovery;
use crate::link::ControlTopic;
use crate::mail::Life;
use crate::node::Node;
use crate::wire::{ReplicaMail, WireError};

/// Largest batch: more than all sessions of a shard take in one turn is not to be expected.
const MAX_BATCH_BYTES: usize = 1024 * 1024 * 1024;

/// Copies by node.
#[derive(Debug, Default)]
pub(in crate::node) struct Replicas {
    nodes: BTreeMap<NodeId, Replica>,
    /// Answers that leave at the end of the turn.
    news: BTreeMap<(NodeId, ShardId), u64>,
    /// Nodes that were told that there is no copy of theirs here.
    without: BTreeSet<NodeId>,
}

#[derive(Debug)]
pub(in crate::node) struct Replica {
    attempt: u32,
    pub(in crate::node) shards: Vec<Copy>,
}

/// A copy of one shard.
#[derive(Debug, Default)]
pub(in crate::node) struct Copy {
    pub(in crate::node) recovery: Recovery,
    /// The parts of a batch that is not complete.
    parts: BytesMut,
}

impl Replicas {
    /// The copy of a node's sessions, if it is complete; it is not kept.
    pub(in crate::node) fn take_whole(&mut self, node: NodeId) -> Option<Replica> {
        let replica = self.nodes.remove(&node)?;
        replica.shards.iter().all(|copy| copy.recovery.is_whole()).then_some(replica)
    }

    /// Whether there is a complete copy of a node's sessions.
    pub(in crate::node) fn has_whole(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|replica| replica.shards.iter().all(|copy| copy.recovery.is_whole()))
    }

    /// Nodes whose sessions are copied here.
    pub(in crate::node) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(in crate::node) fn forget(&mut self, node: NodeId) {
        self.nodes.remove(&node);
        self.without.remove(&node);
    }
}

impl Node {
    pub(in crate::node) fn replica_mail(&mut self, from: NodeId, payload: Bytes) -> Result<(), WireError> {
        let mail = ReplicaMail::decode(payload)?;
        self.check_known(mail.since())?;
        match mail {
            ReplicaMail::Begin { attempt, shards } => {
                let shards = (0..shards).map(|_| Copy::default()).collect();
                self.replicas.without.remove(&from);
                self.replicas.nodes.insert(from, Replica { attempt, shards });
            }
            ReplicaMail::Batch { shard, number, last, bytes } => {
                self.replica_batch(from, shard, number, last, bytes)?;
            }
            ReplicaMail::Copied { attempt, shard, number, whole } => self.copied(from, attempt, shard, number, whole),
            ReplicaMail::Backups { nodes } => {
                if let Some(peer) = self.peers.get_mut(&from) {
                    peer.backups = nodes;
                }
            }
            ReplicaMail::Want { of, incarnation } => self.strays_wanted(from, of, incarnation),
            ReplicaMail::Strays { of, incarnation, last, strays } => {
                self.strays_arrived(from, of, incarnation, last, strays);
            }
            ReplicaMail::Taken { of, incarnation } => {
                // A node itself is told of a takeover before its sessions are safe: see [`ReplicaMail::Safe`].
                if of != self.config.node {
                    self.are_safe_elsewhere(from, Life { node: of, incarnation });
                }
                self.taken_over(of, incarnation);
            }
            ReplicaMail::Safe { of, incarnation } => {
                self.check_known(2)?;
                self.are_safe_elsewhere(from, Life { node: of, incarnation });
            }
            ReplicaMail::End => self.replicas.forget(from),
            ReplicaMail::Ask { of, incarnation, client, epoch } => {
                self.asked_for(from, Life { node: of, incarnation }, client, epoch);
            }
            ReplicaMail::Keeps { of, incarnation, client, epoch } => {
                self.keeps(from, Life { node: of, incarnation }, client, epoch);
            }
            ReplicaMail::Has { client, epoch, has } => self.has_answered(from, &client, epoch, has),
            ReplicaMail::Nothing => {
                self.backup_restarts(from);
                self.choose_backups();
            }
        }
        Ok(())
    }

    fn replica_batch(
        &mut self,
        from: NodeId,
        shard: ShardId,
        number: u64,
        last: bool,
        bytes: Bytes,
    ) -> Result<(), WireError> {
        let Some(replica) = self.replicas.nodes.get_mut(&from) else {
            if last && self.replicas.without.insert(from) {
                self.send_control(from, ControlTopic::Replica, ReplicaMail::Nothing.encode());
            }
            return Ok(());
        };
        let Some(copy) = replica.shards.get_mut(usize::from(shard.0)) else { return Err(WireError("no such shard")) };
        let whole = if last && copy.parts.is_empty() {
            bytes
        } else {
            if copy.parts.len() + bytes.len() > MAX_BATCH_BYTES {
                return Err(WireError("a batch too large"));
            }
            copy.parts.extend_from_slice(&bytes);
            if !last {
                return Ok(());
            }
            copy.parts.split().freeze()
        };
        if copy.recovery.apply(whole).is_err() {
            return Err(WireError("a batch that makes no sense"));
        }
        self.replicas.news.insert((from, shard), number);
        Ok(())
    }

    /// Tells the owners of copies how far they have come.
    pub(in crate::node) fn tell_copies(&mut self) {
        for ((node, shard), number) in core::mem::take(&mut self.replicas.news) {
            let Some(replica) = self.replicas.nodes.get(&node) else { continue };
            let attempt = replica.attempt;
            let whole = replica.shards.get(usize::from(shard.0)).is_some_and(|copy| copy.recovery.is_whole());
            let mail = ReplicaMail::Copied { attempt, shard, number, whole };
            self.send_control(node, ControlTopic::Replica, mail.encode());
        }
    }
}
