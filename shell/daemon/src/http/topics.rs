//! The topics that clients publish to most.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use sedge_base::ShardId;
use serde::{Deserialize, Serialize};

use super::ask::ask_all;
use super::desk::{ANSWER_BYTES, Inquiry, ask_member, ask_members};
use super::error::ApiError;
use super::handlers::parameters;
use super::model::{ErrorBody, HotTopic, HotTopics};
use super::scope::{Scope, labels, scope};
use super::server::Api;
use crate::runtime::Letter;

/// Topics when nothing is said.
const LIMIT: usize = 20;
/// Most topics.
const LIMIT_MAX: usize = 100;
/// Topics that each member is asked for: one that is tenth at each of ten may be the first in all.
const OF_EACH: usize = LIMIT_MAX;

/// Which topics.
#[derive(Clone, Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Which {
    /// Most topics, 1 to 100; 20 if nothing is said.
    limit: Option<usize>,
    /// Name or id of the node whose clients they are of; `*`: of all members. The node that is asked if nothing is said.
    node: Option<String>,
}

/// A question to one node.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Part {
    limit: usize,
}

/// The topics that clients publish to most, over the last 5 to 10 seconds. Counting begins with the first question and ends a minute after the last
/// one; each thread counts 128 topics of at most 256 bytes.
#[utoipa::path(get, path = "/api/v1/topics/hot", tag = "messages", params(Which), responses(
    (status = 200, body = HotTopics), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody)))]
pub(super) async fn hot(
    State(api): State<Api>,
    query: Result<Query<Which>, QueryRejection>,
) -> Result<Json<HotTopics>, ApiError> {
    let Which { limit, node } = parameters(query)?;
    let limit = limit.unwrap_or(LIMIT);
    if limit == 0 || limit > LIMIT_MAX {
        return Err(ApiError::BadRequest(format!("limit is not between 1 and {LIMIT_MAX}")));
    }
    let mut found = match scope(&api, node.as_deref()).await? {
        Scope::Here => own(&api).await?,
        Scope::One(node) => ask_member(&api, node, &Inquiry::HotTopics(Part { limit })).await?,
        Scope::All(others) => {
            let heard = ask_members::<HotTopics>(&api, &others, &Inquiry::HotTopics(Part { limit: OF_EACH })).await;
            let answers = heard.answers.into_iter().map(|(_, answer)| answer);
            let sum = merged(answers.chain([own(&api).await?]).collect());
            HotTopics { silent: labels(&api, &heard.silent).await?, ..sum }
        }
    };
    found.topics.truncate(limit);
    Ok(Json(found))
}

/// Those of this node; whoever asks has them counted on.
async fn own(api: &Api) -> Result<HotTopics, ApiError> {
    for shard in 0..api.shared.boxes.len() {
        api.shared.post(ShardId(u16::try_from(shard).unwrap_or(0)), Letter::WatchTopics);
    }
    let now = api.shared.clock.now().instant;
    let shards = ask_all(&api.shared, move |view| view.shard.broker().hot_topics(now)).await?;
    Ok(merged(shards.into_iter().map(model).collect()))
}

fn model((took, topics): (Duration, Vec<sedge_broker::HotTopic>)) -> HotTopics {
    let topic = |hot: sedge_broker::HotTopic| HotTopic { topic: hot.topic.into(), rate: hot.rate, error: hot.error };
    HotTopics { seconds: took.as_secs_f64(), topics: topics.into_iter().map(topic).collect(), silent: Vec::new() }
}

/// The topics of several threads or nodes, the busiest first.
fn merged(parts: Vec<HotTopics>) -> HotTopics {
    let seconds = parts.iter().map(|part| part.seconds).reduce(f64::min).unwrap_or(0.0);
    let mut sums = BTreeMap::<String, (f64, f64)>::new();
    for hot in parts.into_iter().flat_map(|part| part.topics) {
        let (rate, error) = sums.entry(hot.topic).or_default();
        (*rate, *error) = (*rate + hot.rate, *error + hot.error);
    }
    let mut topics: Vec<HotTopic> =
        sums.into_iter().map(|(topic, (rate, error))| HotTopic { topic, rate, error }).collect();
    // Equal ones stay in the order of their names.
    topics.sort_by(|one, other| other.rate.total_cmp(&one.rate));
    HotTopics { seconds, topics, silent: Vec::new() }
}

/// Those that another node asks for, as many of them as fit into an answer.
pub(super) async fn fitted(api: &Api, Part { limit }: Part) -> Result<HotTopics, ApiError> {
    let mut found = own(api).await?;
    let mut bytes = 256;
    let mut fits = |hot: &HotTopic| {
        bytes += serde_json::to_string(hot).map_or(0, |text| text.len() + 1);
        bytes < ANSWER_BYTES
    };
    let keep = found.topics.iter().take(limit.min(LIMIT_MAX)).take_while(|hot| fits(hot)).count();
    found.topics.truncate(keep);
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(seconds: f64, topics: &[(&str, f64)]) -> HotTopics {
        let topic = |(topic, rate): &(&str, f64)| HotTopic { topic: (*topic).to_owned(), rate: *rate, error: 0.5 };
        HotTopics { seconds, topics: topics.iter().map(topic).collect(), silent: Vec::new() }
    }

    #[test]
    fn rates_of_several_threads_add_up() {
        let sum = merged(vec![part(9.0, &[("a", 5.0), ("b", 4.0)]), part(7.0, &[("b", 4.0), ("c", 1.0)])]);
        let found: Vec<(&str, f64, f64)> =
            sum.topics.iter().map(|hot| (hot.topic.as_str(), hot.rate, hot.error)).collect();
        assert_eq!(found, [("b", 8.0, 1.0), ("a", 5.0, 0.5), ("c", 1.0, 0.5)]);
        assert!((sum.seconds - 7.0).abs() < 0.1 && merged(Vec::new()).topics.is_empty());
    }
}
