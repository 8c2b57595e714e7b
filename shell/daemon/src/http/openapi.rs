//! The description of the API for programs.

use axum::Json;
use utoipa::OpenApi;

use super::{
    bridges, drain, events, explain, handlers, history, logs, members, metrics, neighbours, retained, routes, rules,
    scale, sessions, topics, topology, traces, tree,
};

#[derive(OpenApi)]
#[openapi(
    info(title = "Sedge", description = "Health, metrics and a look at a Sedge cluster from any of its nodes."),
    paths(
        handlers::live,
        handlers::ready,
        metrics::metrics,
        handlers::status,
        handlers::cluster,
        members::members,
        events::events,
        history::history,
        topology::topology,
        neighbours::list,
        neighbours::add,
        neighbours::remove,
        neighbours::connect,
        routes::routes,
        handlers::reload,
        logs::levels,
        logs::set,
        logs::lines,
        bridges::bridges,
        rules::rules,
        scale::scaling,
        scale::tell,
        scale::order,
        drain::progress,
        drain::start,
        drain::cancel,
        sessions::sessions,
        explain::explain,
        sessions::kick,
        sessions::end_session,
        retained::retained,
        retained::clear,
        topics::hot,
        tree::level,
        tree::value,
        traces::list,
        traces::start,
        traces::end,
        traces::notes,
    )
)]
struct Description;

/// The OpenAPI document.
pub(super) async fn openapi() -> Json<utoipa::openapi::OpenApi> {
    Json(Description::openapi())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_is_described() {
        let text = serde_json::to_string(&Description::openapi()).unwrap();
        for path in [
            "/health/ready",
            "/api/v1/drain",
            "/metrics",
            "/api/v1/bridges",
            "/api/v1/events",
            "/api/v1/explain",
            "/api/v1/history",
            "/api/v1/log",
            "/api/v1/log/lines",
            "/api/v1/neighbours",
            "/api/v1/members",
            "/api/v1/routes",
            "/api/v1/status",
            "/api/v1/sessions/{client}/connection",
        ] {
            assert!(text.contains(path), "{path}");
        }
        assert!(text.contains("queued_messages"));
    }
}
