//! The tree of topics, level by level: retained messages, and what clients publish while somebody looks.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::HeaderValue;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use sedge_base::{NodeId, ShardId};
use sedge_broker::{LastValue, Level, LevelLine, LevelQuery};
use sedge_mqtt::TopicName;
use serde::{Deserialize, Serialize};

use super::ask::{ask_all, ask_node};
use super::desk::{ANSWER_BYTES, Inquiry, ask_member, ask_members};
use super::error::ApiError;
use super::handlers::parameters;
use super::model::{ErrorBody, TopicLevel, TopicLine, TopicValue};
use super::scope::{Scope, labels, scope};
use super::server::Api;
use crate::runtime::{Letter, View};

/// Lines when nothing is said.
const LIMIT: usize = 100;
/// Most lines.
const LIMIT_MAX: usize = 200;
/// Bytes of a payload that a line shows.
const PREVIEW_BYTES: usize = 128;

/// Which part of which level.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Which {
    /// What the topics begin with: nothing, or levels with a `/` behind each, such as `plant/hall 7/`.
    #[serde(default)]
    below: String,
    /// Where to go on, from the last answer.
    after: Option<String>,
    /// Most lines, 1 to 200; 100 if nothing is said.
    limit: Option<usize>,
    /// Name or id of the node whose clients publish; `*`: all members. The node that is asked if nothing is said.
    node: Option<String>,
}

/// Which topic.
#[derive(Clone, Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Whose {
    /// Topic name.
    topic: String,
    /// Name or id of the node whose clients publish; `*`: all members. The node that is asked if nothing is said.
    node: Option<String>,
}

/// One level of the tree of topics: those with a retained message, and those that clients publish to while somebody looks and for a minute after that.
/// Rates are over the last 5 to 10 seconds. Each thread keeps 16 MiB of topics and values at most. A page may be short, even empty, and others follow.
#[utoipa::path(get, path = "/api/v1/topics", tag = "messages", params(Which), responses(
    (status = 200, body = TopicLevel), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody)))]
pub(super) async fn level(
    State(api): State<Api>,
    query: Result<Query<Which>, QueryRejection>,
) -> Result<Json<TopicLevel>, ApiError> {
    let which = parameters(query)?;
    let limit = checked(&which)?.limit;
    Ok(Json(match scope(&api, which.node.as_deref()).await? {
        Scope::Here => merged(vec![retained(&api, &which).await?, published(&api, &which).await?], limit),
        Scope::One(node) => {
            let there = ask_member(&api, node, &Inquiry::TopicLevel(which.clone())).await?;
            merged(vec![retained(&api, &which).await?, there], limit)
        }
        Scope::All(others) => {
            let heard = ask_members::<TopicLevel>(&api, &others, &Inquiry::TopicLevel(which.clone())).await;
            let own = [retained(&api, &which).await?, published(&api, &which).await?];
            let answers = heard.answers.into_iter().map(|(_, answer)| answer);
            let all = merged(answers.chain(own).collect(), limit);
            TopicLevel { silent: labels(&api, &heard.silent).await?, ..all }
        }
    }))
}

fn checked(which: &Which) -> Result<LevelQuery, ApiError> {
    let limit = which.limit.unwrap_or(LIMIT);
    if limit == 0 || limit > LIMIT_MAX {
        return Err(ApiError::BadRequest(format!("limit is not between 1 and {LIMIT_MAX}")));
    }
    if !which.below.is_empty() && !which.below.ends_with('/') {
        return Err(ApiError::BadRequest(format!("below {:?} does not end with /", which.below)));
    }
    Ok(LevelQuery { below: which.below.clone(), after: which.after.clone(), limit })
}

/// A level of the retained messages' topics: the same at all nodes.
async fn retained(api: &Api, which: &Which) -> Result<TopicLevel, ApiError> {
    let asked = checked(which)?;
    let wall = api.shared.clock.now().wall;
    let level = ask_node(&api.shared, move |node| node.retained_level(&asked, wall)).await?;
    // The level has no rates, over whatever time.
    Ok(TopicLevel { seconds: f64::INFINITY, ..model(Duration::ZERO, level, 0, true) })
}

/// A level of the topics to which clients of this node publish; the question lets the node go on noting them.
async fn published(api: &Api, which: &Which) -> Result<TopicLevel, ApiError> {
    let asked = checked(which)?;
    for shard in 0..api.shared.boxes.len() {
        api.shared.post(ShardId(u16::try_from(shard).unwrap_or(0)), Letter::WatchTopicTree);
    }
    let now = api.shared.clock.now().instant;
    let limit = asked.limit;
    let look = move |view: &View<'_>| {
        let broker = view.shard.broker();
        (broker.watched_level(&asked, now), broker.watched_kept().left_out)
    };
    let parts = ask_all(&api.shared, look).await?.into_iter();
    Ok(merged(parts.map(|((took, level), left_out)| model(took, level, left_out, false)).collect(), limit))
}

