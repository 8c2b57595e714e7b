//! Nodes, links, trees and tables as one node knows them.

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use bytes::Bytes;
use sedge_base::{NodeId, ShardId};
use sedge_cluster::{Key, Role, SkipGraphView, Table, TreeView, VirtualNeighbour};
use sedge_mqtt::TopicName;
use serde::Deserialize;

use super::ask::ask;
use super::desk::{ANSWER_BYTES, Heard, Inquiry, ask_member, ask_members, bytes};
use super::error::ApiError;
use super::handlers::{link_model, parameters};
use super::model::{
    ErrorBody, Topology, TopologyAdvert, TopologyGraph, TopologyInterest, TopologyLink, TopologyNode, TopologyTree,
    TopologyTreeNode, TopologyVirtualNeighbour, TopologyVirtualNode,
};
use super::scope::{Scope, labels, scope};
use super::server::Api;
use crate::runtime::View;

/// Lines of each table that are shown.
const LINES: usize = 1_000;

/// Nodes and links as a node knows them, and the trees and tables of its overlay; or those of all members (`node=*`).
#[utoipa::path(get, path = "/api/v1/topology", tag = "cluster", params(Which), responses(
    (status = 200, body = Topology), (status = 404, body = ErrorBody), (status = 504, body = ErrorBody)))]
pub(super) async fn topology(
    State(api): State<Api>,
    query: Result<Query<Which>, QueryRejection>,
) -> Result<Json<Topology>, ApiError> {
    Ok(Json(match scope(&api, parameters(query)?.node.as_deref()).await? {
        Scope::Here => own(&api, LINES).await?,
        Scope::One(node) => ask_member(&api, node, &Inquiry::Topology).await?,
        Scope::All(others) => everywhere(&api, &others).await?,
    }))
}

/// Which node.
#[derive(Clone, Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Which {
    /// Name or id of the node that knows it; `*`: all members together. The node that is asked if nothing is said.
    node: Option<String>,
}

/// The topology that all members know together.
async fn everywhere(api: &Api, others: &[NodeId]) -> Result<Topology, ApiError> {
    let mut all = own(api, LINES).await?;
    all.adverts.clear();
    all.interest.clear();
    (all.adverts_total, all.interest_total, all.graph) = (0, 0, None);
    let Heard { answers, silent } = ask_members::<Topology>(api, others, &Inquiry::Topology).await;
    for (_, other) in answers {
        add(&mut all, other);
    }
    all.nodes.sort_by(|one, other| (&one.name, &one.node).cmp(&(&other.name, &other.node)));
    all.silent = labels(api, &silent).await?;
    Ok(all)
}

/// Adds what another member knows. A link that both ends tell of is there once.
fn add(all: &mut Topology, other: Topology) {
    for node in other.nodes {
        match all.nodes.iter_mut().find(|known| known.node == node.node) {
            Some(known) => known.broker = known.broker.take().or(node.broker),
            None => all.nodes.push(node),
        }
    }
    for link in other.links {
        let same = |known: &TopologyLink| known.from == link.to && known.to == link.from;
        if !all.links.iter().any(same) {
            all.links.push(link);
        }
    }
    for tree in other.trees {
        match all.trees.iter_mut().find(|known| known.topic == tree.topic && known.root == tree.root) {
            Some(known) if known.epoch >= tree.epoch => {}
            Some(known) => *known = tree,
            None => all.trees.push(tree),
        }
    }
    all.suspended_total += other.suspended_total;
    all.suspended.extend(other.suspended);
    all.advertised.extend(other.advertised);
    for names in [&mut all.suspended, &mut all.advertised] {
        names.sort();
        names.dedup();
        names.truncate(LINES);
    }
    for (name, value) in other.counters {
        *all.counters.entry(name).or_default() += value;
    }
}

/// For another node: with as many lines as fit into an answer.
pub(super) async fn fitted(api: &Api) -> Result<Bytes, ApiError> {
    let mut lines = LINES;
    loop {
        let answer = bytes(&own(api, lines).await?);
        if answer.len() <= ANSWER_BYTES || lines == 0 {
            return Ok(answer);
        }
        lines /= 2;
    }
}

/// The topology that this node knows, with at most so many lines of each table.
async fn own(api: &Api, lines: usize) -> Result<Topology, ApiError> {
    let look = move |view: &View<'_>| view.node.map(|node| (node.status(), node.topology(lines), view.broker()));
    let (node, overlay, broker) = ask(&api.shared, ShardId(0), look).await?.ok_or(ApiError::Stopping)?;
    let nodes = node.members.iter();
    let nodes = nodes.map(|member| TopologyNode {
        node: member.node.to_string(),
        name: member.name.clone(),
        address: member.address.to_string(),
        broker: broker.clone().filter(|_| member.node == node.node),
    });
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
    Ok(Topology {
        node: api.facts.node.clone(),
        nodes: nodes.collect(),
        links: links.collect(),
        overlay: node.overlay.to_owned(),
        trees: overlay.trees.iter().take(lines).map(tree).collect(),
        adverts: adverts.collect(),
        adverts_total: overlay.adverts.total,
        interest: interest.collect(),
        interest_total: overlay.interest.total,
        advertised: names(&overlay.advertised),
        suspended: names(&overlay.suspended),
        suspended_total: overlay.suspended.total,
        graph: overlay.graph.as_ref().map(graph),
        counters: overlay.counters.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
        silent: Vec::new(),
    })
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
