//! The last 24 hours of a few figures, in a ring of fixed size: a page can draw them without any other program.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use serde::Deserialize;
use tokio::time::{Instant, MissedTickBehavior};

use super::ask::{ask_all, ask_node};
use super::error::ApiError;
use super::handlers::parameters;
use super::model::{ErrorBody, History, HistorySeries, Totals};
use super::process;
use super::server::Api;
use crate::runtime::{Shared, wall};

/// Time between two samples.
const EVERY: Duration = Duration::from_secs(10);
/// Samples of 24 hours.
const SAMPLES_MAX: usize = 24 * 60 * 6;
/// Bytes of all samples at most.
pub(super) const BYTES_MAX: usize = 512 * 1024;
/// Points that are shown if nothing is said.
const POINTS: usize = 300;
/// Most points.
const POINTS_MAX: usize = 2_000;
/// Minutes that are shown if nothing is said.
const MINUTES: u32 = 60;
/// Most minutes.
const MINUTES_MAX: u32 = 24 * 60;
/// Number of series.
const SERIES: usize = 11;

/// A series: name, unit, and its value from the totals now, the totals before, and the seconds between.
type Series = (&'static str, &'static str, fn(&Totals, &Totals, f64) -> f64);

const ALL: [Series; SERIES] = [
    ("connections", "", |now, _, _| real(now.connections)),
    ("sessions", "", |now, _, _| real(now.sessions)),
    ("queued", "messages", |now, _, _| real(now.queued_messages)),
    ("publishes_in", "1/s", |now, then, seconds| rate(now.publishes_in, then.publishes_in, seconds)),
    ("publishes_out", "1/s", |now, then, seconds| rate(now.publishes_out, then.publishes_out, seconds)),
    ("bytes_in", "B/s", |now, then, seconds| rate(now.bytes_in, then.bytes_in, seconds)),
    ("bytes_out", "B/s", |now, then, seconds| rate(now.bytes_out, then.bytes_out, seconds)),
    ("link_bytes", "B/s", |now, then, seconds| rate(now.link_bytes, then.link_bytes, seconds)),
    ("dropped", "1/s", |now, then, seconds| rate(now.dropped, then.dropped, seconds)),
    ("cpu", "%", |now, then, seconds| rate(now.cpu_millis, then.cpu_millis, seconds) / 10.0),
    ("memory", "B", |now, _, _| real(now.resident_bytes)),
];

#[expect(clippy::cast_precision_loss, reason = "figures for people: 53 bits are plenty")]
const fn real(count: u64) -> f64 {
    count as f64
}

fn rate(now: u64, then: u64, seconds: f64) -> f64 {
    // A link that is gone takes its counters with it.
    real(now.saturating_sub(then)) / seconds.max(0.001)
}

/// A sample: seconds since 1970, and a value of each series.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Sample {
    at: u32,
    values: [f32; SERIES],
}

const _: () = assert!(size_of::<Sample>() * SAMPLES_MAX <= BYTES_MAX, "the ring is too large");

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Ring {
    /// Never grows beyond what it was made with.
    samples: Vec<Sample>,
    /// Where the oldest sample is, once there are as many as there may be.
    oldest: usize,
}

impl Ring {
    fn push(&mut self, sample: Sample) {
        if self.samples.capacity() == 0 {
            self.samples.reserve_exact(SAMPLES_MAX);
        }
        if self.samples.len() < SAMPLES_MAX {
            self.samples.push(sample);
        } else if let Some(oldest) = self.samples.get_mut(self.oldest) {
            *oldest = sample;
            self.oldest = (self.oldest + 1) % SAMPLES_MAX;
        }
    }

    /// The samples since that second, oldest first.
    fn since(&self, at: u32) -> Vec<Sample> {
        let (newer, older) = self.samples.split_at(self.oldest);
        older.iter().chain(newer).filter(|sample| sample.at >= at).copied().collect()
    }

    pub(super) fn len(&self) -> usize {
        self.samples.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.samples.len() * size_of::<Sample>()
    }
}

/// The ring of a node.
pub(super) type SharedRing = Arc<Mutex<Ring>>;

pub(super) fn lock(ring: &SharedRing) -> MutexGuard<'_, Ring> {
    ring.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The counts of this node so far.
pub(super) async fn totals(shared: &Shared) -> Result<Totals, ApiError> {
    let counters = ask_all(shared, |view| view.shard.broker().counters().clone()).await?;
    let node = ask_node(shared, sedge_cluster::Node::status).await?;
    let sum = |field: fn(&sedge_broker::Counters) -> u64| counters.iter().map(field).sum();
    let links = node.members.iter().filter_map(|member| member.link.as_ref());
    Ok(Totals {
        at_ms: wall().as_millis(),
        connections: shared.connections.load(std::sync::atomic::Ordering::Relaxed) as u64,
        sessions: sum(|counters| counters.sessions),
        queued_messages: sum(|counters| counters.queued_messages),
        publishes_in: sum(|counters| counters.publishes_in.iter().sum()),
        publishes_out: sum(|counters| counters.publishes_out.iter().sum()),
        bytes_in: sum(|counters| counters.bytes_in),
        bytes_out: sum(|counters| counters.bytes_out),
        link_bytes: links.map(|link| link.bytes_sent + link.bytes_received).sum(),
        dropped: sum(|counters| {
            let dropped = &counters.dropped;
            dropped.queue_full_qos0 + dropped.queue_full + dropped.buffers_full
        }),
        cpu_millis: process::cpu_millis().unwrap_or(0),
        resident_bytes: process::resident_bytes().unwrap_or(0),
    })
}

