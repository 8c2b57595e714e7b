//! Publications to topics that are new here: those who have not said yet whether they want them get them when they have.
//!
//! Algorithms that learn from publications which topics there are ask all nodes about a new one. Its first publications go at once where
//! they are known to be wanted; for those who were asked they are kept back until all have answered, and go together to those that want them.
//!
//! ```text
//!  publisher's node                          others
//!  │ publish t 1  ask t                      │
//!  ├────────────────────────────────────────►│
//!  │ publish t 2                      wanted │
//!  │◄────────────────────────────────────────┤    kept for them: 1, 2
//!  │                              not wanted │
//!  │◄────────────────────────────────────────┤
//!  │ 1, 2                                    │    to the first only
//!  ├────────────────────────────────────────►│
//! ```
//!
//! They go to whoever has not answered after [`PATIENCE`], when there is no room to keep more, and before mail on which more rests than on an
//! answer (DESIGN section 1, "SUBACK means the cluster knows"): to such mail it makes no difference that they were kept.
//!
//! Only QoS 0 is kept back: copies of sessions and takeovers rest on the order in which QoS 1 and 2 come from one shard, whatever their topics.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sedge_base::{Duration, Instant, NodeId, ShardId};
use sedge_mqtt::{Message, QoS, TopicName};
use smallvec::SmallVec;

use super::Parcel;
use crate::node::Node;

/// How long a node may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// Publications that are kept back, and their bytes; more go to everyone, with what was kept of their topic.
const MAX_KEPT: usize = 1_000;
const MAX_KEPT_BYTES: usize = 16 * 1024 * 1024;
/// How many publications of the same shard one may fall behind: receivers tell apart what has come before within 4096.
const MAX_BEHIND: u64 = 1_024;
/// How often what is kept of a topic is sent for the sake of mail before all have answered. Every time takes its way through the links again.
const MAX_HURRIES: u8 = 3;

/// A publication, and for whom it is kept.
#[derive(Debug)]
struct Kept {
    message: Arc<Message>,
    nodes: SmallVec<[NodeId; 8]>,
}

/// A topic that others were asked about.
#[derive(Debug)]
struct Asked {
    until: Instant,
    /// For whom anything is kept.
    nodes: BTreeSet<NodeId>,
    kept: Vec<Kept>,
    hurries: u8,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(in crate::node) struct Asking {
    topics: BTreeMap<TopicName, Asked>,
    count: usize,
    bytes: usize,
    /// Numbers of publications of shards below which nothing is kept.
    oldest: BTreeMap<ShardId, u64>,
    /// Somebody may have answered.
    is_news: bool,
    /// Destinations that did not want what was kept for them.
    pub(super) spared: u64,
    /// Destinations that got something without having answered.
    pub(super) unanswered: u64,
}

fn size(message: &Message) -> usize {
    message.payload.len() + message.topic.as_bytes().len() + 128
}

impl Asking {
    pub(super) fn timeout(&self) -> Option<Instant> {
        self.topics.values().map(|asked| asked.until).min()
    }

    /// An algorithm has heard something, or a link is down.
    pub(in crate::node) const fn note_news(&mut self) {
        self.is_news = true;
    }

    fn has_room(&self, message: &Message) -> bool {
        self.count < MAX_KEPT && self.bytes + size(message) <= MAX_KEPT_BYTES
    }

    fn keep(&mut self, until: Instant, message: &Arc<Message>, nodes: SmallVec<[NodeId; 8]>) {
        self.count += 1;
        self.bytes += size(message);
        self.oldest.entry(message.id.shard).or_insert(message.id.seq);
        let new = || Asked { until, nodes: BTreeSet::new(), kept: Vec::new(), hurries: 0 };
        let asked = self.topics.entry(message.topic.detached()).or_insert_with(new);
        asked.nodes.extend(&nodes);
        asked.kept.push(Kept { message: Arc::clone(message), nodes });
    }

    fn take(&mut self, topic: &TopicName) -> Option<Asked> {
        let asked = self.topics.remove(topic)?;
        self.count -= asked.kept.len();
        self.bytes -= asked.kept.iter().map(|kept| size(&kept.message)).sum::<usize>();
        if self.topics.is_empty() {
            self.oldest.clear();
        }
        Some(asked)
    }

    /// A node is gone.
    pub(in crate::node) fn forget(&mut self, node: NodeId) {
        self.is_news = true;
        for asked in self.topics.values_mut().filter(|asked| asked.nodes.contains(&node)) {
            asked.nodes.remove(&node);
            asked.kept.iter_mut().for_each(|kept| kept.nodes.retain(|kept| *kept != node));
        }
    }
}

impl Node {
    /// Keeps a publication of a client of this node back from those who may not want it; leaves those to whom it goes at once.
    pub(in crate::node) fn keep_back(&mut self, message: &Arc<Message>, parcels: &mut SmallVec<[Parcel; 8]>) {
        if message.qos > QoS::AtMostOnce || message.retain {
            // Everybody gets it at once, and nobody may get it before what was published earlier.
            return self.hand_out(&message.topic);
        }
        let mut asked = Vec::new();
        self.overlay.unanswered(&message.topic, &mut asked);
        let before = self.relay.asking.topics.get(&message.topic).map(|asked| &asked.nodes);
        let waits = |node: &NodeId| asked.contains(node) || before.is_some_and(|nodes| nodes.contains(node));
        let nodes: SmallVec<[NodeId; 8]> = parcels.iter().map(|parcel| parcel.to).filter(waits).collect();
        if nodes.is_empty() {
            return;
        }
        if !self.relay.asking.has_room(message) {
            return self.hand_out(&message.topic);
        }
        parcels.retain(|parcel| !nodes.contains(&parcel.to));
        self.relay.asking.keep(self.now.instant + PATIENCE, message, nodes);
    }

