//! The description of the API for programs.

use axum::Json;
use utoipa::OpenApi;

use super::{drain, handlers, metrics, retained, sessions, topology};

#[derive(OpenApi)]
#[openapi(
    info(title = "Sedge", description = "Health, metrics and a look at one node of a Sedge cluster."),
    paths(
        handlers::live,
        handlers::ready,
        metrics::metrics,
        handlers::status,
        handlers::cluster,
        topology::topology,
        handlers::routes,
        handlers::reload,
        drain::progress,
        drain::start,
        drain::cancel,
        sessions::sessions,
        sessions::kick,
        sessions::end_session,
        retained::retained,
        retained::clear,
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
        for path in
            ["/health/ready", "/api/v1/drain", "/metrics", "/api/v1/status", "/api/v1/sessions/{client}/connection"]
        {
            assert!(text.contains(path), "{path}");
        }
        assert!(text.contains("queued_messages"));
    }
}