/// Takes samples as long as the HTTP server runs.
pub(super) async fn record(shared: Arc<Shared>, ring: SharedRing) {
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut before: Option<(Totals, Instant)> = None;
    loop {
        ticks.tick().await;
        // A node that is too busy to say is asked again the next time.
        let Ok(now) = totals(&shared).await else { continue };
        let at = Instant::now();
        if let Some((then, then_at)) = &before {
            let sample = sample(&now, then, at.saturating_duration_since(*then_at).as_secs_f64());
            lock(&ring).push(sample);
        }
        before = Some((now, at));
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a figure for a curve: 24 bits are plenty")]
fn sample(now: &Totals, then: &Totals, seconds: f64) -> Sample {
    let at = u32::try_from(now.at_ms / 1_000).unwrap_or(u32::MAX);
    Sample { at, values: ALL.map(|(_, _, value)| value(now, then, seconds) as f32) }
}

/// Which part of the history.
#[derive(Clone, Copy, Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Span {
    /// Minutes back from now, 1 to 1440; 60 if nothing is said.
    minutes: Option<u32>,
    /// Most points, 1 to 2000; 300 if nothing is said. Each is the mean of as many samples as it takes.
    points: Option<usize>,
}

/// What this node has counted in the last minutes or hours, one sample in ten seconds, 24 hours at most.
#[utoipa::path(get, path = "/api/v1/history", tag = "node", params(Span), responses(
    (status = 200, body = History), (status = 400, body = ErrorBody)))]
pub(super) async fn history(
    State(api): State<Api>,
    query: Result<Query<Span>, QueryRejection>,
) -> Result<Json<History>, ApiError> {
    let Span { minutes, points } = parameters(query)?;
    let (minutes, points) = (minutes.unwrap_or(MINUTES), points.unwrap_or(POINTS));
    if minutes == 0 || minutes > MINUTES_MAX {
        return Err(ApiError::BadRequest(format!("minutes is not between 1 and {MINUTES_MAX}")));
    }
    if points == 0 || points > POINTS_MAX {
        return Err(ApiError::BadRequest(format!("points is not between 1 and {POINTS_MAX}")));
    }
    let now = u32::try_from(wall().as_millis() / 1_000).unwrap_or(u32::MAX);
    let samples = lock(&api.history).since(now.saturating_sub(minutes * 60));
    Ok(Json(drawn(&samples, points)))
}

/// At most so many points: means of neighbouring samples.
fn drawn(samples: &[Sample], points: usize) -> History {
    let together = samples.len().div_ceil(points).max(1);
    let parts = || samples.chunks(together);
    let mean = |part: &[Sample], index: usize| {
        let sum: f64 = part.iter().filter_map(|sample| sample.values.get(index)).map(|value| f64::from(*value)).sum();
        // A tenth is enough for a curve, and short.
        (sum / real(part.len() as u64) * 10.0).round() / 10.0
    };
    let series = ALL.iter().enumerate().map(|(index, (name, unit, _))| HistorySeries {
        name: (*name).to_owned(),
        unit: (*unit).to_owned(),
        values: parts().map(|part| mean(part, index)).collect(),
    });
    History {
        interval_seconds: EVERY.as_secs() * together as u64,
        times: parts().filter_map(|part| part.last()).map(|sample| u64::from(sample.at)).collect(),
        series: series.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u32) -> Sample {
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        Sample { at: seconds, values: [seconds as f32; SERIES] }
    }

    #[test]
    fn a_day_is_kept_and_no_more() {
        let mut ring = Ring::default();
        let count = u32::try_from(SAMPLES_MAX).unwrap();
        for number in 0..count + 5 {
            ring.push(at(number));
        }
        let found = ring.since(0);
        assert_eq!((found.len(), found[0].at, found[SAMPLES_MAX - 1].at), (SAMPLES_MAX, 5, count + 4));
        assert!(found.is_sorted_by_key(|sample| sample.at));
        assert_eq!(ring.since(count).len(), 5);
        assert!(ring.bytes() <= BYTES_MAX && ring.samples.capacity() * size_of::<Sample>() <= BYTES_MAX);
    }

    #[test]
    fn many_samples_become_means() {
        let samples: Vec<Sample> = (1..=5).map(at).collect();
        let few = drawn(&samples, 2);
        assert_eq!(
            (few.interval_seconds, &few.times[..], &few.series[0].values[..]),
            (30, &[3, 5][..], &[2.0, 4.5][..])
        );
        let all = drawn(&samples, 10);
        assert_eq!((all.interval_seconds, all.times.len()), (10, 5));
        assert_eq!(drawn(&[], 10).times.len(), 0);
    }

    #[test]
    fn a_rate_is_never_below_nothing() {
        let then = Totals { link_bytes: 500, publishes_in: 10, cpu_millis: 0, ..Totals::default() };
        let now = Totals { link_bytes: 100, publishes_in: 30, cpu_millis: 5_000, connections: 7, ..Totals::default() };
        let values = sample(&now, &then, 10.0).values;
        let of = |name: &str| values[ALL.iter().position(|(known, ..)| *known == name).unwrap()];
        assert!(of("link_bytes").abs() < 0.01 && (of("publishes_in") - 2.0).abs() < 0.01);
        assert!((of("cpu") - 50.0).abs() < 0.01 && (of("connections") - 7.0).abs() < 0.01);
    }
}
