//! The graph as one node sees it, for people to read.

use sedge_base::NodeId;
use sedge_mqtt::{TopicFilter, TopicName};

use super::SkipGraphOverlay;
use crate::skip_graph::{Base, Key, Side, Vector};
use crate::{InterestLine, Overlay, Table, Topology, Way};

/// A neighbour of a virtual node, which belongs to another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtualNeighbour {
    /// Its key.
    pub key: Key<TopicName>,
    /// The levels on which it is the neighbour, from the lowest to the highest.
    pub levels: (u32, u32),
}

/// A virtual node of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtualNode {
    /// Its key.
    pub key: Key<TopicName>,
    /// Its neighbours towards smaller keys, nearest first. Where they end, another virtual node of this node follows, or none.
    pub left: Vec<VirtualNeighbour>,
    /// Its neighbours towards larger keys.
    pub right: Vec<VirtualNeighbour>,
    /// Whether this node is the rendezvous point of the topic (SG-09).
    pub is_rendezvous_point: bool,
    /// Whether the topic is suspended (SG-10); none if that is not known yet, or if the virtual node is no publisher.
    pub is_suspended: Option<bool>,
}

/// The part of the graph that one node holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkipGraphView {
    /// The node.
    pub node: NodeId,
    /// Its membership vector.
    pub vector: Vector,
    /// The base of the vectors.
    pub base: Base,
    /// How many virtual nodes it has.
    pub virtual_node_count: usize,
    /// Some of them, in the order of their keys.
    pub virtual_nodes: Vec<VirtualNode>,
}

impl SkipGraphOverlay {
    /// The part of the graph that this node holds, with at most `limit` virtual nodes from the `offset`th on.
    pub fn view(&self, offset: usize, limit: usize) -> SkipGraphView {
        SkipGraphView {
            node: self.me,
            vector: self.graph.vector(),
            base: self.config.base,
            virtual_node_count: self.graph.keys().count(),
            virtual_nodes: self.graph.keys().skip(offset).take(limit).map(|key| self.virtual_node(key)).collect(),
        }
    }

    /// The topics that this node publishes and the nodes known to want them, its part of the graph, and its counters.
    pub(super) fn show(&self, limit: usize) -> Topology {
        let topics = self.audiences.topics().take(limit).cloned().collect();
        let interest = self.audiences.iter().flat_map(|(topic, nodes)| {
            let filter = TopicFilter::new(topic.as_str()).ok();
            let mut ways: Vec<Way> = nodes.iter().copied().map(Way::straight).collect();
            self.ways(topic, &mut ways);
            let line = |filter: &TopicFilter, way: Way| InterestLine {
                filter: filter.clone(),
                node: way.destination,
                next: way.next,
            };
            ways.into_iter().filter_map(move |way| filter.as_ref().map(|filter| line(filter, way)))
        });
        Topology {
            advertised: Table { lines: topics, total: self.audiences.len() },
            suspended: Table {
                lines: self.audiences.suspended().take(limit).cloned().collect(),
                total: self.audiences.suspended().count(),
            },
            interest: Table { lines: interest.take(limit).collect(), total: self.audiences.subscriptions() },
            graph: Some(self.view(0, limit)),
            counters: self.counters().named(),
            ..Topology::default()
        }
    }

    fn virtual_node(&self, key: &Key<TopicName>) -> VirtualNode {
        let publishes = key.topic.as_ref().filter(|_| key.role == crate::skip_graph::Role::Publisher);
        VirtualNode {
            key: key.clone(),
            left: self.neighbours(key, Side::Left),
            right: self.neighbours(key, Side::Right),
            is_rendezvous_point: publishes.is_some_and(|topic| self.graph.is_rendezvous_point(topic)),
            is_suspended: publishes.and_then(|topic| self.graph.status(topic)).map(|status| !status.active),
        }
    }

    /// Each is the neighbour on all levels up to the number of digits it shares, from where the one before it ceases to be.
    fn neighbours(&self, key: &Key<TopicName>, side: Side) -> Vec<VirtualNeighbour> {
        let mut low = 0;
        let level = |peer: &crate::skip_graph::Peer<TopicName>| {
            let high = self.config.base.common(self.graph.vector(), peer.vector);
            let levels = (low, high);
            low = high + 1;
            VirtualNeighbour { key: peer.key.clone(), levels }
        };
        self.graph.neighbours(key, side).iter().map(level).collect()
    }
}
