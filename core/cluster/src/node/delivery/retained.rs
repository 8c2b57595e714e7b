//! Retained messages are on every node: the last writer wins, and replicas are compared when nodes meet and now and then.

use std::sync::Arc;

use bytes::Bytes;
use sedge_base::{Instant, NodeId, Timestamp};
use sedge_broker::{Level, LevelQuery};
use sedge_mqtt::{Message, TopicFilter, TopicName};

use crate::link::ControlTopic;
use crate::node::Node;
use crate::sys;
use crate::wire::{RetainedMail, WireError};

/// Entries of the store that one page of a listing looks at: about a millisecond of the node's thread.
const PAGE_EXAMINES: usize = 10_000;

impl Node {
    /// At most `limit` retained messages that `filter` matches, from a place on, 0 being the first; and the place to go on from, if
    /// there may be more. A page may be short while others follow. A filter without wildcards is looked up.
    pub fn retained_page(
        &self,
        filter: &TopicFilter,
        wall: Timestamp,
        from: usize,
        limit: usize,
    ) -> (Vec<Arc<Message>>, Option<usize>) {
        let store = if sys::asks_for_a_node(filter) { &self.sys } else { &self.retained };
        if filter.as_str().contains(['+', '#']) {
            return store.page(filter, wall, (from, limit, PAGE_EXAMINES));
        }
        let mut found = Vec::new();
        store.matching(filter, wall, |message| found.push(Arc::clone(message)));
        (found, None)
    }

    /// One level of the tree of topics that have a retained message; the broker's own topics have a tree of their own, `$SYS/`.
    pub fn retained_level(&self, asked: &LevelQuery, wall: Timestamp) -> Level {
        if asked.below.starts_with("$SYS/") { self.sys.level(asked, wall) } else { self.retained.level(asked, wall) }
    }

    /// The retained message of a topic.
    pub fn retained_value(&self, topic: &TopicName, wall: Timestamp) -> Option<&Arc<Message>> {
        self.retained.value(topic, wall).or_else(|| self.sys.value(topic, wall))
    }

    /// Tells a neighbour what is here; it answers with what is different there.
    pub(in crate::node) fn offer_digests(&mut self, to: NodeId, answer: bool) {
        let mail = RetainedMail::Digests { answer, digests: Box::new(*self.retained.digests()) };
        self.send_control(to, ControlTopic::Retained, mail.encode());
    }

    /// Values expire, and tombstones that nobody needs are forgotten.
    pub(in crate::node) fn age_retained(&mut self) {
        let uptime = self.now.instant.since(Instant::ZERO);
        self.sys.purge(self.now.wall, uptime);
        self.retained.purge(self.now.wall, uptime);
        self.note_known_nodes();
        self.agreement.forget(self.now.instant, self.config.retained.tombstones);
        // A broker behind this node may have been away, and come back with what it had: its node clears that.
        if !self.config.has_upstream
            && let Some(agreed) = self.agreement.end_round(self.now.instant)
        {
            let forgotten = self.retained.agreed(agreed.since(Instant::ZERO));
            self.counters.retained_tombstones_agreed += forgotten as u64;
        }
    }

    /// A member may bring retained messages back that it has now.
    pub(in crate::node) fn note_known_nodes(&mut self) {
        for node in self.ring.iter().filter(|node| **node != self.config.node) {
            self.agreement.knows(*node, self.now.instant);
        }
    }

    /// Compares with one neighbour, chosen at random.
    pub(in crate::node) fn compare_with_someone(&mut self) {
        let linked: Vec<NodeId> =
            self.peers.iter().filter(|(_, peer)| peer.is_linked()).map(|(node, _)| *node).collect();
        if let Some(node) = self.rng.pick(&linked).copied() {
            self.counters.retained_comparisons += 1;
            self.offer_digests(node, true);
        }
    }

    pub(in crate::node) fn retained_mail(&mut self, from: NodeId, payload: Bytes) -> Result<(), WireError> {
        match RetainedMail::decode(payload)? {
            RetainedMail::Digests { answer, digests } => {
                let mine = self.retained.digests();
                let differ: Vec<usize> = mine
                    .iter()
                    .zip(digests.iter())
                    .enumerate()
                    .filter(|(_, (a, b))| a != b)
                    .map(|(at, _)| at)
                    .collect();
                if differ.is_empty() {
                    self.agreement.agrees(from, self.now.instant);
                }
                if let Some(peer) = self.peers.get_mut(&from) {
                    peer.push_retained(differ.into_iter());
                }
                if answer {
                    self.offer_digests(from, false);
                }
                self.pump(from);
            }
            RetainedMail::Messages(messages) => {
                for message in &messages {
                    self.retain(message, false);
                }
            }
            RetainedMail::Done => {
                if let Some(peer) = self.peers.get_mut(&from) {
                    peer.retained_done = true;
                }
            }
        }
        Ok(())
    }
}
