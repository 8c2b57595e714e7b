//! Reports of the site's controller (`sedge scale`) to this node, for operators, and the operators' orders to the controller.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use sedge_base::Instant;
use serde_json::{Map, Value};

use super::error::ApiError;
use super::model::{ErrorBody, Scaling, ScalingOrder};
use super::server::Api;

/// Most bytes of a report; a controller leaves out what is old.
const REPORT_BYTES_MAX: usize = 60 * 1024;
/// An order that the controller has not taken for so long is none.
const ORDER_PATIENCE: Duration = Duration::from_secs(30);

/// The last report, and what the controller is asked for.
#[derive(Debug, Default)]
pub(super) struct Told {
    report: Option<(Instant, Map<String, Value>)>,
    bytes: usize,
    order: Option<(Instant, bool)>,
}

impl Told {
    /// Whether actions are to pause, if somebody has asked for it and the controller has not heard of it.
    fn take_order(&mut self, now: Instant) -> Option<bool> {
        self.order.take().filter(|(asked, _)| now.since(*asked) < ORDER_PATIENCE).map(|(_, paused)| paused)
    }
}

/// Report of the controller and order of the operators, as threads share them.
pub(super) type SharedTold = Arc<Mutex<Told>>;

fn lock(told: &SharedTold) -> MutexGuard<'_, Told> {
    told.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes of the report.
pub(super) fn kept(told: &SharedTold) -> usize {
    lock(told).bytes
}

/// What the controller of the site has told this node last: groups, nodes, alarms, decisions with their reasons.
#[utoipa::path(get, path = "/api/v1/scale", tag = "scale", responses((status = 200, body = Scaling)))]
pub(super) async fn scaling(State(api): State<Api>) -> Json<Scaling> {
    let now = api.shared.clock.now().instant;
    let told = lock(&api.told);
    let (heard_seconds, report) = match &told.report {
        Some((at, report)) => (Some(now.since(*at).as_secs()), Some(Value::Object(report.clone()))),
        None => (None, None),
    };
    Json(Scaling { heard_seconds, asked_to_pause: told.order.map(|(_, paused)| paused), report })
}

/// For the controller: its report, of at most 60 KiB. Answers what operators ask of it.
#[utoipa::path(put, path = "/api/v1/scale", tag = "scale", responses(
    (status = 200, body = ScalingOrder), (status = 400, body = ErrorBody), (status = 413, body = ErrorBody)))]
pub(super) async fn tell(
    State(api): State<Api>,
    report: Result<Json<Map<String, Value>>, JsonRejection>,
) -> Result<Json<ScalingOrder>, ApiError> {
    let Json(report) = report.map_err(|rejection| ApiError::BadRequest(rejection.body_text()))?;
    let bytes = serde_json::to_string(&report).map_or(0, |text| text.len());
    if bytes > REPORT_BYTES_MAX {
        return Err(ApiError::BadRequest(format!("a report of a controller has at most {REPORT_BYTES_MAX} bytes")));
    }
    let now = api.shared.clock.now().instant;
    let mut told = lock(&api.told);
    (told.report, told.bytes) = (Some((now, report)), bytes);
    Ok(Json(ScalingOrder { pause: told.take_order(now) }))
}

/// Asks the controller to begin no action any more (`pause`), or to begin them again (`resume`). It does when it tells the node something the
/// next time.
#[utoipa::path(post, path = "/api/v1/scale/{order}", tag = "scale", params(("order" = String, Path, description = "`pause` or `resume`")),
    responses((status = 200, body = Scaling), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(super) async fn order(State(api): State<Api>, Path(order): Path<String>) -> Result<Json<Scaling>, ApiError> {
    let paused = match order.as_str() {
        "pause" => true,
        "resume" => false,
        other => return Err(ApiError::NotFound(format!("there is no order {other:?}: pause or resume"))),
    };
    let now = api.shared.clock.now().instant;
    {
        let mut told = lock(&api.told);
        if told.report.as_ref().is_none_or(|(at, _)| now.since(*at) >= ORDER_PATIENCE) {
            return Err(ApiError::Conflict("no controller has told this node anything for 30 s".to_owned()));
        }
        told.order = Some((now, paused));
    }
    api.shared.note_order(None, if paused { "scaling is to pause" } else { "scaling is to go on" });
    Ok(scaling(State(api)).await)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_taken_once_and_not_for_ever() {
        let at = |seconds: u64| Instant::from_millis(seconds * 1_000);
        let mut told = Told { order: Some((at(10), true)), ..Told::default() };
        assert_eq!((told.take_order(at(12)), told.take_order(at(12))), (Some(true), None));
        told.order = Some((at(10), false));
        assert_eq!(told.take_order(at(41)), None);
    }
}
