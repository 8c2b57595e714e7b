//! Topics by how much clients publish to them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The topics that clients publish to most (`GET /api/v1/topics/hot`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HotTopics {
    /// Over how many seconds was counted, at the thread that has counted for the shortest time; 0 when the first question has only begun it.
    pub seconds: f64,
    /// The busiest first.
    pub topics: Vec<HotTopic>,
    /// Names of the members that were asked and have not answered in time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub silent: Vec<String>,
}

/// A topic, and how often clients publish to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HotTopic {
    /// The topic.
    pub topic: String,
    /// Publications a second, at most.
    pub rate: f64,
    /// By how much that may be too high.
    pub error: f64,
}

/// One level of the tree of topics (`GET /api/v1/topics`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TopicLevel {
    /// Over how many seconds rates are, at the thread that has noted publications for the shortest time; 0 when this question has only begun it.
    pub seconds: f64,
    /// In the order of the bytes of their names, as if a `/` stood behind those with `below`.
    pub lines: Vec<TopicLine>,
    /// What to ask for with `after`; none at the end of the level.
    pub next: Option<String>,
    /// Publications since somebody began to look whose topics found no room, or are longer than 1 KiB.
    pub left_out: u64,
    /// Names of the members that were asked and have not answered in time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub silent: Vec<String>,
}

/// A topic, or topics that begin alike. A level that is both comes twice.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TopicLine {
    /// The name of the level, which may be empty.
    pub name: String,
    /// Whether these are topics below it.
    pub below: bool,
    /// How many, of 100 that are counted.
    pub topics: usize,
    /// Whether there may be more.
    pub more: bool,
    /// Publications a second, of those that are counted.
    pub rate: f64,
    /// Whether a value, or one below, is retained.
    pub retained: bool,
    /// When the last value was published, in milliseconds since 1970; 0 for topics below.
    pub at_ms: u64,
    /// Bytes of the payload.
    pub bytes: usize,
    /// QoS of that publication.
    pub qos: u8,
    /// Its first 128 bytes if they are text.
    pub preview: Option<String>,
    /// Client whose publication it is.
    pub publisher: Option<String>,
}

/// What came last to a topic, as one node tells another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TopicValue {
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// Bytes of the payload.
    pub bytes: usize,
    /// The payload; none if it was too long to be kept.
    pub base64: Option<String>,
}
