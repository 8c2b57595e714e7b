//! Nodes, links, trees and tables as one node knows them.

use axum::Json;
use axum::extract::State;
use sedge_cluster::{Key, Role, SkipGraphView, Table, TreeView, VirtualNeighbour};
use sedge_mqtt::TopicName;

use super::ask::ask_node;
use super::error::ApiError;
use super::handlers::link_model;
use super::model::{
    Topology, TopologyAdvert, TopologyGraph, TopologyInterest, TopologyLink, TopologyNode, TopologyTree,
    TopologyTreeNode, TopologyVirtualNeighbour, TopologyVirtualNode,
};
use super::server::Api;

/// Lines of each table that are shown.
const LINES: usize = 1_000;

/// Nodes and links as this node knows them, and the trees and tables of its overlay.
#[utoipa::path(get, path = "/api/v1/topology", tag = "cluster", responses((status = 200, body = Topology)))]
pub(super) async fn topology(State(api): State<Api>) -> Result<Json<Topology>, ApiError> {
    let ask = |node: &sedge_cluster::Node| (node.status(), node.topology(LINES));
    let (node, overlay) = ask_node(&api.shared, ask).await?;
    let nodes = node.members.iter();
    let nodes = nodes.map(|member| TopologyNode { node: member.node.to_string(), address: member.address.to_string() });
    let links = node.members.iter().filter_map(|member| {
        let link = member.link.as_ref()?;
        let (from, to) = (node.node.to_string(), member.node.to_string());
        Some(TopologyLink { from, to, link: link_model(link) })
    });
    let adverts = overlay.adverts.lines.iter().map(|line| TopologyAdvert {
        topic: line.topic.as_str().to_owned(),
        origin: line.origin.to_string(),
        next: line.next.to_string(),
    });
    let interest = overlay.interest.lines.iter().map(|line| TopologyInterest {
        filter: line.filter.as_str().to_owned(),
        node: line.node.to_string(),
        next: line.next.to_string(),
    });
    Ok(Json(Topology {
        node: api.facts.node.clone(),
        nodes: nodes.collect(),
        links: links.collect(),
        overlay: node.overlay.to_owned(),
        trees: overlay.trees.iter().take(LINES).map(tree).collect(),
        adverts: adverts.collect(),
        adverts_total: overlay.adverts.total,
        interest: interest.collect(),
        interest_total: overlay.interest.total,
        advertised: names(&overlay.advertised),
        suspended: names(&overlay.suspended),
        suspended_total: overlay.suspended.total,
        graph: overlay.graph.as_ref().map(graph),
        counters: overlay.counters.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
    }))
}

fn names(topics: &Table<TopicName>) -> Vec<String> {
    topics.lines.iter().map(|topic| topic.as_str().to_owned()).collect()
}

fn graph(graph: &SkipGraphView) -> TopologyGraph {
    let virtual_nodes = graph.virtual_nodes.iter().map(|own| {
        let (topic, role) = place(&own.key);
        TopologyVirtualNode {
            topic,
            role,
            left: own.left.iter().map(neighbour).collect(),
            right: own.right.iter().map(neighbour).collect(),
            rendezvous_point: own.is_rendezvous_point,
            suspended: own.is_suspended,
        }
    });
    TopologyGraph {
        vector: format!("{:016x}", graph.vector.get()),
        virtual_nodes_total: graph.virtual_node_count,
        virtual_nodes: virtual_nodes.collect(),
    }
}

fn neighbour(neighbour: &VirtualNeighbour) -> TopologyVirtualNeighbour {
    let (topic, role) = place(&neighbour.key);
    let (lowest_level, highest_level) = neighbour.levels;
    TopologyVirtualNeighbour { node: neighbour.key.node.to_string(), topic, role, lowest_level, highest_level }
}

fn place(key: &Key<TopicName>) -> (Option<String>, String) {
    let role = match key.role {
        Role::Publisher => "publisher",
        Role::Subscriber => "subscriber",
    };
    (key.topic.as_ref().map(|topic| topic.as_str().to_owned()), role.to_owned())
}

fn tree(tree: &TreeView) -> TopologyTree {
    let nodes = tree.nodes.iter().map(|node| TopologyTreeNode {
        node: node.node.to_string(),
        parent: node.parent.map(|parent| parent.to_string()),
        cost_micros: node.cost,
        capability: node.capability,
    });
    TopologyTree {
        topic: tree.topic.as_ref().map(|topic| topic.as_str().to_owned()),
        epoch: tree.epoch,
        complete: tree.complete,
        root: tree.root.to_string(),
        nodes: nodes.collect(),
    }
}