fn model(took: Duration, level: Level, left_out: u64, is_retained: bool) -> TopicLevel {
    let line = |line: LevelLine| {
        let mut shown = TopicLine {
            name: line.key.strip_suffix('/').unwrap_or(&line.key).to_owned(),
            below: line.last.is_none(),
            topics: line.topics,
            more: line.has_more,
            rate: line.rate,
            retained: is_retained,
            ..TopicLine::default()
        };
        if let Some(last) = line.last {
            shown.preview = last.payload.as_deref().and_then(preview);
            shown.publisher = last.publisher.map(|publisher| publisher.to_string());
            (shown.at_ms, shown.bytes, shown.qos) = (last.at_ms, last.bytes, last.qos as u8);
        }
        shown
    };
    TopicLevel {
        seconds: took.as_secs_f64(),
        lines: level.lines.into_iter().map(line).collect(),
        next: level.next,
        left_out,
        silent: Vec::new(),
    }
}

/// The beginning of a payload that is text.
fn preview(payload: &[u8]) -> Option<String> {
    let begin = payload.get(..PREVIEW_BYTES.min(payload.len()))?;
    let text = match std::str::from_utf8(begin) {
        Ok(text) => text,
        // Cut within a character.
        Err(error) if error.error_len().is_none() && payload.len() > PREVIEW_BYTES => {
            std::str::from_utf8(begin.get(..error.valid_up_to())?).ok()?
        }
        Err(_) => return None,
    };
    (!text.chars().any(|letter| letter.is_control() && !letter.is_whitespace())).then(|| text.to_owned())
}

/// By the bytes of the name, behind which `/` stands where topics are below: the order in which pages follow each other.
fn key(line: &TopicLine) -> String {
    if line.below { format!("{}/", line.name) } else { line.name.clone() }
}

/// The pages of several stores as one. Behind the end of a page that others follow nothing is known of its store.
fn merged(parts: Vec<TopicLevel>, limit: usize) -> TopicLevel {
    let seconds = parts.iter().map(|part| part.seconds).fold(f64::INFINITY, f64::min);
    let left_out = parts.iter().map(|part| part.left_out).sum();
    let mut next = parts.iter().filter_map(|part| part.next.clone()).min();
    let mut lines = BTreeMap::<String, TopicLine>::new();
    for line in parts.into_iter().flat_map(|part| part.lines) {
        let key = key(&line);
        if next.as_ref().is_some_and(|next| key > *next) {
            continue;
        }
        match lines.entry(key) {
            std::collections::btree_map::Entry::Vacant(place) => drop(place.insert(line)),
            std::collections::btree_map::Entry::Occupied(mut place) => join(place.get_mut(), line),
        }
    }
    if lines.len() > limit {
        next = lines.keys().nth(limit - 1).cloned();
    }
    let lines = lines.into_values().take(limit).collect();
    TopicLevel { seconds: if seconds.is_finite() { seconds } else { 0.0 }, lines, next, left_out, silent: Vec::new() }
}

/// The same line of another store: which of the topics below are the same is not known.
fn join(line: &mut TopicLine, other: TopicLine) {
    let rate = line.rate + other.rate;
    let retained = line.retained || other.retained;
    let topics = line.topics.max(other.topics);
    let more = line.more || other.more || line.below;
    if other.at_ms > line.at_ms {
        *line = other;
    }
    (line.rate, line.retained, line.topics, line.more) = (rate, retained, topics, more);
}

/// For another node: as many lines as fit into an answer, which is always one, since longer topics are not noted.
pub(super) async fn fitted(api: &Api, which: &Which) -> Result<TopicLevel, ApiError> {
    let mut page = published(api, which).await?;
    let mut bytes = 2048;
    let mut fits = |line: &TopicLine| {
        bytes += serde_json::to_string(line).map_or(0, |text| text.len() + 1);
        bytes < ANSWER_BYTES
    };
    let keep = page.lines.iter().take_while(|line| fits(line)).count().max(1);
    if keep < page.lines.len() {
        page.lines.truncate(keep);
        page.next = page.lines.last().map(key);
    }
    Ok(page)
}

/// The last value of a topic in full, as it was published: the retained one, or a later one that was published while somebody looked at the tree of
/// topics. Longer than 16 KiB only if it is retained.
#[utoipa::path(get, path = "/api/v1/topics/value", tag = "messages", params(Whose), responses(
    (status = 200, body = Vec<u8>, content_type = "application/octet-stream"), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody)))]