    /// A client of this node publishes: what is kept of its shard must not fall too far behind.
    pub(in crate::node) fn keep_pace(&mut self, message: &Message) {
        let oldest = self.relay.asking.oldest.get(&message.id.shard);
        if oldest.is_some_and(|oldest| message.id.seq > oldest.saturating_add(MAX_BEHIND)) {
            self.hand_out_all();
        }
    }

    /// Ends a turn: sends what all have answered for whom it is kept.
    pub(in crate::node) fn hand_out_answered(&mut self) {
        if !core::mem::take(&mut self.relay.asking.is_news) {
            return;
        }
        let (overlay, asking) = (&self.overlay, &self.relay.asking);
        let is_answered = |(topic, asked): &(&TopicName, &Asked)| {
            let mut open = Vec::new();
            overlay.unanswered(topic, &mut open);
            !open.iter().any(|node| asked.nodes.contains(node))
        };
        let answered: Vec<TopicName> =
            asking.topics.iter().filter(is_answered).map(|(topic, _)| topic.clone()).collect();
        for topic in answered {
            self.hand_out(&topic);
        }
    }

    /// Sends what has been kept long enough.
    pub(super) fn hand_out_due(&mut self) {
        let now = self.now.instant;
        let due = self.relay.asking.topics.iter().filter(|(_, asked)| asked.until <= now);
        let due: Vec<TopicName> = due.map(|(topic, _)| topic.clone()).collect();
        for topic in due {
            self.hand_out(&topic);
        }
    }

    /// Sends all that is kept.
    pub(in crate::node) fn hand_out_all(&mut self) {
        let topics: Vec<TopicName> = self.relay.asking.topics.keys().cloned().collect();
        for topic in topics {
            self.hand_out(&topic);
        }
    }

    /// Sends what is kept of a topic to those who want it, and to those who have not answered.
    fn hand_out(&mut self, topic: &TopicName) {
        let Some(asked) = self.relay.asking.take(topic) else { return };
        let (wanting, open) = self.audience(topic);
        for Kept { message, nodes } in asked.kept {
            self.send_kept(&message, &nodes, &wanting, &open);
        }
    }

    /// Who may want publications to a topic, and who of them has only not answered.
    fn audience(&mut self, topic: &TopicName) -> (Vec<NodeId>, Vec<NodeId>) {
        let (mut wanting, mut open) = (Vec::new(), Vec::new());
        self.overlay.destinations(topic, &mut wanting);
        self.overlay.unanswered(topic, &mut open);
        (wanting, open)
    }

    fn send_kept(&mut self, message: &Arc<Message>, nodes: &[NodeId], wanting: &[NodeId], open: &[NodeId]) {
        let known = |node: &&NodeId| wanting.contains(node) && self.peers.contains_key(node);
        let parcels: SmallVec<[Parcel; 8]> =
            nodes.iter().filter(known).map(|to| Parcel { to: *to, plain: true, retained_copy: false }).collect();
        self.relay.asking.spared += (nodes.len() - parcels.len()) as u64;
        self.relay.asking.unanswered += parcels.iter().filter(|parcel| open.contains(&parcel.to)).count() as u64;
        if !parcels.is_empty() {
            self.dispatch(message, &parcels, None, false);
        }
    }

    /// Mail is about to go to a node that has to find there what was published before it: sends what is kept for that node. Others who are
    /// known to want it get theirs with it, since a part of the way may be the same.
    pub(in crate::node) fn hand_out_for(&mut self, to: NodeId) {
        let concerned = self.relay.asking.topics.iter().filter(|(_, asked)| asked.nodes.contains(&to));
        let topics: Vec<TopicName> = concerned.map(|(topic, _)| topic.clone()).collect();
        for topic in topics {
            let Some(mut asked) = self.relay.asking.take(&topic) else { continue };
            let (wanting, open) = self.audience(&topic);
            asked.hurries += 1;
            let stays = |node: &NodeId| asked.hurries <= MAX_HURRIES && *node != to && open.contains(node);
            let mut rest = Vec::new();
            for Kept { message, nodes } in asked.kept {
                type Nodes = SmallVec<[NodeId; 8]>;
                let (later, now): (Nodes, Nodes) = nodes.into_iter().partition(|node| stays(node));
                self.send_kept(&message, &now, &wanting, &open);
                if !later.is_empty() {
                    rest.push((message, later));
                }
            }
            for (message, nodes) in rest {
                self.relay.asking.keep(asked.until, &message, nodes);
            }
            if let Some(again) = self.relay.asking.topics.get_mut(&topic) {
                again.hurries = asked.hurries;
            }
        }
    }
}
