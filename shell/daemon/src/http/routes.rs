//! Subscriptions by node, and the routes of publications.

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use sedge_base::{NodeId, ShardId};
use sedge_cluster::{Node, RouteStatus};
use serde::{Deserialize, Serialize};

use super::ask::ask;
use super::desk::{ANSWER_BYTES, Inquiry, ask_member, ask_members};
use super::error::ApiError;
use super::handlers::{PAGE, check_limit, parameters};
use super::model::{ErrorBody, Route, Routes};
use super::scope::{Scope, labels, name, scope};
use super::server::Api;
use crate::runtime::View;

/// Which lines of the routing table.
#[derive(Clone, Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Which {
    /// Entries to leave out at the beginning.
    #[serde(default)]
    offset: usize,
    /// Most entries, 1 to 1000; 100 if nothing is said.
    limit: Option<usize>,
    /// True: only what clients of this node want.
    #[serde(default)]
    local: bool,
    /// Name or id of the node whose table it is; `*`: what clients of all members want. The node that is asked if nothing is said.
    node: Option<String>,
}

/// Which part of the table of one node.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Part {
    offset: usize,
    limit: usize,
    local: bool,
}

/// Some lines of the routing table: what clients of this node want, then what other nodes want (FT-09, FT-10).
#[utoipa::path(get, path = "/api/v1/routes", tag = "cluster", params(Which), responses(
    (status = 200, body = Routes), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody)))]
pub(super) async fn routes(
    State(api): State<Api>,
    query: Result<Query<Which>, QueryRejection>,
) -> Result<Json<Routes>, ApiError> {
    let Which { offset, limit, local, node } = parameters(query)?;
    let limit = check_limit(limit.unwrap_or(PAGE))?;
    let part = Part { offset, limit, local };
    Ok(Json(match scope(&api, node.as_deref()).await? {
        Scope::Here => own(&api, part).await?,
        Scope::One(node) => of(&api, node, part).await?,
        Scope::All(others) => everywhere(&api, others, offset, limit).await?,
    }))
}

/// The table of this node.
async fn own(api: &Api, Part { offset, limit, local }: Part) -> Result<Routes, ApiError> {
    let ask_view = move |view: &View<'_>| {
        let node = view.node?;
        let own = node.local_route_count();
        let mut lines = node.local_routes(offset, limit);
        let mut total = own;
        if !local {
            lines.extend(node.routes(offset.saturating_sub(own), limit - lines.len()));
            total += node.status().routes;
        }
        let (me, broker) = (node.status().node, view.broker());
        let broker_of = |line: &RouteStatus| broker.clone().filter(|_| line.node == me);
        Some((lines.iter().map(|line| model(node, line, broker_of(line))).collect(), total))
    };
    let (routes, total) = ask(&api.shared, ShardId(0), ask_view).await?.ok_or(ApiError::Stopping)?;
    Ok(Routes { total, offset, limit, routes, silent: Vec::new() })
}

/// The table of another node, asked for as often as it takes.
async fn of(api: &Api, node: NodeId, part: Part) -> Result<Routes, ApiError> {
    let mut page = Routes { total: 0, offset: part.offset, limit: part.limit, routes: Vec::new(), silent: Vec::new() };
    loop {
        let got = page.routes.len();
        let rest = Part { offset: part.offset + got, limit: part.limit - got, ..part };
        let answer: Routes = ask_member(api, node, &Inquiry::Routes(rest)).await?;
        page.total = answer.total;
        let is_last = answer.routes.is_empty();
        page.routes.extend(answer.routes.into_iter().take(part.limit - got));
        if is_last || page.routes.len() >= part.limit {
            return Ok(page);
        }
    }
}

/// Subscriptions of the clients of all members, member by member.
async fn everywhere(api: &Api, others: Vec<NodeId>, offset: usize, limit: usize) -> Result<Routes, ApiError> {
    let nothing = Part { offset: 0, limit: 0, local: true };
    let here = own(api, Part { offset, limit, local: true }).await?;
    let heard = ask_members::<Routes>(api, &others, &Inquiry::Routes(nothing)).await;
    let mut silent = heard.silent;
    let mut page = Routes { offset, limit, ..here };
    let mut skip = offset.saturating_sub(page.total);
    for (node, counted) in heard.answers {
        page.total += counted.total;
        let room = limit - page.routes.len();
        if room == 0 || skip >= counted.total {
            skip = skip.saturating_sub(counted.total);
            continue;
        }
        let part = Part { offset: std::mem::take(&mut skip), limit: room, local: true };
        match of(api, node, part).await {
            Ok(answer) => page.routes.extend(answer.routes),
            Err(_) => silent.push(node),
        }
    }
    page.silent = labels(api, &silent).await?;
    Ok(page)
}

/// The part that another node asks for, as much of it as fits into an answer.
pub(super) async fn fitted(api: &Api, part: Part) -> Result<Routes, ApiError> {
    let mut routes = own(api, part).await?;
    let mut bytes = 0;
    let mut fits = |route: &Route| {
        bytes += serde_json::to_string(route).map_or(0, |text| text.len() + 1);
        bytes < ANSWER_BYTES - 256
    };
    let keep = routes.routes.iter().take_while(|route| fits(route)).count();
    if keep == 0 {
        // A filter that is longer than an answer would hold up all that follow.
        for route in &mut routes.routes {
            route.filter.truncate(route.filter.floor_char_boundary(1024));
        }
    }
    routes.routes.truncate(keep.max(1));
    Ok(routes)
}

/// `broker`: the one behind the subscriber's node, if it is known.
fn model(node: &Node, route: &RouteStatus, broker: Option<String>) -> Route {
    Route {
        broker,
        node: route.node.to_string(),
        name: name(node, route.node),
        client: route.client.as_ref().map(ToString::to_string),
        filter: route.filter.clone(),
    }
}
