//! Nodes, links, trees and tables as one node knows them.

use axum::Json;
use axum::extract::State;
use sedge_cluster::TreeView;

use super::ask::ask_node;
use super::error::ApiError;
use super::model::{
    Topology, TopologyAdvert, TopologyInterest, TopologyLink, TopologyNode, TopologyTree, TopologyTreeNode,
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
        Some(TopologyLink { from, to, rtt_micros: link.rtt_micros, synced: link.synced })
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
        advertised: overlay.advertised.lines.iter().map(|topic| topic.as_str().to_owned()).collect(),
        counters: overlay.counters.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
    }))
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
