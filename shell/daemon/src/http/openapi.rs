//! The description of the API for programs.

use axum::Json;
use serde_json::{Value, json};
use utoipa::OpenApi;

use super::table::table;

use super::{
    accounts, bridges, drain, events, explain, handlers, history, logs, members, metrics, neighbours, retained, role,
    routes, rules, scale, sessions, settings, topics, topology, traces, tree,
};

#[derive(OpenApi)]
#[openapi(
    info(title = "Sedge", description = "Health, metrics and a look at a Sedge cluster from any of its nodes."),
    paths(
        handlers::live,
        handlers::ready,
        metrics::metrics,
        handlers::status,
        role::role,
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
        settings::settings,
        accounts::list,
        accounts::set,
        accounts::remove,
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
pub(super) async fn openapi() -> Json<Value> {
    Json(described())
}

/// The description of each endpoint with the role that it takes (`x-role`), as the route table has it.
fn described() -> Value {
    let mut document = serde_json::to_value(Description::openapi()).unwrap_or_default();
    for endpoint in table().endpoints {
        let path = endpoint.path.replace('~', "~0").replace('/', "~1");
        let Some(operation) = document.pointer_mut(&format!("/paths/{path}/{}", endpoint.method)) else { continue };
        let role = endpoint.role.name();
        operation["x-role"] = json!(role);
        operation["responses"]["401"] =
            json!({ "description": "the node wants a token, and none or a wrong one was shown" });
        operation["responses"]["403"] =
            json!({ "description": format!("the token that was shown is not of the role {role} or a higher one") });
    }
    document["components"]["securitySchemes"] = json!({ "token": { "type": "http", "scheme": "bearer" } });
    document["security"] = json!([{ "token": [] }]);
    document
}

#[cfg(test)]
mod tests {
    use super::super::assets;
    use super::super::role::Role;
    use super::super::table::Endpoint;
    use super::*;

    #[test]
    fn every_path_is_described() {
        let text = described().to_string();
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

    /// SEC: every endpoint has a role, and the document names it.
    #[test]
    fn every_operation_is_an_endpoint_with_a_role() {
        let document = described();
        let endpoints = table().endpoints;
        let mut operations = 0;
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                let endpoint = endpoints.iter().find(|known| known.path == path && known.method == method);
                let endpoint = endpoint.unwrap_or_else(|| panic!("{method} {path} is described and not there"));
                assert_eq!(operation["x-role"], endpoint.role.name(), "{method} {path}");
                // Whoever may only look changes nothing.
                assert!(method == "get" || endpoint.role > Role::View, "{method} {path}");
                operations += 1;
            }
        }
        let is_described =
            |endpoint: &&Endpoint| !endpoint.path.ends_with("openapi.json") && !assets::has(endpoint.path);
        assert_eq!(endpoints.iter().filter(is_described).count(), operations, "an endpoint is not described");
    }
}
