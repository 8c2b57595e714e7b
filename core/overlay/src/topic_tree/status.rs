//! View of the topic trees from outside.

use sedge_base::NodeId;
use sedge_mqtt::TopicName;

use super::machine::TopicTree;
use super::trees::Tree;
use crate::{AdvertLine, InterestLine, Overlay, Table, Topology, TreeNode, TreeView};

/// Counters of [`TopicTree`], from its start on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TopicTreeCounters {
    /// Changes that counted as settled only because [`super::TopicTreeConfig::settle_timeout`] had passed.
    pub late_settlements: u64,
    /// Digests that differed, so that everything was said anew.
    pub repairs: u64,
    /// Nodes whose interests were forgotten because they had sent no digest for [`super::TopicTreeConfig::lease`].
    pub expired: u64,
    /// Signals given out.
    pub signals: u64,
    /// Their bytes (TR-29).
    pub signal_bytes: u64,
    /// Publications that went to nodes which had not said yet whether they want their topic.
    pub unconfirmed: u64,
    /// Publications that went to all nodes because of [`super::TopicTreeConfig::max_topics`].
    pub over_limit: u64,
    /// How often a topic or root that another node has told was not kept because of [`super::TopicTreeConfig::max_heard_topics`].
    pub ignored: u64,
    /// How often a topic got no tree because of [`super::TopicTreeConfig::max_trees`].
    pub refused_trees: u64,
    /// Links left out each time that others were told of links, because of [`super::TopicTreeConfig::max_links`].
    pub untold_links: u64,
}

/// A topic in which this node takes part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicView {
    /// The topic.
    pub topic: TopicName,
    /// All nodes that publish it or subscribe to it, in the order of their ids.
    pub members: Vec<NodeId>,
    /// The root of its tree; none while there is no tree.
    pub root: Option<NodeId>,
    /// Every other member with its parent in the tree.
    pub parents: Vec<(NodeId, NodeId)>,
}

impl TopicTree {
    /// The topics in which this node takes part, at most `limit` from the `offset`th on, in order.
    pub fn topics(&self, offset: usize, limit: usize) -> Vec<TopicView> {
        let topics = self.topics.iter().skip(offset).take(limit);
        topics
            .map(|(name, topic)| {
                let tree = topic.tree.and_then(|id| self.trees.get(id));
                TopicView {
                    topic: name.clone(),
                    members: topic.members.to_vec(),
                    root: tree.map(|tree| tree.root),
                    parents: tree.map(|tree| tree.parents.clone().into_iter().collect()).unwrap_or_default(),
                }
            })
            .collect()
    }

    /// How many topics this node takes part in.
    pub fn topic_count(&self) -> usize {
        self.topics.len()
    }

    /// How many topics this node announces as publisher.
    pub fn published_count(&self) -> usize {
        self.local.published()
    }

    /// How many trees this node belongs to: topics whose members and root are the same share one (FW-05).
    pub fn tree_count(&self) -> usize {
        self.trees.len()
    }

    /// See [`Overlay::topology`]. Topics that have no tree yet are left out.
    pub(super) fn show(&self, limit: usize) -> Topology {
        let trees = self.topics.iter().filter_map(|(name, topic)| Some((name, self.trees.get(topic.tree?)?)));
        let publishers =
            self.topics.iter().flat_map(|(name, topic)| topic.publishers.iter().map(move |node| (name, *node)));
        let others = publishers.filter(|(_, origin)| *origin != self.me);
        let adverts =
            others.map(|(name, origin)| AdvertLine { topic: name.clone(), origin, next: self.way(name, origin) });
        let own = self.local.wants().map(|filter| (self.me, filter));
        let wants = own.chain(self.peers.iter().flat_map(|(node, peer)| peer.wants().map(|filter| (*node, filter))));
        // The way depends on the topic, not on the filter: the tree shows it.
        let interest = wants.map(|(node, filter)| InterestLine { filter: filter.clone(), node, next: node });
        let mut interest: Vec<InterestLine> = interest.collect();
        interest.sort_unstable();
        Topology {
            trees: trees.take(limit).map(|(name, tree)| self.show_tree(name, tree)).collect(),
            advertised: table(self.local.advertised(), limit),
            adverts: table(adverts, limit),
            interest: table(interest.into_iter(), limit),
            counters: self.counters().named(),
            ..Topology::default()
        }
    }

    fn show_tree(&self, topic: &TopicName, tree: &Tree) -> TreeView {
        let capacity = |node: NodeId| match self.peers.get(&node) {
            Some(peer) => peer.rank().capability,
            None => u64::from(self.own.told.capacity),
        };
        let nodes = tree.members.iter().map(|node| TreeNode {
            node: *node,
            parent: tree.parents.get(node).copied(),
            cost: tree.costs.get(node).map(|cost| u32::try_from(*cost).unwrap_or(u32::MAX)),
            capability: capacity(*node),
        });
        TreeView {
            topic: Some(topic.clone()),
            epoch: tree.version,
            complete: tree.costs.len() == tree.members.len(),
            root: tree.root,
            nodes: nodes.collect(),
        }
    }
}

fn table<T>(lines: impl Iterator<Item = T>, limit: usize) -> Table<T> {
    let mut table = Table::default();
    for line in lines {
        table.total += 1;
        if table.lines.len() < limit {
            table.lines.push(line);
        }
    }
    table
}

impl TopicTreeCounters {
    fn named(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("late_settlements", self.late_settlements),
            ("repairs", self.repairs),
            ("expired", self.expired),
            ("signals", self.signals),
            ("signal_bytes", self.signal_bytes),
            ("unconfirmed", self.unconfirmed),
            ("over_limit", self.over_limit),
            ("ignored", self.ignored),
            ("refused_trees", self.refused_trees),
            ("untold_links", self.untold_links),
        ]
    }
}
