//! Events as they happen: server-sent events (WHATWG HTML, section 9.2).

use std::convert::Infallible;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::HeaderMap;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde::Deserialize;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};

use super::error::ApiError;
use super::handlers::parameters;
use super::history::totals;
use super::model::{ErrorBody, Event};
use super::server::Api;
use crate::runtime::Noted;

/// Most streams at the same time.
pub(super) const STREAMS_MAX: usize = 16;
/// Events are told together that come within this time.
const TOGETHER: Duration = Duration::from_millis(100);
/// How often the totals are told.
const TOTALS: Duration = Duration::from_secs(2);
/// When whoever has lost its stream asks again, in milliseconds.
const RETRY_MS: u32 = 2_000;

/// Where to begin.
#[derive(Clone, Copy, Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Begin {
    /// Number of the last event that is known; 0, if nothing is said: all that are kept. `Last-Event-ID` does the same.
    after: Option<u64>,
}

/// A stream that is open.
struct Seat(Arc<AtomicUsize>);

impl Seat {
    fn take(streams: &Arc<AtomicUsize>) -> Option<Self> {
        let one_more = |open: usize| (open < STREAMS_MAX).then_some(open + 1);
        streams.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        Some(Self(Arc::clone(streams)))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What happens from now on, and what happened lately: `happened` with clients, nodes and requests of operators, `missed` with the number
/// of events that are not kept any more, and `totals` with the counters every two seconds.
#[utoipa::path(get, path = "/api/v1/events", tag = "node", params(Begin), responses(
    (status = 200, body = Event, content_type = "text/event-stream"), (status = 400, body = ErrorBody),
    (status = 503, body = ErrorBody)))]
pub(super) async fn events(
    State(api): State<Api>,
    headers: HeaderMap,
    query: Result<Query<Begin>, QueryRejection>,
) -> Result<Response, ApiError> {
    let known = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    let after = parameters(query)?.after.or(known).unwrap_or(0);
    let seat = Seat::take(&api.streams).ok_or(ApiError::TooManyStreams(STREAMS_MAX))?;
    let mut totals = tokio::time::interval(TOTALS);
    totals.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let news = api.shared.events.news();
    let watcher = Watcher { api, news, after, totals, begun: false, _seat: seat };
    let body = stream::unfold(watcher, |mut watcher| async {
        let text = watcher.next().await?;
        Some((Ok::<_, Infallible>(Bytes::from(text)), watcher))
    });
    let headers = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store")];
    Ok((headers, Body::from_stream(body)).into_response())
}

struct Watcher {
    api: Api,
    news: watch::Receiver<u64>,
    after: u64,
    totals: tokio::time::Interval,
    begun: bool,
    _seat: Seat,
}

impl Watcher {
    /// The next part of the stream; `None` at its end. Nothing is prepared before the one before was read.
    async fn next(&mut self) -> Option<String> {
        let mut out = String::new();
        if !std::mem::replace(&mut self.begun, true) {
            let _ = write!(out, "retry: {RETRY_MS}\n\n");
            self.write_news(&mut out);
            return Some(out);
        }
        loop {
            if self.api.shared.stopping.load(Ordering::Acquire) {
                return None;
            }
            tokio::select! {
                changed = self.news.changed() => {
                    changed.ok()?;
                    tokio::time::sleep_until(Instant::now() + TOGETHER).await;
                    self.write_news(&mut out);
                }
                _ = self.totals.tick() => {
                    // A node that is too busy to say is asked again the next time.
                    if let Ok(totals) = totals(&self.api.shared).await {
                        write_data(&mut out, "totals", &totals);
                    }
                }
            }
            if !out.is_empty() {
                return Some(out);
            }
        }
    }

    fn write_news(&mut self, out: &mut String) {
        self.news.mark_unchanged();
        let (noted, missed) = self.api.shared.events.after(self.after);
        // The number is that of an earlier life of the node.
        let (noted, missed) = match noted.last() {
            None if self.after > self.api.shared.events.stats().noted => self.api.shared.events.after(0),
            _ => (noted, missed),
        };
        if missed > 0 {
            write_data(out, "missed", &missed);
        }
        for noted in &noted {
            let _ = writeln!(out, "id: {}", noted.id);
            write_data(out, "happened", &model(noted));
        }
        self.after = noted.last().map_or(self.after, |noted| noted.id);
    }
}

fn write_data(out: &mut String, event: &str, data: &impl serde::Serialize) {
    // JSON has no line ends in it.
    let data = serde_json::to_string(data).unwrap_or_default();
    let _ = write!(out, "event: {event}\ndata: {data}\n\n");
}

fn model(noted: &Noted) -> Event {
    let text = |text: &Option<Box<str>>| text.as_deref().map(str::to_owned);
    Event {
        id: noted.id,
        at_ms: noted.at_ms,
        kind: noted.happened.kind.name().to_owned(),
        warning: noted.happened.warning,
        client: text(&noted.happened.client),
        peer: text(&noted.happened.peer),
        text: noted.happened.text.to_string(),
    }
}
