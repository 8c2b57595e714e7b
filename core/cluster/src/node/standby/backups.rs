//! Copies of this node's sessions at other nodes, its backups (DESIGN section 5, "The two-copy rule").
//!
//! A new backup gets everything, and the changes meanwhile. From then on nothing leaves a shard before the changes it depends on are
//! at every backup that has everything.

use bytes::Bytes;
use sedge_base::{NodeId, ShardId, mix};

use crate::link::{ControlTopic, FrameSeq};
use crate::mail::ToShard;
use crate::node::Node;
use crate::node::standby::unreachable::Unreached;
use crate::wire::ReplicaMail;

/// About the size of one part of a batch.
const PART_BYTES: usize = 256 * 1024;

/// See the module.
#[derive(Debug, Default)]
pub(in crate::node) struct Copies {
    backups: Vec<Backup>,
    attempt: u32,
    /// For each shard its last batch, and the last that it was told is copied.
    shards: Vec<(u64, u64)>,
    /// The backups that the shards were told of last.
    announced: Vec<NodeId>,
    pub(in crate::node) unreached: Unreached,
}

#[derive(Debug)]
struct Backup {
    node: NodeId,
    /// Batches of earlier attempts are not for it.
    attempt: u32,
    /// For each shard the last batch that it has, and whether it has everything.
    shards: Vec<(u64, bool)>,
    /// Frame that tells the backup that it is one no more. Until it has the frame, its copy counts: nothing may leave that is not in that copy.
    end: Option<FrameSeq>,
}

impl Backup {
    fn is_whole(&self) -> bool {
        self.shards.iter().all(|(_, whole)| *whole)
    }
}

impl Copies {
    /// Nodes that have everything, this one not counted.
    pub(in crate::node) fn whole(&self) -> impl Iterator<Item = NodeId> {
        self.backups.iter().filter(|backup| backup.end.is_none() && backup.is_whole()).map(|backup| backup.node)
    }

    /// Whether changes are copied at all.
    pub(in crate::node) const fn is_active(&self) -> bool {
        !self.backups.is_empty()
    }

    /// The last batch of a shard that every complete backup has.
    fn copied(&self, shard: usize) -> u64 {
        let of_shard = self.backups.iter().filter_map(|backup| backup.shards.get(shard));
        let whole = of_shard.filter(|(_, whole)| *whole).map(|(batch, _)| *batch);
        whole.min().unwrap_or_else(|| self.shards.get(shard).map_or(0, |(last, _)| *last))
    }
}

impl Node {
    /// Keeps the backups there are as long as they live, and chooses others where some are missing.
    pub(in crate::node) fn choose_backups(&mut self) {
        let me = self.config.node;
        let ring = &self.ring;
        let had = self.copies.backups.len();
        self.copies.backups.retain(|backup| ring.binary_search(&backup.node).is_ok());
        let mut changed = self.copies.backups.len() != had;
        let wanted = if self.is_drained() { 0 } else { usize::from(self.config.copies.saturating_sub(1)) };
        let mut others: Vec<NodeId> = ring.iter().copied().filter(|node| *node != me).collect();
        others.retain(|node| {
            let is_up = self.peers.get(node).is_some_and(crate::node::peers::Peer::is_up);
            is_up && !self.is_emptied(*node) && self.copies.backups.iter().all(|backup| backup.node != *node)
        });
        others.sort_by_key(|node| core::cmp::Reverse(mix(me.get() ^ mix(node.get()))));
        let missing = wanted.saturating_sub(self.copies.backups.len() - self.backups_to_replace());
        for node in others.into_iter().take(missing) {
            self.begin_backup(node);
            changed = true;
        }
        changed |= self.retire_backups(wanted);
        if changed {
            self.backups_changed();
        }
    }

    /// Backups that are being emptied, or were told that they are ones no more.
    fn backups_to_replace(&self) -> usize {
        let leave = |backup: &&Backup| backup.end.is_some() || self.is_emptied(backup.node);
        self.copies.backups.iter().filter(leave).count()
    }

    fn is_emptied(&self, node: NodeId) -> bool {
        self.peers.get(&node).is_some_and(crate::node::peers::Peer::is_draining)
    }

    /// Lets backups go that are being emptied, as soon as others have everything or there are no others; and all, if none are wanted.
    fn retire_backups(&mut self, wanted: usize) -> bool {
        let told = self.copies.backups.iter().filter(|backup| backup.end.is_none());
        let (retiring, staying): (Vec<_>, Vec<_>) =
            told.partition(|backup| wanted == 0 || self.is_emptied(backup.node));
        if retiring.is_empty() || !staying.into_iter().all(Backup::is_whole) {
            return false;
        }
        let retiring: Vec<NodeId> = retiring.into_iter().map(|backup| backup.node).collect();
        for backup in self.copies.backups.iter_mut().filter(|backup| retiring.contains(&backup.node)) {
            backup.end = Some(FrameSeq(u64::MAX));
        }
        // First the others are told who takes over now: until then it is the one that has it all.
        self.announce_backups();
        for node in retiring {
            let end = self.send_control(node, ControlTopic::Replica, ReplicaMail::End.encode());
            if let Some(backup) = self.copies.backups.iter_mut().find(|backup| backup.node == node) {
                backup.end = end.or(backup.end);
            }
        }
        true
    }

    /// A neighbour has taken frames: it may have learnt that it is no backup any more.
    pub(in crate::node) fn backup_took(&mut self, node: NodeId, up_to: FrameSeq) {
        let had = self.copies.backups.len();
        let is_over = |backup: &Backup| backup.node == node && backup.end.is_some_and(|end| end <= up_to);
        self.copies.backups.retain(|backup| !is_over(backup));
        if self.copies.backups.len() != had {
            self.backups_changed();
            self.choose_backups();
        }
    }