pub(super) async fn value(
    State(api): State<Api>,
    query: Result<Query<Whose>, QueryRejection>,
) -> Result<Response, ApiError> {
    let Whose { topic, node } = parameters(query)?;
    let name = TopicName::new(&topic).map_err(|error| ApiError::BadRequest(format!("topic {topic:?}: {error}")))?;
    let (own, others): (bool, Vec<NodeId>) = match scope(&api, node.as_deref()).await? {
        Scope::Here => (true, Vec::new()),
        Scope::One(node) => (false, vec![node]),
        Scope::All(others) => (true, others),
    };
    let heard = ask_members::<Option<TopicValue>>(&api, &others, &Inquiry::TopicValue(topic.clone())).await;
    let mut found: Vec<(u64, bool, Option<Bytes>, usize)> = Vec::new();
    for value in heard.answers.into_iter().filter_map(|(_, value)| value) {
        let payload = value.base64.and_then(|text| STANDARD.decode(text).ok()).map(Bytes::from);
        found.push((value.at_ms, false, payload, value.bytes));
    }
    if own {
        found.extend(seen(&api, &name).await?.map(|last| (last.at_ms, false, last.payload, last.bytes)));
    }
    let wall = api.shared.clock.now().wall;
    let retained = ask_node(&api.shared, move |node| {
        node.retained_value(&name, wall).map(|message| (message.stamp.millis, message.payload.clone()))
    });
    found.extend(retained.await?.map(|(at_ms, payload)| (at_ms, true, Some(payload.clone()), payload.len())));
    // Of the same publication the retained one is whole.
    let Some((_, _, payload, bytes)) = found.into_iter().max_by_key(|(at_ms, retained, ..)| (*at_ms, *retained)) else {
        return Err(ApiError::NotFound(format!("no value of {topic:?} is known")));
    };
    let Some(payload) = payload else {
        let what = format!("the last value of {topic:?} has {bytes} bytes, is not retained and too long to be kept");
        return Err(ApiError::NotFound(what));
    };
    let head = [
        (CONTENT_TYPE, HeaderValue::from_static("application/octet-stream")),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (CONTENT_DISPOSITION, HeaderValue::from_static("attachment")),
    ];
    Ok((head, payload).into_response())
}

/// The last publication of this node's clients to a topic.
async fn seen(api: &Api, topic: &TopicName) -> Result<Option<LastValue>, ApiError> {
    let topic = topic.clone();
    let values = ask_all(&api.shared, move |view| view.shard.broker().watched_value(&topic)).await?;
    Ok(values.into_iter().flatten().max_by_key(|last| last.at_ms))
}

/// The last value that another node asks for.
pub(super) async fn fitted_value(api: &Api, topic: &str) -> Result<Option<TopicValue>, ApiError> {
    let name = TopicName::new(topic).map_err(|error| ApiError::BadRequest(error.to_string()))?;
    let model = |last: LastValue| TopicValue {
        at_ms: last.at_ms,
        bytes: last.bytes,
        base64: last.payload.map(|payload| STANDARD.encode(payload)),
    };
    Ok(seen(api, &name).await?.map(model))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(lines: &[(&str, f64)], next: Option<&str>) -> TopicLevel {
        let line = |(name, rate): &(&str, f64)| TopicLine {
            name: name.trim_end_matches('/').to_owned(),
            below: name.ends_with('/'),
            topics: 1,
            rate: *rate,
            ..TopicLine::default()
        };
        TopicLevel { lines: lines.iter().map(line).collect(), next: next.map(str::to_owned), ..TopicLevel::default() }
    }

    fn keys(page: &TopicLevel) -> Vec<String> {
        page.lines.iter().map(key).collect()
    }

    /// OP-02
    #[test]
    fn pages_of_several_nodes_become_one() {
        let one = || part(&[("a", 1.0), ("c", 1.0)], Some("c"));
        let two = || part(&[("a", 2.0), ("b/", 1.0), ("d", 1.0)], None);
        let both = merged(vec![one(), two()], 10);
        assert_eq!((keys(&both), both.next.as_deref()), (vec!["a".into(), "b/".into(), "c".into()], Some("c")));
        assert!((both.lines[0].rate - 3.0).abs() < 0.01);
        let short = merged(vec![one(), two()], 2);
        assert_eq!((keys(&short), short.next.as_deref()), (vec!["a".into(), "b/".into()], Some("b/")));
        let all = merged(vec![part(&[("a", 1.0)], None), two()], 3);
        assert_eq!((all.lines.len(), all.next), (3, None));
    }

    #[test]
    fn a_preview_is_text() {
        assert_eq!(preview(b"21.5\n").as_deref(), Some("21.5\n"));
        assert_eq!((preview(b"\xff\xfe"), preview(b"a\0b")), (None, None));
        let long = "\u{e4}".repeat(100);
        assert_eq!(preview(format!("x{long}").as_bytes()).map(|text| text.len()), Some(127));
    }
}
