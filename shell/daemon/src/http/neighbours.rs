//! Links that operators choose.

use std::net::SocketAddr;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{ConnectInfo, Query, State};
use sedge_base::ShardId;
use sedge_cluster::link::{CONNECTIONS_MAX, LinkOrder};
use sedge_cluster::{NeighbourError, NeighbourStatus, NodeStatus};
use sedge_mqtt::QoS;
use serde::Deserialize;
use tokio::sync::oneshot;

use super::ask::{ask_node, receive};
use super::error::ApiError;
use super::handlers::{link_model, parameters};
use super::model::{ErrorBody, Neighbour, Neighbours};
use super::server::Api;
use super::visitors::Peer;
use crate::config::{CLUSTER_PORT, LINK_ORDERS};
use crate::host_port::HostPort;
use crate::runtime::{Letter, NeighbourOrder};

/// Which neighbour.
#[derive(Clone, Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Which {
    /// `host:port` where it listens for other nodes.
    address: String,
}

/// How many connections.
#[derive(Clone, Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Connections {
    /// With each neighbour, 1 to 16.
    connections: u8,
    /// `publisher` (the default) or `round-robin`.
    order: Option<String>,
}

/// The links of this node, and which of them operators have chosen.
#[utoipa::path(get, path = "/api/v1/neighbours", tag = "cluster", responses((status = 200, body = Neighbours)))]
pub(super) async fn list(State(api): State<Api>) -> Result<Json<Neighbours>, ApiError> {
    Ok(Json(model(&ask_node(&api.shared, sedge_cluster::Node::status).await?)))
}

/// Chooses a link to another node, which need not be there yet.
#[utoipa::path(post, path = "/api/v1/neighbours", tag = "cluster", params(Which), responses(
    (status = 200, body = Neighbours), (status = 400, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(super) async fn add(
    State(api): State<Api>,
    ConnectInfo(Peer(peer)): ConnectInfo<Peer>,
    which: Result<Query<Which>, QueryRejection>,
) -> Result<Json<Neighbours>, ApiError> {
    let Which { address } = parameters(which)?;
    tracing::info!(asked_by = %peer, neighbour = %address, "a link is chosen");
    order(&api, address, true).await
}

/// Ends a link, whichever of its ends has chosen it.
#[utoipa::path(delete, path = "/api/v1/neighbours", tag = "cluster", params(Which), responses(
    (status = 200, body = Neighbours), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody)))]
pub(super) async fn remove(
    State(api): State<Api>,
    ConnectInfo(Peer(peer)): ConnectInfo<Peer>,
    which: Result<Query<Which>, QueryRejection>,
) -> Result<Json<Neighbours>, ApiError> {
    let Which { address } = parameters(which)?;
    tracing::info!(asked_by = %peer, neighbour = %address, "a link is ended");
    order(&api, address, false).await
}

/// How many connections with each neighbour this node dials, and how publications are spread over them; until its next start.
#[utoipa::path(put, path = "/api/v1/neighbours", tag = "cluster", params(Connections), responses(
    (status = 200, body = Neighbours), (status = 400, body = ErrorBody)))]
pub(super) async fn connect(
    State(api): State<Api>,
    ConnectInfo(Peer(peer)): ConnectInfo<Peer>,
    wanted: Result<Query<Connections>, QueryRejection>,
) -> Result<Json<Neighbours>, ApiError> {
    let Connections { connections, order } = parameters(wanted)?;
    if !(1..=CONNECTIONS_MAX).contains(&connections) {
        return Err(ApiError::BadRequest(format!("connections: {connections} is not from 1 to {CONNECTIONS_MAX}")));
    }
    let order = order.unwrap_or_else(|| "publisher".to_owned());
    let Some((name, order)) = LINK_ORDERS.iter().find(|(name, _)| *name == order) else {
        return Err(ApiError::BadRequest(format!("order: {order:?} is not \"publisher\" or \"round-robin\"")));
    };
    tracing::info!(asked_by = %peer, connections, order = name, "connections with neighbours are set");
    api.shared.post(ShardId(0), Letter::Connections(connections, *order));
    api.shared.note_order(None, &format!("connections with each neighbour: {connections}, order {name}"));
    list(State(api)).await
}

async fn order(api: &Api, name: String, wanted: bool) -> Result<Json<Neighbours>, ApiError> {
    let addresses = resolve(name.clone()).await?;
    let (answer, answered) = oneshot::channel();
    api.shared.post(ShardId(0), Letter::Neighbour(NeighbourOrder { addresses, wanted, answer }));
    match receive(ShardId(0), answered).await? {
        Ok(status) => {
            let what = if wanted { "chosen" } else { "ended" };
            api.shared.note_order(None, &format!("the link to {name} is {what}"));
            Ok(Json(model(&status)))
        }
        Err(NeighbourError::NoNeighbour) => Err(ApiError::NotFound(NeighbourError::NoNeighbour.to_string())),
        Err(error) => Err(ApiError::Conflict(error.to_string())),
    }
}

async fn resolve(name: String) -> Result<Vec<SocketAddr>, ApiError> {
    let wrong = |what: String| ApiError::BadRequest(format!("address: {name:?}: {what}"));
    let host = HostPort::parse(&name, CLUSTER_PORT).map_err(wrong)?;
    let resolved =
        tokio::task::spawn_blocking(move || host.resolve()).await.map_err(|error| wrong(error.to_string()))?;
    let mut addresses = resolved.map_err(|error| wrong(error.to_string()))?;
    addresses.sort_by_key(SocketAddr::is_ipv6);
    Ok(addresses)
}

pub(super) fn model(node: &NodeStatus) -> Neighbours {
    let others = node.members.iter().filter(|member| member.node != node.node);
    let all = others.map(|member| Neighbour {
        node: Some(member.node.to_string()),
        address: Some(member.address.to_string()),
        chosen_here: false,
        chosen_there: false,
        link: member.link.as_ref().map(link_model),
    });
    let chosen = |line: &NeighbourStatus| Neighbour {
        node: line.node.map(|node| node.to_string()),
        address: line.address.map(|address| address.to_string()),
        chosen_here: line.here,
        chosen_there: line.there,
        link: line.link.as_ref().map(link_model),
    };
    let manual = node.neighbours.as_ref();
    Neighbours {
        links: if manual.is_some() { "manual" } else { "mesh" }.to_owned(),
        overlay: node.overlay.to_owned(),
        link_qos: qos_name(node.link_qos).to_owned(),
        link_connections: node.link_connections,
        link_order: order_name(node.link_order).to_owned(),
        agreed: manual.is_none_or(|manual| manual.agreed),
        neighbours: manual.map_or_else(|| all.collect(), |manual| manual.lines.iter().map(chosen).collect()),
    }
}

fn order_name(order: LinkOrder) -> &'static str {
    LINK_ORDERS.iter().find(|(_, known)| *known == order).map_or("", |(name, _)| name)
}

const fn qos_name(qos: Option<QoS>) -> &'static str {
    match qos {
        None => "as-published",
        Some(QoS::AtMostOnce) => "0",
        Some(QoS::AtLeastOnce) => "1",
        Some(QoS::ExactlyOnce) => "2",
    }
}
