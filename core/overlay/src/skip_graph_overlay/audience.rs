//! The topics that clients of this node publish to, and which other nodes subscribe to them.

use std::collections::{BTreeMap, BTreeSet};

use sedge_base::{Duration, Instant, NodeId};
use sedge_mqtt::TopicName;

/// The subscribers of one topic.
#[derive(Debug)]
struct Audience {
    subscribers: BTreeSet<NodeId>,
    /// Nodes that have not said yet whether they do.
    unknown: BTreeSet<NodeId>,
    last_publication: Instant,
    /// Since when the graph's status contradicts this, or when that was last reported.
    contradicted: Option<Instant>,
}

/// Nodes by topic. Each node is asked when a topic is new here and when a link to it comes up; between that, it tells its changes.
#[derive(Debug, Default)]
pub(super) struct Audiences {
    topics: BTreeMap<TopicName, Audience>,
}

impl Audiences {
    pub(super) fn len(&self) -> usize {
        self.topics.len()
    }

    pub(super) fn topics(&self) -> impl Iterator<Item = &TopicName> {
        self.topics.keys()
    }

    /// Topics to which no other node subscribes, as all have said.
    pub(super) fn suspended(&self) -> impl Iterator<Item = &TopicName> {
        let is_suspended = |audience: &Audience| audience.subscribers.is_empty() && audience.unknown.is_empty();
        self.topics.iter().filter(move |(_, audience)| is_suspended(audience)).map(|(topic, _)| topic)
    }

    /// A topic more; all of these are to be asked.
    pub(super) fn begin(&mut self, now: Instant, topic: TopicName, unknown: BTreeSet<NodeId>) {
        self.topics.insert(
            topic,
            Audience { subscribers: BTreeSet::new(), unknown, last_publication: now, contradicted: None },
        );
    }

    /// Adds all nodes that may want a publication to `topic` that is made now; false if the topic is none of these.
    pub(super) fn publish(&mut self, now: Instant, topic: &TopicName, nodes: &mut Vec<NodeId>) -> bool {
        let Some(audience) = self.topics.get_mut(topic) else { return false };
        audience.last_publication = now;
        nodes.extend(&audience.subscribers);
        nodes.extend(&audience.unknown);
        true
    }

    /// Visits the nodes that have not said whether they subscribe to `topic`.
    pub(super) fn unanswered(&self, topic: &TopicName) -> impl Iterator<Item = NodeId> {
        let audience = self.topics.get(topic).into_iter();
        audience.flat_map(|audience| audience.unknown.difference(&audience.subscribers).copied())
    }

    /// Compares with whether the graph says that there are subscribers. True if the graph should look once more: it has said otherwise at
    /// this and another publication, `patience` apart, with no node left that has to answer.
    pub(super) fn contradicts(&mut self, now: Instant, topic: &TopicName, active: bool, patience: Duration) -> bool {
        let Some(audience) = self.topics.get_mut(topic) else { return false };
        if !audience.unknown.is_empty() || active != audience.subscribers.is_empty() {
            audience.contradicted = None;
            return false;
        }
        let since = audience.contradicted.get_or_insert(now);
        let is_due = now.since(*since) >= patience;
        if is_due {
            *since = now;
        }
        is_due
    }

    /// A node, which is linked to from now on, is to be asked about everything. Its earlier answers count until it answers anew.
    pub(super) fn doubt(&mut self, node: NodeId) {
        for audience in self.topics.values_mut() {
            audience.unknown.insert(node);
        }
    }

    /// The answer of a node.
    pub(super) fn answer(&mut self, node: NodeId, topic: &TopicName, subscribed: bool) {
        if let Some(audience) = self.topics.get_mut(topic) {
            audience.unknown.remove(&node);
            self.tell(node, topic, subscribed);
        }
    }

    /// A node says that it begins or ceases to subscribe; nothing is kept of it for topics that nobody here publishes to.
    pub(super) fn tell(&mut self, node: NodeId, topic: &TopicName, subscribed: bool) {
        let Some(audience) = self.topics.get_mut(topic) else { return };
        if subscribed {
            audience.subscribers.insert(node);
        } else {
            audience.subscribers.remove(&node);
        }
    }

    pub(super) fn forget(&mut self, node: NodeId) {
        for audience in self.topics.values_mut() {
            audience.subscribers.remove(&node);
            audience.unknown.remove(&node);
        }
    }

    /// Whether `node` is known to subscribe; none if the topic is none of these.
    pub(super) fn subscribes(&self, topic: &TopicName, node: NodeId) -> Option<bool> {
        self.topics.get(topic).map(|audience| audience.subscribers.contains(&node))
    }

    /// The known subscribers; none if the topic is none of these.
    pub(super) fn subscribers(&self, topic: &TopicName) -> Option<&BTreeSet<NodeId>> {
        self.topics.get(topic).map(|audience| &audience.subscribers)
    }

    /// Takes out the topics to which nobody has published for `idle`.
    pub(super) fn take_idle(&mut self, now: Instant, idle: Duration) -> Vec<TopicName> {
        let old = |_: &TopicName, audience: &mut Audience| now.since(audience.last_publication) >= idle;
        self.topics.extract_if(.., old).map(|(topic, _)| topic).collect()
    }

    /// How many lines [`Audiences::iter`] gives.
    pub(super) fn subscriptions(&self) -> usize {
        self.topics.values().map(|audience| audience.subscribers.len()).sum()
    }

    /// Each topic with the nodes that are known to subscribe to it.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&TopicName, &BTreeSet<NodeId>)> {
        self.topics.iter().map(|(topic, audience)| (topic, &audience.subscribers))
    }
}
