//! The route table: each endpoint with the role that it needs. A path that is not in the table does not exist.

use axum::Router;
use axum::extract::Request;
use axum::handler::Handler;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{self, MethodRouter};

use super::error::ApiError;
use super::role::{Caller, Role};
use super::server::Api;
use super::{
    accounts, assets, bridges, drain, events, explain, handlers, history, logs, members, metrics, neighbours, openapi,
    retained, role, routes, rules, scale, sessions, settings, topics, topology, traces, tree,
};

/// One method of one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Endpoint {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    pub(super) role: Role,
}

/// See the module.
pub(super) struct Table {
    pub(super) router: Router<Api>,
    pub(super) endpoints: Vec<Endpoint>,
}

impl Table {
    fn add(mut self, role: Role, method: &'static str, path: &'static str, route: MethodRouter<Api>) -> Self {
        let checked =
            route.route_layer(middleware::from_fn(move |request: Request, next: Next| check(role, request, next)));
        self.router = self.router.route(path, checked);
        self.endpoints.push(Endpoint { method, path, role });
        self
    }

    fn get<T: 'static>(self, path: &'static str, handler: impl Handler<T, Api>) -> Self {
        self.add(Role::View, "get", path, routing::get(handler))
    }

    fn post<T: 'static>(self, role: Role, path: &'static str, handler: impl Handler<T, Api>) -> Self {
        self.add(role, "post", path, routing::post(handler))
    }

    fn put<T: 'static>(self, role: Role, path: &'static str, handler: impl Handler<T, Api>) -> Self {
        self.add(role, "put", path, routing::put(handler))
    }

    fn delete<T: 'static>(self, role: Role, path: &'static str, handler: impl Handler<T, Api>) -> Self {
        self.add(role, "delete", path, routing::delete(handler))
    }
}

/// Lets whoever has the role pass.
async fn check(needed: Role, request: Request, next: Next) -> Response {
    match request.extensions().get::<Caller>() {
        Some(caller) if caller.role >= needed => next.run(request).await,
        Some(caller) => ApiError::NeedsRole { needed, has: caller.role }.into_response(),
        None => ApiError::NoToken.into_response(),
    }
}

/// All endpoints.
pub(super) fn table() -> Table {
    let empty = Table { router: Router::new(), endpoints: Vec::new() };
    changes(reads(assets::paths().fold(empty, |table, path| table.get(path, assets::asset))))
}

/// Requests that change nothing.
fn reads(table: Table) -> Table {
    table
        .get("/health/live", handlers::live)
        .get("/health/ready", handlers::ready)
        .get("/metrics", metrics::metrics)
        .get("/api/v1/status", handlers::status)
        .get("/api/v1/role", role::role)
        .get("/api/v1/events", events::events)
        .get("/api/v1/explain", explain::explain)
        .get("/api/v1/history", history::history)
        .get("/api/v1/cluster", handlers::cluster)
        .get("/api/v1/members", members::members)
        .get("/api/v1/topology", topology::topology)
        .get("/api/v1/neighbours", neighbours::list)
        .get("/api/v1/routes", routes::routes)
        .get("/api/v1/bridges", bridges::bridges)
        .get("/api/v1/rules", rules::rules)
        .get("/api/v1/scale", scale::scaling)
        .get("/api/v1/sessions", sessions::sessions)
        .get("/api/v1/retained", retained::retained)
        .get("/api/v1/topics", tree::level)
        .get("/api/v1/topics/hot", topics::hot)
        .get("/api/v1/topics/value", tree::value)
        .get("/api/v1/settings", settings::settings)
        .get("/api/v1/log", logs::levels)
        .get("/api/v1/log/lines", logs::lines)
        .get("/api/v1/drain", drain::progress)
        .get("/api/v1/traces", traces::list)
        .get("/api/v1/traces/{id}", traces::notes)
        .get("/api/v1/openapi.json", openapi::openapi)
}

/// Requests that steer the node (role of an operator), and those that destroy messages or concern accounts or the cluster's members (administrator).
fn changes(table: Table) -> Table {
    use Role::{Admin, Operate};
    table
        .post(Operate, "/api/v1/drain", drain::start)
        .delete(Operate, "/api/v1/drain", drain::cancel)
        .delete(Operate, "/api/v1/sessions/{client}/connection", sessions::kick)
        .put(Operate, "/api/v1/log", logs::set)
        .post(Operate, "/api/v1/traces", traces::start)
        .delete(Operate, "/api/v1/traces/{id}", traces::end)
        .put(Operate, "/api/v1/scale", scale::tell)
        .post(Operate, "/api/v1/scale/{order}", scale::order)
        .delete(Admin, "/api/v1/sessions/{client}", sessions::end_session)
        .delete(Admin, "/api/v1/retained/{topic}", retained::clear)
        .post(Admin, "/api/v1/neighbours", neighbours::add)
        .put(Admin, "/api/v1/neighbours", neighbours::connect)
        .delete(Admin, "/api/v1/neighbours", neighbours::remove)
        .post(Admin, "/api/v1/reload", handlers::reload)
        .add(Admin, "get", "/api/v1/accounts", routing::get(accounts::list))
        .put(Admin, "/api/v1/accounts/{user}", accounts::set)
        .delete(Admin, "/api/v1/accounts/{user}", accounts::remove)
}