    /// A node that is being emptied, or was taken for dead, is told that it is no backup, in case that it still thinks so: its copy
    /// misses what has changed since.
    pub(in crate::node) fn end_stale_backup(&mut self, node: NodeId) {
        if self.copies.backups.iter().all(|backup| backup.node != node) {
            self.send_control(node, ControlTopic::Replica, ReplicaMail::End.encode());
        }
    }

    fn begin_backup(&mut self, node: NodeId) {
        let shards = self.config.shards;
        self.copies.shards.resize(usize::from(shards), (0, 0));
        self.copies.attempt += 1;
        let attempt = self.copies.attempt;
        self.copies.backups.push(Backup { node, attempt, shards: vec![(0, false); usize::from(shards)], end: None });
        self.send_control(node, ControlTopic::Replica, ReplicaMail::Begin { attempt, shards }.encode());
        self.tell_all_shards(|| ToShard::Copy(attempt));
    }

    /// Nodes that have copies, or were told that they have them no longer and may not know it yet.
    pub(in crate::node) fn backups(&self) -> impl Iterator<Item = NodeId> {
        self.copies.backups.iter().map(|backup| backup.node)
    }

    /// The link to a node has begun anew, or does not come back: it may have missed something.
    pub(in crate::node) fn backup_restarts(&mut self, node: NodeId) {
        let had = self.copies.backups.len();
        self.copies.backups.retain(|backup| backup.node != node);
        if self.copies.backups.len() != had {
            self.backups_changed();
        }
    }

    fn backups_changed(&mut self) {
        if self.copies.is_active() {
            (0..self.copies.shards.len()).for_each(|shard| self.tell_copied(shard));
        } else if !self.copies.shards.is_empty() {
            self.copies.shards = Vec::new();
            self.tell_all_shards(|| ToShard::CopyNothing);
        }
        self.announce_backups();
    }

    fn announce_backups(&mut self) {
        let nodes: Vec<NodeId> = self.copies.whole().collect();
        if nodes == self.copies.announced {
            return;
        }
        self.copies.announced = nodes;
        let linked: Vec<NodeId> =
            self.peers.iter().filter(|(_, peer)| peer.is_linked()).map(|(node, _)| *node).collect();
        for node in linked {
            self.tell_backups(node);
        }
    }

    /// Tells a neighbour who takes over when this node is gone.
    pub(in crate::node) fn tell_backups(&mut self, to: NodeId) {
        let mail = ReplicaMail::Backups { nodes: self.copies.announced.clone() };
        self.send_control(to, ControlTopic::Replica, mail.encode());
    }

    /// A shard has made a batch.
    pub(in crate::node) fn batch(&mut self, shard: ShardId, number: u64, attempt: u32, mut bytes: Bytes) {
        let at = usize::from(shard.0);
        let Some((last, _)) = self.copies.shards.get_mut(at) else { return };
        *last = number;
        let backups = self.copies.backups.iter().filter(|backup| backup.attempt <= attempt && backup.end.is_none());
        let to: Vec<NodeId> = backups.map(|backup| backup.node).collect();
        loop {
            let part = bytes.split_to(bytes.len().min(PART_BYTES));
            let last = bytes.is_empty();
            let mail = ReplicaMail::Batch { shard, number, last, bytes: part }.encode();
            for node in &to {
                self.send_control(*node, ControlTopic::Replica, mail.clone());
            }
            if last {
                break;
            }
        }
        self.tell_copied(at);
    }

    /// The process stood still: its shards hear what the node that would succeed this one was sent before. Batches that wait for the kernel to take
    /// them have not left.
    pub(in crate::node) fn tell_what_was_sent(&mut self) {
        let mut sent: Vec<u64> = self.copies.shards.iter().map(|(last, _)| *last).collect();
        let heir = self.copies.announced.first().copied();
        for (topic, payload) in heir.into_iter().flat_map(|heir| self.links.unwritten_mail(heir)) {
            if topic == ControlTopic::Replica
                && let Ok(ReplicaMail::Batch { shard, number, .. }) = ReplicaMail::decode(payload.clone())
                && let Some(last) = sent.get_mut(usize::from(shard.0))
            {
                *last = number.saturating_sub(1).min(*last);
            }
        }
        for (number, last) in (0..).zip(sent) {
            self.tell_shard(ShardId(number), ToShard::Sent(last));
        }
    }

    /// A backup has batches up to this one.
    pub(in crate::node) fn copied(&mut self, by: NodeId, attempt: u32, shard: ShardId, number: u64, whole: bool) {
        let at = usize::from(shard.0);
        let Some(backup) = self.copies.backups.iter_mut().find(|backup| (backup.node, backup.attempt) == (by, attempt))
        else {
            return;
        };
        let Some(state) = backup.shards.get_mut(at) else { return };
        let news = whole && !state.1;
        *state = (number, whole || state.1);
        if !state.1 {
            self.tell_shard(shard, ToShard::CopyMore);
        }
        if news {
            self.announce_backups();
            if self.backups_to_replace() > 0 {
                self.choose_backups();
            }
        }
        self.tell_copied(at);
    }

    fn tell_copied(&mut self, shard: usize) {
        let copied = self.copies.copied(shard);
        if let Some((_, told)) = self.copies.shards.get_mut(shard)
            && copied > *told
        {
            *told = copied;
            let number = u16::try_from(shard).unwrap_or(u16::MAX);
            self.tell_shard(ShardId(number), ToShard::Copied(copied));
        }
    }
}
