//! The controller's own API under `/api/v1/scale`. Each request shows the token of the site, which only its owner can read.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};

use crate::controller::Message;
use crate::error::ScaleError;
use crate::report::Report;

/// The report that is shown, as the controller wrote it last.
pub(crate) type Shown = Arc<Mutex<Report>>;

#[derive(Clone, Debug)]
struct Api {
    shown: Shown,
    token: Arc<str>,
    orders: Sender<Message>,
}

impl Api {
    fn report(&self) -> Report {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Serves the API from a thread of its own until the process ends. Says where.
pub(crate) fn serve(shown: Shown, token: &str, orders: Sender<Message>) -> Result<SocketAddr, ScaleError> {
    let failed = |error: std::io::Error| ScaleError::other(format!("cannot serve the controller's API: {error}"));
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let api = Api { shown, token: token.into(), orders };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build().map_err(failed)?;
    std::thread::Builder::new()
        .name("scale-http".to_owned())
        .spawn(move || {
            runtime.block_on(async move {
                let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
                if let Err(error) = axum::serve(listener, router(api)).await {
                    tracing::error!(%error, "the controller's API has ended");
                }
            });
        })
        .map_err(failed)?;
    Ok(address)
}

fn router(api: Api) -> Router {
    Router::new()
        .route("/api/v1/scale", get(|State(api): State<Api>| async move { Json(api.report()) }))
        .route("/api/v1/scale/groups", get(|State(api): State<Api>| async move { Json(json!(api.report().groups)) }))
        .route("/api/v1/scale/alarms", get(|State(api): State<Api>| async move { Json(json!(api.report().alarms)) }))
        .route(
            "/api/v1/scale/decisions",
            get(|State(api): State<Api>| async move { Json(json!(api.report().decisions)) }),
        )
        .route("/api/v1/scale/events", get(|State(api): State<Api>| async move { Json(json!(api.report().events)) }))
        .route("/api/v1/scale/pause", post(|State(api): State<Api>| async move { order(&api, true) }))
        .route("/api/v1/scale/resume", post(|State(api): State<Api>| async move { order(&api, false) }))
        .layer(from_fn_with_state(api.clone(), only_with_token))
        .with_state(api)
}

fn order(api: &Api, paused: bool) -> (StatusCode, Json<Value>) {
    match api.orders.send(Message::Pause(paused)) {
        Ok(()) => (StatusCode::ACCEPTED, Json(json!({ "paused": paused }))),
        Err(_) => (StatusCode::SERVICE_UNAVAILABLE, Json(json!({ "detail": "the controller is ending" }))),
    }
}

/// A web page elsewhere cannot know the token; so nothing here is open to one.
async fn only_with_token(State(api): State<Api>, request: Request, next: Next) -> Response {
    let shown = request.headers().get("authorization").and_then(|value| value.to_str().ok());
    if shown.and_then(|value| value.strip_prefix("Bearer ")).is_some_and(|token| same(token, &api.token)) {
        return next.run(request).await;
    }
    let detail = "show the token of state.json: Authorization: Bearer TOKEN";
    (StatusCode::UNAUTHORIZED, Json(json!({ "detail": detail }))).into_response()
}

/// Whether two tokens are the same, in a time that does not tell where they differ.
fn same(left: &str, right: &str) -> bool {
    left.len() == right.len() && left.bytes().zip(right.bytes()).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}
